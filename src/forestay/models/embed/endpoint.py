"""Vectors from a server that speaks OpenAI's `/embeddings`: Ollama, vLLM, LM Studio, llama.cpp, a hosted service.

E1  A vector belongs to its text: there is one for each index, all of the same length. Any other answer is a Problem,
    and no vector is kept.
E2  Only the caller of the library gives a key. The settings have none: a project's file names the address, and must not
    choose where a person's key goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from forestay.kernel import Problem
from forestay.models.embed import Vector
from forestay.models.faults import shown

if TYPE_CHECKING:
    import httpx

_SILENCE = 60.0
_AT_ONCE = 64
_LONGEST_QUOTE = 200


class _Item(msgspec.Struct):
    embedding: list[float]
    index: int


class _Answer(msgspec.Struct):
    data: list[_Item]


class EndpointEmbedder:
    """The model `model` of the server at `address`; `/embeddings` is added to the address."""

    def __init__(
        self, model: str, address: str, *, key: str = "", transport: httpx.BaseTransport | None = None
    ) -> None:
        import httpx

        self.name = f"{model}@{shown(address)}"
        self._model = model
        self._address = address.rstrip("/") + "/embeddings"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(headers=headers, timeout=_SILENCE, transport=transport, follow_redirects=False)
        self._dimension = 0

    @property
    def dimension(self) -> int:
        """The length of a vector; asks the server when nothing was embedded yet."""
        if not self._dimension:
            self.embed(["dimension"])
        return self._dimension

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        found: list[Vector] = []
        for begin in range(0, len(texts), _AT_ONCE):
            found += self._group(texts[begin : begin + _AT_ONCE])
        return found

    def _group(self, texts: Sequence[str]) -> list[Vector]:
        # Servers refuse an empty text; a space means as little.
        told = {"model": self._model, "input": [text if text.strip() else " " for text in texts]}
        data = self._sent(msgspec.json.encode(told))
        try:
            items = sorted(msgspec.json.decode(data, type=_Answer).data, key=lambda item: item.index)
        except msgspec.DecodeError as error:
            raise self._senseless("does not fit `/embeddings`") from error
        if [item.index for item in items] != list(range(len(texts))):
            raise self._senseless(f"has {len(items)} vectors for {len(texts)} texts")
        sizes = {len(item.embedding) for item in items} | ({self._dimension} if self._dimension else set())
        if len(sizes) != 1 or 0 in sizes:
            raise self._senseless("has vectors of different lengths")
        (self._dimension,) = sizes
        return [_of_length_one(item.embedding) for item in items]

    def _sent(self, body: bytes) -> bytes:
        import httpx

        try:
            answer = self._client.post(self._address, content=body, headers={"Content-Type": "application/json"})
        except httpx.HTTPError as error:
            raise Problem(
                "provider_error",
                f"The embedder {self.name} does not answer: {str(error)[:_LONGEST_QUOTE] or type(error).__name__}.",
                embedder=self.name,
                fix="Start its server, or remove `models.embedder` from the settings.",
            ) from error
        if answer.status_code != 200:
            raise Problem(
                "provider_error",
                f"The embedder {self.name} answers with status {answer.status_code}.",
                embedder=self.name,
                status=answer.status_code,
                fix="Check that the server has this model, and whether it needs a key.",
            )
        return answer.content

    def _senseless(self, why: str) -> Problem:
        return Problem(
            "provider_error",
            f"The answer of the embedder {self.name} {why}.",
            embedder=self.name,
            fix="Name a server with OpenAI's embeddings interface.",
        )


def _of_length_one(vector: list[float]) -> list[float]:
    size = math.sqrt(math.fsum(value * value for value in vector))
    return [value / size for value in vector] if size else vector
