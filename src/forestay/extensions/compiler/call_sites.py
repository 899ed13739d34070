"""Where an error was made and a call stands, to the column: the engine tells the last name that it read before.

For `throw new RangeError(text + value)` the engine points at `value`, perhaps lines below. The source's syntax tree
tells which call that name belongs to; the place told is the one that Node tells: `new`, or the name that is called.
"""

from __future__ import annotations

from functools import lru_cache

from tree_sitter import Node

from forestay.extensions.compiler.artifact import Location
from forestay.extensions.compiler.scan.syntax import Dialect, File, text_of

_DIALECTS: dict[str, Dialect] = {"ts": "ts", "mts": "ts", "cts": "ts", "tsx": "tsx", "jsx": "jsx"}
_FUNCTIONS = frozenset(
    """
    function_declaration function_expression arrow_function method_definition generator_function
    generator_function_declaration class_static_block
    """.split()
)
_MAX_SOURCE = 1024 * 1024  # parsed where errors are told; beyond, the engine's own place has to do


def made_at(place: Location, source: str, error: str) -> Location:
    """Where the error of class `error` was made, when the place that was told lies in a `new …Error(…)`."""
    for node in _calls(place, source):
        maker = node.child_by_field_name("constructor")
        if node.type == "new_expression" and maker is not None:
            name = text_of(maker).rpartition(".")[2]
            return _start(node, place, source) if name == error or name.endswith("Error") else place
    return place


def called_at(place: Location, source: str, function: str) -> Location:
    """Where the call of `function` stands that was under way when the place was told."""
    found = _calls(place, source)
    named = next((node for node in found if _name(node) == function), None)
    node = named or (found[0] if found else None)
    if node is None:
        return place
    if node.type == "new_expression":
        return _start(node, place, source)
    callee = node.child_by_field_name("function")
    while callee is not None and callee.type in ("parenthesized_expression", "non_null_expression"):
        callee = callee.named_children[0] if callee.named_children else None
    if callee is None:
        return place
    return _start(callee.child_by_field_name("property") or callee, place, source)


def is_construction(place: Location, source: str) -> bool:
    """Whether a frame of a constructor only hands on to `super(…)`, or has no place of its own in the class."""
    found = _calls(place, source)
    if found and _name(found[0]) == "super":
        return True
    node = _node(place, source)
    while node is not None and node.type != "method_definition":
        node = node.parent
    name = node.child_by_field_name("name") if node is not None else None
    return name is None or text_of(name) != "constructor"


def makes(place: Location, source: str, function: str) -> bool:
    """Whether `new function(…)`, or the `super(…)` that leads to it, stands at a place that `called_at` told."""
    found = _calls(place, source)
    is_new = any(call.type == "new_expression" and _name(call) == function for call in found)
    return is_new or bool(found and _name(found[0]) == "super")


def _calls(place: Location, source: str) -> list[Node]:
    """The calls around a place, the innermost first, up to the function that it is in."""
    node, inner = _node(place, source), None
    found = []
    while node is not None and not _is_body(node, inner):
        if node.type in ("call_expression", "new_expression"):
            found.append(node)
        node, inner = node.parent, node
    return found


def _node(place: Location, source: str) -> Node | None:
    """What stands at a place."""
    lines = _lines(source) if len(source) <= _MAX_SOURCE else []
    if not 0 < place.line <= len(lines):
        return None
    point = (place.line - 1, len(lines[place.line - 1][: place.column - 1].encode()))
    return _parsed(place.file.rpartition(".")[2], source).root.named_descendant_for_point_range(point, point)


def _is_body(function: Node, inner: Node | None) -> bool:
    """Whether `inner` is what a function does; at its parameters the function is only made."""
    body = function.child_by_field_name("body") if function.type in _FUNCTIONS else None
    return body is not None and inner is not None and body.id == inner.id


def _name(call: Node) -> str:
    callee = call.child_by_field_name("function") or call.child_by_field_name("constructor")
    prop = callee.child_by_field_name("property") if callee is not None else None
    return text_of(prop or callee) if callee is not None else ""


def _start(node: Node, place: Location, source: str) -> Location:
    row, offset = node.start_point
    before = _lines(source)[row].encode()[:offset]
    return Location(place.file, row + 1, len(before.decode("utf-8", "replace")) + 1)


@lru_cache(maxsize=8)  # an extension throws many errors in one file
def _lines(source: str) -> list[str]:
    return source.split("\n")


@lru_cache(maxsize=8)
def _parsed(suffix: str, source: str) -> File:
    return File("source", source.encode(), _DIALECTS.get(suffix, "js"))
