"""The thirteen checks of an envelope in three tiers, and the three of the flags (R46).

`conform` never raises for its input: the report says of each check whether it passed and, if not, why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET

from forestay.envelope.flags import resolve
from forestay.envelope.types import Envelope, Error, Mvi, Page
from forestay.envelope.validate import check as check_invariants
from forestay.envelope.validate import decode, mixed_page
from forestay.kernel import LAFS_CODES, AgentAction, Problem

Tier = Literal["core", "standard", "complete"]

CORE: Final = ("envelope_schema_valid", "envelope_invariants", "error_code_registered")
STANDARD: Final = (
    *CORE,
    "agent_action_valid",
    "error_registry_agent_action",
    "transport_mapping_consistent",
    "meta_mvi_present",
    "meta_strict_present",
    "strict_mode_behavior",
    "pagination_mode_consistent",
    "strict_mode_enforced",
)
COMPLETE: Final = (*STANDARD, "context_mutation_failure", "context_preservation_valid")
_ACTIONS: Final = frozenset(get_args(AgentAction))
_LEVELS: Final = frozenset(get_args(Mvi))
_CHECKS: Final[dict[str, Callable[[Envelope], str | None]]] = {}
TIERS: Final[dict[Tier, tuple[str, ...]]] = {"core": CORE, "standard": STANDARD, "complete": COMPLETE}


class Check(msgspec.Struct, frozen=True):
    """One check: its name, whether it passed, and what it has to say."""

    name: str
    passed: bool = msgspec.field(name="pass")
    detail: str | None = None


class Report(msgspec.Struct, frozen=True):
    """What `forestay envelope conform` prints."""

    ok: bool
    tier: Tier
    checks: list[Check]

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if not check.passed]


def conform(data: bytes | str, tier: Tier = "complete") -> Report:
    """Check one envelope; when `data` is no envelope, the report says only that."""
    try:
        envelope = decode(data)
    except Problem as problem:
        at = problem.details.get("at")
        detail = f"{problem.message} (at {at})" if at else problem.message
        return Report(False, tier, [Check("envelope_schema_valid", False, detail)])
    return conform_envelope(envelope, tier)


def conform_envelope(envelope: Envelope, tier: Tier = "complete") -> Report:
    """Run the checks of `tier` on an envelope whose schema is known to be valid."""
    checks = [Check("envelope_schema_valid", True)]
    for name in TIERS[tier][1:]:
        if name == "strict_mode_behavior" and not envelope.meta.strict:
            continue  # the contract: absent from the report when not strict
        if name == "error_registry_agent_action":
            checks.append(Check(name, True, _action_advice(envelope)))
            continue
        fault = _CHECKS[name](envelope)
        checks.append(Check(name, fault is None, fault))
    return Report(all(check.passed for check in checks), tier, checks)


def conform_flags() -> Report:
    """Run the flag rules of this implementation (R3 to R8)."""
    checks = [
        Check("json_protocol_default", resolve().format == "json"),
        Check("config_override_respected", _configuration_respected()),
        Check("flag_conflict_rejected", _conflict_rejected()),
    ]
    return Report(all(check.passed for check in checks), "core", checks)


def _configuration_respected() -> bool:
    return (
        resolve(project_format="human").format == "human"
        and resolve(project_format="json", user_format="human").format == "json"
        and resolve(json=True, project_format="human").format == "json"
    )


def _conflict_rejected() -> bool:
    try:
        resolve(human=True, json=True)
    except Problem as problem:
        return problem.row.lafs == "E_FORMAT_CONFLICT"
    return False


def _check(function: Callable[[Envelope], str | None]) -> Callable[[Envelope], str | None]:
    """Register a check under its name; it returns what is wrong, or None."""
    return _CHECKS.setdefault(function.__name__, function)


@_check
def envelope_invariants(envelope: Envelope) -> str | None:
    try:
        check_invariants(envelope)
    except Problem as problem:
        return problem.message
    return None


@_check
def error_code_registered(envelope: Envelope) -> str | None:
    if isinstance(envelope.error, Error) and LAFS_CODES.get(envelope.error.code) is None:
        return f"{envelope.error.code} is not in the registry."
    return None


@_check
def agent_action_valid(envelope: Envelope) -> str | None:
    action = envelope.error.agent_action if isinstance(envelope.error, Error) else UNSET
    return None if action is UNSET or action in _ACTIONS else f"{action} is no agent action."


def _action_advice(envelope: Envelope) -> str | None:
    """`error_registry_agent_action` is advisory: it passes, and its detail says what the registry advises."""
    error = envelope.error
    row = LAFS_CODES.get(error.code) if isinstance(error, Error) else None
    if row is None or not isinstance(error, Error) or error.agent_action in (UNSET, row.action):
        return None
    return f"The registry advises {row.action} for {error.code}; the envelope says {error.agent_action}."


@_check
def transport_mapping_consistent(envelope: Envelope) -> str | None:
    if not isinstance(envelope.error, Error) or envelope.meta.transport == "sdk":
        return None
    if LAFS_CODES.get(envelope.error.code) is None:
        return f"{envelope.error.code} has no mapping for {envelope.meta.transport}."
    return None


@_check
def meta_mvi_present(envelope: Envelope) -> str | None:
    return None if envelope.meta.mvi in _LEVELS else "_meta.mvi is no disclosure level."


@_check
def meta_strict_present(envelope: Envelope) -> str | None:
    return None if isinstance(envelope.meta.strict, bool) else "_meta.strict is no boolean."


@_check
def strict_mode_behavior(envelope: Envelope) -> str | None:
    """R15: a strict producer omits an absent member instead of sending null."""
    if envelope.page is None:
        return "A strict producer omits page instead of sending null."
    if envelope.success and envelope.error is None:
        return "A strict producer omits error on success instead of sending null."
    return None


@_check
def pagination_mode_consistent(envelope: Envelope) -> str | None:
    return mixed_page(envelope.page) if isinstance(envelope.page, Page) else None


@_check
def strict_mode_enforced(envelope: Envelope) -> str | None:
    """R16: decoding refuses the same envelope with an unknown member when it is strict, and only then."""
    plain = msgspec.to_builtins(envelope)
    probe = msgspec.json.encode({**plain, "x_not_in_the_contract": True})
    try:
        decode(probe, limit=len(probe))
    except Problem:
        return None if envelope.meta.strict else "A lenient envelope was refused for an unknown member."
    return "A strict envelope was accepted with an unknown member." if envelope.meta.strict else None


@_check
def context_mutation_failure(envelope: Envelope) -> str | None:
    """R29: an operation that needs context has it, or fails with the right code."""
    if not _context_required(envelope):
        return None
    if envelope.success:
        if envelope.meta.context_version > 0 or envelope.meta.session_id is not UNSET:
            return None
        return "The operation needs context; a success carries contextVersion above 0 or a sessionId."
    code = envelope.error.code if isinstance(envelope.error, Error) else None
    if code in ("E_CONTEXT_MISSING", "E_CONTEXT_STALE"):
        return None
    return "The operation needs context; without it the error is E_CONTEXT_MISSING or E_CONTEXT_STALE."


@_check
def context_preservation_valid(envelope: Envelope) -> str | None:
    """R26, R27 and D9, applied to what the envelope says about its ledger."""
    told = _extension(envelope, "contextLedger") or _extension(envelope, "context")
    if not isinstance(told, dict):
        return None
    version, previous = told.get("version"), told.get("previousVersion")
    if told.get("stale") is True:
        code = envelope.error.code if isinstance(envelope.error, Error) else None
        return None if code == "E_CONTEXT_STALE" else "A stale context is answered with E_CONTEXT_STALE."
    if version is not None and version != envelope.meta.context_version:
        return f"The ledger is at version {version}, contextVersion says {envelope.meta.context_version}."
    if isinstance(version, int) and isinstance(previous, int):
        steps = version - previous
        if steps not in (0, 1) or (steps == 1 and not envelope.success):
            return f"The version went from {previous} to {version}; an accepted mutation adds exactly 1."
    if envelope.success and told.get("removedConstraints"):
        return "Active constraints were removed."
    return None


def _context_required(envelope: Envelope) -> bool:
    if _extension(envelope, "lafsContextRequired") is True:
        return True
    nested = ((_extension(envelope, "context"), "required"), (_extension(envelope, "lafs"), "contextRequired"))
    return any(isinstance(holder, dict) and holder.get(name) is True for holder, name in nested)


def _extension(envelope: Envelope, name: str) -> Any:
    """Return an extension by its bare name, or by the x- name that our own producers write (R17)."""
    if not isinstance(envelope.extensions, dict):
        return None
    return envelope.extensions.get(name, envelope.extensions.get(f"x-forestay-{name}"))
