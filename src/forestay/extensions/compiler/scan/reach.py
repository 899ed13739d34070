"""Which expressions of a file can have to do with a decisive word: the rest is never evaluated.

R1  A use of an API of the tables begins at a decisive word: a global's name, `constructor`, the import of a module of
    the platform. A word that the text only makes up is the key of a subscript. A subscript of a decisive word is
    followed anyway; `constructor` can be made up for any function, so the key of each subscript is evaluated. That
    costs as much as all the rest, and a program has every subscript of its parts: only whole texts are asked for it.
R2  From each word the value is followed outwards: through members, calls, lists and objects to the names that it is
    bound to, the parameters that it is given to, the function that returns it, the class that holds it.
R3  Each place where such a name is read is followed in the same way.
R4  More than can be is followed, never less: what an expression stands for is the evaluator's to say (`values.py`).

In ten megabytes of a real bundle there are some thousand decisive words among a hundred thousand calls.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator

from tree_sitter import Node, TreeCursor

from forestay.extensions.compiler.scan.constants import Value
from forestay.extensions.compiler.scan.flow import FUNCTIONS
from forestay.extensions.compiler.scan.paths import ITERATORS, PICKS
from forestay.extensions.compiler.scan.rules import LEADING
from forestay.extensions.compiler.scan.syntax import File, Scope, call_arguments, names_in, text_of
from forestay.extensions.compiler.scan.values import Values

# The escapes of letters, digits, `$` and `_`: every word that counts is made of those.
_ESCAPE = re.compile(rb"\\u(?:00[2-7]|\{0*[2-7])[0-9a-fA-F]")
_BEFORE_NAMES = frozenset(
    b"$_.(,;=!?:&|{}+-*/%<>~^[#) \t\r\n0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)
_RAW, _WRAPPED = b"forestay-raw:", b"pi:node/"
_READ = frozenset("identifier shorthand_property_identifier shorthand_property_identifier_pattern".split())
_FOLLOWED = frozenset("require made prototype wrapped".split())
_LEAVES = ("return_statement", "yield_expression")
_ELEMENTS = ITERATORS | PICKS
_ENDS = frozenset(
    "statement_block program unary_expression update_expression template_substitution switch_case".split()
)
_PATTERNS = ("object_pattern", "array_pattern", "identifier")

Step = tuple[Node, str | None, Node]
"""One step outwards: a node, the field that it is, and the node around it."""


class Reach:
    """What the decisive words of a file reach."""

    def __init__(
        self,
        file: File,
        values: Values,
        words: re.Pattern[bytes],
        modules: frozenset[str] | None = None,
        *,
        is_part: bool = False,
    ) -> None:
        """`modules` are those of the platform whose members matter; None means all.

        `is_part` says that the text is a part of a program, whose whole is asked for what it makes up (R1).
        """
        self.file = file
        self._modules = modules
        self.values = values
        self.names: dict[int, Node] = {}
        self.calls: dict[int, Node] = {}
        self.subscripts: dict[int, Node] = {}
        self.patterns: dict[int, Node] = {}
        self._tops = file.tops
        self._starts = file.top_starts
        self._cursor: TreeCursor = file.root.walk()  # climbs with the value that is followed
        self._climbed: set[int] = set()
        self._given: Node | None = None  # the argument that the value is, or is in
        self._followed: set[tuple[int, str]] = set()
        self._pending: list[tuple[Scope, str]] = []
        self._begin(words)
        if not is_part:
            self._begin_made_up()
        while self._pending:
            self._read(*self._pending.pop())

    def _begin(self, words: re.Pattern[bytes]) -> None:
        starts = [found.start() for found in words.finditer(self.file.text)]
        for position in (*starts, *self._escaped_names()):
            leaf, first = self._way(position)
            if leaf is not None and self._is_read(leaf, first):
                self.names[leaf.id] = leaf
                self._climb(leaf, first)
        for position in self._wrapped():
            leaf, first = self._way(position)
            if leaf is not None and leaf.type == "string_fragment":
                self._climb(leaf, first)
        for statement in self.file.nodes("imported"):
            module = self.values.origin(statement)
            if module is not None and (self._modules is None or module in self._modules):
                self._bind(statement)
        for node in self.file.nodes("computed"):  # in a pattern: in an object it only names what stands there
            if self._may_be_constructor(node):
                leaf, first = self._way(node.end_byte - 1)
                if leaf is not None:
                    self._climb(leaf, first)

    def _begin_made_up(self) -> None:
        """Follow each member of a function whose key the text makes up to be `constructor`."""
        for node in self.file.nodes("subscript"):
            if self._may_be_constructor(node) and self._matters(node):
                _, first = self._way(node.end_byte - 1)
                # The first step is the one from the bracket to the subscript.
                self._climb(node, self._outwards(first[2]) if first is not None else None)

    def _wrapped(self) -> Iterator[int]:
        """Where the bundler names a module of the platform."""
        text = self.file.text
        place = text.find(_WRAPPED)
        while place >= 0:
            if text.endswith(_RAW, 0, place):
                yield place - len(_RAW)
            elif not _is_word(text, place - 1):
                yield place
            place = text.find(_WRAPPED, place + 1)

    def _escaped_names(self) -> Iterator[int]:
        """`\\u0065val` is a name too, which no search finds by its letters."""
        end = 0
        for found in _ESCAPE.finditer(self.file.text):
            start = found.start()
            if start < end or (start and self.file.text[start - 1] not in _BEFORE_NAMES):
                continue
            leaf, first = self._way(start)
            if leaf is not None and leaf.type.endswith("identifier"):
                yield leaf.start_byte
            elif first is not None and first[2].type in ("string", "regex"):
                end = first[2].end_byte  # whatever else stands in it

    def _is_read(self, leaf: Node, first: Step | None) -> bool:
        """Whether a word is a global, or a member that is read."""
        kind = leaf.type
        if kind in ("identifier", "shorthand_property_identifier"):
            return self.file.scope(leaf) is None
        if kind in ("property_identifier", "shorthand_property_identifier_pattern"):
            outer = first[2] if first is not None else leaf
            if outer.type == "member_expression" and text_of(leaf) == "constructor":
                return self._matters(outer)
            return outer.type in ("member_expression", "pair_pattern", "object_pattern")
        return kind in ("import", "meta_property")

    def _matters(self, node: Node, *kinds: str) -> bool:
        """Whether a value leads to something that matters, so that it is worth following."""
        return any(value[0] in kinds or self._leads_on(value) for value in self.values.of(node))

    def _leads_on(self, value: Value) -> bool:
        if value[0] == "global":
            is_plain = value[1] != "process" or len(value) == 2
            return (value[1] in LEADING and is_plain) or value[-1] in LEADING
        if value[0] == "module":
            return self._modules is None or value[1] in self._modules
        return value[0] in _FOLLOWED

    def _may_be_constructor(self, node: Node) -> bool:
        """Whether a computed key may be the one through which every function is reached."""
        index = node.child_by_field_name("index") if node.type == "subscript_expression" else node.named_children[0]
        if index is None or index.type in ("number", "unary_expression", "update_expression"):
            return False
        return "constructor" in self.values.strings(index)

    # -- outwards ------------------------------------------------------------------------------------------------------

    def _way(self, position: int) -> tuple[Node | None, Step | None]:
        """What stands at a position, and the first step outwards; `_outwards` gives the next one."""
        index = bisect.bisect_right(self._starts, position) - 1
        if index < 0 or self._tops[index].end_byte <= position:
            return None, None
        cursor = self._cursor
        cursor.reset(self._tops[index])
        while cursor.goto_first_child_for_byte(position) is not None:
            pass
        leaf = cursor.node
        if leaf is None or not leaf.start_byte <= position < leaf.end_byte:
            return None, None
        return leaf, self._outwards(leaf)

    def _outwards(self, inner: Node) -> Step | None:
        """The step from where the cursor stands; None at the top of the file."""
        cursor = self._cursor
        field = cursor.field_name
        if not cursor.goto_parent():
            return None
        outer = cursor.node
        assert outer is not None
        return inner, field, outer

    def _climb(self, leaf: Node, first: Step | None) -> None:
        """Follow a value outwards, to the end of its statement or further (R2)."""
        if leaf.id in self._climbed:
            return
        self._climbed.add(leaf.id)
        leaves, step = "", first
        while step is not None:
            inner, field, outer = step
            kind = outer.type
            if kind in _LEAVES or kind == "throw_statement":
                leaves = kind
            elif kind in FUNCTIONS:
                is_result = leaves in _LEAVES or (field == "body" and inner.type != "statement_block")
                if field in ("parameters", "parameter"):
                    self._bind(inner)
                elif kind in ("class", "class_declaration"):
                    self._bind_name(outer)
                    is_result = kind == "class"
                elif is_result:
                    self._bind_name(outer)
                    leaves = ""
                if not is_result:
                    return
            elif kind == "try_statement" and leaves == "throw_statement" and field == "body":
                self._bind_caught(outer)
                return
            elif not leaves and not self._step(kind, field, inner, outer):
                return
            step = self._outwards(outer)

    def _step(self, kind: str, field: str | None, inner: Node, outer: Node) -> bool:
        """Note what one node outwards means; whether the value goes on from there."""
        if kind in ("call_expression", "new_expression"):
            return self._call(outer, field)
        if kind == "arguments":
            self._given = inner
        elif kind == "member_expression":
            prop = outer.child_by_field_name("property")
            is_element = prop is not None and text_of(prop) in _ELEMENTS
            return is_element or self._matters(outer, "function")
        elif kind == "subscript_expression":
            self.subscripts[outer.id] = outer
            return field == "object" and self._matters(outer, "function")
        elif kind == "binary_expression":
            operator = outer.child_by_field_name("operator")
            return operator is not None and operator.type in ("||", "&&", "??")
        elif kind == "ternary_expression":
            return field != "condition"
        elif kind == "variable_declarator":
            self._note_pattern(outer, outer.child_by_field_name("name"))
            return False
        elif kind in ("assignment_expression", "augmented_assignment_expression"):
            self._note_pattern(outer, outer.child_by_field_name("left"))
        elif kind == "for_in_statement":
            self._bind(outer.child_by_field_name("left"))
            return False
        elif kind == "class_body":
            self._this(outer)
        elif kind in ("catch_clause", "import_statement"):
            self._bind(outer if kind == "import_statement" else outer.child_by_field_name("parameter"))
            return False
        return kind not in _ENDS and not kind.endswith(("_statement", "_declaration"))

    def _call(self, call: Node, field: str | None) -> bool:
        """A call of the value, or with it; whether what comes back matters."""
        self.calls[call.id] = call
        callee = call.child_by_field_name("function") or call.child_by_field_name("constructor")
        if callee is None:
            return False
        given = call_arguments(call)
        if field == "arguments":
            for function in self.values.functions(callee):
                self._hand_over(function, given)
            if callee.type == "identifier" and text_of(callee) == "__reExport":
                self._bind(given[0] if given else None)
        prop = callee.child_by_field_name("property")
        if prop is not None and text_of(prop) in ITERATORS:
            for one in given:
                self._bind(one.child_by_field_name("parameters") or one.child_by_field_name("parameter"))
        return self._matters(call, "function") or self.values.hands_through(call, callee)

    def _hand_over(self, function: Node, given: list[Node]) -> None:
        """The value is an argument: the parameter of its place, and `arguments`, may be it."""
        scope = self.file.innermost(function.start_byte)
        if scope is not None:
            self._follow(scope, "arguments")
        self._bind(function.child_by_field_name("parameter"))
        listed = function.child_by_field_name("parameters")
        parameters = listed.named_children if listed is not None else []
        place = next((index for index, one in enumerate(given) if one == self._given), len(given))
        is_spread = any(one.type == "spread_element" for one in given[: place + 1])
        for index, parameter in enumerate(parameters):
            if is_spread or index == place or b"..." in (parameter.text or b"")[:3]:
                self._bind(parameter)

    def members(self, words: re.Pattern[bytes]) -> Iterator[Node]:
        """Every expression that reads a member by one of some names."""
        for found in words.finditer(self.file.text):
            leaf, first = self._way(found.start())
            if leaf is None or first is None:
                continue
            if leaf.type == "property_identifier" and first[2].type == "member_expression":
                yield first[2]

    # -- names ---------------------------------------------------------------------------------------------------------

    def _note_pattern(self, node: Node, pattern: Node | None) -> None:
        """What is bound by a declaration or an assignment: names, a member of a name, a field of the class around."""
        if pattern is None:
            return
        if pattern.type == "object_pattern":
            self.patterns[node.id] = node
        if pattern.type in _PATTERNS:
            self._bind(pattern)
        elif pattern.type == "member_expression":
            owner = pattern.child_by_field_name("object")
            if owner is not None and owner.type == "identifier":
                self._bind(owner)
            elif owner is not None and owner.type == "this":
                body = self.file.around(owner.start_byte, "class_body")
                if body is not None:
                    self._this(body)

    def _bind(self, pattern: Node | None) -> None:
        """Every name of a pattern is to be followed."""
        for name in names_in(pattern):
            scope = self.file.scope(name)
            if scope is not None:
                self._follow(scope, text_of(name))

    def _bind_name(self, function: Node) -> None:
        """The name of a function or class, which belongs to the scope around it."""
        name = function.child_by_field_name("name")
        if name is None or name.type not in ("identifier", "type_identifier"):
            return
        scope = self.file.scope_at(function.start_byte, text_of(name))
        if scope is not None:
            self._follow(scope, text_of(name))

    def _bind_caught(self, statement: Node) -> None:
        handler = statement.child_by_field_name("handler")
        self._bind(handler.child_by_field_name("parameter") if handler is not None else None)

    def _this(self, body: Node) -> None:
        scope = self.file.innermost(body.start_byte)
        if scope is not None:
            self._follow(scope, "this")

    def _follow(self, scope: Scope, name: str) -> None:
        key = (scope.node.id, name)
        if key not in self._followed:
            self._followed.add(key)
            self._pending.append((scope, name))
            self.file.offer(scope, name)

    def _read(self, scope: Scope, name: str) -> None:
        """Follow every place in a scope that reads a name (R3)."""
        kinds = _READ if name in scope.names else (name, "identifier")  # `this` and `arguments` are nobody's names
        for position in self._occurrences(name.encode(), scope.node.start_byte, scope.end):
            if name in scope.names and self.file.scope_at(position, name) is not scope:
                continue
            leaf, first = self._way(position)
            if leaf is not None and leaf.type in kinds:
                self._climb(leaf, first)

    def _occurrences(self, name: bytes, start: int, end: int) -> Iterator[int]:
        text, letters = self.file.text, _LETTERS
        place, last = text.find(name, start, end), len(text)
        while place >= 0:
            after = place + len(name)
            if (place == 0 or text[place - 1] not in letters) and (after == last or text[after] not in letters):
                yield place
            place = text.find(name, after, end)


def _is_word(text: bytes, position: int) -> bool:
    before = text[position : position + 1] if position >= 0 else b""
    return before.isalnum() or before == b"_"


# The bytes that belong to a name.
_LETTERS = frozenset(byte for byte in range(256) if byte >= 128 or chr(byte).isalnum() or chr(byte) in "_$")
