"""Finds every mistake of shape in a workflow document: its place, what is wrong, and what to write instead."""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from forestay.kernel import canonical
from forestay.runs.definition import Edge, Node, Port, Trigger, Variable, Workflow

_PARTS: dict[str, type[msgspec.Struct]] = {"nodes": Node, "edges": Edge, "triggers": Trigger, "variables": Variable}
# A sample value for each required field.
_WRITE: dict[str, Any] = {
    "id": "a-unique-name",
    "name": "A name for people",
    "version": "1.0.0",
    "typeId": "core.noop",
    "position": {"x": 0, "y": 0},
    "config": {},
    "inputs": {},
    "nodes": [],
    "edges": [],
    "triggers": [],
    "variables": [],
    "metadata": {},
    "settings": {},
    "sourceNodeId": "the id of a node",
    "targetNodeId": "the id of a node",
    "type": "string",
}
# Other products' names of these fields, which no spelling check would find.
_ALSO = {"from": "sourceNodeId", "source": "sourceNodeId", "to": "targetNodeId", "target": "targetNodeId"}
_ALSO |= {"kind": "typeId", "type": "typeId", "steps": "nodes", "when": "condition", "params": "config"}
_TOLD = 20  # unknown fields that are reported for one object
_SHOWN = 64  # characters of a name

_VALUE = "Correct the value."
_ID = "Use lower-case letters, digits, - and _, and begin with a letter: my-workflow."
_PORT = 'Write a port: {"type": "static", "value": 3}, or one of type variable, connection or expression.'


def mistakes(document: Any) -> Iterator[dict[str, str]]:
    """Yield the mistakes of a document; none if it can be read."""
    yield from _struct(document, Workflow, "$")


def _struct(value: Any, kind: type[msgspec.Struct], at: str) -> Iterator[dict[str, str]]:
    if not isinstance(value, dict):
        yield _finding(at, f"Expected an object, got {_json_name(value)}.", 'Write {"…": …} here.')
        return
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    free = [name for name in fields if name not in value]
    unknown = itertools.islice((name for name in value if name not in fields), _TOLD)
    meant = {name: _meant(name, free) for name in unknown}
    for name in fields:
        if fields[name].required and name not in value and name not in meant.values():
            yield _finding(at, f"`{name}` is missing.", f'Add "{name}": {json.dumps(_WRITE.get(name, "…"))}.')
    yield from _unknown(meant, fields, at)
    for name, item in value.items():
        if name not in fields:
            continue
        if kind is Node and name == "inputs" and isinstance(item, dict):
            for port, given in item.items():
                yield from _convert(given, Port, f"{at}.inputs.{port}", _PORT)
        elif kind is Workflow and name in _PARTS and isinstance(item, list):
            for index, part in enumerate(item):
                yield from _struct(part, _PARTS[name], f"{at}.{name}[{index}]")
            yield from _bounds(item, fields[name].type, f"{at}.{name}")
        else:
            yield from _convert(item, fields[name].type, f"{at}.{name}", _ID if at == "$" and name == "id" else _VALUE)


def _unknown(meant: dict[str, str | None], fields: Iterable[str], at: str) -> Iterator[dict[str, str]]:
    """Yield unknown fields, each with the probably intended one; the known ones are listed once."""
    remove = f"Remove it; known here: {', '.join(fields)}."
    for name, instead in meant.items():
        shown = name[:_SHOWN]
        fix = f"Did you mean `{instead}`?" if instead else remove
        yield _finding(f"{at}.{shown}", f"There is no field `{shown}`.", fix)
        if fix is remove:
            remove = "Remove it."


def _convert(value: Any, kind: Any, at: str, fix: str) -> Iterator[dict[str, str]]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, at)
        yield _finding(where, f"{message}.", fix)


def _bounds(items: list[Any], kind: Any, at: str) -> Iterator[dict[str, str]]:
    """Check the length of a list, whose elements are checked separately."""
    for found in _convert(items, kind, at, _VALUE):
        if found["at"] == at:
            yield found


def _meant(name: str, free: list[str]) -> str | None:
    """Return the missing field that an unknown name was probably meant to be."""
    close = difflib.get_close_matches(name[:_SHOWN], free, 1) or [also for also in (_ALSO.get(name),) if also in free]
    return close[0] if close else None


def _finding(at: str, message: str, fix: str) -> dict[str, str]:
    return {"at": at, "message": message, "fix": fix}


def _json_name(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
