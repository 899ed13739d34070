"""`/openai/v1/models` and `/openai/v1/embeddings`: the agents as models, and the embedder of the settings."""

from __future__ import annotations

import asyncio
import base64
from array import array
from typing import Annotated, Any, Literal

from msgspec import Meta

from forestay.host import Host
from forestay.kernel import Problem
from forestay.models import Embedder, embed
from forestay.surface.completions.request_parts import Given
from forestay.surface.operations import Call, Operations

MOST_TEXTS = 2048
api = Operations["Offered"](contract="openai", tag="openai", scopes=("manifest:read",))


class EmbeddingRequest(Given, frozen=True):
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    input: str | Annotated[list[str], Meta(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


class Offered:
    """The models that a host offers. The embedder is opened on first use."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._embedder: Embedder | None = None
        self._one_at_a_time = asyncio.Lock()

    @api.get("/openai/v1/models", "openai.models", dict[str, Any])
    async def models(self, call: Call) -> dict[str, Any]:
        """The agents of the caller's tenant, and the embedder, as models."""
        return {"object": "list", "data": await self._all(call.tenant)}

    @api.get("/openai/v1/models/{model}", "openai.model", dict[str, Any], problems=("not_found",))
    async def model(self, call: Call) -> dict[str, Any]:
        """One of them."""
        wanted = call.path["model"]
        found = next((item for item in await self._all(call.tenant) if item["id"] == wanted), None)
        if found is None:
            raise Problem("not_found", f"There is no agent {wanted[:80]}.", at="$.model")
        return found

    @api.post(
        "/openai/v1/embeddings",
        "openai.embed",
        dict[str, Any],
        scopes=("runs:create",),
        problems=("model_unknown", "request_unsupported"),
    )
    async def embeddings(self, call: Call, body: EmbeddingRequest) -> dict[str, Any]:
        """A vector for each text, by the embedder of the settings."""
        named = self._host.config.models.embedder
        if not named or body.model != named:
            known = [named] if named else []
            fix = f"Use {named}." if named else "Name an embedder as models.embedder in the settings."
            raise Problem("model_unknown", f"There is no embedder {body.model[:80]}.", known=known, fix=fix)
        texts = [body.input] if isinstance(body.input, str) else body.input
        vectors = await self._embedded(texts)
        if body.dimensions not in (None, len(vectors[0])):
            raise Problem("request_unsupported", f"{named} has {len(vectors[0])} dimensions.", at="$.dimensions")
        packed = body.encoding_format == "base64"
        data = [
            {"object": "embedding", "index": number, "embedding": _packed(vector) if packed else vector}
            for number, vector in enumerate(vectors)
        ]
        count = sum(map(self._host.models.default.count_tokens, texts))
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "data": data, "model": named, "usage": usage}

    async def _all(self, tenant: str) -> list[dict[str, Any]]:
        named = self._host.config.models.embedder
        agents = [_line(item.agent_id, item.pack) for item in await self._host.directory.listed(tenant)]
        return [*agents, *([_line(named, "forestay")] if named else [])]

    async def _embedded(self, texts: list[str]) -> list[list[float]]:
        async with self._one_at_a_time:
            if self._embedder is None:
                self._embedder = await asyncio.to_thread(embed.open, self._host.config.models.embedder)
            found = await asyncio.to_thread(self._embedder.embed, texts)
        return [[float(number) for number in vector] for vector in found]


def _line(id: str, owner: str) -> dict[str, Any]:
    return {"id": id, "object": "model", "created": 0, "owned_by": owner}


def _packed(vector: list[float]) -> str:
    numbers = array("f", vector)
    if array("H", [1]).tobytes()[0] != 1:  # the interface wants little-endian numbers
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
