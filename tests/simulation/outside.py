"""The outside world: a shop that charges, receivers of webhooks, and a model. It remembers all that reached it."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import httpx

from forestay.kernel import Problem
from forestay.models import DEFAULT_PARAMS, Delta, Deltas, Message, Params, ToolSpec, Usage


class Delivered(NamedTuple):
    """One arrival of a webhook."""

    tenant: str
    delivery: str
    event: dict[str, Any]


class Outside:
    def __init__(self, chance: Random, is_recorded: Callable[[str], bool], complain: Callable[[str], None]) -> None:
        """`is_recorded` tells whether an effect's result is on the disk of the host that performs it."""
        self._chance = chance
        self._is_recorded = is_recorded
        self._complain = complain
        self.fails = 0.0
        self.receipts: defaultdict[str, list[int]] = defaultdict(list)
        self.bodies: dict[str, str] = {}
        self.identities: dict[str, str] = {}
        self.webhooks: list[Delivered] = []
        self._count = 0

    def sent(self, request: httpx.Request, body: bytes) -> None:
        """A host sends: what is on record may not be asked for again."""
        identity = request.headers.get("idempotency-key")
        if request.headers["host"] == "shop.example" and self._is_recorded(identity):
            self._complain(f"V2 the effect {identity} is on record and is performed again")

    def arrived(self, request: httpx.Request, body: bytes) -> tuple[int, Any]:
        host = request.headers["host"]
        if self._chance.random() < self.fails:
            return 503, {"busy": True}
        if host == "shop.example":
            return 200, {"receipt": self._charge(request.headers["idempotency-key"], body.decode())}
        tenant = host.removesuffix(".hooks.example")
        document = json.loads(body)
        self.webhooks.append(Delivered(tenant, request.headers["x-openwop-delivery-id"], document["event"]))
        return 200, {}

    def _charge(self, identity: str, body: str) -> int:
        self._count += 1
        self.receipts[identity].append(self._count)
        if self.bodies.setdefault(identity, body) != body:
            self._complain(f"V2 one identity, two effects: {self.bodies[identity]} and {body}")
        if self.identities.setdefault(body, identity) != identity:
            self._complain(f"V2 one effect, two identities: {body}")
        return self._count


class SimulatedModel:
    """Answers with what it was asked, piece by piece; now and then it fails."""

    name = "simulated"
    context_window = 8_000
    max_output_tokens = 1_000

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.fails = 0.0

    def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        return self._stream()

    async def _stream(self) -> Deltas:
        await asyncio.sleep(self._chance.random() * 0.2)
        if self._chance.random() < self.fails:
            raise Problem("provider_error", "The model is away.", retry_after_ms=100)
        for piece in ("I ", "heard."):
            yield Delta(text=piece)
            await asyncio.sleep(0)
        yield Delta(finish_reason="stop", usage=Usage(10, 2))

    def count_tokens(self, text: str) -> int:
        return len(text) // 4 + 1

    async def aclose(self) -> None:
        pass
