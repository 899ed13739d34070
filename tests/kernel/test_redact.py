"""Nothing secret is written down, and the original is never touched (Pi §3.1)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given

from forestay.kernel.redaction import MAX_DEPTH, REDACTED, is_secret_key, redact, redact_text
from tests.kernel.test_canonical import values


@pytest.mark.parametrize(
    "key",
    (
        "api_key apiKey API-KEY x-api-key token accessToken authorization Cookie set-cookie password "
        "userPassword secret client_secret private_key privateKey credential credentials bearer"
    ).split(),
)
def test_telling_keys_lose_their_value_at_any_depth(key: str) -> None:
    assert is_secret_key(key)
    assert redact({"a": [{key: "value"}]}) == {"a": [{key: REDACTED}]}
    assert redact({key: {"nested": "value"}}) == {key: REDACTED}


@pytest.mark.parametrize(
    "key", "max_tokens inputTokens tokens estimatedTokens token_count secretFingerprint path".split()
)
def test_counts_and_names_are_not_secrets(key: str) -> None:
    assert redact({key: 7}) == {key: 7}


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdef0123456789",
        "basic dXNlcjpwYXNzd29yZA==",
        "api_key=abcdef123456",
        '{"password": "hunter22"}',
        "sk-ant-" + "a1b2c3d4" * 3,
        "ghp_abcdefghijklmnopqrstuvwxyz0123",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-123456789012-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
        "https://user:s3cretpass@host/path",
    ],
)
def test_key_shapes_inside_text_go(text: str) -> None:
    redacted = redact_text(f"before {text} after")
    assert REDACTED in redacted
    for part in (
        "abcdef0123456789",
        "dXNlcjpwYXNzd29yZA",
        "abcdef123456",
        "hunter22",
        "s3cretpass",
        "MIIEow",
        "IOSFODNN7",
    ):
        assert part not in redacted
    assert redacted.startswith("before ")


def test_people_are_hashed_so_that_mentions_can_be_matched() -> None:
    first = redact_text("write to Anna.Meier@example.com or +49 170 1234567")
    assert "@" not in first and "1234567" not in first
    assert redact_text("anna.meier@example.com") in first
    assert redact_text("bob@example.com") not in first


@pytest.mark.parametrize("text", ["version 1.2.3-4", "2026-11-15T08:41:25Z", "192.168.0.1:8080", "a @ b", "f(x) + 1"])
def test_harmless_text_stays(text: str) -> None:
    assert redact_text(text) == text


@given(values)
def test_the_original_is_untouched_and_the_copy_is_plain_json(value: object) -> None:
    before = copy.deepcopy(value)
    redacted = redact(value)
    assert value == before
    msgspec.json.encode(redacted)


def test_cycles_bytes_and_objects_end_well() -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    assert "[TOO DEEP]" in msgspec.json.encode(redact(loop)).decode()
    assert redact(b"\x00\x01") == "[2 bytes]"
    assert isinstance(redact(object()), str)


def test_long_hostile_text_ends() -> None:
    """A pattern that backtracks would not come back from this."""
    hostile = "a@" * 50_000 + "+1 " * 50_000 + "token=" * 50_000 + "eyJaaaaaaaa." * 20_000
    assert redact_text(hostile)


class _Login(msgspec.Struct):
    user: str
    password: str


def test_a_struct_is_redacted_by_its_fields_names() -> None:
    assert redact(_Login("kim", "hunter22")) == {"user": "kim", "password": REDACTED}
    assert redact([_Login("kim", "hunter22")]) == [{"user": "kim", "password": REDACTED}]


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"in": inner}, lambda inner: (inner,)])
def test_what_is_nested_too_deeply_is_cut_at_one_depth(wrap: Callable[[Any], Any]) -> None:
    value: Any = []
    for _ in range(MAX_DEPTH + 40):
        value = wrap(value)
    found, depth = redact(value), 0
    while not isinstance(found, str):
        (found,) = found.values() if isinstance(found, dict) else found
        depth += 1
    assert (found, depth) == ("[TOO DEEP]", MAX_DEPTH)
