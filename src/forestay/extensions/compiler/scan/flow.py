"""Where values go in one file: assignments, arguments, fields, thrown and returned things.

Each index is made once, when something first asks for it. Nothing here knows what a value stands for.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from forestay.extensions.compiler.scan.syntax import File, Scope, call_arguments, names_in, text_of

FUNCTIONS = frozenset(
    "function_expression arrow_function generator_function function_declaration class class_declaration "
    "generator_function_declaration method_definition".split()
)
WRAPPERS = frozenset(
    """
    parenthesized_expression as_expression satisfies_expression non_null_expression await_expression
    type_assertion expression_statement
    """.split()
)
_MOST = 48  # places that are looked at for one name; a file that has more is not hiding but generated
_FIELDS = ("public_field_definition", "field_definition")
_LOGICAL = ("??=", "||=", "&&=")
_START = operator.attrgetter("start_byte")


class _Noted:
    """The assignments of a file: those to names by the name, those to members of a name or of `this` by the member."""

    def __init__(self) -> None:
        self.assignments: dict[str, list[tuple[Node, Node, Node | None]]] = {}
        self.stores: dict[str, list[tuple[Node, Node]]] = {}

    def add(self, node: Node) -> None:
        left = node.child_by_field_name("left")
        kind = left.type if left is not None else ""
        if left is None or kind not in ("identifier", "object_pattern", "array_pattern", "member_expression"):
            return
        right, is_augmented = node.child_by_field_name("right"), node.type == "augmented_assignment_expression"
        if right is None:
            return
        if kind == "member_expression":
            if not is_augmented:
                self._add_store(left, right)
            return
        operator = node.child_by_field_name("operator")
        is_added = operator is not None and text_of(operator) not in _LOGICAL
        for local in names_in(left):
            self.assignments.setdefault(text_of(local), []).append((local, left, None if is_added else right))

    def _add_store(self, left: Node, right: Node) -> None:
        owner = left.child_by_field_name("object")
        if owner is not None and owner.type in ("identifier", "this"):
            prop = left.child_by_field_name("property")
            if prop is not None:
                self.stores.setdefault(text_of(prop), []).append((owner, right))


class Flow:
    """The indexes of one file."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._notes: _Noted | None = None
        self._assigned: dict[tuple[str, int | None], list[tuple[Node, Node | None]]] = {}
        self._stored_by: dict[str, dict[int, list[Node]]] = {}
        self._calls: dict[bytes, list[Node]] | None = None
        self._called: dict[str, dict[int, list[Node]]] = {}
        self._immediate: dict[int, Node] | None = None
        self._resolved: dict[int, Node | None] = {}
        self._classes: dict[int, dict[str, list[Node]]] = {}  # by class body: its members by name

    def assigned(self, name: str, declared: Node) -> list[tuple[Node, Node | None]]:
        """What is assigned to a name beside its declaration, and to which pattern; None where a part is added to it."""
        # Each assignment is resolved once, when its name is first asked for.
        for local, left, right in self._noted().assignments.pop(name, ()):
            entries = self._assigned.setdefault((name, _id(self.file.declaration(local))), [])
            if len(entries) < _MOST:
                entries.append((left, right))
        return self._assigned.setdefault((name, declared.id), [])

    def _noted(self) -> _Noted:
        if self._notes is None:
            self._notes = _Noted()
            for node in self.file.nodes("assignment"):
                self._notes.add(node)
        return self._notes

    def stored(self, target: Node, key: str) -> Sequence[Node]:
        """What `target.key = …` puts there, for a name or `this`; and the fields of the class that it stands for."""
        home = self._home(target)
        if home is None:
            return ()
        by_owner = self._stored_by.get(key)
        if by_owner is None:
            by_owner = self._stored_by[key] = {}
            for owner, right in self._noted().stores.get(key, ()):
                at = self._home(owner)
                if at is not None:
                    by_owner.setdefault(at, []).append(right)
        return by_owner.get(home, [])[:_MOST]

    def _home(self, node: Node) -> int | None:
        """What tells two owners apart: the declaration of a name, the class around a `this`."""
        if node.type == "identifier":
            scope = self.file.scope(node)
            if scope is None:
                return None
            self.file.offer(scope, text_of(node))
            return scope.names[text_of(node)].id
        if node.type == "this":
            around = self.file.around(node.start_byte, "class_body")
            return around.id if around is not None else None
        return None

    def members(self, target: Node, key: str) -> Iterator[Node]:
        """The fields and getters `key` of the class that `target` is, or is made of, or stands in."""
        for member in self._class_members(target).get(key, ()):
            if member.type in _FIELDS:
                value = member.child_by_field_name("value")
                if value is not None:
                    yield value
            elif any(child.type == "get" for child in member.children):
                yield from returned(member)

    def _class_members(self, target: Node) -> dict[str, list[Node]]:
        """The members of a class by their names."""
        body: Node | None = None
        if target.type == "this":
            body = self.file.around(target.start_byte, "class_body")
        else:
            made = target.child_by_field_name("constructor") if target.type == "new_expression" else target
            found = self.resolved(made) if made is not None else None
            if found is not None and found.type == "new_expression":
                found = self.resolved(found.child_by_field_name("constructor") or found)
            if found is not None and found.type in ("class", "class_declaration"):
                body = found.child_by_field_name("body")
        if body is None:
            return {}
        named = self._classes.get(body.id)
        if named is None:
            named = self._classes[body.id] = {}
            for member in body.named_children:
                name = member.child_by_field_name("name") or member.child_by_field_name("property")
                if name is not None:
                    named.setdefault(text_of(name).strip("'\""), []).append(member)
        return named

    def resolved(self, node: Node | None) -> Node | None:
        """The expression behind brackets and names: a literal, a function, a class, a call."""
        if node is None:
            return None
        key = node.id
        if key not in self._resolved:
            self._resolved[key] = self._behind(node)
        return self._resolved[key]

    def _behind(self, node: Node | None) -> Node | None:
        for _ in range(6):
            if node is None:
                return None
            if (node.type in WRAPPERS and node.named_children) or node.type == "sequence_expression":
                node = node.named_children[-1]
            elif node.type == "identifier":
                declared = self.file.declaration(node)
                if declared is None or declared.type in FUNCTIONS:
                    return declared
                if declared.type != "variable_declarator":
                    return None
                pattern = declared.child_by_field_name("name")
                if pattern is None or pattern.type != "identifier":
                    return None
                node = declared.child_by_field_name("value")
            else:
                return node
        return None

    def arguments(self, function: Node) -> Iterator[list[Node]]:
        """The arguments of every call of a function by its name, or on the spot."""
        immediate = self._called_at_once().get(function.id)
        if immediate is not None:
            yield call_arguments(immediate)
        for name in self._names_of(function):
            text = text_of(name)
            self.file.offer(self._around(function), text)
            by_function = self._called.get(text)
            if by_function is None:
                by_function = self._called[text] = self._calls_by_function(text)
            for callee in by_function.get(function.id, ())[:_MOST]:
                call = self.file.call_of(callee)
                if call is not None:
                    yield call_arguments(call)

    def _calls_by_function(self, name: str) -> dict[int, list[Node]]:
        """Where something of this name is called, by the function that it is there."""
        found: dict[int, list[Node]] = {}
        functions: dict[int, Node | None] = {}
        for callee in self._named_calls(name):
            scope = self.file.scope_at(callee.start_byte, name)
            if scope is None:
                continue
            declared = scope.names[name]
            if declared.id not in functions:
                functions[declared.id] = self.resolved(callee)
            function = functions[declared.id]
            if function is not None:
                found.setdefault(function.id, []).append(callee)
        return found

    def _around(self, function: Node) -> Scope | None:
        """The scope that a function stands in."""
        scope = self.file.innermost(function.start_byte)
        return scope.outer if scope is not None and scope.node.id == function.id else scope

    def calls_of(self, name: str) -> Iterator[Node]:
        """Every call of what has this name, in the order of the text."""
        for callee in self._named_calls(name):
            call = self.file.call_of(callee)
            if call is not None:
                yield call

    def _named_calls(self, name: str) -> list[Node]:
        """The callees of this name, in the order of the text."""
        if self._calls is None:
            self._calls = self.file.called()
        return sorted(self._calls.get(name.encode(), ()), key=_START)

    def _called_at_once(self) -> dict[int, Node]:
        """By function: its call, where it is written as a callee."""
        if self._immediate is None:
            self._immediate = {}
            for call in self.file.nodes("immediate"):
                behind = self.resolved(call.child_by_field_name("function"))
                if behind is not None and behind.type in FUNCTIONS:
                    self._immediate.setdefault(behind.id, call)
        return self._immediate

    def _names_of(self, function: Node) -> Iterator[Node]:
        name = function.child_by_field_name("name")
        if name is not None:
            yield name
            return
        outer = function.parent
        if outer is not None and outer.type == "variable_declarator":
            bound = outer.child_by_field_name("name")
            if bound is not None:
                yield bound


def _id(node: Node | None) -> int | None:
    return node.id if node is not None else None


def returned(function: Node | None) -> list[Node]:
    """Every expression that a function may return or yield."""
    body = function.child_by_field_name("body") if function is not None else None
    if body is None:
        return []
    if body.type != "statement_block":
        return [body]
    return inside(body, ("return_statement", "yield_expression"))


def inside(block: Node, kinds: tuple[str, ...]) -> list[Node]:
    """The operands of statements of some kinds in a block, not in the functions within it."""
    found: list[Node] = []
    pending, steps = [block], 0
    while pending and steps < 2_000:
        node, steps = pending.pop(), steps + 1
        children = node.named_children
        if node.type in kinds:
            found += children[:1]
        pending += [child for child in children if child.type not in FUNCTIONS]
    return found


def position(function: Node, declared: Node) -> int:
    """Which of a function's parameters this is."""
    given = function.child_by_field_name("parameters")
    for index, parameter in enumerate(given.named_children if given is not None else ()):
        if parameter.id == declared.id:
            return index
    return 0
