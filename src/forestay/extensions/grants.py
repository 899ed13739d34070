"""What people decided about extensions: kept on the ledger, read back into the policy in force.

A decision is a record `grant.allow`, `grant.deny` or `grant.revoke` in the stream `grants`; the latest one about a
subject, a capability and a scope holds. Expired grants do not speak, and stay readable.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay.extensions.api_table import CAPABILITIES
from forestay.kernel import (
    Clock,
    Draft,
    ExtensionConfig,
    Grant,
    Ledger,
    Mode,
    Policy,
    Problem,
    Record,
    Scope,
    SubjectRules,
    iso,
)

STREAM = "grants"
# Part of running at all, and of no use to harm with; a denial still takes them away.
_ALWAYS = ("log", "events")
_USUALLY = ("session", "ui")


class Standing(msgspec.Struct, frozen=True):
    """A decision that holds."""

    subject: str
    effect: Literal["allow", "deny"]
    grant: Grant
    since_ms: int

    def shown(self, now_ms: int) -> dict[str, Any]:
        expires = self.grant.expires_ms
        return {
            "subject": self.subject,
            "effect": self.effect,
            "capability": self.grant.capability,
            "scope": list(self.grant.scope.patterns),
            "methods": list(self.grant.methods),
            "since": iso(self.since_ms),
            "expires": iso(expires) if expires is not None else None,
            "expired": expires is not None and now_ms >= expires,
        }


class Grants:
    """The decisions on one ledger."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    async def allow(self, subject: str, grant: Grant, *, by: str = "user") -> None:
        await self._record("grant.allow", subject, grant, by)

    async def deny(self, subject: str, grant: Grant, *, by: str = "user") -> None:
        await self._record("grant.deny", subject, grant, by)

    async def revoke(self, subject: str, capability: str | None = None, *, by: str = "user") -> int:
        """Take back what was decided about `subject`, or only about one capability; how many decisions that were."""
        held = [item for item in await self.standing(subject) if capability in (None, item.grant.capability)]
        if not held:
            what = f"{capability} for {subject}" if capability else subject
            raise Problem("not_found", f"Nothing was decided about {what}.", subject=subject, capability=capability)
        for name in dict.fromkeys(item.grant.capability for item in held):
            await self._ledger.append(
                STREAM, [Draft("grant.revoke", {"subject": subject, "capability": name, "by": by})]
            )
        return len(held)

    async def standing(self, subject: str | None = None) -> list[Standing]:
        """Every decision that holds, expired ones included, oldest first."""
        return fold(await self.records(), subject)

    async def records(self) -> list[Record]:
        """Every decision as it was written, oldest first."""
        return await self._ledger.read(STREAM)

    async def apply(self, policy: Policy) -> Policy:
        """`policy` with what people decided."""
        return with_standing(policy, await self.standing())

    async def _record(self, kind: str, subject: str, grant: Grant, by: str) -> None:
        if grant.capability not in CAPABILITIES:
            raise Problem(
                "invalid_request", f"There is no capability {grant.capability[:40]!r}.", known=sorted(CAPABILITIES)
            )
        payload = {"subject": subject, "grant": msgspec.to_builtins(grant), "by": by}
        await self._ledger.append(STREAM, [Draft(kind, payload)])


def about(record: Record) -> tuple[str, str]:
    """The subject and the capability that a record decides about."""
    decided = record.payload if record.type == "grant.revoke" else record.payload["grant"]
    return record.payload["subject"], decided["capability"]


def fold(records: Iterable[Record], subject: str | None = None) -> list[Standing]:
    held: dict[tuple[str, str, Scope], Standing] = {}
    for record in records:
        who = record.payload["subject"]
        if record.type == "grant.revoke":
            held = {key: item for key, item in held.items() if key[:2] != (who, record.payload["capability"])}
            continue
        grant = msgspec.convert(record.payload["grant"], Grant)
        key = (who, grant.capability, grant.scope)
        held.pop(key, None)
        effect: Literal["allow", "deny"] = "allow" if record.type == "grant.allow" else "deny"
        held[key] = Standing(who, effect, grant, record.ts)
    return [item for item in held.values() if subject in (None, item.subject)]


def with_standing(policy: Policy, standing: Iterable[Standing]) -> Policy:
    for item in standing:
        change = policy.allowing if item.effect == "allow" else policy.denying
        policy = change(item.subject, item.grant)
    return policy


def policy_of(
    config: ExtensionConfig,
    clock: Clock,
    *,
    mode: Mode | None = None,
    flags: Iterable[str] = (),
    subjects: Iterable[str] = (),
) -> Policy:
    """The policy that a configuration and `--grant` flags mean (Pi §4). Flags hold for each of `subjects`."""
    chosen: Mode = mode or config.policy.mode
    defaults = [Grant.parse(text, source="config") for text in config.policy.default_caps]
    builtin = _ALWAYS if chosen == "strict" else (*_ALWAYS, *_USUALLY)
    defaults += [Grant(name, source="builtin") for name in builtin]
    rules: dict[str, SubjectRules] = {
        subject: SubjectRules(
            tuple(Grant.parse(text, source="config") for text in override.allow),
            tuple(Grant.parse(text, source="config") for text in override.deny),
            override.mode,
        )
        for subject, override in config.overrides.items()
    }
    policy = Policy(
        chosen,
        defaults=defaults,
        denials=[Grant.parse(text, source="config") for text in config.policy.deny_caps],
        subjects=rules,
        clock=clock,
    )
    granted = [checked(text) for text in flags]
    for subject in subjects:
        policy = policy.allowing(subject, *granted)
    return policy


def checked(text: str) -> Grant:
    """`CAP[:SCOPE]` as a grant of a capability that exists; `~` in a path is the user's home."""
    capability, colon, rest = text.partition(":")
    if capability not in CAPABILITIES:
        raise Problem(
            "invalid_usage",
            f"There is no capability {capability[:40]!r}.",
            at=text[:80],
            fix="Use one of: " + ", ".join(sorted(CAPABILITIES)),
        )
    if capability in ("read", "write") and rest.startswith("~"):
        rest = str(Path(rest).expanduser())
    return Grant.parse(f"{capability}{colon}{rest}")
