"""Trigger subscriptions (OpenWOP RFC 0083): their four states, retries and keys. Pure.

- G1  A subscription is active, paused, failed or dead-lettered; only an active one accepts deliveries.
- G2  The pause between attempts follows the policy and never shrinks.
- G3  A dedup key is opaque: it reveals nothing about the event.
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
    """The settings of a source: a schedule's times and inputs, or the mailbox of mail."""

    cron: str = ""
    timezone: str = "UTC"
    inputs: dict[str, Any] = {}
    mailbox: str = ""


class Subscription(msgspec.Struct, frozen=True, rename="camel"):
    """A subscription as the host stores it; `shown` is the contract's part.

    Events before `since_ms`, the time when it was made or resumed, do not count.
    """

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
        """Whether a repeated event is the same delivery; a moment of a schedule always is."""
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
    """Return the subscription in another state; a Problem when that change is not allowed (G1)."""
    if to not in _MOVES[found.state]:
        message = f"A subscription that is {found.state} cannot become {to}."
        raise Problem("state_conflict", message, subscriptionId=found.subscription_id, state=found.state)
    return msgspec.structs.replace(found, state=to)


def delay_ms(policy: TriggerRetry, attempt: int) -> int | None:
    """Return the milliseconds until the next attempt; None after the last one (G2)."""
    if attempt >= policy.max_attempts:
        return None
    if policy.backoff == "none":
        return 0
    return min(_LONGEST_MS, _FIRST_MS * (1 if policy.backoff == "fixed" else 2 ** min(attempt - 1, 30)))


def dedup_key(secret: bytes, subscription_id: str, event_id: str) -> str:
    """Return the key under which an inbound event counts once (G3)."""
    return hmac.new(secret, f"{subscription_id}\0{event_id}".encode(), hashlib.sha256).hexdigest()[:40]
