"""R1 to R24: scope, flags, the envelope, its errors. The names are the rules'."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from forestay.envelope import (
    CATEGORY_ACTIONS,
    SCHEMA_URL,
    Envelope,
    Error,
    action_of,
    conform,
    decode,
    encode,
    failure,
    next_step,
    resolve,
    select_field,
    success,
)
from forestay.kernel import LAFS_CODES, TABLE, Ids, ManualClock, Problem, lafs_registry
from tests.contracts.lafs.schema import published
from tests.contracts.lafs.support import changed, forestay, refused

# 1.1 Scope


def test_r1_an_envelope_is_one_discrete_answer_on_every_transport(clock: ManualClock, ids: Ids) -> None:
    said = {
        transport: success("op", {"a": 1}, transport=transport, request_id="same", clock=clock, ids=ids)
        for transport in ("cli", "http", "grpc", "sdk")
    }
    bodies = {json.dumps({**json.loads(encode(item)), "_meta": None}) for item in said.values()}
    assert len(bodies) == 1  # transport-agnostic but for the member that names it
    assert all(encode(item).count(b'"$schema"') == 1 for item in said.values())


def test_r2_json_is_the_default_and_the_same_input_gives_the_same_bytes() -> None:
    assert resolve().format == "json" and resolve().mvi == "standard"

    def made() -> bytes:
        clock = ManualClock()
        return encode(success("op", {"b": 1, "a": [1, 2]}, clock=clock, ids=Ids(clock), request_id="fixed"))

    assert made() == made()


# 1.2 Format and flags


def test_r3_the_default_format_is_json(tmp_path: Path) -> None:
    assert resolve(tty=False).format == "json" and resolve().source == "default"
    ran = forestay(tmp_path, "version")
    assert decode(ran.stdout).success is True


def test_r3_on_a_terminal_without_a_setting_people_are_addressed() -> None:
    assert resolve(tty=True).format == "human"  # D11
    assert resolve(tty=True, json=True).format == "json"
    assert resolve(tty=True, project_format="json").format == "json"


def test_r4_human_switches(tmp_path: Path) -> None:
    assert resolve(human=True).format == "human" and resolve(human=True).source == "flag"
    assert not forestay(tmp_path, "version", "--human").stdout.startswith("{")


def test_r5_json_is_an_alias_for_the_default(tmp_path: Path) -> None:
    assert (resolve(json=True).format, resolve(json=True).source) == ("json", "flag")
    assert decode(forestay(tmp_path, "version", "--json").stdout).success is True


def test_r6_both_formats_at_once_fail(tmp_path: Path) -> None:
    with pytest.raises(Problem) as caught:
        resolve(human=True, json=True)
    assert caught.value.row.lafs == "E_FORMAT_CONFLICT"
    ran = forestay(tmp_path, "version", "--human", "--json")
    told = decode(ran.stdout)
    assert isinstance(told.error, Error) and told.error.code == "E_FORMAT_CONFLICT" and ran.returncode == 2


def test_r7_explicit_flags_override_the_configuration() -> None:
    assert resolve(json=True, project_format="human", user_format="human").format == "json"
    assert resolve(human=True, project_format="json", user_format="json").format == "human"
    assert resolve(requested_format="json", project_format="human").format == "json"


@given(st.booleans(), st.booleans(), *[st.sampled_from([None, "json", "human"])] * 3, st.booleans())
def test_r8_the_order_of_precedence(
    human: bool, json_flag: bool, requested: str | None, project_format: str | None, user: str | None, tty: bool
) -> None:
    if human and json_flag:
        return
    choice = resolve(
        human=human,
        json=json_flag,
        requested_format=requested,
        project_format=project_format,
        user_format=user,
        tty=tty,
    )
    flag = requested or ("human" if human else "json" if json_flag else None)
    expected = flag or project_format or user or ("human" if tty else "json")
    source = "flag" if flag else "project" if project_format else "user" if user else "default"
    assert (choice.format, choice.source) == (expected, source)


@pytest.mark.parametrize("other", ["text", "markdown", "table", "jsonl", "JSON", ""])
def test_r9_there_are_exactly_two_formats(other: str) -> None:
    for where in ("requested_format", "project_format", "user_format"):
        with pytest.raises(Problem) as caught:
            resolve(**{where: other})  # type: ignore[arg-type]
        assert caught.value.row.lafs == "E_VALIDATION_SCHEMA"
        assert caught.value.details["allowed"] == ["json", "human"]


def test_r10_human_output_is_plain_text_and_respects_no_color(tmp_path: Path) -> None:
    file = tmp_path / "e.json"
    file.write_text(forestay(tmp_path, "version").stdout)
    shown = forestay(tmp_path, "--human", "envelope", "explain", str(file), NO_COLOR="1", FORCE_COLOR="")
    assert "\x1b" not in shown.stdout and "worked" in shown.stdout


def test_r11_fields_come_first_then_the_format(tmp_path: Path, ok: Envelope) -> None:
    assert [warning.code for warning in resolve(human=True, field="x").warnings] == ["W_FIELD_WITH_HUMAN"]
    assert resolve(human=True, fields=["x"]).warnings and not resolve(json=True, fields=["x"]).warnings
    assert resolve(human=True, mvi="full").warnings == () and resolve(quiet=True, field="x").quiet
    with pytest.raises(Problem) as both:
        resolve(field="a", fields=["b"])
    assert both.value.row.lafs == "E_FIELD_CONFLICT"
    with pytest.raises(Problem) as three:
        resolve(human=True, json=True, field="a")
    assert three.value.row.lafs == "E_FORMAT_CONFLICT"
    assert forestay(tmp_path, "version", "--json", "--field", "forestay").stdout.strip()[0] != "{"  # no envelope
    filtered = decode(forestay(tmp_path, "version", "--json", "--fields", "forestay").stdout)
    assert isinstance(filtered.result, dict) and list(filtered.result) == ["forestay"]
    assert filtered.meta.mvi == "custom"
    assert select_field(ok.result, "name") == "Thing"
    for unknown in ("custom", "everything", None):
        assert (resolve(mvi=unknown).mvi, resolve(mvi=unknown).mvi_source) == ("standard", "default")


# 1.3 The envelope


def test_r12_an_envelope_has_its_schema_meta_success_and_result(ok: Envelope) -> None:
    plain = json.loads(encode(ok))
    assert list(plain) == ["$schema", "_meta", "success", "result"] and plain["$schema"] == SCHEMA_URL
    for missing in list(plain):
        problem = refused(json.dumps({name: value for name, value in plain.items() if name != missing}).encode())
        assert missing in problem.message
    for missing in plain["_meta"]:
        meta = {name: value for name, value in plain["_meta"].items() if name != missing}
        assert missing in refused(changed(ok, _meta=meta)).message
    for result in ("text", 3, True):
        assert refused(changed(ok, result=result)).details["at"] == "$.result"
    assert refused(changed(ok, _meta={**plain["_meta"], "more": 1})).details["at"] == "$._meta"


def test_r13_a_success_has_no_error(ok: Envelope, bad: Envelope) -> None:
    assert ok.error is UNSET and decode(changed(ok, error=None)).error is None
    assert refused(changed(ok, error=msgspec.to_builtins(bad.error))).details["at"] == "$.error"


def test_r14_a_failure_has_an_error_and_may_have_a_result(bad: Envelope, clock: ManualClock, ids: Ids) -> None:
    for error in (None, UNSET):
        assert refused(encode(msgspec.structs.replace(bad, error=error))).details["at"] == "$.error"
    partly = failure(Problem("timeout", "Too slow."), "op", result={"done": 2}, clock=clock, ids=ids)
    assert decode(encode(partly)).result == {"done": 2}


def test_r15_absent_members_are_omitted_and_never_null(ok: Envelope) -> None:
    assert b'"page"' not in encode(ok) and b'"error"' not in encode(ok)
    for name in ("page", "error"):
        report = conform(changed(ok, **{name: None}))
        assert [check.name for check in report.failed] == ["strict_mode_behavior"]


def test_r16_strict_refuses_unknown_members_and_lenient_allows_them(ok: Envelope) -> None:
    assert refused(changed(ok, extra=1)).details["at"] == "$.extra"
    lenient = {**msgspec.to_builtins(ok.meta), "strict": False}
    assert decode(changed(ok, extra=1, _meta=lenient)).result == ok.result
    assert decode(changed(ok, extra=1), strict=False).result == ok.result
    with pytest.raises(Problem):
        decode(changed(ok, extra=1, _meta=lenient), strict=True)


def test_r17_extensions_are_always_permitted_under_x_keys(ok: Envelope, clock: ManualClock, ids: Ids) -> None:
    made = success("op", None, extensions={"x-me-trace": {"a": 1}}, clock=clock, ids=ids)
    assert decode(encode(made)).extensions == {"x-me-trace": {"a": 1}}
    assert decode(changed(ok, _extensions={"anything": 1})).result == ok.result  # consumers do not depend on the key
    with pytest.raises(Problem):
        success("op", None, extensions={"trace": 1}, clock=clock, ids=ids)


# 1.4 Errors


def test_r18_codes_come_from_the_registry_and_have_its_shape(bad: Envelope) -> None:
    assert all(row.lafs in LAFS_CODES for row in TABLE.values())
    error = msgspec.to_builtins(bad.error)
    assert decode(changed(bad, error={**error, "code": "E_MINE_SPECIAL_9"})).success is False
    for code in ("NOT_FOUND", "E_FOO", "e_foo_bar", "E_FOO_bar", "E__FOO_BAR", "E_FOO_BAR\n"):
        assert refused(changed(bad, error={**error, "code": code})).details["at"] == "$.error.code"
    report = conform(changed(bad, error={**error, "code": "E_MINE_SPECIAL"}), "core")
    assert [check.name for check in report.failed] == ["error_code_registered"]


PUBLISHED = {  # code: category, retryable, http, grpc, exit, action
    "E_FORMAT_CONFLICT": ("CONTRACT", False, 400, "INVALID_ARGUMENT", 2, "stop"),
    "E_VALIDATION_SCHEMA": ("VALIDATION", False, 400, "INVALID_ARGUMENT", 2, "retry_modified"),
    "E_NOT_FOUND_RESOURCE": ("NOT_FOUND", False, 404, "NOT_FOUND", 4, "stop"),
    "E_CONFLICT_VERSION": ("CONFLICT", True, 409, "ABORTED", 7, "refresh_context"),
    "E_RATE_LIMITED": ("RATE_LIMIT", True, 429, "RESOURCE_EXHAUSTED", 8, "wait"),
    "E_TRANSIENT_UPSTREAM": ("TRANSIENT", True, 503, "UNAVAILABLE", 9, "retry"),
    "E_INTERNAL_UNEXPECTED": ("INTERNAL", False, 500, "INTERNAL", 1, "escalate"),
    "E_CONTEXT_MISSING": ("CONTRACT", False, 400, "FAILED_PRECONDITION", 6, "retry_modified"),
    "E_CONTEXT_STALE": ("CONFLICT", True, 409, "ABORTED", 7, "refresh_context"),
    "E_MIGRATION_UNSUPPORTED_VERSION": ("MIGRATION", False, 426, "FAILED_PRECONDITION", 10, "stop"),
    "E_DISCLOSURE_UNKNOWN_FIELD": ("VALIDATION", False, 400, "INVALID_ARGUMENT", 2, "retry_modified"),
    "E_MVI_BUDGET_EXCEEDED": ("VALIDATION", True, 413, "RESOURCE_EXHAUSTED", 2, "retry_modified"),  # D4
    "E_FIELD_CONFLICT": ("CONTRACT", False, 400, "INVALID_ARGUMENT", 2, "stop"),
}
ADDED = {  # D6
    "E_AUTH_REQUIRED": ("AUTH", 401, "UNAUTHENTICATED", 3, "authenticate"),
    "E_PERMISSION_DENIED": ("PERMISSION", 403, "PERMISSION_DENIED", 5, "escalate"),
}


def test_r19_the_codes_of_this_major_version_stay(ok: Envelope) -> None:
    assert set(PUBLISHED) | set(ADDED) <= set(LAFS_CODES)
    assert {code for code in LAFS_CODES if code.startswith("E_CONTEXT_")} == {
        f"E_CONTEXT_{name}"
        for name in "MISSING STALE NOT_FOUND VERSION_INVALID VERSION_CONFLICT UNAUTHORIZED EXPIRED COMPACTED "
        "TOO_LARGE MODE_INVALID".split()
    }


@pytest.mark.parametrize("key", sorted(TABLE))
def test_r20_retry_semantics_are_always_told(key: str, clock: ManualClock, ids: Ids) -> None:
    for after in (None, 2500):
        made = failure(Problem(key, "It failed.", retry_after_ms=after), "op", clock=clock, ids=ids)
        error = json.loads(encode(made))["error"]
        assert isinstance(error["retryable"], bool) and error["retryAfterMs"] == after
        assert conform(encode(made)).ok


def test_r21_every_transport_maps_codes_as_the_registry_does() -> None:
    for code, row in PUBLISHED.items():
        ours = LAFS_CODES[code]
        assert (ours.category, ours.retryable, ours.http, ours.grpc, ours.exit, ours.action) == row
    for code, rest in ADDED.items():
        ours = LAFS_CODES[code]
        assert (ours.category, ours.http, ours.grpc, ours.exit, ours.action) == rest
    view = {entry["code"]: entry for entry in lafs_registry()}
    contract = published("error-registry.json")
    for entry in contract["codes"] if contract else ():
        mine = view[entry["code"]]
        for name in ("category", "httpStatus", "grpcStatus", "cliExit", "agentAction", "typeUri", "docUrl"):
            assert mine[name] == entry[name], (entry["code"], name)


def test_r22_the_agent_action_is_told_or_derived(bad: Envelope) -> None:
    assert isinstance(bad.error, Error) and bad.error.agent_action == "stop"
    silent = msgspec.structs.replace(bad.error, agent_action=UNSET)
    assert action_of(silent) == "stop"  # from the registry
    for category, action in CATEGORY_ACTIONS.items():
        foreign = msgspec.structs.replace(silent, code="E_FOREIGN_CODE", category=category)
        assert action_of(foreign) == action
    waiting = msgspec.structs.replace(silent, agent_action="wait", retry_after_ms=3000)
    assert next_step(waiting).wait_ms == 3000 and "3 seconds" in next_step(waiting).sentence
    assert next_step(msgspec.structs.replace(silent, agent_action="stop")).automatic is False
    error = msgspec.to_builtins(bad.error)
    assert refused(changed(bad, error={**error, "agentAction": "panic"})).details["at"] == "$.error.agentAction"


def test_r23_what_must_be_escalated_is_not_recovered_automatically(bad: Envelope) -> None:
    assert isinstance(bad.error, Error)
    for action in ("retry", "wait", "retry_modified", "refresh_context", "authenticate"):
        error = msgspec.structs.replace(bad.error, agent_action=action, escalation_required=True, retryable=True)
        step = next_step(error)
        assert step.automatic is False and "person" in step.sentence


def test_r24_a_suggestion_and_a_page_to_read_come_along(bad: Envelope, clock: ManualClock, ids: Ids) -> None:
    assert isinstance(bad.error, Error)
    assert bad.error.suggested_action and str(bad.error.doc_url).startswith("https://lafs.dev/docs/errors/")
    error = msgspec.to_builtins(bad.error)
    assert refused(changed(bad, error={**error, "suggestedAction": "x" * 513})).details["at"].endswith("Action")
    assert refused(changed(bad, error={**error, "docUrl": "not a uri"})).details["at"].endswith("docUrl")
    long = failure(Problem("not_found", "m" * 5000, fix="f" * 5000), "op", clock=clock, ids=ids)
    assert decode(encode(long)) == long
