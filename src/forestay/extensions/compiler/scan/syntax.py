"""A parsed file: its tree, its scopes, and where each name is declared."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Literal

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from forestay.extensions.compiler.artifact import Location
from forestay.extensions.compiler.scan.texts import plain_name

Dialect = Literal["js", "jsx", "ts", "tsx"]

_FUNCTIONS = (
    "program function_declaration function_expression generator_function generator_function_declaration "
    "arrow_function method_definition class_static_block"
).split()
_NAMES = frozenset(
    "identifier property_identifier shorthand_property_identifier shorthand_property_identifier_pattern "
    "private_property_identifier type_identifier".split()
)
_BLOCKS = "class_body statement_block for_statement for_in_statement catch_clause switch_body".split()
_SCOPES = " ".join(f"({kind}) @{kind}" for kind in (*_FUNCTIONS, *_BLOCKS))
_DECLARATIONS = """
(variable_declaration (variable_declarator) @var)
(lexical_declaration (variable_declarator) @let)
(function_declaration) @named
(generator_function_declaration) @named
(class_declaration) @named
(formal_parameters) @parameters
(arrow_function parameter: (identifier) @local)
(catch_clause parameter: (_) @local)
(for_in_statement left: (_) @local)
(import_statement) @imported
"""


class File:
    """One source text with its tree."""

    def __init__(self, name: str, text: bytes, dialect: Dialect) -> None:
        self.name = name
        self.text = text
        self.language = language(dialect)
        self.root = Parser(self.language).parse(text).root_node
        self._reached = (0, 0, 0)  # the start of a line, a place on it, and the characters between the two
        self._starts: list[int] = []
        self._scopes: list[_Scope] = []
        self._is_indexed = False

    def location(self, node: Node) -> Location:
        """Line and column of a node, both from 1, columns in characters."""
        row, offset = node.start_point
        start, end = node.start_byte - offset, node.start_byte
        line, reached, characters = self._reached
        if line != start or reached > end:
            reached, characters = start, 0
        # A line may be the whole program: each place on it is counted from the one before.
        characters += len(self.text[reached:end].decode("utf-8", "replace"))
        self._reached = start, end, characters
        return Location(self.name, row + 1, characters + 1)

    def beginning(self, node: Node, most: int = 2000) -> str:
        """The beginning of a node's text, which may be as long as the file."""
        end = min(node.end_byte, node.start_byte + 4 * most)
        return self.text[node.start_byte : end].decode("utf-8", "replace")[:most]

    def errors(self) -> Iterator[Node]:
        """The outermost places that do not parse."""
        pending = [self.root] if self.root.has_error else []
        while pending:
            node = pending.pop()
            if node.is_error or node.is_missing:
                yield node
            else:
                pending += [child for child in reversed(node.children) if child.has_error or child.is_missing]

    def find(self, pattern: str) -> list[tuple[str, Node]]:
        """Every capture of a query, in the order of the text."""
        found = QueryCursor(query(self.language, pattern)).captures(self.root)
        pairs = [(name, node) for name, nodes in found.items() for node in nodes]
        pairs.sort(key=lambda pair: (pair[1].start_byte, -pair[1].end_byte))
        return pairs

    def declaration(self, identifier: Node) -> Node | None:
        """The node that declares the name read at `identifier`; None when it is a global."""
        if not self._is_indexed:
            self._index()
        name = text_of(identifier)
        scope = self._innermost(identifier.start_byte)
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None

    def around(self, position: int, kind: str) -> Node | None:
        """The innermost scope of a kind around a position."""
        if not self._is_indexed:
            self._index()
        scope = self._innermost(position)
        while scope is not None and scope.node.type != kind:
            scope = scope.outer
        return scope.node if scope is not None else None

    def function_around(self, position: int) -> Node | None:
        """The function whose `arguments` are meant at a position; an arrow has none of its own."""
        scope = self._innermost(position)
        while scope is not None and not (scope.is_function and scope.node.type != "arrow_function"):
            scope = scope.outer
        return scope.node if scope is not None else None

    def function_of(self, parameter: Node) -> Node | None:
        """The function that a parameter belongs to."""
        scope = self._innermost(parameter.start_byte)
        return scope.node if scope is not None and scope.is_function else None

    def _index(self) -> None:
        """Scopes by position: asking the tree for parents costs a walk from the root each time."""
        self._is_indexed = True
        open_scopes: list[_Scope] = []
        for kind, node in self.find(_SCOPES):
            while open_scopes and open_scopes[-1].end <= node.start_byte:
                open_scopes.pop()
            scope = _Scope(node, kind in _FUNCTIONS, open_scopes[-1] if open_scopes else None)
            self._starts.append(node.start_byte)
            self._scopes.append(scope)
            open_scopes.append(scope)
        for kind, node in self.find(_DECLARATIONS):
            self._declare(kind, node)

    def _innermost(self, position: int) -> _Scope | None:
        index = bisect.bisect_right(self._starts, position) - 1
        scope: _Scope | None = self._scopes[index] if index >= 0 else None
        while scope is not None and scope.end <= position:
            scope = scope.outer
        return scope

    def _declare(self, kind: str, node: Node) -> None:
        scope = self._innermost(node.start_byte)
        if kind in ("var", "let"):
            while kind == "var" and scope is not None and not scope.is_function:
                scope = scope.outer
            self._add(scope, names_in(node.child_by_field_name("name")), node)
        elif kind == "named":
            # A function starts where its own scope starts; its name belongs to the one around it.
            if scope is not None and node.type != "class_declaration":
                scope = scope.outer
            name = node.child_by_field_name("name")
            self._add(scope, [name] if name is not None else [], node)
        elif kind == "parameters":
            for parameter in node.named_children:
                self._add(scope, names_in(parameter), parameter)
        else:
            self._add(scope, names_in(node), node)

    def _add(self, scope: _Scope | None, identifiers: Iterable[Node], declaration: Node) -> None:
        if scope is not None:
            for identifier in identifiers:
                scope.names.setdefault(text_of(identifier), declaration)


