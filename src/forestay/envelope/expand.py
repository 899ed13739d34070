"""`_expand` replaces references in a result by the objects they refer to (R37).

- X1  A name without an expander is E_DISCLOSURE_UNKNOWN_FIELD, before anything is fetched.
- X2  A dotted name continues inside the expanded object; deeper than the limit is E_MVI_BUDGET_EXCEEDED.
- X3  One reference is fetched once per answer, however often it occurs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from forestay.envelope.budget import Budget, cost, exceeded
from forestay.kernel import Problem, canonical

Expander = Callable[[Any], Awaitable[Any]]
MAX_DEPTH = 3


class Expanders:
    """The expander of each member: it takes the reference and returns the object."""

    def __init__(self, expanders: Mapping[str, Expander] | None = None, *, max_depth: int = MAX_DEPTH) -> None:
        self._expanders = dict(expanders or {})
        self._max_depth = max_depth

    def register(self, name: str, expander: Expander) -> None:
        if name in self._expanders:
            raise Problem("already_exists", f"{name} has an expander.", at=name)
        self._expanders[name] = expander

    @property
    def known(self) -> list[str]:
        return sorted(self._expanders)

    async def expand(self, result: Any, names: Sequence[str]) -> Any:
        """Return a copy of `result` in which the members in `names` are expanded."""
        paths = sorted({tuple(name.split(".")) for name in names}, key=len)
        for path in paths:
            self._check(path, result)
        fetched: dict[tuple[str, bytes], Any] = {}
        for path in paths:
            result = await self._along(result, path, path, fetched)
        return result

    def _check(self, path: tuple[str, ...], result: Any) -> None:
        unknown = [part for part in path if part not in self._expanders]
        if unknown:
            raise Problem(
                "disclosure_unknown_field",
                f"{unknown[0][:80]!r} cannot be expanded here.",
                at="$._expand",
                field=".".join(path)[:200],
                known=self.known,
            )
        if len(path) > self._max_depth:
            problem = exceeded(cost({"result": result}), Budget(), "expandDepth")
            problem.details.update(
                at="$._expand", depth=len(path), limit=self._max_depth, budget={"expandDepth": self._max_depth}
            )
            raise problem

    async def _along(
        self, value: Any, path: tuple[str, ...], rest: tuple[str, ...], fetched: dict[tuple[str, bytes], Any]
    ) -> Any:
        """Expand the member `rest[0]` of each entity in `value`; deeper parts continue inside its value."""
        if isinstance(value, list):
            return [await self._along(item, path, rest, fetched) for item in value]
        if not isinstance(value, dict):
            return value
        name, deeper = rest[0], rest[1:]
        if name not in value:
            wrapped = dict(value)
            for key, item in _entities(value):
                wrapped[key] = await self._along(item, path, rest, fetched)
            return wrapped
        held = value[name]
        if deeper:
            return {**value, name: await self._along(held, path, deeper, fetched)}
        return {**value, name: await self._fetch(name, held, fetched)}

    async def _fetch(self, name: str, held: Any, fetched: dict[tuple[str, bytes], Any]) -> Any:
        if held is None or isinstance(held, dict):  # nothing there, or expanded already
            return held
        if isinstance(held, list):
            return [await self._fetch(name, item, fetched) for item in held]
        key = (name, canonical.encode(held))
        if key not in fetched:
            fetched[key] = await self._expanders[name](held)
        return fetched[key]


def _entities(wrapper: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the members of a wrapper that hold a list of objects."""
    for key, value in wrapper.items():
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield key, value
