"""The page of OpenWOP rules is complete, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from forestay.kernel import TABLE
from forestay.surface.app import build_app
from forestay.surface.auth import CONTRACT_SCOPES, OWN_SCOPES
from forestay.surface.openapi import problem_keys

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "openwop-rules.md").read_text("utf-8")
HTTP = (ROOT / "docs" / "reference" / "http.md").read_text("utf-8")
CITED = sorted(set(re.findall(r"`([a-z_/]+\.py::test_[a-z0-9_]+)`", PAGE)))
HEADERS = (
    "Authorization",
    "Idempotency-Key",
    "X-Dedup",
    "X-Force-Engine-Version",
    "traceparent",
    "Last-Event-ID",
    "Retry-After",
)

CODES = (
    "unauthenticated key_expired key_revoked forbidden validation_error not_found run_already_active "
    "recursion_limit_exceeded rate_limited service_unavailable capability_not_provided capability_required "
    "credential_required credential_forbidden credential_unavailable idempotency_in_flight idempotency_key_mismatch "
    "unsupported_stream_mode channel_access_denied channel_schema_breaking_change engine_version_mismatch "
    "version_out_of_range run_forbidden run_timeout loop_limit_exceeded mock_provider_forbidden "
    "force_engine_version_forbidden replay_from_seq_out_of_range"
).split()


def operations() -> list[Any]:
    services = MagicMock()
    services.sample_seams = True
    return list(build_app(services).operations)


@pytest.mark.parametrize("cited", CITED)
def test_a_cited_test_is_there(cited: str) -> None:
    file, _, name = cited.partition("::")
    assert re.search(rf"def {name}\(", (ROOT / "tests" / file).read_text("utf-8")), cited


def test_every_operation_has_a_row_and_every_row_an_operation() -> None:
    served = {(item.name, f"{item.method} {item.path}") for item in operations()}
    listed = set(re.findall(r"^\| ([a-z.-]+) \| `([A-Z]+ /[^`]+)` \|", PAGE, re.MULTILINE))
    assert listed == served


def test_every_code_that_an_operation_can_answer_has_a_row() -> None:
    codes = {TABLE[key].openwop for item in operations() for key in problem_keys(item)}
    listed = set(re.findall(r"`([a-z_]+)`", PAGE.partition("## Error codes")[2].partition("## Sections")[0]))
    assert codes <= listed


@pytest.mark.parametrize("code", CODES)
def test_every_code_of_the_contract_has_a_row(code: str) -> None:
    assert f"`{code}`" in PAGE.partition("## Error codes")[2].partition("## Sections")[0]


@pytest.mark.parametrize("header", HEADERS)
def test_every_header_has_a_row(header: str) -> None:
    assert f"`{header}`" in PAGE.partition("## Headers")[2].partition("## Error codes")[0]


@pytest.mark.parametrize("number", range(1, 16))
def test_every_decision_has_a_row(number: int) -> None:
    assert re.search(rf"^\| W{number} \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("number", range(1, 13))
def test_every_section_has_a_row(number: int) -> None:
    assert re.search(rf"^\| §1\.{number} \|", PAGE, re.MULTILINE)


def test_the_page_of_http_names_every_scope() -> None:
    for scope in (*CONTRACT_SCOPES, *OWN_SCOPES):
        assert f"`{scope}`" in HTTP
