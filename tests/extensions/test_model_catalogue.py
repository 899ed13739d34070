"""The models that a person narrowed the choice to (C2), in pi's patterns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from forestay.extensions.model_catalogue import ModelCatalogue


class Sea:
    async def models(self) -> list[Mapping[str, Any]]:
        names = (("sea", "ebb"), ("sea", "flood-mini"), ("lake", "still:8b"))
        return [{"provider": provider, "id": id} for provider, id in names]

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        yield {}


@pytest.mark.api("ctx.scopedModels")
@pytest.mark.parametrize(
    ("patterns", "scope"),
    [
        ([], []),
        (["ebb"], [("ebb", None)]),
        (["SEA/*:high", "ebb:low"], [("ebb", "high"), ("flood-mini", "high")]),
        (["*mini*", "lake/*"], [("flood-mini", None), ("still:8b", None)]),
        (["still:8b"], [("still:8b", None)]),
        (["still:8b:off", "nowhere"], [("still:8b", "off")]),
    ],
)
async def test_patterns_name_models_once_and_may_pin_a_level(patterns: list[str], scope: list[Any]) -> None:
    catalogue = ModelCatalogue(Sea(), list, patterns)
    found = await catalogue.scoped()
    assert [(item["model"]["id"], item.get("thinkingLevel")) for item in found] == scope
    offered = [model["id"] for model in await catalogue.selectable()]
    assert offered == ([id for id, _ in scope] or ["ebb", "flood-mini", "still:8b"])
