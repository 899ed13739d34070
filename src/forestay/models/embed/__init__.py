"""Turns text into vectors, behind one protocol. Nothing is embedded unless the settings name an embedder.

`hashed` compares spellings and needs nothing; `minilm` compares meanings and needs the extra `embeddings`;
`MODEL@ADDRESS` is a model of a server with OpenAI's embeddings interface.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from forestay.kernel import Problem

KNOWN = ("hashed", "minilm", "MODEL@ADDRESS")
Vector = Sequence[float]
_AT_AN_ADDRESS = re.compile(r"(.+)@(https?://.+)")


class Embedder(Protocol):
    """Gives each text a vector of length one, so that the product of two vectors is their similarity.

    `name` identifies the weights too: vectors of another name are never compared with these.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector for each text, in order. Called in a thread, one call at a time."""
        ...


def open(spec: str) -> Embedder:
    """Open the embedder that `spec` names."""
    if spec == "hashed":
        from forestay.models.embed.hashed import Hashed

        return Hashed()
    if spec == "minilm":
        from forestay.models.embed.minilm import MiniLM

        return MiniLM.load()
    if found := _AT_AN_ADDRESS.fullmatch(spec):
        from forestay.models.embed.endpoint import EndpointEmbedder

        return EndpointEmbedder(*found.groups())
    raise Problem(
        "model_unknown",
        f"There is no embedder {spec[:40]!r}.",
        known=list(KNOWN),
        fix=f"Use one of: {', '.join(KNOWN)}.",
    )


__all__ = ["KNOWN", "Embedder", "Vector", "open"]
