"""The expression language of conditions, port values and transforms (W12).

- E1  An expression reads values and makes a new one; it changes nothing and reaches nothing outside its scope.
- E2  Its text, its depth and the steps of one evaluation are bounded; what exceeds a bound is a Problem.
- E3  A path into something that is not there is null, never an error.
- E4  `==` compares JSON values; a boolean is not a number. `<` orders two numbers or two strings, nothing else.
- E5  `matches` runs in time linear in the text, whatever the pattern.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import re2

from holdfast.kernel.problems import Problem

MAX_TEXT = 4096
MAX_DEPTH = 32
MAX_STEPS = 10_000
MAX_PATTERN = 512
MAX_STRING = 1024 * 1024

Scope = Callable[[str], Any]
Step = Callable[["_Run"], Any]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<op>===|!==|==|!=|<=|>=|&&|\|\||[-+*/%<>!().,\[\]?:{}]))"
)
_BINARY = {
    "?": 1, "||": 2, "or": 2, "&&": 3, "and": 3, "==": 4, "!=": 4, "===": 4, "!==": 4, "<": 5, "<=": 5, ">": 5,
    ">=": 5, "in": 5, "+": 6, "-": 6, "*": 7, "/": 7, "%": 7,
}  # fmt: skip
_WORDS = {"true": True, "false": False, "null": None}


class _Run:
    """One evaluation: where names come from, and how many steps are left."""

    __slots__ = ("scope", "steps")

    def __init__(self, scope: Scope, steps: int) -> None:
        self.scope = scope
        self.steps = steps

    def step(self, cost: int = 1) -> None:
        self.steps -= cost
        if self.steps < 0:
            raise Problem("expression_invalid", f"The expression takes more than {MAX_STEPS} steps.", limit=MAX_STEPS)


class Expression:
    """A compiled expression."""

    __slots__ = ("_code", "names", "text")

    def __init__(self, text: str, code: Step, names: frozenset[str]) -> None:
        self.text = text
        self._code = code
        self.names = names  # the first names of its paths

    def evaluate(self, scope: Scope | Mapping[str, Any]) -> Any:
        lookup = scope.get if isinstance(scope, Mapping) else scope
        return self._code(_Run(lookup, MAX_STEPS))


@functools.lru_cache(maxsize=2048)
def compile_expression(text: str) -> Expression:
    """Read `text`; `expression_invalid` says what is wrong and at which character."""
    if len(text) > MAX_TEXT:
        raise Problem("expression_invalid", f"An expression may have {MAX_TEXT} characters.", limit=MAX_TEXT)
    parser = _Parser(text)
    code = parser.expression(0, 0)
    if parser.kind != "end":
        parser.fail(f"{parser.value!r} was not expected here")
    return Expression(text, code, frozenset(parser.names))


def truthy(value: Any) -> bool:
    """What a condition takes for true: everything but null, false, zero and what is empty."""
    return bool(value)


def equal(left: Any, right: Any) -> bool:
    """JSON equality: 1 is 1.0, true is not 1 (E4)."""
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def holds(container: Any, item: Any) -> bool:
    """Whether a string has a part, an array an element, an object a key."""
    if isinstance(container, str):
        return isinstance(item, str) and item in container
    if isinstance(container, list):
        return any(equal(member, item) for member in container)
    if isinstance(container, dict):
        return isinstance(item, str) and item in container
    return False


def matches(text: Any, pattern: Any) -> bool:
    """Whether `pattern` is found in `text`, by a linear-time engine (E5)."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        return False
    return compile_pattern(pattern).search(text) is not None


@functools.lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        raise Problem("expression_invalid", f"A pattern may have {MAX_PATTERN} characters.", limit=MAX_PATTERN)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        raise Problem("expression_invalid", f"{pattern[:80]!r} is not a pattern.", reason=str(error)[:200]) from error


def member(value: Any, key: Any) -> Any:
    """`value.key`: null where there is nothing (E3)."""
    if isinstance(value, dict):
        return value.get(key) if isinstance(key, str) else None
    if isinstance(value, list | str) and isinstance(key, int) and not isinstance(key, bool):
        return value[key] if -len(value) <= key < len(value) else None
    return None


