"""Counts how much work a JSON Schema can cause for a value, before validation begins.

A few hundred bytes of schema can double the work at every `$ref`, and again at every level of the value. The cost is
how often sub-schemas may be applied along one path of the value, from the root down; a validator that stops early does
less. Only schemas with references can grow: without them each sub-schema is applied once.

- Q1  The count is finite and cheap for every schema: circular references are followed once.
- Q2  Sub-schemas of the same value add up; of those of different parts, the most expensive counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

MOST = 20_000
"""Applications along one path. A schema that people write has a few hundred."""

_SAME = ("allOf", "anyOf", "oneOf")
_SAME_ONE = ("not", "if", "then", "else")
_ANY_PART = (
    "items", "additionalProperties", "additionalItems", "contains", "unevaluatedItems", "unevaluatedProperties",
    "propertyNames",
)  # fmt: skip
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MOST_NODES = 20_000

Parts = dict[str, Counter[int]]


class Cost:
    """The cost of applying one schema, by the depth of the value."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        self._nodes: dict[int, dict[str, Any]] = {}
        self._here: dict[int, tuple[int, Parts]] = {}
        self._by_depth: dict[int, int] = {}
        names = ("$anchor", "$dynamicAnchor", "$id")
        self._anchors = {
            node[key]: node for node in _objects(schema) for key in names if isinstance(node.get(key), str)
        }

    def of(self, depth: int) -> int:
        """Return the cost of the root on a value of this depth; every cost above `MOST` is `MOST + 1`."""
        if depth not in self._by_depth:
            self._by_depth[depth] = self._counted(depth)
        return self._by_depth[depth]

    def _counted(self, depth: int) -> int:
        known: dict[int, int] = {}
        try:
            names = self._reachable()
        except RecursionError:  # a chain of thousands of references
            return MOST + 1
        for _ in range(depth + 1):
            level = {name: self._at(name, known) for name in names}
            if level == known:
                break
            known = level
        return known[id(self._root)]

    def _reachable(self) -> list[int]:
        seen, queue = {id(self._root)}, [self._root]
        while queue:
            _, parts = self._unfolded(queue.pop(), set())
            for found in parts.values():
                for name in found:
                    if name not in seen:
                        seen.add(name)
                        queue.append(self._nodes[name])
        return list(seen)

    def _at(self, name: int, below: dict[int, int]) -> int:
        here, parts = self._here[name]
        everywhere = _sum(parts.get("*", Counter()), below)
        named = [_sum(found, below) for key, found in parts.items() if key != "*"]
        return min(here + everywhere + max(named, default=0), MOST + 1)

    def _unfolded(self, node: dict[str, Any], on_the_way: set[int]) -> tuple[int, Parts]:
        """Count the sub-schemas that apply to the same value as `node`, and those of its parts, by name (Q2)."""
        name = id(node)
        self._nodes[name] = node
        if name in self._here:
            return self._here[name]
        if name in on_the_way:
            return 1, {}  # Q1
        on_the_way.add(name)
        count, parts = 1, _own_parts(node, self._nodes)
        for other in self._same(node):
            more, inner = self._unfolded(other, on_the_way)
            count = min(count + more, MOST + 1)
            for key, found in inner.items():
                there = parts.setdefault(key, Counter())
                for child, times in found.items():
                    there[child] = min(there[child] + times, MOST + 1)
        on_the_way.discard(name)
        self._here[name] = count, parts
        return count, parts

    def _same(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for key in _SAME:
            yield from (item for item in _list(node.get(key)) if isinstance(item, dict))
        yield from (node[key] for key in _SAME_ONE if isinstance(node.get(key), dict))
        for key in ("dependentSchemas", "dependencies"):
            yield from (item for item in _dict(node.get(key)).values() if isinstance(item, dict))
        for key in _REFERENCES:
            target = self._target(node.get(key))
            if target is not None:
                yield target

    def _target(self, reference: Any) -> dict[str, Any] | None:
        if not isinstance(reference, str):
            return None
        address, _, fragment = reference.partition("#")
        found: Any = self._anchors.get(address) if address else self._root
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get(fragment)
        elif fragment:
            for part in fragment[1:].split("/"):
                found = _step(found, part.replace("~1", "/").replace("~0", "~"))
        return found if isinstance(found, dict) else None


def grows(schema: Any) -> bool:
    """Whether a schema has references, so that its cost must be counted."""
    return isinstance(schema, dict) and _refers(schema)


def depth_of(value: Any, most: int = 128) -> int:
    """Return how deep a value is, at most `most`."""
    level, found = [value], 0
    while found < most:
        level = [
            part
            for item in level
            if isinstance(item, dict | list)
            for part in (item.values() if isinstance(item, dict) else item)
            if isinstance(part, dict | list)
        ]
        if not level:
            return found + 1
        found += 1
    return most


def _refers(schema: Any) -> bool:
    return any(key in node for node in _objects(schema) for key in _REFERENCES)


def _own_parts(node: dict[str, Any], nodes: dict[int, dict[str, Any]]) -> Parts:
    parts: Parts = {}

    def meets(key: str, child: Any) -> None:
        if isinstance(child, dict):
            nodes[id(child)] = child
            parts.setdefault(key, Counter())[id(child)] += 1

    for key in _ANY_PART:
        for child in _list(node.get(key)) if isinstance(node.get(key), list) else (node.get(key),):
            meets("*", child)
    for child in _list(node.get("prefixItems")):
        meets("*", child)
    for name, child in _dict(node.get("properties")).items():
        meets("." + name, child)
    for child in _dict(node.get("patternProperties")).values():
        meets("*", child)
    return parts


def _sum(found: Counter[int], below: dict[int, int]) -> int:
    return min(sum(times * below.get(name, 0) for name, times in found.items()), MOST + 1)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    queue, seen = [schema], 0
    while queue and seen < _MOST_NODES:
        item = queue.pop()
        seen += 1
        if isinstance(item, dict):
            yield item
            queue.extend(item.values())
        elif isinstance(item, list):
            queue.extend(item)


def _step(found: Any, part: str) -> Any:
    if isinstance(found, dict):
        from urllib.parse import unquote

        return found.get(part, found.get(unquote(part)))
    if isinstance(found, list) and part.isdigit() and int(part) < len(found):
        return found[int(part)]
    return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
