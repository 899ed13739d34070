"""Masks: what a scenario leaves out of the comparison, and why. A mask covers as little as possible.

With `pattern`, a mask hides only the matching parts of the texts at its place. With `drop`, it hides only the list
entries whose JSON matches. With neither, it hides the whole place. `*` in a place stands for one name or one index.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from forestay.kernel import canonical


class Mask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One place that is left out."""

    at: Annotated[str, msgspec.Meta(min_length=1)]
    why: Annotated[str, msgspec.Meta(min_length=12)]
    pattern: str = ""
    drop: str = ""

    def covers(self, place: str) -> bool:
        """Whether `place` is this place or inside it."""
        wanted = re.escape(self.at).replace(r"\*", r"[^.\[\]]+")
        return re.match(rf"{wanted}(?=$|[.\[])", place) is not None

    def is_at(self, place: str) -> bool:
        return self.covers(place) and place.count(".") + place.count("[") == self.at.count(".") + self.at.count("[")


def masked(value: Any, masks: Sequence[Mask], at: str = "") -> Any:
    """Return a value without the masked parts; a masked part of a text becomes an ellipsis."""
    if any(not mask.pattern and not mask.drop and mask.covers(at) for mask in masks):
        return None
    if isinstance(value, dict):
        return {key: masked(item, masks, f"{at}.{key}" if at else key) for key, item in value.items()}
    if isinstance(value, list):
        for mask in masks:
            if mask.drop and mask.is_at(at):
                value = [item for item in value if not re.search(mask.drop, canonical.encode(item).decode())]
        return [masked(item, masks, f"{at}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        for mask in masks:
            if mask.pattern and mask.covers(at):
                text = re.sub(mask.pattern, "…", str(value))
                value = text if text != str(value) else value
    return value
