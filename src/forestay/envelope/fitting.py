"""Makes an envelope fit its budget (R38 to R41, D3, D10).

- F1  The returned envelope is valid and within the budget, in the form in which it is sent: whole, or at `level`.
- F2  An answer that fits comes back unchanged.
- F3  A page loses whole items and says so in `limit` and `hasMore`; its items are never cut open.
- F4  Omissions are reported: a warning in `_meta`, figures in `_extensions` (D3). Their room is reserved first.
- F5  What cannot fit is E_MVI_BUDGET_EXCEEDED; nothing is ever sent over budget.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from forestay.envelope.budget import Budget, Cost, cost, count_items, exceeded, within
from forestay.envelope.disclosure import project
from forestay.envelope.token_estimate import MAX_DEPTH, RATIOS, Estimator, Family
from forestay.envelope.truncate import Room, Strategy, Truncation
from forestay.envelope.types import Envelope, Error, Mvi, Page, Warning

EXTENSION = "x-forestay-budget"
TRUNCATED = "E_MVI_BUDGET_TRUNCATED"
_WIDEST = 99_999_999  # reserves the digits of any count that a value within the size limits can have
_NAMES_TOKENS, _NAMES_BYTES = 60, 300  # the most room reserved for the paths of what was cut
_MAX_LEVELS = 100  # a truncated value stays within the depth that every reader of envelopes accepts
_replace = msgspec.structs.replace
_encode = msgspec.json.Encoder().encode


class Fitting(msgspec.Struct, frozen=True):
    """How to fit: the budget, the level at which the cost counts, and the strategy of cutting."""

    budget: Budget
    level: Mvi | None = None
    strategy: Strategy = "hybrid"
    family: Family = "default"

    def shown(self, envelope: Envelope) -> dict[str, Any]:
        """Return the envelope as it is sent: projected to the level, or whole."""
        if self.level is not None:
            return project(envelope, self.level)
        whole: dict[str, Any] = msgspec.to_builtins(envelope)
        return whole


def fit(
    envelope: Envelope,
    budget: Budget,
    *,
    level: Mvi | None = None,
    strategy: Strategy = "hybrid",
    family: Family = "default",
    cursor_at: Callable[[int], str] | None = None,
) -> Envelope:
    """Return `envelope` within `budget`. `cursor_at(n)` gives the cursor behind the n-th item, for pages by cursor."""
    how = Fitting(budget, level, strategy, family)
    estimator = Estimator(RATIOS[family])
    whole = cost(how.shown(envelope), estimator)
    if within(whole, budget):
        return envelope
    if isinstance(envelope.page, Page) and envelope.page.mode != "none" and count_items(envelope.result):
        return _shorter_page(envelope, envelope.page, how, estimator, whole, cursor_at)
    return _truncated(envelope, how, estimator, whole)


def _truncated(envelope: Envelope, how: Fitting, estimator: Estimator, whole: Cost) -> Envelope:
    bare = _marked(_emptied(envelope), how, _WIDEST, [], _WIDEST)
    trees = [("result", envelope.result)]
    base = cost(how.shown(bare), estimator)
    if not within(base, how.budget) and isinstance(bare.error, Error) and bare.error.details:
        trees.insert(0, ("details", bare.error.details))
        bare = _replace(bare, error=_replace(bare.error, details={}))
        base = cost(how.shown(bare), estimator)
    if not within(base, how.budget):
        raise exceeded(whole, how.budget)
    room = _room(how.budget, base)
    kept_tokens, kept_bytes = min(room.tokens / 5, _NAMES_TOKENS), min(room.bytes / 5, _NAMES_BYTES)
    room.tokens, room.bytes = room.tokens - kept_tokens, room.bytes - kept_bytes
    truncation = Truncation(how.strategy, estimator)
    filled = bare
    for name, tree in trees:
        filled = _filled(filled, name, tree, room, truncation, how.budget)
    room.tokens, room.bytes = room.tokens + kept_tokens, room.bytes + kept_bytes
    paths = _affordable(truncation.cut.paths, room, estimator)
    final = _marked(filled, how, truncation.cut.count, paths, _WIDEST)
    return _with_estimate(final, how, estimator, whole)


def _filled(envelope: Envelope, name: str, tree: Any, room: Room, truncation: Truncation, budget: Budget) -> Envelope:
    """Put back as much of one emptied part as fits; its empty container is already paid for."""
    if not tree:
        return envelope
    room.tokens += 2
    room.bytes += 2
    if name == "details" and isinstance(envelope.error, Error):
        kept = truncation.apply(tree, room, "$.error.details", 2)
        return _replace(envelope, error=_replace(envelope.error, details=kept))
    if budget.max_items is not None:
        tree = _fewer_items(tree, budget.max_items, truncation)
    return _replace(envelope, result=truncation.apply(tree, room, "$.result", 1))


def _fewer_items(result: Any, most: int, truncation: Truncation) -> Any:
    """Return at most `most` items of the array, or of the arrays that the object wraps."""
    if isinstance(result, list):
        if len(result) > most:
            truncation.cut.note(f"$.result[{most}:]")
        return result[:most]
    if not isinstance(result, dict):
        return result
    kept: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, list):
            if len(value) > most:
                truncation.cut.note(f"$.result.{name[:40]}[{most}:]")
            value = value[:most]
            most -= len(value)
        kept[name] = value
    return kept


def _shorter_page(
    envelope: Envelope,
    page: Page,
    how: Fitting,
    estimator: Estimator,
    whole: Cost,
    cursor_at: Callable[[int], str] | None,
) -> Envelope:
    """Return as many whole items as fit; none is a failure: an empty page promises progress that never comes."""
    name, items = _list_in(envelope.result)
    if items is None or (page.mode == "cursor" and cursor_at is None):
        raise exceeded(whole, how.budget)

    def with_items(count: int) -> Envelope:
        shorter = _replace(page, limit=max(1, count), has_more=True)
        if page.mode == "cursor" and cursor_at is not None:
            shorter = _replace(shorter, next_cursor=cursor_at(count))
        part: Any = items[:count] if name is None else {**envelope.result, name: items[:count]}  # type: ignore[dict-item]
        smaller = _replace(envelope, result=part, page=shorter)
        return _marked(smaller, how, len(items) - count, [f"$.result{f'.{name}' if name else ''}[{count}:]"], _WIDEST)

    count = _items_that_fit(items, _room(how.budget, cost(how.shown(with_items(0)), estimator)), estimator)
    if how.budget.max_items is not None:
        count = min(count, how.budget.max_items)
    while count > 0:
        candidate = with_items(count)
        if within(cost(how.shown(candidate), estimator), how.budget):
            return _with_estimate(candidate, how, estimator, whole)
        count -= 1  # the digits of the counts, or a longer cursor, took the room of one
    raise exceeded(whole, how.budget)


def _items_that_fit(items: list[Any], room: Room, estimator: Estimator) -> int:
    sizes = Truncation("field_priority", estimator)
    for count, item in enumerate(items):
        size = sizes.size(item)
        if not room.holds(size, 2, 1, 1):
            return count
        room.take(size, 1, 1)
    return len(items) - 1  # the caller found that the whole list does not fit


def _list_in(result: Any) -> tuple[str | None, list[Any] | None]:
    """Return the list that a page is about: the result, or the only array that it wraps."""
    if isinstance(result, list):
        return None, result
    lists = [(name, value) for name, value in result.items() if isinstance(value, list)]
    return lists[0] if len(lists) == 1 else (None, None)


def _emptied(envelope: Envelope) -> Envelope:
    result = envelope.result
    return _replace(envelope, result=[] if isinstance(result, list) else {} if isinstance(result, dict) else None)


def _marked(envelope: Envelope, how: Fitting, count: int, paths: list[str], estimated: int) -> Envelope:
    """Return `envelope` with the notice of what was left out (R40, D3)."""
    warning = Warning(code=TRUNCATED, message=f"{count} left out to fit the budget.")
    before = envelope.meta.warnings if envelope.meta.warnings is not UNSET else []
    kept = [item for item in before if item.code != TRUNCATED]
    notice: dict[str, Any] = {
        "estimated": estimated,
        "budget": how.budget.as_json(),
        "method": how.strategy,
        "omitted": count,
    }
    if paths:
        notice["paths"] = paths
    extensions = envelope.extensions if isinstance(envelope.extensions, dict) else {}
    return _replace(
        envelope,
        meta=_replace(envelope.meta, warnings=[*kept, warning]),
        extensions={**extensions, EXTENSION: notice},
    )


def _affordable(paths: list[str], room: Room, estimator: Estimator) -> list[str]:
    """Return the paths that still fit, together with the member that holds them."""
    if not paths:
        return []
    tokens = itertools.accumulate((estimator.scalar(path) + 1 for path in paths), initial=estimator.key("paths") + 4)
    size = itertools.accumulate((len(_encode(path)) + 1 for path in paths), initial=len(b',"paths":[]'))
    spent = list(zip(tokens, size, strict=True))[1:]
    return [path for path, (t, b) in zip(paths, spent, strict=True) if t <= room.tokens and b <= room.bytes]


def _with_estimate(envelope: Envelope, how: Fitting, estimator: Estimator, whole: Cost) -> Envelope:
    """Write the estimate into the notice; the estimate also counts its own digits."""
    assert isinstance(envelope.extensions, dict)
    final = cost(how.shown(envelope), estimator)
    if not within(final, how.budget):
        raise exceeded(whole, how.budget)
    estimated = None
    if not math.isinf(final.tokens):
        without = int(final.tokens) - estimator.scalar(_WIDEST)
        estimated = next(n for n in range(without + 1, without + 10) if without + estimator.scalar(n) <= n)
    notice = {**envelope.extensions[EXTENSION], "estimated": estimated}
    return _replace(envelope, extensions={**envelope.extensions, EXTENSION: notice})


def _room(budget: Budget, base: Cost) -> Room:
    infinite = float("inf")
    return Room(
        infinite if budget.max_tokens is None else budget.max_tokens - base.tokens,
        infinite if budget.max_bytes is None else budget.max_bytes - base.bytes,
        _MAX_LEVELS if budget.max_tokens is None else MAX_DEPTH,
    )
