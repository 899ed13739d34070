"""One table, one exception, and a projection into every contract that gives nothing away."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel.problem_table import LAFS_CODES, TABLE, Row
from forestay.kernel.problems import Problem, lafs_registry

SOURCES = Path(__file__).parents[2] / "src" / "forestay"
GRPC = set(
    (
        "CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED "
        "RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE "
        "DATA_LOSS UNAUTHENTICATED"
    ).split()
)
PROJECTIONS = ("as_lafs", "as_openwop", "as_pi", "as_crp", "as_problem_json", "as_grpc", "as_jsonrpc")


def test_every_row_has_every_column_within_its_contract() -> None:
    for key, row in TABLE.items():
        assert all(getattr(row, name) not in (None, "") for name in Row.__struct_fields__), key
        msgspec.convert(msgspec.to_builtins(row), Row)
        assert row.key == key
        assert re.fullmatch(r"E_[A-Z0-9]+_[A-Z0-9_]+", row.lafs)
        assert row.grpc in GRPC
        assert 400 <= row.http < 600
        assert 1 <= row.exit < 126
        assert re.fullmatch(r"[a-z][a-z_]*", row.openwop)
        assert row.jsonrpc in range(-32768, -31999)
        assert row.title[0].isupper() and row.remedy.endswith(".")


def test_every_code_of_every_contract_is_seeded() -> None:
    rows = list(TABLE.values())
    assert {row.crp for row in rows} == {1001, 1002, 1003, 1004, 1005, 1010, 1011, 1012, 1013, 1020, 1021, 1030, 1031}
    assert {row.pi for row in rows} == {"timeout", "denied", "io", "invalid_request", "internal"}
    assert {row.grpc for row in rows} == GRPC
    assert {row.lafs for row in rows} == set(LAFS_CODES)
    assert len(LAFS_CODES) == 13 + 2 + 8
    assert {-32700, -32600, -32601, -32602, -32603} <= {row.jsonrpc for row in rows}
    words = {row.openwop for row in rows}
    assert words >= set(
        (
            "unauthenticated key_expired key_revoked forbidden validation_error not_found run_already_active "
            "recursion_limit_exceeded rate_limited service_unavailable capability_not_provided "
            "capability_required credential_required credential_forbidden credential_unavailable "
            "idempotency_in_flight idempotency_key_mismatch unsupported_stream_mode channel_access_denied "
            "channel_schema_breaking_change engine_version_mismatch version_out_of_range run_forbidden "
            "run_timeout loop_limit_exceeded mock_provider_forbidden interrupt_already_resolved "
            "interrupt_cancelled interrupt_expired force_engine_version_forbidden"
        ).split()
    )


def test_the_published_registry_is_kept_to_the_letter() -> None:
    registry = {item["code"]: item for item in lafs_registry()}
    rate = registry["E_RATE_LIMITED"]
    assert (rate["httpStatus"], rate["grpcStatus"], rate["cliExit"]) == (429, "RESOURCE_EXHAUSTED", 8)
    assert rate["typeUri"] == "https://lafs.dev/errors/v1/rate-limited"
    assert registry["E_MVI_BUDGET_EXCEEDED"]["retryable"] is True  # decision D4
    assert registry["E_AUTH_REQUIRED"]["agentAction"] == "authenticate"  # decision D6


def test_every_key_that_the_code_raises_is_in_the_table() -> None:
    unknown = []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Problem" and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and first.value not in TABLE:
                    unknown.append(f"{path.name}:{node.lineno}: {first.value}")
    assert unknown == []


def test_a_key_without_a_row_is_refused() -> None:
    with pytest.raises(LookupError, match="nonsense"):
        Problem("nonsense", "…")


@pytest.mark.parametrize("key", sorted(TABLE))
def test_every_problem_can_be_told_in_every_contract(key: str) -> None:
    problem = Problem(key, "It went wrong.", retry_after_ms=1500, at="$.x")
    row = TABLE[key]
    lafs = problem.as_lafs()
    assert (lafs["code"], lafs["retryAfterMs"], lafs["agentAction"]) == (row.lafs, 1500, row.action)
    assert lafs["details"] == {"problem": key, "at": "$.x"}
    assert set(problem.as_openwop()) == {"error", "message", "details"}
    assert problem.as_openwop()["error"] == row.openwop
    assert problem.as_pi() == {
        "code": row.pi,
        "message": "It went wrong.",
        "retryable": row.retryable,
        "details": {"at": "$.x"},
    }
    assert problem.as_crp() == {
        "code": row.crp,
        "message": "It went wrong.",
        "details": {"at": "$.x", "retry_after_ms": 1500},
    }
    assert problem.as_problem_json("req_1")["status"] == row.http
    assert problem.as_problem_json("req_1")["instance"] == "req_1"
    assert problem.as_grpc()["code"] == row.grpc
    assert problem.as_jsonrpc()["code"] == row.jsonrpc
    assert problem.exit_code == row.exit


def test_details_never_overwrite_a_member_of_problem_json() -> None:
    body = Problem("not_found", "Gone.", status=200, type="evil", retryable=True).as_problem_json()
    assert (body["status"], body["retryable"]) == (404, False)
    assert body["type"].startswith("https://lafs.dev/")


SECRET = "sk-live-abcdefghijklmnop1234"
LEAKS = [
    f"key {SECRET}",
    "in /home/anna/project/secret/app.py",
    "C:\\Users\\anna\\app.py failed",
    'Traceback (most recent call last):\n  File "/srv/app/x.py", line 3, in main\nValueError: no',
    "Authorization: Bearer abcdefghijklmnop",
    "postgres://app:hunter22@db/prod",
]


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_no_projection_gives_away_a_secret_a_path_or_a_trace(leak: str, projection: str) -> None:
    problem = Problem("internal", f"Failed: {leak}", note=leak, deep={"list": [leak]}, api_key="abc")
    text = msgspec.json.encode(getattr(problem, projection)()).decode()
    for forbidden in (SECRET, "anna", "Traceback", "line 3", "abcdefghijklmnop", "hunter22", '"abc"', "/srv/app"):
        assert forbidden not in text


def test_url_paths_and_relative_paths_are_not_taken_for_files() -> None:
    message = "GET /v1/runs/r1 and src/index.ts and https://example.com/tmp/x stay."
    assert Problem("not_found", message).as_openwop()["message"] == message


@given(st.text(max_size=200))
def test_any_text_makes_a_valid_message(text: str) -> None:
    error = Problem("internal", text, text=text).as_lafs()
    assert 1 <= len(error["message"]) <= 1024
    msgspec.json.encode(error)


def test_an_unexpected_error_keeps_its_text_to_itself() -> None:
    cause = RuntimeError("password=hunter22 in /root/x")
    problem = Problem.unexpected(cause, "ref_1")
    assert problem.__cause__ is cause
    assert problem.as_lafs()["details"] == {"problem": "internal", "kind": "RuntimeError", "reference": "ref_1"}
    assert "hunter22" not in msgspec.json.encode(problem.as_lafs()).decode()
    same = Problem("not_found", "x")
    assert Problem.unexpected(same) is same


def test_when_to_try_again_is_told_in_every_contract_that_has_a_place_for_it() -> None:
    problem = Problem("rate_limited", "Too many.", retry_after_ms=1500)
    assert problem.as_lafs()["retryAfterMs"] == 1500
    assert problem.as_openwop()["details"]["retryAfterMs"] == 1500
    assert problem.as_crp()["details"]["retry_after_ms"] == 1500
    assert problem.as_problem_json()["retryAfterMs"] == 1500
    silent = Problem("not_found", "Nothing.")
    assert "details" not in silent.as_openwop() and silent.as_crp()["details"] == {}
    assert "retryAfterMs" not in silent.as_problem_json()


def test_details_keep_their_types_and_what_json_has_no_type_for_becomes_text() -> None:
    details = {"n": 1, "f": 1.5, "no": None, "yes": True, "list": [1, "a"], "in": {"x": [None]}}
    shown = Problem("invalid_request", "No.", tuple=(1, 2), only={7}, other=1j, **details).as_openwop()["details"]
    assert {name: shown[name] for name in details} == details
    assert (shown["tuple"], shown["only"], shown["other"]) == ([1, 2], [7], "1j")


def test_the_caller_hears_the_remedy_of_this_problem_and_a_message_of_bounded_length() -> None:
    told = Problem("capability_denied", "x" * 5000, fix="Ask Kim.").as_lafs()
    assert (told["suggestedAction"], len(told["message"]), told["message"][-1]) == ("Ask Kim.", 1024, "…")
    assert told["escalationRequired"] is True
    plain = Problem("invalid_request", "x" * 1024).as_lafs()
    assert plain["message"] == "x" * 1024 and plain["escalationRequired"] is False
    assert plain["suggestedAction"] == TABLE["invalid_request"].remedy
