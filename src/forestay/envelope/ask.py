"""Reads the form that a caller asks for (`_mvi`, `_fields`, `_expand`, `_budget`), and applies it (R31 to R41).

The order is fixed: expand, then pick fields, then fit the budget, then project to the level. So the budget counts
what is sent, and `_fields` also limits what `_expand` fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forestay.envelope.budget import Budget, read_budget
from forestay.envelope.disclosure import project, select_fields
from forestay.envelope.expand import Expanders
from forestay.envelope.fitting import fit
from forestay.envelope.flags import REQUESTABLE_LEVELS
from forestay.envelope.truncate import Strategy
from forestay.envelope.types import Envelope, Mvi
from forestay.kernel import Problem


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The form that a caller wants; by default the whole envelope is sent."""

    mvi: Mvi | None = None
    fields: tuple[str, ...] = ()
    expand: tuple[str, ...] = ()
    budget: Budget | None = None
    strategy: Strategy = "hybrid"


def read_ask(parameters: Mapping[str, Any], ceiling: Budget | None = None) -> Ask:
    """Read the underscore parameters of a request; lists may come as text with commas."""
    level = parameters.get("_mvi")
    if level is not None and level not in REQUESTABLE_LEVELS:
        raise Problem(
            "schema_mismatch",
            f"{str(level)[:40]!r} is not a level that can be asked for.",
            at="$._mvi",
            allowed=list(REQUESTABLE_LEVELS),
            fix="Use minimal, standard or full; custom is what the server answers when fields were picked.",
        )
    budget = parameters.get("_budget")
    return Ask(
        mvi=level,
        fields=_names(parameters, "_fields", dotted=False),
        expand=_names(parameters, "_expand", dotted=True),
        budget=None if budget is None else read_budget(budget, ceiling),
    )


async def give(
    envelope: Envelope,
    ask: Ask,
    expanders: Expanders | None = None,
    cursor_at: Callable[[int], str] | None = None,
) -> dict[str, Any]:
    """Return the envelope in the form of `ask`, as plain JSON."""
    return show(await shape(envelope, ask, expanders, cursor_at), ask)


async def shape(
    envelope: Envelope,
    ask: Ask,
    expanders: Expanders | None = None,
    cursor_at: Callable[[int], str] | None = None,
) -> Envelope:
    """Expand, pick fields and fit the budget; return a whole envelope with the result that `ask` wants."""
    if ask.expand:
        result = await (expanders or Expanders()).expand(envelope.result, ask.expand)
        envelope = msgspec.structs.replace(envelope, result=result)
    if ask.fields:
        envelope = select_fields(envelope, ask.fields)
    if ask.budget is not None:
        envelope = fit(envelope, ask.budget, level=ask.mvi, strategy=ask.strategy, cursor_at=cursor_at)
    return envelope


def show(envelope: Envelope, ask: Ask) -> dict[str, Any]:
    """Project a shaped envelope to the level of `ask`; without a level, return it whole."""
    if ask.mvi is None:
        whole: dict[str, Any] = msgspec.to_builtins(envelope)
        return whole
    shown = project(envelope, ask.mvi)
    if ask.fields and "mvi" in shown["_meta"]:  # R36: a lower level also says that fields were picked
        shown["_meta"]["mvi"] = "custom"
    return shown


def _names(parameters: Mapping[str, Any], name: str, *, dotted: bool) -> tuple[str, ...]:
    value = parameters.get(name)
    if value is None:
        return ()
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(item, str) and item for item in names):
        raise Problem("schema_mismatch", f"{name} is a list of names.", at=f"$.{name}", fix="Send an array of strings.")
    if not dotted and any("." in item for item in names):
        raise Problem(
            "schema_mismatch",
            f"{name} takes names of members, not paths.",
            at=f"$.{name}",
            fix="Name members of the entities themselves.",
        )
    return tuple(names)
