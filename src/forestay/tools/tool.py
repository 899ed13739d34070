"""A tool, the sources that offer tools, and the one order in which arguments are prepared.

T1  A source is the only way to its tools: it lists them, describes one, prepares arguments and calls.
T2  Arguments pass the tool's own preparation first, then one coercion, then one validation (Pi P15).
T3  Of two tools with one name, the one of the earlier source is called.

Arguments are converted as pi converts them, then validated (Pi P10, P15). Models write "4" where a number belongs.
Every call of a tool passes through `fitted`, so that all accept and refuse the same. A schema that was built with
TypeBox converts in two steps, as in pi: TypeBox's own conversions, then those of plain JSON Schema.

A conversion makes valid what is not. So a tool that is called again and again (`Fitting`) takes valid arguments as they
are, where its schema is `steady`: one that would convert nothing valid. Most are.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec

from forestay.kernel import Problem, Validator, canonical, compiled, json_path
from forestay.models import ToolSpec

_MAX_DEPTH = 64
_MOST_MISTAKES = 20
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_OTHER_BASE = re.compile(r"0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+")
_Reading = Callable[[Any], Any]
_CHOOSING = ("allOf", "anyOf", "oneOf", "patternProperties", "prefixItems", "$ref", "$dynamicRef", "$recursiveRef")
"""Keywords with which a valid value may be converted: one of several schemas is tried, or another one counts."""
_STEADY_DEPTH = 16


def checker(schema: Mapping[str, Any]) -> Validator:
    """The compiled form of a tool's schema, or a Problem that says why it is none."""
    return _validator(canonical.encode(schema))


def fitted(
    tool: str, schema: Mapping[str, Any], arguments: Any, *, typebox: bool = False, check: Validator | None = None
) -> Any:
    """The arguments as the tool may have them, or a Problem that names each place that is wrong."""
    check = check or checker(schema)
    value = copied(arguments)
    if typebox:
        value = _converted(value, schema, 0)
    value = _coerced(value, schema, 0)
    if check.is_valid(value):
        return value
    errors = [
        {"at": "$" + json_path(error.instance_path), "message": error.message[:300]}
        for error, _ in zip(check.iter_errors(value), range(_MOST_MISTAKES), strict=False)
    ]
    listed = "; ".join(f"{error['at']}: {error['message']}" for error in errors[:5])
    raise Problem(
        "schema_mismatch",
        f'Validation failed for tool "{tool}": {listed}',
        at=errors[0]["at"],
        tool=tool,
        errors=errors,
        fix="Correct the arguments at each place that `errors` names.",
    )


@lru_cache(maxsize=512)
def _validator(schema: bytes) -> Validator:
    from jsonschema_rs import ReferencingError, ValidationError  # a large package, for those who check something

    try:
        return compiled(schema, javascript=True)
    except (ValueError, ValidationError, ReferencingError) as error:
        raise Problem(
            "registration_invalid", "The tool's parameters are no JSON Schema.", reason=str(error)[:300]
        ) from error


def _fits(value: Any, schema: Any) -> bool:
    try:
        return isinstance(schema, Mapping) and checker(schema).is_valid(value)
    except Problem:
        return False  # it refers to something that only the whole schema knows


# What pi does for any JSON Schema


