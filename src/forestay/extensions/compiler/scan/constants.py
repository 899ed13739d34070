"""Expressions whose text is known before anything runs: literals, templates, and what functions of the language make
of them.

A part of `values.py`: `Constants` asks the rest of it what an operand stands for.
"""

from __future__ import annotations

import json

from tree_sitter import Node

from forestay.extensions.compiler.scan import texts
from forestay.extensions.compiler.scan.flow import Flow
from forestay.extensions.compiler.scan.syntax import call_arguments, text_of

# ("global", name, member…) | ("module", name, member…) | ("string", text) | ("number", text) | ("json", text)
# | ("function",) | ("prototype",) | ("require",) | ("made", body): a function made of a string
# | ("wrapped", name): a module as the bundler wraps it | ("built",): a string with parts that vary.
Value = tuple[str, ...]
UNKNOWN: Value = ("unknown",)
BUILT: Value = ("built",)

_DECODERS = ("decodeURIComponent", "decodeURI", "unescape")


class Constants:
    """The evaluation of constant texts; `of` is the subclass's."""

    flow: Flow

    def of(self, node: Node | None) -> frozenset[Value]:
        raise NotImplementedError

    def strings(self, node: Node | None) -> list[str]:
        """Every constant text that an expression may have."""
        return sorted(value[1] for value in self.of(node) if value[0] == "string")

    def string(self, node: Node | None) -> str | None:
        """The constant text of an expression, if it has exactly one and nothing else."""
        values = self.of(node)
        only = next(iter(values)) if len(values) == 1 else UNKNOWN
        return only[1] if only[0] == "string" else None

    def literal(self, node: Node | None) -> Node | None:
        """The object or array literal that `node` is, directly or through names."""
        found = self.flow.resolved(node)
        return found if found is not None and found.type in ("object", "array") else None

    def _string(self, node: Node) -> frozenset[Value]:
        return text_value(unquote(node))

    def _template_string(self, node: Node) -> frozenset[Value]:
        parts: list[str] = []
        for child in node.named_children:
            if child.type == "string_fragment":
                parts.append(text_of(child))
            elif child.type == "escape_sequence":
                parts.append(texts.unescaped(text_of(child)))
            else:
                inner = self._printed(child.named_children[0] if child.named_children else None)
                if inner is None:
                    return frozenset({BUILT})
                parts.append(inner)
        return text_value("".join(parts))

    def _printed(self, node: Node | None) -> str | None:
        """A constant text, or a constant number as text."""
        number = self._integer(node)
        return str(number) if number is not None else self.string(node)

    def _number(self, node: Node) -> frozenset[Value]:
        return frozenset({("number", text_of(node))})

    def _integer(self, node: Node | None) -> int | None:
        values = self.of(node)
        if len(values) != 1:
            return None
        (only,) = values
        try:
            return int(only[1].replace("_", ""), 0) if only[0] == "number" else None
        except ValueError:
            return None

    def _unary_expression(self, node: Node) -> frozenset[Value]:
        number = self._integer(node.child_by_field_name("argument"))
        operator = node.child_by_field_name("operator")
        if number is None or operator is None or operator.type != "-":
            return frozenset({UNKNOWN})
        return frozenset({("number", str(-number))})

    def _regex(self, node: Node) -> frozenset[Value]:
        pattern = node.child_by_field_name("pattern")
        return frozenset({("regex", text_of(pattern))}) if pattern is not None else frozenset({UNKNOWN})

    def _binary_expression(self, node: Node) -> frozenset[Value]:
        operator = node.child_by_field_name("operator")
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign = text_of(operator) if operator is not None else ""
        if sign in ("||", "&&", "??"):
            return self.of(left) | self.of(right)
        if sign != "+":
            return frozenset({UNKNOWN})
        a, b = self._printed(left), self._printed(right)
        if a is not None and b is not None:
            return text_value(a + b)
        return frozenset({BUILT})

    def _made_text(self, callee: Node, arguments: list[Node]) -> frozenset[Value] | None:
        """What a call of a function of the language makes of constant texts; None when it is no such call."""
        if callee.type == "identifier":
            return self._global_text(text_of(callee), arguments)
        if callee.type not in ("member_expression", "subscript_expression"):
            return None
        prop, target = callee.child_by_field_name("property"), callee.child_by_field_name("object")
        name = text_of(prop) if prop is not None else self.string(callee.child_by_field_name("index"))
        if name is None or target is None:
            return None
        if name == "join":
            parts = self._parts(target)
            glue = self.string(arguments[0]) if arguments else ","
            if parts is None or glue is None:
                return frozenset({BUILT})
            return text_value(glue.join(parts))
        owner = text_of(target) if target.type == "identifier" else ""
        if owner == "String" and name in ("fromCharCode", "fromCodePoint"):
            return self._from_codes(arguments)
        if owner == "String" and name == "raw" and arguments and arguments[0].type == "template_string":
            return self.of(arguments[0])
        if owner == "JSON" and name == "parse" and arguments:
            text = self.string(arguments[0])
            return json_value(text) if text is not None else None
        if name == "toString":
            return self._to_string(target, arguments)
        return self._method(name, target, arguments)

    def _global_text(self, name: str, arguments: list[Node]) -> frozenset[Value] | None:
        if not arguments or name not in ("atob", "String", *_DECODERS):
            return None
        if name == "String":
            given = self.of(arguments[0])
            return given if BUILT in given or self.string(arguments[0]) is not None else None
        text = self.string(arguments[0])
        if text is None:
            return None
        made = texts.decoded(text, "base64") if name == "atob" else texts.percent_decoded(text)
        return text_value(made) if made is not None else None

    def _to_string(self, target: Node, arguments: list[Node]) -> frozenset[Value] | None:
        """`Buffer.from(text, encoding).toString()`, `(1138).toString(36)`, and a text's own."""
        number = self._integer(target)
        if number is not None:
            base = self._integer(arguments[0]) if arguments else 10
            made = texts.in_base(number, base) if base is not None else None
            return text_value(made) if made is not None else None
        if target.type == "call_expression":
            inner, given = target.child_by_field_name("function"), call_arguments(target)
            if inner is not None and text_of(inner) == "Buffer.from" and given:
                text = self.string(given[0])
                encoding = self.string(given[1]) if len(given) > 1 else "utf8"
                made = texts.decoded(text, encoding) if text is not None and encoding is not None else None
                return text_value(made) if made is not None else None
        return self._method("toString", target, arguments)

    def _method(self, name: str, target: Node, arguments: list[Node]) -> frozenset[Value] | None:
        values = self.of(target)
        if BUILT in values and name in texts.METHODS:
            return frozenset({BUILT})
        text = self.string(target)
        if text is None or name not in texts.METHODS:
            return None
        given: list[str | int] = []
        for argument in arguments:
            one = self._integer(argument)
            known = one if one is not None else self.string(argument)
            if known is None:
                return frozenset({BUILT})
            given.append(known)
        made = texts.called(name, text, given)
        return text_value(made) if made is not None else None

    def _from_codes(self, arguments: list[Node]) -> frozenset[Value] | None:
        given = [
            inner
            for argument in arguments
            for inner in (
                _elements(self.literal(argument.named_children[0])) if argument.type == "spread_element" else [argument]
            )
        ]
        codes = [self._integer(item) for item in given]
        if not codes or any(code is None or not 0 <= code < 0x110000 for code in codes):
            return None
        return text_value("".join(chr(code) for code in codes if code is not None))

    def _parts(self, node: Node | None) -> list[str] | None:
        """The constant texts of a list."""
        literal = self.literal(node)
        if literal is not None and literal.type == "array":
            return self._listed(literal)
        found = self.flow.resolved(node)
        callee = (
            found.child_by_field_name("function") if found is not None and found.type == "call_expression" else None
        )
        if found is None or callee is None or callee.type != "member_expression":
            return None
        name, target = text_of(callee.child_by_field_name("property") or callee), callee.child_by_field_name("object")
        if name in ("reverse", "toReversed"):
            inner = self._parts(target)
            return inner[::-1] if inner is not None else None
        if name == "split":
            text = self.string(target)
            given = call_arguments(found)
            glue = self.string(given[0]) if given else None
            if text is None or glue is None:
                return None
            return list(text) if glue == "" else text.split(glue)
        return None

    def _listed(self, literal: Node) -> list[str] | None:
        parts: list[str] = []
        for item in _elements(literal):
            if item.type == "spread_element":
                inner = item.named_children[0]
                text = self.string(inner)
                more = list(text) if text is not None else self._parts(inner)
                if more is None:
                    return None
                parts += more
                continue
            one = self._printed(item)
            if one is None:
                return None
            parts.append(one)
        return parts


def _elements(literal: Node | None) -> list[Node]:
    return [child for child in literal.named_children if child.type != "comment"] if literal is not None else []


def text_value(text: str) -> frozenset[Value]:
    return frozenset({("string", text)})


def json_value(text: str) -> frozenset[Value]:
    """A constant JSON text: its string, or the whole for reading members."""
    try:
        value = json.loads(text)
    except ValueError:
        return frozenset({UNKNOWN})
    if isinstance(value, str):
        return text_value(value)
    return frozenset({("json", text)}) if isinstance(value, (dict, list)) else frozenset({UNKNOWN})


def json_member(text: str, key: str) -> frozenset[Value]:
    value = json.loads(text)
    if isinstance(value, dict) and key in value:
        return json_value(json.dumps(value[key]))
    if isinstance(value, list) and key.isdigit() and int(key) < len(value):
        return json_value(json.dumps(value[int(key)]))
    return frozenset({UNKNOWN})


def unquote(node: Node) -> str:
    """The text of a string literal."""
    return "".join(
        text_of(child) if child.type == "string_fragment" else texts.unescaped(text_of(child))
        for child in node.named_children
    )
