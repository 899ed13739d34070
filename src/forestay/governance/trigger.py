"""Trigger subscriptions (OpenWOP RFC 0083): their four states, retries and keys. Pure.

- G1  A subscription is active, paused, failed or dead-lettered; only an active one takes deliveries.
- G2  The pause between attempts grows as the policy says, and never shrinks.
- G3  A dedup key is opaque: it says nothing of what came in.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Any, Literal

import msgspec

from forestay.kernel import Problem

Source = Literal["webhook", "schedule", "queue", "email", "form"]
SubscriptionState = Literal["active", "paused", "failed", "dead-lettered"]
Reason = Literal[
    "retry-exhausted",
    "operator-paused",
    "signature-invalid",
    "backpressure",
    "source-removed",
    "provenance-unevaluable",
]
_FIRST_MS = 1_000
_LONGEST_MS = 3_600_000
_MOVES: dict[SubscriptionState, frozenset[SubscriptionState]] = {
    "active": frozenset({"paused", "failed", "dead-lettered"}),
    "paused": frozenset({"active"}),
    "failed": frozenset({"active", "dead-lettered"}),
    "dead-lettered": frozenset({"active"}),
}


class TriggerRetry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    backoff: Literal["none", "fixed", "exponential"] = "exponential"


class SourceSettings(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a source is told: when a schedule ticks and what its runs are given, or which mailbox mail comes from."""

    cron: str = ""
    timezone: str = "UTC"
    inputs: dict[str, Any] = {}
    mailbox: str = ""


class Subscription(msgspec.Struct, frozen=True, rename="camel"):
    """A subscription with what the host keeps of it; `shown` is the contract's part. Events before `since_ms`, when it
    was made or resumed, are not its own."""

    subscription_id: str
    source: Source
    tenant: str
    workflow_id: str
    state: SubscriptionState = "active"
    dedup_enabled: bool = True
    retry_policy: TriggerRetry = TriggerRetry()
    roster_id: str | None = None
    secret_fingerprint: str | None = None
    settings: SourceSettings = SourceSettings()
    since_ms: int = 0

    @property
    def once(self) -> bool:
        """Whether the same event again is the same delivery; a moment of a schedule always is."""
        return self.dedup_enabled or self.source == "schedule"

    @property
    def shown(self) -> ShownSubscription:
        return ShownSubscription(
            self.subscription_id,
            self.source,
            self.state,
            self.dedup_enabled,
            self.retry_policy,
            self.secret_fingerprint,
        )


class ShownSubscription(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The contract's `TriggerSubscription`."""

    subscription_id: str
    source: Source
    state: SubscriptionState
    dedup_enabled: bool
    retry_policy: TriggerRetry
    secret_fingerprint: str | None = None


def move(found: Subscription, to: SubscriptionState) -> Subscription:
    """The subscription in another state; a Problem when no arrow leads there (G1)."""
    if to not in _MOVES[found.state]:
        message = f"A subscription that is {found.state} cannot become {to}."
        raise Problem("state_conflict", message, subscriptionId=found.subscription_id, state=found.state)
    return msgspec.structs.replace(found, state=to)


def delay_ms(policy: TriggerRetry, attempt: int) -> int | None:
    """Milliseconds until the attempt after this one; None when it was the last (G2)."""
    if attempt >= policy.max_attempts:
        return None
    if policy.backoff == "none":
        return 0
    return min(_LONGEST_MS, _FIRST_MS * (1 if policy.backoff == "fixed" else 2 ** min(attempt - 1, 30)))


def dedup_key(secret: bytes, subscription_id: str, event_id: str) -> str:
    """The key under which an inbound event counts once (G3)."""
    return hmac.new(secret, f"{subscription_id}\0{event_id}".encode(), hashlib.sha256).hexdigest()[:40]
