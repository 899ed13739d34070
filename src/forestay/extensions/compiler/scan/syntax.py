"""A parsed file: its tree, its scopes, and where each name is declared."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from forestay.extensions.compiler.artifact import Location
from forestay.extensions.compiler.scan.texts import plain_name

Dialect = Literal["js", "jsx", "ts", "tsx"]
Span = tuple[int, int]
"""Where a stretch of a text begins and ends."""

_FUNCTIONS = frozenset(
    "program function_declaration function_expression generator_function generator_function_declaration "
    "arrow_function method_definition class_static_block".split()
)
_NAMES = frozenset(
    "identifier property_identifier shorthand_property_identifier shorthand_property_identifier_pattern "
    "private_property_identifier type_identifier".split()
)
_BLOCKS = "class_body statement_block for_statement for_in_statement catch_clause switch_body".split()
# Everything that the scanner indexes, in one walk over the tree: a walk costs a third of parsing. What the node of a
# scope itself binds (parameters, the name of a loop or of a `catch`) is read when something asks for the scope.
_WALK = f"""
[{" ".join(f"({kind})" for kind in (*sorted(_FUNCTIONS), *_BLOCKS))}] @scope
(variable_declaration) @var
(lexical_declaration) @let
[(function_declaration) (generator_function_declaration) (class_declaration)] @named
(import_statement) @imported
(export_statement) @export
[(assignment_expression) (augmented_assignment_expression)] @assignment
(call_expression function: (identifier) @callee)
(call_expression function: [
    (parenthesized_expression) (function_expression) (generator_function) (arrow_function) (class) (await_expression)
]) @immediate
(subscript_expression) @subscript
(pair_pattern key: (computed_property_name) @computed)
"""
# TypeScript also has parameters of no function, and a callee with `!` behind it.
_TYPED_WALK = f"""{_WALK}
(formal_parameters) @parameters
(call_expression function: [(non_null_expression) (as_expression) (satisfies_expression)]) @immediate
"""
_START, _END = operator.attrgetter("start_byte"), operator.attrgetter("end_byte")
_FIRST = operator.itemgetter(0)
_DECLARING = ("var", "let", "named", "parameters", "imported")
# Statements that declare what they name, or nothing: no `var` stands deeper in one of them.
_PLAIN = {
    "variable_declaration": "var", "lexical_declaration": "let", "function_declaration": "named",
    "generator_function_declaration": "named", "class_declaration": "named", "import_statement": "imported",
    "expression_statement": "", "empty_statement": "", "comment": "",
}  # fmt: skip
# The field of a scope's node that binds names beside the parameters.
_OWN = {"arrow_function": "parameter", "catch_clause": "parameter", "for_in_statement": "left"}


class File:
    """One source text with its tree, or some stretches of one, read as if nothing stood between them.

    `asked` and `offered` tell what other stretches of the text could have changed: names that are declared nowhere
    here, and names of the outermost scope whose calls, members or readers elsewhere would count.
    """

    def __init__(self, name: str, text: bytes, dialect: Dialect, spans: Sequence[Span] = ()) -> None:
        self.name = name
        self.text = b"".join(text[start:end] for start, end in spans) if spans else text
        self.language = language(dialect)
        self.is_typed = dialect in ("ts", "tsx")
        self.root = Parser(self.language).parse(self.text).root_node
        self.tops = self.root.children
        self.top_starts = [node.start_byte for node in self.tops]
        self._whole = text
        self._spans = spans
        self.asked: set[str] = set()
        self.offered: set[str] = set()
        self._reached = (0, 0, 0)  # the start of a line, a place on it, and the characters between the two
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._outer: list[int] = []  # by scope: the one around it, or -1
        self._scopes: list[Scope | None] = []  # made when they are asked for
        self._declaring: dict[int, list[tuple[int, str, Node]]] = {}  # by scope
        self._resolved: dict[int, Scope | None] = {}  # by the identifier that was asked for
        self._walked: dict[str, list[Node]] | None = None
        self._sorted: set[str] = set()
        self._scope_nodes: list[Node] = []

    def location(self, node: Node) -> Location:
        """Line and column of a node in the whole text, both from 1, columns in characters."""
        if self._spans:
            return self._in_whole(node.start_byte)
        row, offset = node.start_point
        start, end = node.start_byte - offset, node.start_byte
        line, reached, characters = self._reached
        if line != start or reached > end:
            reached, characters = start, 0
        # A line may be the whole program: each place on it is counted from the one before.
        characters += len(self.text[reached:end].decode("utf-8", "replace"))
        self._reached = start, end, characters
        return Location(self.name, row + 1, characters + 1)

    def _in_whole(self, place: int) -> Location:
        """Where a place of the joined stretches is."""
        for start, end in self._spans:
            if place < end - start:
                break
            place -= end - start
        line = self._whole.rfind(b"\n", 0, start + place) + 1
        column = len(self._whole[line : start + place].decode("utf-8", "replace")) + 1
        return Location(self.name, self._whole.count(b"\n", 0, line) + 1, column)

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

    def nodes(self, kind: str) -> list[Node]:
        """Every node of a kind that the walk notes, in the order of the text."""
        walked = self._walk()
        if kind not in self._sorted:
            self._sorted.add(kind)
            nodes = walked.setdefault(kind, [])
            nodes.sort(key=_END, reverse=True)  # what is around comes before what is inside
            nodes.sort(key=_START)
        return walked[kind]

    def _walk(self) -> dict[str, list[Node]]:
        if self._walked is None:
            walk = query(self.language, _TYPED_WALK if self.is_typed else _WALK)
            self._walked = QueryCursor(walk).captures(self.root)
            self._index(self._walked)
        return self._walked

    def called(self) -> dict[bytes, list[Node]]:
        """By name: where something is called by its name, in no order."""
        found: dict[bytes, list[Node]] = {}
        text = self.text
        for node in self._walk().get("callee", ()):
            name = text[node.start_byte : node.end_byte]
            if b"\\" in name:
                name = text_of(node).encode()
            known = found.get(name)
            if known is None:
                found[name] = [node]
            else:
                known.append(node)
        return found

    def call_of(self, callee: Node) -> Node | None:
        """The call whose callee is a name; the tree is asked from the statement on, which has few children."""
        tops = self.tops
        top = tops[bisect.bisect_right(self.top_starts, callee.start_byte) - 1]
        return top.descendant_for_byte_range(callee.start_byte, callee.end_byte + 1)

    def declaration(self, identifier: Node) -> Node | None:
        """The node that declares the name read at `identifier`; None when it is a global."""
        scope = self.scope(identifier)
        return scope.names[text_of(identifier)] if scope is not None else None

    def scope(self, identifier: Node) -> Scope | None:
        """The scope that declares the name read at `identifier`; None when it is a global."""
        key = identifier.id
        if key not in self._resolved:
            self._resolved[key] = self.scope_at(identifier.start_byte, text_of(identifier))
        return self._resolved[key]

    def scope_at(self, position: int, name: str) -> Scope | None:
        """The scope that declares a name as it is read at a position."""
        scope = self.innermost(position)
        while scope is not None and name not in scope.names:
            scope = scope.outer
        if scope is None:
            self.asked.add(name)
        return scope

    def declared(self) -> Iterator[str]:
        """The names of the outermost scope; most programs tell them without a walk over the whole tree."""
        if self._walked is None and all(node.type in _PLAIN for node in self.tops):
            named = ((_PLAIN[node.type], node) for node in self.tops)
            declaring = [(node.start_byte, kind, node) for kind, node in named if kind]
            yield from Scope(self.root, self.root.end_byte, None, declaring, self.is_typed).names
            return
        self._walk()
        if self._starts:
            yield from self._scope(0).names

    def offer(self, scope: Scope | None, name: str) -> None:
        """Note that what other stretches do with a name counts; only those of the outermost scope are seen there."""
        while scope is not None and name not in scope.names:
            scope = scope.outer
        if scope is not None and scope.outer is None:
            self.offered.add(name)

    def around(self, position: int, kind: str) -> Node | None:
        """The innermost scope of a kind around a position."""
        scope = self.innermost(position)
        while scope is not None and scope.node.type != kind:
            scope = scope.outer
        return scope.node if scope is not None else None

    def function_around(self, position: int) -> Node | None:
        """The function whose `arguments` are meant at a position; an arrow has none of its own."""
        scope = self.innermost(position)
        while scope is not None and not (scope.is_function and scope.node.type != "arrow_function"):
            scope = scope.outer
        return scope.node if scope is not None else None

    def function_of(self, parameter: Node) -> Node | None:
        """The function that a parameter belongs to."""
        scope = self.innermost(parameter.start_byte)
        return scope.node if scope is not None and scope.is_function else None

    def _index(self, walked: dict[str, list[Node]]) -> None:
        """Scopes by position: asking the tree for parents costs a walk from the root each time."""
        nodes = walked.get("scope", [])
        nodes.sort(key=_START)
        starts, ends = self._starts, self._ends
        starts += [node.start_byte for node in nodes]
        _settle_ties(nodes, starts)
        ends += [node.end_byte for node in nodes]
        self._scopes = [None] * len(nodes)
        self._scope_nodes = nodes
        around, outer = -1, self._outer
        for index, start in enumerate(starts):
            while around >= 0 and ends[around] <= start:
                around = outer[around]
            outer.append(around)
            around = index
        for kind in _DECLARING:
            for node in walked.get(kind, ()):
                self._declare(kind, node)

    def innermost(self, position: int) -> Scope | None:
        """The innermost scope around a position."""
        if self._walked is None:
            self._walk()
        index = self._innermost(position)
        if index < 0:
            return None
        return self._scopes[index] or self._scope(index)

    def _innermost(self, position: int) -> int:
        index = bisect.bisect_right(self._starts, position) - 1
        ends, outer = self._ends, self._outer
        while index >= 0 and ends[index] <= position:
            index = outer[index]
        return index

    def _scope(self, index: int) -> Scope:
        scope = self._scopes[index]
        if scope is None:
            around = self._outer[index]
            outer = self._scope(around) if around >= 0 else None
            node = self._scope_nodes[index]
            declaring = self._declaring.get(index, [])
            declaring.sort(key=_FIRST)
            scope = self._scopes[index] = Scope(node, self._ends[index], outer, declaring, self.is_typed)
        return scope

    def _declare(self, kind: str, node: Node) -> None:
        """Leave a declaration with the scope that it belongs to."""
        start = node.start_byte
        index = self._innermost(start)
        if kind == "var":
            while index >= 0 and self._scope_nodes[index].type not in _FUNCTIONS:
                index = self._outer[index]
        # A function starts where its own scope starts; its name belongs to the one around it.
        elif kind == "named" and index >= 0 and node.type != "class_declaration":
            index = self._outer[index]
        if index >= 0:
            self._declaring.setdefault(index, []).append((start, kind, node))


def _settle_ties(nodes: list[Node], starts: list[int]) -> None:
    """Have what is around come before what is inside where both begin at one place."""
    for index in [at for at, (one, next_one) in enumerate(itertools.pairwise(starts)) if one == next_one]:
        first = last = index
        while first and starts[first - 1] == starts[index]:
            first -= 1
        while last + 1 < len(starts) and starts[last + 1] == starts[index]:
            last += 1
        nodes[first : last + 1] = sorted(
            nodes[first : last + 1], key=lambda node: (-node.end_byte, node.type != "program")
        )


class Scope:
    """One scope: its node, where it ends, what is around it, and each name with what declares it first."""

    __slots__ = ("end", "is_function", "names", "node", "outer")

    def __init__(
        self, node: Node, end: int, outer: Scope | None, declaring: list[tuple[int, str, Node]], is_typed: bool
    ) -> None:
        kind = node.type
        self.node = node
        self.end = end
        self.is_function = kind in _FUNCTIONS
        self.outer = outer
        self.names: dict[str, Node] = {}
        # What its own node binds: parameters, and the name of a loop or of a `catch`.
        if self.is_function and not is_typed:
            self._name("parameters", node.child_by_field_name("parameters"))
        if kind in _OWN:
            self._name("local", node.child_by_field_name(_OWN[kind]))
        for _, how, declared in declaring:  # in the order of the text
            self._name(how, declared)

    def _name(self, kind: str, node: Node | None) -> None:
        """Note the names that a node declares."""
        if node is None:
            return
        if kind == "named":
            name = node.child_by_field_name("name")
            if name is not None:
                self.names.setdefault(text_of(name), node)
        elif kind == "parameters":
            for parameter in node.named_children:
                self._bind(parameter, parameter)
        elif kind in ("var", "let"):
            for declarator in node.named_children:
                self._bind(declarator.child_by_field_name("name"), declarator)
        else:
            self._bind(node, node)

    def _bind(self, pattern: Node | None, declared: Node) -> None:
        if pattern is not None and pattern.type == "identifier":
            self.names.setdefault(text_of(pattern), declared)
            return
        for identifier in names_in(pattern):
            self.names.setdefault(text_of(identifier), declared)


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
    text = node.text or b""
    if b"\\" in text and node.type in _NAMES:
        return plain_name(text.decode("utf-8", "replace"))
    return text.decode("utf-8", "replace")


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
