"""Scenarios of the audit log: its hash chain and its signed checkpoints (`openwop-audit-log-integrity`)."""

from __future__ import annotations

import re
from typing import Any

from forestay.conformance.scenario import expect, has, same, scenario
from forestay.conformance.target import Target, refused
from forestay.kernel import Problem, PublicKey

_NEEDS = "auth.auditLogIntegrity"
_PATH = "/v1/audit/verify"
_RESULT = {"fromSeq", "toSeq", "chainValid", "checkpoints", "anomalies"}
_CHECKPOINT = {"checkpoint", "atSequence", "merkleRoot", "signature"}


@scenario("audit-log-integrity", "audit", needs=_NEEDS)
def integrity(target: Target) -> None:
    """The log holds, says so in the contract's words, and has checkpoints as often as discovery promises."""
    told = target.flag(_NEEDS)
    expect("openwop-audit-log-integrity" in (target.flag("auth.profiles") or ()), "auth.profiles does not name it")
    same(told.get("hashChain"), True, "auditLogIntegrity.hashChain")
    refused(target.get(_PATH, key=""), 401)
    found = _verified(target)
    same((found["chainValid"], found["anomalies"]), (True, []), "chainValid and the anomalies")
    expect(found["checkpoints"], "there is no checkpoint")
    before = 0
    for item in found["checkpoints"]:
        has(item, _CHECKPOINT, "a checkpoint", closed=True)
        expect(item["atSequence"] >= before, "checkpoints are not in their order")
        most = told.get("checkpointIntervalEntries")
        expect(not most or item["atSequence"] - before <= most, f"a checkpoint covers more than {most} entries")
        before = item["atSequence"]


@scenario("audit-checkpoint-signature", "audit", needs=_NEEDS)
def signatures(target: Target) -> None:
    """Every checkpoint is signed, over the bytes of its root, with the key that discovery names (RFC 0218)."""
    told = target.flag(_NEEDS)
    same(told.get("checkpointSignatureAlgorithm"), "ed25519", "checkpointSignatureAlgorithm")
    try:
        key = PublicKey.read(str(told.get("checkpointPublicKey", "")))
    except Problem as problem:
        expect(False, f"checkpointPublicKey: {problem.message}")
        raise
    checkpoints = _verified(target)["checkpoints"]
    expect(checkpoints, "there is no checkpoint")
    for item in checkpoints:
        root, signature = item["merkleRoot"], item["signature"]
        expect(re.fullmatch("[0-9a-f]{64}", root), "a root is no SHA-256 in hexadecimal")
        expect(key.signed(root, signature), f"the checkpoint at {item['atSequence']} is not signed with the key")


def _verified(target: Target) -> dict[str, Any]:
    found: dict[str, Any] = target.read(_PATH, params={"fromSeq": 0, "toSeq": 1_000_000})
    has(found, _RESULT, "the answer")
    same((found["fromSeq"], found["toSeq"]), (0, 1_000_000), "fromSeq and toSeq")
    return found