class _Scope:
    """One scope: its node, where it ends, what is around it, what it declares."""

    __slots__ = ("end", "is_function", "names", "node", "outer")

    def __init__(self, node: Node, is_function: bool, outer: _Scope | None) -> None:
        self.node = node
        self.end = node.end_byte
        self.is_function = is_function
        self.outer = outer
        self.names: dict[str, Node] = {}


def names_in(pattern: Node | None) -> Iterator[Node]:
    """Every identifier that a pattern binds; defaults and types are not part of the pattern."""
    pending = [pattern] if pattern is not None else []
    while pending:
        node = pending.pop()
        kind = node.type
        if kind in ("identifier", "shorthand_property_identifier_pattern"):
            yield node
        elif kind in ("assignment_pattern", "object_assignment_pattern"):
            left = node.child_by_field_name("left")
            pending += [left] if left is not None else []
        elif kind == "pair_pattern":
            value = node.child_by_field_name("value")
            pending += [value] if value is not None else []
        elif kind in ("required_parameter", "optional_parameter"):
            inner = node.child_by_field_name("pattern")
            pending += [inner] if inner is not None else []
        elif kind == "import_specifier":
            local = node.child_by_field_name("alias") or node.child_by_field_name("name")
            pending += [local] if local is not None else []
        elif kind not in ("type_annotation", "computed_property_name", "property_identifier", "string"):
            pending += reversed(node.named_children)


def call_arguments(call: Node) -> list[Node]:
    """The arguments of a call or `new`, comments aside; of a tagged template, the template."""
    given = call.child_by_field_name("arguments")
    if given is None:
        return []
    if given.type == "template_string":
        return [given]
    return [child for child in given.named_children if child.type != "comment"]


def text_of(node: Node) -> str:
    """The text of a node; a name is given without its escapes."""
    text = (node.text or b"").decode("utf-8", "replace")
    return plain_name(text) if "\\" in text and node.type in _NAMES else text


@cache
def language(dialect: Dialect) -> Language:
    """The grammar of a dialect; loaded when first asked for."""
    if dialect in ("js", "jsx"):
        import tree_sitter_javascript

        return Language(tree_sitter_javascript.language())
    import tree_sitter_typescript

    if dialect == "tsx":
        return Language(tree_sitter_typescript.language_tsx())
    return Language(tree_sitter_typescript.language_typescript())


@cache
def query(of: Language, pattern: str) -> Query:
    return Query(of, pattern)