class _Parser:
    """Precedence climbing over one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.start = 0
        self.kind = ""
        self.value = ""
        self.names: set[str] = set()
        self.advance()

    def fail(self, what: str) -> Any:
        raise Problem(
            "expression_invalid",
            f"In {self.text[:80]!r}: {what}.",
            character=self.start,
            fix="See the expressions page.",
        )

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            self.start = self.at + len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
            if self.text[self.at :].strip():
                self.kind, self.value = "bad", self.text[self.start]
                self.fail(f"{self.value!r} means nothing")
            self.kind, self.value = "end", ""
            return
        self.kind = match.lastgroup or ""
        self.value = match.group(self.kind)
        self.start = match.start(self.kind)
        self.at = match.end()

    def take(self, op: str) -> bool:
        if self.kind == "op" and self.value == op:
            self.advance()
            return True
        return False

    def need(self, op: str) -> None:
        if not self.take(op):
            self.fail(f"{op!r} is missing")

    def expression(self, power: int, depth: int) -> Step:
        if depth > MAX_DEPTH:
            self.fail(f"it is nested more than {MAX_DEPTH} deep")
        left = self.unary(depth)
        chain = 0
        while self.kind in ("op", "name") and _BINARY.get(self.value, -1) > power:
            op = self.value
            chain += 1
            if chain > MAX_DEPTH * 4:
                self.fail("it chains too many operators")
            self.advance()
            if op == "?":
                then = self.expression(0, depth + 1)
                self.need(":")
                left = _choose(left, then, self.expression(0, depth + 1))
            else:
                left = _binary(op, left, self.expression(_BINARY[op], depth + 1))
        return left

    def unary(self, depth: int) -> Step:
        if depth > MAX_DEPTH:
            self.fail(f"it is nested more than {MAX_DEPTH} deep")
        if self.take("!"):
            inner = self.unary(depth + 1)
            return lambda run: not truthy(inner(run))
        if self.take("-"):
            inner = self.unary(depth + 1)
            return lambda run: -_number(inner(run), "-")
        return self.postfix(self.primary(depth), depth)

    def primary(self, depth: int) -> Step:
        kind, value = self.kind, self.value
        if kind == "number":
            self.advance()
            number = float(value) if any(c in value for c in ".eE") else int(value)
            return lambda run: number
        if kind == "string":
            text = _unquote(value)
            self.advance()
            return lambda run: text
        if kind == "name":
            self.advance()
            if value in _WORDS:
                word = _WORDS[value]
                return lambda run: word
            if value == "not":
                inner = self.unary(depth + 1)
                return lambda run: not truthy(inner(run))
            if self.kind == "op" and self.value == "(":
                return self.call(value, depth)
            self.names.add(value)
            return lambda run: run.scope(value)
        if self.take("("):
            inner = self.expression(0, depth + 1)
            self.need(")")
            return inner
        if self.take("["):
            items = self.listed("]", depth)
            return lambda run: [item(run) for item in items]
        if self.take("{"):
            return self.object(depth)
        return self.fail("a value is missing" if kind == "end" else f"{value!r} was not expected here")  # type: ignore[no-any-return]

    def listed(self, end: str, depth: int) -> list[Step]:
        items: list[Step] = []
        if self.take(end):
            return items
        while True:
            items.append(self.expression(0, depth + 1))
            if self.take(end):
                return items
            self.need(",")

    def object(self, depth: int) -> Step:
        fields: list[tuple[str, Step]] = []
        while not self.take("}"):
            if fields:
                self.need(",")
            if self.kind not in ("name", "string"):
                self.fail("a key is missing")
            key = _unquote(self.value) if self.kind == "string" else self.value
            self.advance()
            self.need(":")
            fields.append((key, self.expression(0, depth + 1)))
        return lambda run: {key: value(run) for key, value in fields}

    def call(self, name: str, depth: int) -> Step:
        self.advance()
        if name not in FUNCTIONS:
            self.fail(f"there is no function {name}; there are {', '.join(sorted(FUNCTIONS))}")
        fewest, most, function = FUNCTIONS[name]
        arguments = self.listed(")", depth)
        if not fewest <= len(arguments) <= most:
            self.fail(f"{name} takes {fewest if fewest == most else f'{fewest} to {most}'} arguments")
        if name == "matches" and isinstance(pattern := _constant(arguments[1]), str):
            compile_pattern(pattern)

        def code(run: _Run) -> Any:
            values = [argument(run) for argument in arguments]
            run.step(1 + sum(len(v) // 64 for v in values if isinstance(v, str | list | dict)))
            return function(*values)

        return code

    def postfix(self, base: Step, depth: int) -> Step:
        links = 0
        while self.kind == "op" and self.value in (".", "["):
            links += 1
            if links > 64:
                self.fail("the path has more than 64 links")
            if self.take("."):
                if self.kind not in ("name", "number"):
                    self.fail("a name is missing after '.'")
                key: Any = int(self.value) if self.kind == "number" and self.value.isdigit() else self.value
                self.advance()
                base = _member(base, lambda run, key=key: key)  # type: ignore[misc]
            else:
                self.advance()
                index = self.expression(0, depth + 1)
                self.need("]")
                base = _member(base, index)
        return base


def _constant(code: Step) -> Any:
    """The value of a step that reads nothing, else None."""
    try:
        return code(_Run(_refuse, 16))
    except (Problem, LookupError):
        return None


def _refuse(name: str) -> Any:
    raise LookupError(name)


def _unquote(text: str) -> str:
    if text[0] == "'":
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError as error:
        raise Problem("expression_invalid", "A string in the expression is not valid.", reason=str(error)) from error


def _member(base: Step, key: Step) -> Step:
    def code(run: _Run) -> Any:
        run.step()
        return member(base(run), key(run))

    return code


def _choose(test: Step, then: Step, other: Step) -> Step:
    return lambda run: then(run) if truthy(test(run)) else other(run)


def _binary(op: str, left: Step, right: Step) -> Step:
    if op in ("&&", "and"):
        return lambda run: truthy(left(run)) and truthy(right(run))
    if op in ("||", "or"):
        return lambda run: truthy(left(run)) or truthy(right(run))
    work = _OPERATIONS[op]

    def code(run: _Run) -> Any:
        run.step()
        return work(left(run), right(run))

    return code


def _number(value: Any, op: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem("expression_invalid", f"{op!r} needs a number, not {_kind(value)}.")
    return value


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def work(left: Any, right: Any) -> bool:
        if isinstance(left, str) and isinstance(right, str):
            return compare(left, right)
        if isinstance(left, bool | str) or isinstance(right, bool | str):
            return False
        if isinstance(left, int | float) and isinstance(right, int | float):
            return compare(left, right)
        return False

    return work


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > MAX_STRING:
            raise Problem("expression_invalid", f"A string may have {MAX_STRING} characters.", limit=MAX_STRING)
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        if len(left) + len(right) > MAX_STEPS:
            raise Problem("expression_invalid", f"An array may have {MAX_STEPS} elements.", limit=MAX_STEPS)
        return left + right
    return _bounded(_number(left, "+") + _number(right, "+"))


def _divide(left: Any, right: Any) -> Any:
    if _number(right, "/") == 0:
        raise Problem("expression_invalid", "Division by zero.")
    result = _number(left, "/") / right
    return int(result) if isinstance(left, int) and isinstance(right, int) and left % right == 0 else result


def _modulo(left: Any, right: Any) -> Any:
    if _number(right, "%") == 0:
        raise Problem("expression_invalid", "Division by zero.")
    return _number(left, "%") % right


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > 256:
        raise Problem("expression_invalid", "A number grew beyond 256 bits.")
    return value


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "an array", dict: "an object"}
    return names.get(type(value), "a number")


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": equal,
    "===": equal,
    "!=": lambda left, right: not equal(left, right),
    "!==": lambda left, right: not equal(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "in": lambda left, right: holds(right, left),
    "+": _add,
    "-": lambda left, right: _bounded(_number(left, "-") - _number(right, "-")),
    "*": lambda left, right: _bounded(_number(left, "*") * _number(right, "*")),
    "/": _divide,
    "%": _modulo,
}


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | dict) else 0


def _cased(change: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda value: change(value) if isinstance(value, str) else value


FUNCTIONS: dict[str, tuple[int, int, Callable[..., Any]]] = {
    "size": (1, 1, _size),
    "lower": (1, 1, _cased(str.lower)),
    "upper": (1, 1, _cased(str.upper)),
    "contains": (2, 2, holds),
    "matches": (2, 2, matches),
}
