"""The expression language of conditions, port values and transforms (W12).

- E1  An expression reads values and makes a new one; it changes nothing and reaches nothing outside its scope.
- E2  Its text, its depth, the steps of one evaluation, its numbers and its result are bounded; exceeding a bound is a
      Problem.
- E3  A path to a missing value is null, never an error.
- E4  `==` compares JSON values; a boolean is not a number. `<` orders two numbers or two strings, nothing else.
- E5  `matches` runs in linear time in the length of the text, for every pattern.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forestay.kernel import Problem
from forestay.runs.values import check_size, compile_pattern, equal, holds, matches, member, truthy

MAX_TEXT = 4096
MAX_DEPTH = 32
MAX_STEPS = 10_000
MAX_STRING = 1024 * 1024
MAX_BITS = 256
_PER_STEP = 64  # members or characters that one step may read

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
    """One evaluation: its scope of names, and the steps that are left."""

    __slots__ = ("scope", "steps")

    def __init__(self, scope: Scope, steps: float) -> None:
        self.scope = scope
        self.steps = steps

    def step(self, cost: float = 1) -> None:
        self.steps -= cost
        if self.steps < 0:
            raise Problem("expression_invalid", f"The expression takes more than {MAX_STEPS} steps.", limit=MAX_STEPS)

    def visit(self, count: int) -> None:
        """Spend the steps for reading `count` members or characters."""
        self.step((count + 1) / _PER_STEP)


class Expression:
    """A compiled expression."""

    __slots__ = ("_builds", "_code", "names", "text")

    def __init__(self, text: str, code: Step, names: frozenset[str], *, builds: bool) -> None:
        self.text = text
        self._code = code
        self._builds = builds  # makes arrays, objects or sums, which may contain one large value many times
        self.names = names  # the first names of its paths

    def evaluate(self, scope: Scope | Mapping[str, Any]) -> Any:
        lookup = scope.get if isinstance(scope, Mapping) else scope
        value = self._code(_Run(lookup, MAX_STEPS))
        if self._builds:
            check_size(value)
        return value


@functools.lru_cache(maxsize=2048)
def compile_expression(text: str) -> Expression:
    """Compile `text`; `expression_invalid` says what is wrong and at which character."""
    if len(text) > MAX_TEXT:
        raise Problem("expression_invalid", f"An expression may have at most {MAX_TEXT} characters.", limit=MAX_TEXT)
    parser = _Parser(text)
    code = parser.expression(0, 0)
    if parser.kind != "end":
        parser.fail(f"{parser.value!r} was not expected here")
    return Expression(text, code, frozenset(parser.names), builds=parser.builds)


class _Parser:
    """Precedence climbing over one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.start = 0
        self.kind = ""
        self.value = ""
        self.names: set[str] = set()
        self.builds = False
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
                self.fail(f"{self.value!r} has no meaning here")
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
            self.builds = self.builds or op == "+"
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
            number = _bounded(float(value) if any(c in value for c in ".eE") else int(value))
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
            self.builds = True
            items = self.listed("]", depth)
            return lambda run: [item(run) for item in items]
        if self.take("{"):
            self.builds = True
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
            run.step(1 + sum(len(v) // _PER_STEP for v in values if isinstance(v, str | list | dict)))
            return function(*values, run.visit) if function is holds else function(*values)

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
    """Return the value of a step that reads nothing, else None."""
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
    if op in _LOOKING:
        look = _LOOKING[op]
        return lambda run: look(left(run), right(run), run)
    work = _OPERATIONS[op]

    def code(run: _Run) -> Any:
        run.step()
        return work(left(run), right(run))

    return code


def _number(value: Any, op: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem("expression_invalid", f"{op!r} needs a number, not {_kind(value)}.")
    return _bounded(value)


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
            raise Problem("expression_invalid", f"A string may have at most {MAX_STRING} characters.", limit=MAX_STRING)
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        if len(left) + len(right) > MAX_STEPS:
            raise Problem("expression_invalid", f"An array may have at most {MAX_STEPS} elements.", limit=MAX_STEPS)
        return left + right
    return _bounded(_number(left, "+") + _number(right, "+"))


def _divide(left: Any, right: Any) -> Any:
    if _number(right, "/") == 0:
        raise Problem("expression_invalid", "Division by zero.")
    if isinstance(_number(left, "/"), int) and isinstance(right, int) and left % right == 0:
        return left // right
    return _bounded(left / right)


def _modulo(left: Any, right: Any) -> Any:
    if _number(right, "%") == 0:
        raise Problem("expression_invalid", "Division by zero.")
    return _number(left, "%") % right


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise Problem("expression_invalid", f"A number has more than {MAX_BITS} bits.", limit=MAX_BITS)
    if isinstance(value, float) and not math.isfinite(value):
        raise Problem("expression_invalid", "A number is too large.")
    return value


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "an array", dict: "an object"}
    return names.get(type(value), "a number")


def _same(left: Any, right: Any, run: _Run) -> bool:
    run.step()
    return equal(left, right, run.visit)


def _other(left: Any, right: Any, run: _Run) -> bool:
    return not _same(left, right, run)


def _within(left: Any, right: Any, run: _Run) -> bool:
    run.step()
    return holds(right, left, run.visit)


# Operators that read into values spend steps for what they read.
_LOOKING: dict[str, Callable[[Any, Any, _Run], bool]] = {
    "==": _same,
    "===": _same,
    "!=": _other,
    "!==": _other,
    "in": _within,
}
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
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
