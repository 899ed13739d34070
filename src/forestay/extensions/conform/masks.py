"""What a scenario leaves out of the comparison: a place, the reason, and as little of it as possible.

With `pattern`, only the matching parts of the texts at that place are left out; with `drop`, only the entries of that
list whose JSON matches; with neither, the whole place. `*` in a place stands for one name or one index.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from forestay.kernel import canonical


class Mask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One such place."""

    at: Annotated[str, msgspec.Meta(min_length=1)]
    why: Annotated[str, msgspec.Meta(min_length=12)]
    pattern: str = ""
    drop: str = ""

    def covers(self, place: str) -> bool:
        """Whether `place` is this one or lies in it."""
        wanted = re.escape(self.at).replace(r"\*", r"[^.\[\]]+")
        return re.match(rf"{wanted}(?=$|[.\[])", place) is not None

    def is_at(self, place: str) -> bool:
        return self.covers(place) and place.count(".") + place.count("[") == self.at.count(".") + self.at.count("[")


def masked(value: Any, masks: Sequence[Mask], at: str = "") -> Any:
    """A value without what the masks leave out; what was left out of a text is an ellipsis."""
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