def _coerced(value: Any, schema: Any, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return value
    if "allOf" in schema:
        for part in _list(schema["allOf"]):
            value = _coerced(value, part, depth + 1)
    if "anyOf" in schema or "oneOf" in schema:
        for key in ("anyOf", "oneOf"):
            value = _first_that_fits(value, _list(schema.get(key)), depth)
    types = _types(schema)
    if types and not _is(value, types[0]) and not any(_is(value, kind) for kind in types):
        readings = (_PLAIN[kind](value) for kind in types if kind in _PLAIN)
        value = next((read for read in readings if read is not value), value)
    if "integer" in types and isinstance(value, float) and value.is_integer():
        value = int(value)
    if "object" in types and isinstance(value, dict):
        known, others = _mapping(schema.get("properties")), schema.get("additionalProperties")
        for key in value if known or isinstance(others, dict) else ():
            value[key] = _coerced(value[key], known.get(key, others), depth + 1)
    if "array" in types and isinstance(value, list):
        for at, part in _items(schema, len(value)):
            value[at] = _coerced(value[at], part, depth + 1)
    return value


def _first_that_fits(value: Any, schemas: list[Any], depth: int) -> Any:
    """In the order of the schema: "4" is 4 for `number | string`, although a string would do."""
    for schema in schemas:
        candidate = _coerced(copied(value), schema, depth + 1)
        if _fits(candidate, schema):
            return candidate
    return value


def _plain_number(value: Any) -> Any:
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    number = _number(value) if isinstance(value, str) else None
    return value if number is None else number


def _plain_integer(value: Any) -> Any:
    number = _plain_number(value)
    return number if _is(number, "integer") else value


def _plain_boolean(value: Any) -> Any:
    if value is None:
        return False
    return {"true": True, "false": False, 1: True, 0: False}.get(value, value) if _is_simple(value) else value


def _plain_string(value: Any) -> Any:
    return "" if value is None else _text(value)


def _plain_null(value: Any) -> Any:
    return None if _is_simple(value) and value in ("", 0, False) else value


# What TypeBox does first


def _converted(value: Any, schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return value
    for part in _list(schema.get("allOf")):
        value = _converted(value, part, depth + 1)
    choices = _list(schema.get("anyOf"))
    if choices and not any(_fits(value, part) for part in choices):
        candidates = (_converted(copied(value), part, depth + 1) for part in choices)
        value = next((read for read, part in zip(candidates, choices, strict=True) if _fits(read, part)), value)
    if "const" in schema or "enum" in schema:
        return _literal(value, [schema["const"]] if "const" in schema else _list(schema["enum"]))
    kind = next(iter(_types(schema)), "")
    if kind in _TYPEBOX:
        return value if _is(value, kind) else _TYPEBOX[kind](value)
    if kind == "object" and isinstance(value, dict):
        known, patterns = _mapping(schema.get("properties")), _mapping(schema.get("patternProperties"))
        other = next(iter(patterns.values()), None)  # a record has one pattern, which is that of its keys
        for key in value:
            value[key] = _converted(value[key], known.get(key, other), depth + 1)
    if kind == "array":
        if not isinstance(value, list) and isinstance(schema.get("items"), Mapping):
            value = [value]
        for at, part in _items(schema, len(value) if isinstance(value, list) else 0):
            value[at] = _converted(value[at], part, depth + 1)
    return value


def _literal(value: Any, allowed: list[Any]) -> Any:
    """The first allowed value that `value` can be read as."""
    kinds = [next((kind for kind in _TYPEBOX if _is(wanted, kind)), "") for wanted in allowed]
    known = list(zip(allowed, kinds, strict=True))
    if any(kind and _is(value, kind) and value == wanted for wanted, kind in known):
        return value
    readings = ((wanted, kind, _TYPEBOX[kind](value)) for wanted, kind in known if kind)
    return next((wanted for wanted, kind, read in readings if _is(read, kind) and read == wanted), value)


def _typebox_number(value: Any) -> Any:
    if isinstance(value, str):
        word = {"true": 1, "false": 0, "": 0}.get(value.strip() and value.lower())
        return word if word is not None else _plain_number(value)
    return _plain_number(value)


def _typebox_integer(value: Any) -> Any:
    number = _typebox_number(value)
    return int(number) if isinstance(number, float) and math.isfinite(number) else number


def _typebox_boolean(value: Any) -> Any:
    words = {"true": True, "false": False, "1": True, "0": False}
    return words.get(value.lower(), value) if isinstance(value, str) else _plain_boolean(value)


def _typebox_string(value: Any) -> Any:
    return "null" if value is None else _text(value)


def _typebox_null(value: Any) -> Any:
    if isinstance(value, str):
        return None if value.lower() in ("", "0", "null", "undefined") else value
    return _plain_null(value)


_PLAIN: dict[str, _Reading] = {
    "number": _plain_number, "integer": _plain_integer, "boolean": _plain_boolean, "string": _plain_string,
    "null": _plain_null,
}  # fmt: skip
_TYPEBOX: dict[str, _Reading] = {
    "number": _typebox_number, "integer": _typebox_integer, "boolean": _typebox_boolean, "string": _typebox_string,
    "null": _typebox_null,
}  # fmt: skip


# As JavaScript reads and writes


def _number(text: str) -> int | float | None:
    """The finite number that `text` stands for in JavaScript, or None."""
    text = text.strip()
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if not _DECIMAL.fullmatch(text):
        return None
    number = float(text)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _text(value: Any) -> Any:
    """A number or a boolean as JavaScript writes it; anything else as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int | float):
        return value
    if isinstance(value, int) and abs(value) < 10**21:
        return str(value)
    if value == 0:
        return "0"
    try:
        digits = Decimal(repr(float(value)))
    except OverflowError:
        return value
    if 1e-6 <= abs(digits) < 1e21:
        return format(digits, "f").removesuffix(".0")
    mantissa, _, exponent = repr(float(value)).partition("e")
    return f"{mantissa}e{int(exponent):+d}"


# Small parts


def _is(value: Any, kind: str) -> bool:
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        return _is(value, "number") and (isinstance(value, int) or value.is_integer())
    python = _PYTHON.get(kind)
    return python is not None and isinstance(value, python)


_PYTHON: dict[str, type] = {"boolean": bool, "string": str, "null": type(None), "array": list, "object": dict}
_ATOMS = frozenset((str, int, bool, float, type(None)))


def copied(value: Any) -> Any:
    """A copy of JSON, in a tenth of the time that `deepcopy` takes."""
    kind = type(value)
    if kind is dict:
        return {key: item if type(item) in _ATOMS else copied(item) for key, item in value.items()}
    if kind is list:
        return [item if type(item) in _ATOMS else copied(item) for item in value]
    return value if kind in _ATOMS else copy.deepcopy(value)


def _is_simple(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _types(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    return [kind] if isinstance(kind, str) else [item for item in _list(kind) if isinstance(item, str)]


def _items(schema: Mapping[str, Any], count: int) -> list[tuple[int, Any]]:
    """The schema of each item: one for all, or one for each place of a tuple."""
    items = schema.get("items")
    return list(enumerate(items[:count])) if isinstance(items, list) else [(at, items) for at in range(count)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class Fitting:
    """Converts and checks the arguments of a tool, as `fitted` does."""

    def __init__(self, tool: str, schema: Mapping[str, Any], *, typebox: bool = False) -> None:
        self._tool = tool
        self._schema = schema
        self._typebox = typebox
        self._check = checker(schema)
        self._steady = not typebox and steady(schema)

    def __call__(self, arguments: Any) -> Any:
        """The arguments as the tool may have them, a copy; or a Problem that names each place that is wrong."""
        if self._steady and self._check.is_valid(arguments):
            return copied(arguments)
        return fitted(self._tool, self._schema, arguments, typebox=self._typebox, check=self._check)


def steady(schema: Any, depth: int = 0) -> bool:
    """Whether the conversions of plain JSON Schema leave every value alone that the schema allows.

    A conversion looks at `type`, and goes on in `properties`, `additionalProperties` and `items`. A valid value is of
    one of the types, and its parts are valid there. Only 4.0 is an integer that becomes another one.
    """
    if not isinstance(schema, dict):
        return True
    kinds = schema.get("type")
    if depth > _STEADY_DEPTH or kinds == "integer" or (isinstance(kinds, list) and "integer" in kinds):
        return False
    if any(keyword in schema for keyword in _CHOOSING):
        return False
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(items, list):
        return False
    parts = [*(properties.values() if isinstance(properties, dict) else ()), schema.get("additionalProperties"), items]
    return all(steady(part, depth + 1) for part in parts)


EffectClass = Literal["pure", "read", "write", "unsafe"]
Transport = Literal["native", "mcp", "http"]


class Tool(msgspec.Struct, frozen=True):
    """A tool as its source offers it.

    `id` is what an allowlist names (`mcp:github/search`); it begins with the kind of its source. `name` is what the
    model sees. `takes_key` says that the tool acts once for one idempotency key, however often it is called.
    `prepares` says that the tool changes its arguments before they are validated, `typebox` that its schema converts
    as TypeBox does.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    effect: EffectClass = "unsafe"
    id: str = ""
    takes_key: bool = False
    transport: Transport = "native"
    prepares: bool = False
    typebox: bool = False

    @property
    def source(self) -> str:
        """The kind of the source that the tool comes from."""
        return self.id.partition(":")[0]

    def fit(self, arguments: Any) -> dict[str, Any]:
        """The arguments as the schema wants them, or a Problem that tells the model what is wrong."""
        value = fitted(self.name, self.parameters, arguments, typebox=self.typebox)
        if not isinstance(value, dict):
            raise Problem("schema_mismatch", f"The arguments of {self.name} are no object.", at="$", tool=self.name)
        return value


def specs_of(tools: Iterable[Tool]) -> list[ToolSpec]:
    """The tools as a model is told of them."""
    return [ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools]


class ToolOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool gave back; an error is an answer too."""

    content: str
    is_error: bool = False
    details: Any = None


Update = Callable[[Any], Awaitable[None]]


class ToolSource(Protocol):
    """Where tools come from: built in, an extension, a workflow; later a server or a component."""

    kind: str
    """What the ids of its tools begin with."""

    async def list(self) -> Sequence[Tool]:
        """The tools that the caller may be offered."""

    async def describe(self, name: str) -> Tool | None:
        """The tool with this name or id."""
        return next((tool for tool in await self.list() if name in (tool.name, tool.id)), None)

    async def prepare(self, tool: Tool, arguments: Any) -> Any:
        """What a tool that `prepares` makes of its arguments, before they are validated."""
        return arguments

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        """Run the tool. The model sees a Problem that this raises as an error."""


class Toolset(ToolSource):
    """Several sources as one; none at all is a set without tools."""

    kind = ""

    def __init__(self, *sources: ToolSource) -> None:
        self._sources = {source.kind: source for source in sources}

    async def list(self) -> Sequence[Tool]:
        return [tool for source in self._sources.values() for tool in await source.list()]

    async def describe(self, name: str) -> Tool | None:
        for source in self._sources.values():
            if (found := await source.describe(name)) is not None:
                return found
        return None

    async def prepare(self, tool: Tool, arguments: Any) -> Any:
        return await self._of(tool).prepare(tool, arguments)

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        source = self._of(tool)
        return await source.call(tool, arguments, call_id=call_id, idempotency_key=idempotency_key, update=update)

    def _of(self, tool: Tool) -> ToolSource:
        source = self._sources.get(tool.source)
        if source is None:
            raise Problem("not_found", f"Nothing here offers the tool {tool.name}.", tool=tool.name)
        return source


async def fit_for(
    source: ToolSource,
    tool: Tool,
    arguments: Any,
    record: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]] | None = None,
) -> dict[str, Any]:
    """The arguments as the tool takes them (T2). `record` keeps what the preparation gave, so that it runs once."""
    if tool.prepares:

        async def prepare() -> Any:
            return await source.prepare(tool, arguments)

        arguments = await (record(prepare) if record is not None else prepare())
    return tool.fit(arguments)
