"""`MailIntake`: offers the unread mail of the settings' mailboxes to the email subscriptions (OpenWOP RFC 0083).

- B1  A message is marked as read after it is on disk. A message that was taken and not yet marked gives the same event
      again (Q2).
- B2  Mail stays in its mailbox while no subscription to it is active.
- B3  A mailbox that cannot be read makes its subscriptions `failed`; the next visit that succeeds makes them active.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping

import msgspec

from forestay.governance import MailRules, Subscription, Triggers, mail_event
from forestay.host import mailbox as imap
from forestay.kernel import Ledger, Locks, Mailbox, Problem

_FAILURES = 3  # failed visits in a row that make a subscription `failed`
_log = logging.getLogger("forestay.triggers")


class MailIntake:
    """The mailboxes of one host. `start` begins to read them, `close` stops."""

    def __init__(
        self, ledger: Ledger, triggers: Triggers, mailboxes: Mapping[str, Mailbox], locks: Locks | None = None
    ) -> None:
        for name, settings in mailboxes.items():
            imap.check_mailbox(name, settings)
        self._ledger = ledger
        self._triggers = triggers
        self._mailboxes = mailboxes
        self._locks = locks or Locks()
        self._failed = dict.fromkeys(mailboxes, 0)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._watch(name)) for name in self._mailboxes]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, name: str) -> None:
        while True:
            with contextlib.suppress(Problem):  # it is logged, and the next visit tries again
                await self.look(name)
            await asyncio.sleep(self._mailboxes[name].poll_seconds)

    async def look(self, name: str) -> int:
        """Take the unread messages; return their number."""
        async with self._locks.attempt(f"mailbox/{name}") as is_ours:
            bound = await self._bound(name) if is_ours else []
            if not bound:
                return 0  # B2
            try:
                count = await self._take(name, bound)
            except Problem as problem:
                self._failed[name] += 1
                _log.warning("the mailbox %s cannot be read: %s", name, problem.details.get("reason"))
                if self._failed[name] >= _FAILURES:
                    await self._become("failed", bound)  # B3
                raise
            self._failed[name] = 0
            return count

    async def _bound(self, name: str) -> list[Subscription]:
        rows = await self._ledger.query(
            "SELECT doc FROM trigger_subscriptions WHERE source = 'email' AND state IN ('active', 'failed')"
        )
        found = [msgspec.json.decode(doc, type=Subscription) for (doc,) in rows]
        return [item for item in found if item.settings.mailbox == name]

    async def _take(self, name: str, bound: list[Subscription]) -> int:
        settings = self._mailboxes[name]
        password = os.environ.get(settings.password_env, "")
        stack = contextlib.ExitStack()
        connection = await asyncio.to_thread(stack.enter_context, imap.opened(settings, password))
        try:
            await self._become("active", bound)
            letters = await asyncio.to_thread(imap.unread, connection)
            for letter in letters:
                taken = await self._offer(letter, bound, MailRules(settings.senders, settings.authenticated_by))
                await asyncio.to_thread(imap.mark, connection, letter.uid, refused=not taken)  # B1
            return len(letters)
        finally:
            await asyncio.to_thread(stack.close)

    async def _offer(self, letter: imap.Letter, bound: list[Subscription], rules: MailRules) -> bool:
        """Offer a message to every subscription; False when its sender may not start runs."""
        event = await asyncio.to_thread(mail_event, letter.raw, letter.place, rules)
        if event is None:
            _log.warning("a message is not taken: its sender may not start runs, or it is unreadable (%s)", letter.uid)
            return False
        for item in bound:
            await self._triggers.offer(item.tenant, item.subscription_id, event.id, event.inputs)
        return True

    async def _become(self, state: str, bound: list[Subscription]) -> None:
        for item in bound:
            if item.state != state:
                await self._triggers.subscriptions.found(item.tenant, item.subscription_id, working=state == "active")
