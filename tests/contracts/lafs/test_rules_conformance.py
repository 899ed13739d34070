"""R43 to R46: strictness, deprecations, security, conformance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from forestay.envelope import (
    DEPRECATIONS,
    MAX_ENVELOPE_BYTES,
    TIERS,
    Envelope,
    Error,
    Page,
    conform,
    conform_envelope,
    conform_flags,
    decode,
    encode,
    failure,
    may_be_removed,
    parse,
    success,
)
from forestay.envelope.deprecations import check
from forestay.kernel import Ids, ManualClock, Problem
from tests.contracts.lafs.schema import published
from tests.contracts.lafs.support import changed, forestay

# 1.8 Strictness, versions, security


def test_r43_strict_is_the_default_and_is_told(ok: Envelope, clock: ManualClock, ids: Ids) -> None:
    assert ok.meta.strict is True and json.loads(encode(ok))["_meta"]["strict"] is True
    assert success("op", None, strict=False, clock=clock, ids=ids).meta.strict is False


def test_r44_deprecations_warn_and_keep_their_promise(clock: ManualClock, ids: Ids) -> None:
    old = success("op", None, mvi=True, clock=clock, ids=ids)
    assert old.meta.mvi == "minimal" and success("op", None, mvi=False, clock=clock, ids=ids).meta.mvi == "standard"
    (warning,) = old.meta.warnings or []
    assert (warning.code, warning.remove_by) == ("W_DEPRECATED_META_MVI_BOOLEAN", "2.0.0")
    for item in DEPRECATIONS:
        check(item)
    for wrong in ("1.9.0", "1.0.0", "2.1.0", "0.9.0"):
        with pytest.raises(Problem):
            check(msgspec.structs.replace(DEPRECATIONS[0], remove_by=wrong))
    assert may_be_removed(DEPRECATIONS[0], version="2.0.0", days=90, minors=0)
    assert may_be_removed(DEPRECATIONS[0], version="2.0.0", days=1, minors=2)
    assert not may_be_removed(DEPRECATIONS[0], version="2.0.0", days=89, minors=1)
    assert not may_be_removed(DEPRECATIONS[0], version="1.9.0", days=900, minors=9)
    dated = msgspec.structs.replace(DEPRECATIONS[0], deprecated_on="2026-01-01")
    assert "2026-01-01" in dated.warning().message


def test_r45_nothing_internal_gets_out_and_sizes_are_capped(clock: ManualClock, ids: Ids) -> None:
    leaky = Problem(
        "internal",
        'Traceback (most recent call last):\n  File "/home/me/app.py", line 3',
        path="/home/me/secrets.txt",
        password="hunter2hunter2",
        token="sk-live-0123456789abcdef0123",
    )
    text = encode(failure(leaky, "op", clock=clock, ids=ids)).decode()
    for secret in ("/home/me", "hunter2", "Traceback", "sk-live"):
        assert secret not in text
    with pytest.raises(Problem) as caught:
        decode(b"[" + b" " * MAX_ENVELOPE_BYTES + b"]")
    assert caught.value.key == "payload_too_large"
    # Revalidated at the boundary: what comes in is checked, whoever says that it is fine.
    with pytest.raises(Problem):
        parse(b'{"success": true, "result": {"trusted": true}}')


# 1.9 Conformance


def test_r46_the_tiers_have_their_checks() -> None:
    assert (len(TIERS["core"]), len(TIERS["standard"]), len(TIERS["complete"])) == (3, 11, 13)
    contract = published("conformance-profiles.json")
    for tier, names in (contract["tiers"] if contract else {}).items():
        assert set(names) == set(TIERS[tier])
    assert set(TIERS["core"]) < set(TIERS["standard"])
    flags = conform_flags()
    assert flags.ok and [check.name for check in flags.checks] == [
        "json_protocol_default",
        "config_override_respected",
        "flag_conflict_rejected",
    ]


def context_told(envelope: Envelope, told: Any, name: str = "contextLedger", **meta: Any) -> Envelope:
    return msgspec.structs.replace(
        envelope, meta=msgspec.structs.replace(envelope.meta, **meta), extensions={name: told}
    )


@pytest.mark.parametrize("name", [*TIERS["standard"][1:], "context_mutation_failure", "context_preservation_valid"])
def test_r46_each_check_can_fail_and_can_pass(name: str, ok: Envelope, bad: Envelope) -> None:
    replace = msgspec.structs.replace
    assert isinstance(bad.error, Error)
    broken: dict[str, list[Envelope]] = {
        "envelope_invariants": [replace(ok, error=bad.error), replace(bad, error=UNSET)],
        "error_code_registered": [replace(bad, error=replace(bad.error, code="E_FOREIGN_CODE"))],
        "agent_action_valid": [replace(bad, error=replace(bad.error, agent_action="panic"))],
        "transport_mapping_consistent": [
            replace(
                bad,
                error=replace(bad.error, code="E_FOREIGN_CODE"),
                meta=replace(bad.meta, transport="http"),
            )
        ],
        "meta_mvi_present": [replace(ok, meta=replace(ok.meta, mvi="most"))],
        "meta_strict_present": [replace(ok, meta=replace(ok.meta, strict=1))],
        "strict_mode_behavior": [replace(ok, page=None), replace(ok, error=None)],
        "pagination_mode_consistent": [replace(ok, page=Page(mode="none", limit=3))],
        "context_mutation_failure": [
            context_told(ok, True, "lafsContextRequired"),
            context_told(ok, {"required": True}, "context"),
            context_told(ok, {"contextRequired": True}, "lafs"),
            context_told(bad, True, "lafsContextRequired"),
        ],
        "context_preservation_valid": [
            context_told(ok, {"version": 3}, context_version=2),
            context_told(ok, {"version": 5, "previousVersion": 3}, context_version=5),  # D9: a jump
            context_told(ok, {"version": 2, "previousVersion": 3}, context_version=2),
            context_told(ok, {"version": 2, "removedConstraints": ["c"]}, context_version=2),
            context_told(bad, {"version": 4, "previousVersion": 3}, context_version=4),
            context_told(bad, {"stale": True}),
        ],
    }
    for envelope in (ok, bad):
        fine = {check.name: check.passed for check in conform_envelope(envelope).checks}
        assert fine[name] is True
    for envelope in broken.get(name, []):
        report = {check.name: check for check in conform_envelope(envelope).checks}
        assert report[name].passed is False and report[name].detail
    if name == "error_registry_agent_action":  # advisory: it speaks and passes
        odd = conform_envelope(replace(bad, error=replace(bad.error, agent_action="retry")))
        told = {check.name: check for check in odd.checks}[name]
        assert told.passed is True and "stop" in (told.detail or "")
    if name == "context_preservation_valid":
        fine_steps = context_told(ok, {"version": 4, "previousVersion": 3}, context_version=4)
        assert conform_envelope(fine_steps).ok
    if name == "context_mutation_failure":
        assert conform_envelope(context_told(ok, True, "lafsContextRequired", context_version=1)).ok
    assert name in broken or name in ("error_registry_agent_action", "strict_mode_enforced")


def test_r46_strict_mode_is_enforced_by_the_validator_in_use(ok: Envelope, monkeypatch: pytest.MonkeyPatch) -> None:
    from forestay.envelope import conformance

    monkeypatch.setattr(conformance, "decode", lambda data, **_: ok)  # a validator that lets everything pass
    report = {check.name: check.passed for check in conform_envelope(ok).checks}
    assert report["strict_mode_enforced"] is False


def test_r46_what_is_no_envelope_has_one_thing_to_hear(ok: Envelope) -> None:
    report = conform(b'{"success": true}')
    assert report.ok is False and [check.name for check in report.checks] == ["envelope_schema_valid"]
    lenient = msgspec.structs.replace(ok, meta=msgspec.structs.replace(ok.meta, strict=False))
    assert "strict_mode_behavior" not in [check.name for check in conform_envelope(lenient).checks]


def test_r46_the_command_says_it_and_exits_accordingly(tmp_path: Path, ok: Envelope, bad: Envelope) -> None:
    good, wrong = tmp_path / "good.json", tmp_path / "wrong.json"
    good.write_bytes(encode(ok))
    wrong.write_bytes(changed(ok, page=None))
    for tier, count in (("core", 3), ("standard", 11), ("complete", 13)):
        ran = forestay(tmp_path, "envelope", "conform", "good.json", "--tier", tier)
        result: Any = decode(ran.stdout).result
        assert ran.returncode == 0 and result["ok"] is True and result["tier"] == tier
        assert len(result["checks"]) == count
        assert all(set(check) == {"name", "pass", "detail"} for check in result["checks"])
    ran = forestay(tmp_path, "envelope", "conform", "wrong.json")
    told = decode(ran.stdout)
    assert ran.returncode == 2 and told.success is False  # D8
    assert isinstance(told.result, dict) and told.result["ok"] is False
    both = forestay(tmp_path, "envelope", "conform", "good.json", "wrong.json")
    assert both.returncode == 2
    lines = [encode(ok).decode(), changed(ok, page=None).decode(), "nonsense", encode(bad).decode()]
    ran = forestay(tmp_path, "envelope", "conform", "--ndjson", stdin="\n".join(lines))
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [result["ok"] for result in results] == [True, False, False, True] and ran.returncode == 2
    assert all(set(result) == {"ok", "tier", "checks"} for result in results)
    assert forestay(tmp_path, "envelope", "conform", "--ndjson", stdin=lines[0] + "\n").returncode == 0
