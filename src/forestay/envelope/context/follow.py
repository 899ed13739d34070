"""Follows a remote context lazily (R31): fetches a summary first, and deltas only when it changed.

- W1  The held context is the ledger's context at the held checksum.
- W2  Deltas are checked against the checksum. When they do not lead to it (because a failed step lies between, or
      something is wrong), the follower fetches the whole context again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from forestay.envelope.context import deltas
from forestay.envelope.context.store import chain
from forestay.envelope.context.types import Context, Entry
from forestay.envelope.types import Envelope, Page
from forestay.envelope.validate import problem_of
from forestay.kernel import Problem

Fetch = Callable[[dict[str, str]], Awaitable[Envelope]]


class Follower:
    """Brings one context up to date on request; `fetch` performs `GET /_lafs/context/{ledgerId}`."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._context: Context | None = None
        self._checksum = ""

    async def current(self) -> Context:
        """Return the context as the ledger has it now."""
        if self._context is None:
            return await self._whole()
        summary = await self._ask(mode="summary")
        if summary["checksum"] == self._checksum:
            return self._context
        try:
            context, checksum = await self._newer(self._context)
        except Problem as problem:
            if problem.key != "context_compacted":
                raise
            return await self._whole()
        if checksum != summary["checksum"]:
            return await self._whole()
        self._context, self._checksum = context, checksum
        return context

    async def _whole(self) -> Context:
        told = await self._ask(mode="full", limit="1")
        self._context, self._checksum = msgspec.convert(told["context"], Context), told["checksum"]
        return self._context

    async def _newer(self, context: Context) -> tuple[Context, str]:
        checksum = self._checksum
        parameters = {"mode": "delta", "sinceVersion": str(context.version)}
        while True:
            envelope = await self._answer(parameters)
            for entry in msgspec.convert(_result(envelope)["entries"], list[Entry]):
                checksum = chain(checksum, entry)
                if entry.error is msgspec.UNSET:
                    context = deltas.apply(context, entry.context_delta)
            page = envelope.page
            if not isinstance(page, Page) or not isinstance(page.next_cursor, str):
                return context, checksum
            parameters["cursor"] = page.next_cursor

    async def _ask(self, **parameters: str) -> dict[str, Any]:
        return _result(await self._answer(parameters))

    async def _answer(self, parameters: dict[str, str]) -> Envelope:
        envelope = await self._fetch(parameters)
        if envelope.error is not msgspec.UNSET and envelope.error is not None:
            raise problem_of(envelope.error)
        return envelope


def _result(envelope: Envelope) -> dict[str, Any]:
    if not isinstance(envelope.result, dict):
        raise Problem("upstream_confused", "A context answer is an object.", at="$.result")
    return envelope.result
