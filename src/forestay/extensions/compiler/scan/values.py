"""What an expression stands for, as far as the text tells: a global, a module, a string, a function.

Not an interpreter: it follows names, members, aliases, destructuring, fields, arguments, constant strings and what
functions return, to the depth that hiding a forbidden name takes, and says "unknown" to everything else.
"""

from __future__ import annotations

from collections.abc import Callable

from tree_sitter import Node

from forestay.extensions.compiler.rewrite import platform_module
from forestay.extensions.compiler.scan import paths
from forestay.extensions.compiler.scan.bindings import Place, imported_member, place_of
from forestay.extensions.compiler.scan.constants import (
    BUILT,
    UNKNOWN,
    Constants,
    Value,
    json_member,
    text_value,
    unquote,
)
from forestay.extensions.compiler.scan.flow import FUNCTIONS, WRAPPERS, Flow, returned
from forestay.extensions.compiler.scan.rules import BUILTINS, GLOBAL_OBJECTS
from forestay.extensions.compiler.scan.syntax import File, call_arguments, text_of

_MAX_DEPTH = 60
_MAX_NESTING = 3
_WRAPPED = "forestay-raw:pi:node/"


class Values(Constants):
    """Evaluates expressions of one file."""

    def __init__(self, file: File, nesting: int = 0) -> None:
        self.file = file
        self.flow = Flow(file)
        self._nesting = nesting
        self._memo: dict[int, frozenset[Value]] = {}
        self._depth = 0
        self._cuts = 0  # how often a cycle or the depth cut an evaluation short
        self._names: dict[tuple[int, str], frozenset[Value]] = {}
        self._copies: dict[str, Node] | None = None
        self._returns: dict[int, list[Node]] = {}
        self._calls: dict[int, list[list[Node]]] = {}
        self._properties: dict[int, dict[str | None, list[Node]]] = {}
        self._open: set[int] = set()  # what is being evaluated: a cycle sees less of it than there will be
        self._unions: dict[int, frozenset[Value]] = {}
        self._arguments: dict[tuple[int, str], frozenset[Value]] = {}
        self._handed_at: dict[int, list[tuple[int, Node]]] = {}  # by parameter: what each call hands over there
        self._places: dict[int, Place] = {}

    def of(self, node: Node | None) -> frozenset[Value]:
        """Everything that `node` may stand for."""
        if node is None:
            return frozenset()
        known = self._memo.get(node.id)
        if known is not None:
            self._cuts += known is _PENDING
            return known
        if self._depth >= _MAX_DEPTH:
            self._cuts += 1
            return _PENDING
        self._memo[node.id] = _PENDING
        self._open.add(node.id)
        self._depth += 1
        try:
            found = self._evaluate(node)
        finally:
            self._depth -= 1
            self._open.discard(node.id)
        self._memo[node.id] = found
        return found

    def _evaluate(self, node: Node) -> frozenset[Value]:
        kind = node.type
        if kind in WRAPPERS:
            return self.of(node.named_children[-1 if kind == "type_assertion" else 0]) if node.named_children else _NONE
        if kind in FUNCTIONS:
            return frozenset({paths.FUNCTION})
        handler: Callable[[Node], frozenset[Value]] | None = getattr(self, "_" + kind, None)
        return handler(node) if handler else frozenset({UNKNOWN})

    def _ternary_expression(self, node: Node) -> frozenset[Value]:
        return self.of(node.child_by_field_name("consequence")) | self.of(node.child_by_field_name("alternative"))

    def _sequence_expression(self, node: Node) -> frozenset[Value]:
        return self.of(node.named_children[-1])

    def _meta_property(self, node: Node) -> frozenset[Value]:
        return frozenset({("global", text_of(node))})

    def _assignment_expression(self, node: Node) -> frozenset[Value]:
        return self.of(node.child_by_field_name("right"))

    def _augmented_assignment_expression(self, node: Node) -> frozenset[Value]:
        operator = node.child_by_field_name("operator")
        if operator is not None and text_of(operator) == "+=":
            return frozenset({BUILT})
        return self.of(node.child_by_field_name("left")) | self.of(node.child_by_field_name("right"))

    # -- names ---------------------------------------------------------------------------------------------------------

    def _identifier(self, node: Node) -> frozenset[Value]:
        name, scope = text_of(node), self.file.scope(node)
        if scope is None:
            if name == "require":
                return frozenset({paths.REQUIRE})
            if name == "arguments":
                return self._all_arguments(self.file.function_around(node.start_byte))
            return frozenset({("global", "globalThis" if name in GLOBAL_OBJECTS else name)})
        key, cuts = (scope.node.id, name), self._cuts
        found = self._names.get(key)
        if found is None:
            found = self._declared(scope.names[name], node, name)
            # Then every other place that reads the name sees the same, or more than it would see by itself.
            if cuts == self._cuts or self._depth == 1:
                self._names[key] = found
        return found

    def _declared(self, declared: Node, node: Node, name: str) -> frozenset[Value]:
        if declared.type == "variable_declarator":
            return self._bound(declared, node) | self._reexported(name)
        if declared.type == "import_statement":
            return self.imported(declared, name)
        if declared.type in FUNCTIONS:
            return frozenset({paths.FUNCTION})
        return self._parameter(declared, name)

    _shorthand_property_identifier = _identifier

    def _bound(self, declarator: Node, name: Node) -> frozenset[Value]:
        pattern, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
        later = self._assigned(text_of(name), declarator)
        if pattern is None or value is None:
            return (later or frozenset({UNKNOWN})) | self._iterated(declarator.parent)
        if pattern.type == "identifier":
            return self.of(value) | later
        found = self._destructured(pattern, self.of(value), value, text_of(name)) | later
        return found if found else frozenset({UNKNOWN})

    def _assigned(self, name: str, declared: Node) -> frozenset[Value]:
        """`let f; f = eval;`: what is assigned under this name; a text that grows is built."""
        entries = self.flow.assigned(name, declared)
        known = self._unions.get(id(entries))  # one list for each declared name
        if known is not None:
            return known
        found: frozenset[Value] = _NONE
        settled = True
        for pattern, right in entries:
            if right is None:
                found |= {BUILT}
            elif pattern.type == "identifier":
                found |= self.of(right)
                settled = settled and self._is_settled(right)
            else:
                found |= self._destructured(pattern, self.of(right), right, name)
                settled = False
        if settled:
            self._unions[id(entries)] = found
        return found

    def _parameter(self, declared: Node, name: str) -> frozenset[Value]:
        """What a parameter may be: its default, and what the calls in this file hand over."""
        place = self._places.get(declared.id)
        if place is None:
            place = self._places[declared.id] = place_of(self.file, declared)
        if place.loop is not None:
            return self._iterated(place.loop) | _PENDING
        if place.thrown is not None:
            return self._union(place.thrown) | _PENDING
        found = self.of(place.default) if place.default is not None and place.is_plain else _NONE
        if place.function is None:
            return found | _PENDING
        found |= self._given(place, declared.id, name)
        return found | self._assigned(name, declared) | _PENDING

    def _given(self, place: Place, declared: int, name: str) -> frozenset[Value]:
        """What the calls of a function hand over for one name of its parameters."""
        key = (declared, name)
        known = self._arguments.get(key)
        if known is not None:
            return known
        assert place.function is not None
        handed, index, pattern = self._handed(place.function), place.index, place.pattern
        if place.is_plain:
            found, is_settled = self._handed_plainly(declared, handed, index)
            if is_settled:
                self._arguments[key] = found
            return found
        found = _NONE
        for given in handed:
            if place.is_rest:
                found |= self._union(given[index:])
            elif index < len(given):
                found |= self._destructured(pattern, self._passed(given[index]), given[index], name)
        return found

    def _handed_plainly(self, declared: int, handed: list[list[Node]], index: int) -> tuple[frozenset[Value], bool]:
        """What calls hand over in one place, and whether to ask again would give the same."""
        nodes = self._handed_at.get(declared)
        if nodes is None:
            nodes = [(given[index].id, given[index]) for given in handed if index < len(given)]
            self._handed_at[declared] = nodes
        found: set[Value] = set()
        is_settled, memo, unsettled = True, self._memo, self._open
        for key, node in nodes:
            known = memo.get(key)
            if known is None:
                found |= self._passed(node)
                is_settled = is_settled and self._is_settled(node)
            else:
                self._cuts += known is _PENDING
                found |= known
                is_settled = is_settled and key not in unsettled
        return frozenset(found), is_settled

    def _is_settled(self, node: Node) -> bool:
        """Whether a node is evaluated, and will never be anything else: to ask again would give the same."""
        return node.id in self._memo and node.id not in self._open

    def _passed(self, given: Node) -> frozenset[Value]:
        """An argument; one that is spread may be any of the list."""
        if given.type == "spread_element":
            return self._held(given.named_children[0])
        return self.of(given)

    def _handed(self, function: Node) -> list[list[Node]]:
        """The arguments of each call of a function: by name, on the spot, or by a method of a list or a promise."""
        known = self._calls.get(function.id)
        if known is not None:
            return known
        calls = self._calls[function.id] = list(self.flow.arguments(function))
        outer = function.parent
        call = outer.parent if outer is not None and outer.type == "arguments" else None
        callee = call.child_by_field_name("function") if call is not None else None
        if callee is not None and callee.type == "member_expression":
            prop, target = callee.child_by_field_name("property"), callee.child_by_field_name("object")
            if prop is not None and target is not None and text_of(prop) in paths.ITERATORS:
                calls += [[element] for element in self.elements(target)]
        return calls

    def elements(self, target: Node) -> list[Node]:
        """What a method that hands on elements hands on: those of a list, or what a promise is of."""
        literal = self.literal(target)
        if literal is not None and literal.type == "array":
            return literal.named_children
        found = self.flow.resolved(target)
        if found is not None and found.type == "call_expression":
            callee = found.child_by_field_name("function")
            if callee is not None and callee.type == "import":
                return [found]
            if callee is not None and ("global", "Promise", "resolve") in self.of(callee):
                return call_arguments(found)[:1]
        return []

    def _all_arguments(self, function: Node | None) -> frozenset[Value]:
        found = frozenset({UNKNOWN})
        for given in self.flow.arguments(function) if function is not None else ():
            found |= self._union(given)
        return found

    def _iterated(self, statement: Node | None) -> frozenset[Value]:
        """The name of a `for (const name of [...])`."""
        if statement is None or statement.type != "for_in_statement":
            return _NONE
        return self._held(statement.child_by_field_name("right"))

    def _held(self, node: Node | None) -> frozenset[Value]:
        """Any element of a list, a map or an object, however deep."""
        literal = self.literal(node)
        if literal is None:
            return self.of(node)
        found: frozenset[Value] = _NONE
        for child in literal.named_children[:256]:
            if child.type == "pair":
                found |= self.of(child.child_by_field_name("value"))
            elif child.type in ("array", "object"):
                found |= self._held(child)
            elif child.type == "spread_element":
                found |= self._held(child.named_children[0])
            else:
                found |= self.of(child)
        return found

    def _union(self, nodes: list[Node]) -> frozenset[Value]:
        found: frozenset[Value] = _NONE
        for node in nodes:
            found |= self._passed(node)
        return found

    def _returned(self, function: Node) -> list[Node]:
        found = self._returns.get(function.id)
        if found is None:
            found = self._returns[function.id] = returned(function)
        return found

    def _reexported(self, name: str) -> frozenset[Value]:
        """What the bundler copies into a namespace object: `__reExport(name, …)`."""
        if not name.endswith("_exports"):
            return _NONE
        if self._copies is None:
            self._copies = {}
            for call in self.flow.calls_of("__reExport"):
                given = call_arguments(call)
                if len(given) > 1:
                    self._copies[text_of(given[0])] = given[1]
        return self.of(self._copies.get(name))

    def _destructured(self, pattern: Node, base: frozenset[Value], source: Node, name: str) -> frozenset[Value]:
        for index, child in enumerate(pattern.named_children):
            if child.type == "shorthand_property_identifier_pattern" and text_of(child) == name:
                return self.members(base, name, source)
            if child.type == "object_assignment_pattern":
                left, right = child.child_by_field_name("left"), child.child_by_field_name("right")
                if left is not None and text_of(left) == name:
                    return self.members(base, name, source) | self.of(right)
            if child.type == "rest_pattern" and text_of(child.named_children[0]) == name:
                return base | self._held(source) if pattern.type == "array_pattern" else base
            if child.type == "pair_pattern":
                inner = self._pair(child, base, source, name)
                if inner:
                    return inner
            if pattern.type == "array_pattern" and child.type == "identifier" and text_of(child) == name:
                return self._element(source, index)
        return _NONE

    def _pair(self, child: Node, base: frozenset[Value], source: Node, name: str) -> frozenset[Value]:
        """`{ key: name }`, `{ [key]: name = default }`, `{ key: { name } }`."""
        target, found = child.child_by_field_name("value"), _NONE
        default = (
            target.child_by_field_name("right") if target is not None and target.type == "assignment_pattern" else None
        )
        if default is not None and target is not None:
            target = target.child_by_field_name("left") or target
        for key in self.keys(child.child_by_field_name("key")):
            if target is not None and target.type == "identifier" and text_of(target) == name:
                found |= self.members(base, key, source) | self.of(default)
            elif target is not None and target.type in ("object_pattern", "array_pattern"):
                found |= self._destructured(target, self.members(base, key, source), source, name)
        return found

    def hands_through(self, call: Node, callee: Node) -> bool:
        """Whether a call gives back what it was given, or an instance of a class of this file."""
        if not self.of(callee).isdisjoint(paths.THROUGH | paths.HOLDERS):
            return True
        made = self.flow.resolved(callee) if call.type == "new_expression" else None
        return made is not None and made.type in ("class", "class_declaration")

    def origin(self, statement: Node) -> str | None:
        """The module of the platform that an import statement brings."""
        origin = self.string(statement.child_by_field_name("source"))
        for child in statement.named_children:
            if child.type == "import_require_clause":
                origin = self.string(child.child_by_field_name("source"))
        return platform_module(origin) if origin is not None else None

    def imported(self, statement: Node, name: str) -> frozenset[Value]:
        """What an import statement binds to a name."""
        module = self.origin(statement)
        if module is None:
            return frozenset({UNKNOWN})
        member, whole = imported_member(statement, name), paths.module_value(module)
        if member is None:
            return frozenset({UNKNOWN})
        return paths.step(whole, member) if member else whole

    # -- members -------------------------------------------------------------------------------------------------------

    def _member_expression(self, node: Node) -> frozenset[Value]:
        prop = node.child_by_field_name("property")
        target = node.child_by_field_name("object")
        return self.members(self.of(target), text_of(prop), target) if prop is not None else frozenset({UNKNOWN})

    def _subscript_expression(self, node: Node) -> frozenset[Value]:
        index, target = node.child_by_field_name("index"), node.child_by_field_name("object")
        base, found = self.of(target), _NONE
        if index is not None and index.type == "number" and target is not None:
            text = self.string(target)
            place = int(text_of(index)) if text_of(index).isdigit() else 0
            if text is not None:
                return text_value(text[place]) if place < len(text) else frozenset({UNKNOWN})
            found = self._element(target, place)
            return found if not base - {UNKNOWN} else found | frozenset({value for value in base if value[0] != "json"})
        keys = self.strings(index)
        for key in keys:
            found |= self.members(base, key, target)
        if not keys and self.literal(target) is not None:
            found = self._held(target)
        return found or frozenset({UNKNOWN})

    def members(self, base: frozenset[Value], key: str, target: Node | None) -> frozenset[Value]:
        """What the member `key` of a value may be; `target` is the expression of the value."""
        found = paths.step(base, key)
        for value in base:
            if value[0] == "json":
                found |= json_member(value[1], key)
            elif value[0] == "regex" and key == "source":
                found |= text_value(value[1])
        if target is None:
            return found or frozenset({UNKNOWN})
        if key == "constructor" and self._is_function(base, target):
            found |= {("global", "Function")}
        literal = self.literal(target)
        if literal is not None:
            found |= self._property(literal, key)
        for node in (*self.flow.members(target, key), *self.flow.stored(target, key)):
            found |= self.of(node)
        for given in self._behind(target):
            found |= self._property(given, key)
        return found or frozenset({UNKNOWN})

    def _behind(self, target: Node) -> list[Node]:
        """The object literals that `Object.assign({}, {…})` and its kin give back."""
        made = self.flow.resolved(target)
        if made is None or made.type not in ("call_expression", "new_expression"):
            return []
        callee = made.child_by_field_name("function") or made.child_by_field_name("constructor")
        if paths.THROUGH.isdisjoint(self.of(callee)):
            return []
        literals = [self.literal(given) for given in call_arguments(made)]
        return [literal for literal in literals if literal is not None and literal.type == "object"]

    def _is_function(self, base: frozenset[Value], target: Node) -> bool:
        if any(
            value in (paths.FUNCTION, ("prototype",)) or (value[0] == "global" and value[1] in BUILTINS)
            for value in base
        ):
            return True
        if target.type in ("member_expression", "subscript_expression"):
            prop = target.child_by_field_name("property")
            key = text_of(prop) if prop is not None else self.string(target.child_by_field_name("index"))
            return key == "constructor"
        return False

    def _property(self, literal: Node, key: str) -> frozenset[Value]:
        """What an object literal, which may have thousands of properties, has under a key."""
        by_key = self._properties.get(literal.id)
        if by_key is None:
            by_key = self._properties[literal.id] = {}
            for child in literal.named_children:
                by_key.setdefault(self._static_key(child), []).append(child)
        found: frozenset[Value] = _NONE
        for child in (*by_key.get(key, ()), *by_key.get(None, ())):
            if child.type == "pair" and key in self.keys(child.child_by_field_name("key")):
                found |= self.of(child.child_by_field_name("value"))
            elif child.type == "shorthand_property_identifier":
                found |= self.of(child)
            elif child.type == "spread_element":
                inner = child.named_children[0]
                found |= self.members(self.of(inner), key, inner) - {UNKNOWN}
            elif child.type == "method_definition":
                name = child.child_by_field_name("name")
                if name is not None and key in self.keys(name) and any(part.type == "get" for part in child.children):
                    found |= self._union(self._returned(child))
        return found

    def _static_key(self, child: Node) -> str | None:
        """The name of a property; None where it is computed, or where there are many."""
        name = child.child_by_field_name("key") or child.child_by_field_name("name")
        if name is None:
            return text_of(child) if child.type == "shorthand_property_identifier" else None
        return None if name.type == "computed_property_name" else self.keys(name)[0]

    def _element(self, target: Node, index: int) -> frozenset[Value]:
        literal = self.literal(target)
        if literal is None or literal.type != "array" or index >= len(literal.named_children):
            return frozenset({UNKNOWN})
        return self._passed(literal.named_children[index])

    def keys(self, node: Node | None) -> list[str]:
        """The constant names that a property may have."""
        if node is None:
            return []
        if node.type == "computed_property_name":
            return self.strings(node.named_children[0])
        return [unquote(node) if node.type == "string" else text_of(node)]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _new_expression(self, node: Node) -> frozenset[Value]:
        arguments, found = call_arguments(node), _NONE
        for value in self.of(node.child_by_field_name("constructor")):
            if value in paths.THROUGH or value in paths.HOLDERS:
                found |= self._held(arguments[0]) if arguments else _NONE
            elif value == ("module", "module"):
                found |= {(*value, "prototype")}
            elif value == ("global", "Function") and arguments:
                found |= frozenset(("made", text) for text in self.strings(arguments[-1]))
        return found or frozenset({UNKNOWN})

    def _call_expression(self, node: Node) -> frozenset[Value]:
        callee, arguments = node.child_by_field_name("function"), call_arguments(node)
        if callee is None:
            return frozenset({UNKNOWN})
        if callee.type == "import":
            return self._loaded(arguments)
        if callee.type == "identifier" and text_of(callee) in ("__toESM", "__commonJS", "__toCommonJS"):
            return self._bundled(text_of(callee), arguments)
        text = self._made_text(callee, arguments)
        if text is not None:
            return text
        found = self._picked(callee)
        for value in self.of(callee):
            found |= self._called(value, arguments)
        for function in self.functions(callee):
            found |= self._union(self._returned(function))
        return found or frozenset({UNKNOWN})

    def _bundled(self, helper: str, arguments: list[Node]) -> frozenset[Value]:
        """The bundler's own wrappers around a module."""
        if helper != "__commonJS":
            return self.of(arguments[0]) if arguments else _NONE
        for child in arguments[0].named_children if arguments else ():
            name = child.child_by_field_name("name") or child.child_by_field_name("key")
            for key in self.keys(name):
                if key.startswith(_WRAPPED):
                    return frozenset({("wrapped", key.removeprefix(_WRAPPED))})
        return frozenset({UNKNOWN})

    def _picked(self, callee: Node) -> frozenset[Value]:
        """`[…].at(0)`, `new Map(…).get(k)`, `generator().next()`: an element of what the method belongs to."""
        if callee.type != "member_expression":
            return _NONE
        prop, target = callee.child_by_field_name("property"), callee.child_by_field_name("object")
        if prop is None or target is None or text_of(prop) not in paths.PICKS:
            return _NONE
        known = self._held(target)
        return frozenset(value for value in known if value[0] in ("global", "require", "module") and len(value) < 4)

    def _called(self, value: Value, arguments: list[Node]) -> frozenset[Value]:
        first = arguments[0] if arguments else None
        second = arguments[1] if len(arguments) > 1 else None
        if value == paths.REQUIRE or value[-1] == "__require":
            return self._loaded(arguments)
        if value[0] == "wrapped":
            return paths.module_value(value[1].replace("_promises", "/promises"))
        if value == ("module", "module", "createRequire"):
            return frozenset({paths.REQUIRE})
        if value == ("global", "process", "getBuiltinModule") or value[:2] == ("global", "__forestay_modules__"):
            return self._loaded(arguments)
        if value in (("global", "Reflect", "get"), ("global", "Object", "getOwnPropertyDescriptor")):
            found: frozenset[Value] = _NONE
            for key in self.strings(second):
                found |= self.members(self.of(first), key, first)
            return found
        if value in (("global", "Object", "getPrototypeOf"), ("global", "Reflect", "getPrototypeOf")):
            return frozenset({("prototype",)}) if paths.FUNCTION in self.of(first) else _NONE
        if value in paths.THROUGH:
            return self._union(arguments)
        if value in paths.HOLDERS:
            return self._held(first)
        if value[-1] == "bind":
            return frozenset({value[:-1]})
        return self._code(value, first)

    def _code(self, value: Value, first: Node | None) -> frozenset[Value]:
        """What `eval` of a constant gives, and a function that is made of one."""
        found: frozenset[Value] = _NONE
        if value == ("global", "Function"):
            return frozenset(("made", text) for text in self.strings(first))
        codes = self.strings(first) if value == ("global", "eval") else [value[1]] if value[0] == "made" else []
        for code in codes if self._nesting < _MAX_NESTING else ():
            file = File(self.file.name, code.encode(), "js")
            statements = [child for child in file.root.named_children if child.type != "comment"]
            last = statements[-1] if statements else None
            if last is None or last.type not in ("expression_statement", "return_statement") or not last.named_children:
                continue
            if last.named_children[0].type == "this":
                found |= {("global", "globalThis")}
            else:
                known = Values(file, self._nesting + 1).of(last.named_children[0])
                found |= {one for one in known if one[0] in ("global", "require", "string")}
        return found

    def _loaded(self, arguments: list[Node]) -> frozenset[Value]:
        found: frozenset[Value] = _NONE
        for name in self.strings(arguments[0]) if arguments else ():
            found |= paths.loaded(name)
        return found or frozenset({UNKNOWN})

    def functions(self, callee: Node | None, depth: int = 0) -> list[Node]:
        """The functions that an expression is, through names, brackets, and functions that return functions."""
        found = self.flow.resolved(callee)
        if found is None or depth > 3:
            return []
        if found.type in FUNCTIONS:
            return [found] if found.type not in ("class", "class_declaration") else []
        if found.type != "call_expression":
            return []
        makers = self.functions(found.child_by_field_name("function"), depth + 1)
        given = [node for maker in makers for node in self._returned(maker)]
        return [inner for node in given for inner in self.functions(node, depth + 1)]


_NONE: frozenset[Value] = frozenset()
_PENDING: frozenset[Value] = frozenset({UNKNOWN})  # what a cycle sees
