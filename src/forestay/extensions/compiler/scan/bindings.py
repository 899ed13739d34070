"""What binds a name: the place of a parameter, and the member that an import takes."""

from __future__ import annotations

import msgspec
from tree_sitter import Node

from forestay.extensions.compiler.scan.flow import inside, position
from forestay.extensions.compiler.scan.syntax import File, text_of


class Place(msgspec.Struct, frozen=True):
    """Where a parameter stands: its function and which one it is, its loop, or what its `catch` may catch."""

    pattern: Node
    default: Node | None = None
    loop: Node | None = None
    thrown: list[Node] | None = None
    function: Node | None = None
    index: int = 0
    is_plain: bool = False  # one name
    is_rest: bool = False


def place_of(file: File, declared: Node) -> Place:
    """The place of a parameter. The tree is asked for what is around it, which is slow: the caller keeps the answer."""
    outer = declared.parent
    if outer is not None and outer.type == "for_in_statement":
        return Place(declared, loop=outer)
    if outer is not None and outer.type == "catch_clause":
        whole = outer.parent
        body = whole.child_by_field_name("body") if whole is not None else None
        return Place(declared, thrown=inside(body, ("throw_statement",)) if body is not None else [])
    pattern = declared.child_by_field_name("pattern") or declared
    default = declared.child_by_field_name("right") or declared.child_by_field_name("value")
    if pattern.type == "assignment_pattern":
        pattern = pattern.child_by_field_name("left") or pattern
    function = file.function_of(declared)
    index = position(function, declared) if function is not None else 0
    kind = pattern.type
    return Place(pattern, default, None, None, function, index, kind == "identifier", kind == "rest_pattern")


def imported_member(statement: Node, name: str) -> str | None:
    """The member of a module that an import statement binds to a name: "" for the whole module, None for nothing."""
    clause = next((child for child in statement.named_children if child.type == "import_clause"), None)
    if clause is None:
        return ""
    for child in clause.named_children:
        if child.type == "namespace_import" or (child.type == "identifier" and text_of(child) == name):
            return ""
        for specifier in child.named_children:
            exported = specifier.child_by_field_name("name")
            local = specifier.child_by_field_name("alias") or exported
            if local is not None and exported is not None and text_of(local) == name:
                member = text_of(exported)
                return "" if member == "default" else member
    return None
