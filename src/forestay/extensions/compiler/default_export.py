"""The entry must export a default function (Pi §1A.4.3): what the text already tells is refused here."""

from __future__ import annotations

from tree_sitter import Node

from forestay.extensions.compiler.artifact import Location
from forestay.extensions.compiler.scan.syntax import Dialect, File, text_of
from forestay.kernel import Problem

_FIX = "Write `export default function (pi) { … }`."
_NOT_FUNCTIONS = frozenset(
    "string number template_string object array true false null undefined regex new_expression class_declaration "
    "class binary_expression unary_expression".split()
)
_ARTICLE = {"object": "an object", "array": "an array", "class": "a class", "class_declaration": "a class"}
_EXPORTS = "(export_statement) @statement"


def check_entry(name: str, text: bytes, dialect: Dialect) -> None:
    """Refuse an entry that cannot give a factory; one whose export is not told by the text is left to the run."""
    file = File(name, text, dialect)
    if file.root.has_error:
        return
    statements = [node for _, node in file.find(_EXPORTS)]
    if not statements and (b"module" in text or b"exports" in text):
        return  # CommonJS
    for statement in statements:
        exported = _default_of(statement)
        if exported is None:
            continue
        target = _value_of(file, exported)
        if target is not None and target.type in _NOT_FUNCTIONS:
            kind = _ARTICLE.get(target.type, "a value")
            raise _refusal(f"The entry's default export is {kind}, not a function.", file.location(statement))
        return
    raise _refusal("The entry has no default export.", Location(name, 1, 1))


def _default_of(statement: Node) -> Node | None:
    """What a statement exports as default: its value, or the statement itself when that is elsewhere."""
    if any(child.type == "default" for child in statement.children):
        value: Node | None = statement.child_by_field_name("value") or statement.child_by_field_name("declaration")
        return value or statement
    for clause in statement.named_children:
        for specifier in clause.named_children if clause.type == "export_clause" else ():
            name = specifier.child_by_field_name("name")
            exported = specifier.child_by_field_name("alias") or name
            if exported is not None and text_of(exported) == "default":
                return statement if statement.child_by_field_name("source") is not None else name
    return None


def _value_of(file: File, node: Node) -> Node | None:
    """Through names and type assertions to the expression; None when the text does not tell."""
    for _ in range(8):
        if node.type in ("parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression"):
            node = node.named_children[0]
        elif node.type == "identifier":
            declared = file.declaration(node)
            if declared is None:
                return None
            value = declared.child_by_field_name("value") if declared.type == "variable_declarator" else declared
            if value is None:
                return None
            node = value
        else:
            return node
    return None


def _refusal(message: str, place: Location) -> Problem:
    return Problem(
        "extension_invalid", message, at=str(place), file=place.file, line=place.line, column=place.column, fix=_FIX
    )
