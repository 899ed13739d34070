"""`Subscriptions`: bind sources of events to workflows of a tenant (OpenWOP RFC 0083 §B)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forestay.governance import inbound_signature, intake_form
from forestay.governance.inbound_signature import Signed
from forestay.governance.staff import Staff
from forestay.governance.trigger import (
    Reason,
    Source,
    SourceSettings,
    Subscription,
    SubscriptionState,
    TriggerRetry,
    move,
)
from forestay.governance.trigger_table import PREFIX
from forestay.kernel import Clock, Draft, Ids, Ledger, Problem
from forestay.runs import Runs, cron_check

MAX_PER_TENANT = 200


class Subscriptions:
    """The subscriptions of one ledger. `mailboxes` are those of the settings, by name, with the tenant of each."""

    def __init__(
        self,
        ledger: Ledger,
        runs: Runs,
        staff: Staff,
        *,
        clock: Clock,
        ids: Ids,
        secret: bytes,
        mailboxes: Mapping[str, str],
    ) -> None:
        self._ledger = ledger
        self._runs = runs
        self._staff = staff
        self._clock = clock
        self._ids = ids
        self._secret = secret
        self._mailboxes = mailboxes
        self._watching: list[Callable[[], None]] = []
        self.turn = asyncio.Lock()  # one caller at a time checks and changes subscriptions

    @property
    def driven(self) -> tuple[Source, ...]:
        """The sources whose events this host accepts."""
        return ("queue", "webhook", "schedule", "form", *(("email",) if self.reads_mail else ()))

    @property
    def reads_mail(self) -> bool:
        return bool(self._mailboxes)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` when a subscription is made or changes its state."""
        self._watching.append(changed)

    async def subscribe(
        self,
        tenant: str,
        source: Source,
        workflow_id: str,
        *,
        retry: TriggerRetry | None = None,
        dedup: bool = True,
        roster_id: str | None = None,
        subscription_id: str | None = None,
        settings: SourceSettings | None = None,
    ) -> Subscription:
        """Bind a source to a workflow of the tenant, or to one of a roster member's portfolio.

        A caller that must not create two gives the id, and gets the existing one.
        """
        if source not in self.driven:
            message = f"This host does not accept events of the source {source}."
            fix = "Name a mailbox in the settings." if source == "email" else "Choose another source."
            raise Problem("schema_mismatch", message, at="$.source", fix=fix)
        document = await self._runs.get_workflow(workflow_id, tenant)
        how = settings or SourceSettings()
        self._check(source, how, tenant, document)
        if roster_id is not None and workflow_id not in (await self._staff.get(tenant, roster_id)).workflows:
            raise Problem("schema_mismatch", "The workflow is not in the member's portfolio.", at="$.workflowId")
        name = subscription_id or self._ids.new("sub")
        mark = inbound_signature.fingerprint(self._secret, self._key(name)) if source == "webhook" else None
        made = Subscription(
            name,
            source,
            tenant,
            workflow_id,
            dedup_enabled=dedup,
            retry_policy=retry or TriggerRetry(),
            roster_id=roster_id,
            secret_fingerprint=mark,
            settings=how,
            since_ms=self._clock.now_ms(),
        )
        async with self.turn:
            known = {item.subscription_id: item for item in await self.listed(tenant)}
            if name in known:
                return known[name]
            if len(known) >= MAX_PER_TENANT:
                message = f"The tenant has {MAX_PER_TENANT} subscriptions already."
                raise Problem("state_conflict", message, limit=MAX_PER_TENANT)
            await self._ledger.append(PREFIX + name, [kept(made)], expect=-1)
        self._changed()
        return made

    def _check(self, source: Source, how: SourceSettings, tenant: str, document: dict[str, Any]) -> None:
        """Refuse settings with which no event could start the workflow."""
        if source == "schedule":
            cron_check(how.cron, how.timezone)
        elif source == "form":
            intake_form.form_fields(document)
        elif source == "email" and self._mailboxes.get(how.mailbox) != tenant:
            message = f"There is no mailbox {how.mailbox[:80]!r} for this tenant."
            raise Problem("schema_mismatch", message, at="$.mailbox", fix="Name one of `[mailboxes]` in the settings.")

    def _changed(self) -> None:
        for tell in self._watching:
            tell()

    def secret(self, found: Subscription) -> str | None:
        """Return the secret that a webhook's sender signs with; other sources have none."""
        return self._key(found.subscription_id) if found.source == "webhook" else None

    def _key(self, subscription_id: str) -> str:
        return inbound_signature.make_secret(self._secret, subscription_id)

    async def get(self, tenant: str, subscription_id: str) -> Subscription:
        found = await self.find(subscription_id)
        if found is None or found.tenant != tenant:
            raise Problem("not_found", "There is no such subscription.", subscriptionId=subscription_id[:128])
        return found

    async def find(self, subscription_id: str) -> Subscription | None:
        rows = await self._ledger.look_up(
            "SELECT doc FROM trigger_subscriptions WHERE subscription_id = ?", (subscription_id,)
        )
        return msgspec.json.decode(rows[0][0], type=Subscription) if rows else None

    async def listed(self, tenant: str) -> list[Subscription]:
        rows = await self._ledger.query(
            "SELECT doc FROM trigger_subscriptions WHERE tenant = ? ORDER BY subscription_id", (tenant,)
        )
        return [msgspec.json.decode(doc, type=Subscription) for (doc,) in rows]

    async def pause(self, tenant: str, subscription_id: str) -> Subscription:
        return await self._move(tenant, subscription_id, "paused", "operator-paused")

    async def resume(self, tenant: str, subscription_id: str) -> Subscription:
        return await self._move(tenant, subscription_id, "active", None)

    async def found(self, tenant: str, subscription_id: str, *, working: bool) -> None:
        """Set the state by whether the source works: active, or `failed`. A pause meanwhile stays."""
        known = await self.get(tenant, subscription_id)
        if known.state in ("active", "failed") and known.state != ("active" if working else "failed"):
            await self._move(tenant, subscription_id, "active" if working else "failed", None)

    async def _move(
        self, tenant: str, subscription_id: str, to: SubscriptionState, reason: Reason | None
    ) -> Subscription:
        async with self.turn:
            found = await self.get(tenant, subscription_id)
            if to == "active":
                found = msgspec.structs.replace(found, since_ms=self._clock.now_ms())
            await self._ledger.append(PREFIX + subscription_id, moved(found, to, reason))
        self._changed()
        return await self.get(tenant, subscription_id)

    async def remove(self, tenant: str, subscription_id: str) -> None:
        """Remove a subscription; its due deliveries become dead letters."""
        async with self.turn:
            await self.get(tenant, subscription_id)
            draft = Draft("trigger.removed", {"subscriptionId": subscription_id})
            await self._ledger.append(PREFIX + subscription_id, [draft])

    async def verified(self, subscription_id: str, signed: Signed, body: bytes) -> Subscription:
        """Return the subscription of a signed request. A stranger does not even learn whether it exists."""
        inbound_signature.check(self._key(subscription_id), signed, body, self._clock.now_ms())
        found = await self.find(subscription_id)
        if found is None or found.source != "webhook":
            raise inbound_signature.refused()
        return found


def kept(made: Subscription) -> Draft:
    said = {"tenant": made.tenant, "workflowId": made.workflow_id, "subscription": msgspec.to_builtins(made)}
    return Draft("trigger.subscription", said)


def moved(found: Subscription, to: SubscriptionState, reason: Reason | None) -> list[Draft]:
    """Return the records of a subscription's change of state."""
    told: dict[str, str] = {
        "subscriptionId": found.subscription_id,
        "source": found.source,
        "fromState": found.state,
        "toState": to,
    }
    said = told | ({"reason": reason} if reason else {})
    return [Draft("trigger.subscription.state.changed", said), kept(move(found, to))]
