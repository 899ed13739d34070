"""Workflows written in Python: a function that is called once, at its declaration, and yields a closed document.

    @node("shop.price")
    async def price(ctx: NodeContext, pieces: float) -> dict: ...

    @workflow
    def order(pieces: float):
        cost = price(pieces=pieces)
        ask = workflow.step("core.approvalGate", {"title": "A large order?"}, when=cost.total >= 1000)
        return workflow.step("core.identity", total=cost.total, after=[ask], rule="none_failed")

- A1  The function's parameters are the run's variables; a parameter without a default is required.
- A2  A step follows the steps whose outputs it uses and those in `after`; without any, it follows the step before it.
- A3  The step that the function returns is the primary one; otherwise it is the last step.
- A4  The function computes nothing, because only a run has values. Comparing and adding them makes an expression.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, get_type_hints, overload

from forestay.kernel import Problem, canonical
from forestay.runs.definition import TriggerRule, read_workflow
from forestay.runs.graph_layout import Edge, layout

_TYPES = {str: "string", int: "number", float: "number", bool: "boolean", dict: "object", list: "array"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_drawing: ContextVar[_Drawing | None] = ContextVar("drawing", default=None)


class Value:
    """A value that only a run has: a variable, an output of a step, or an expression over them."""

    def __init__(self, text: str, port: dict[str, Any] | None = None, steps: frozenset[str] = frozenset()) -> None:
        self._text = text
        self._port = port or {"type": "expression", "expression": text}
        self._steps = steps

    def __getitem__(self, key: str) -> Value:
        return Value(f"{self._text}{_member(key)}", None, self._steps)

    def __getattr__(self, name: str) -> Value:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def _with(self, operator: str, other: Any, turned: bool = False) -> Value:
        left, right = (_text(other), self._text) if turned else (self._text, _text(other))
        return Value(f"({left} {operator} {right})", None, self._steps | _steps_of(other))

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._with("==", other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self._with("!=", other)

    def __lt__(self, other: Any) -> Value:
        return self._with("<", other)

    def __le__(self, other: Any) -> Value:
        return self._with("<=", other)

    def __gt__(self, other: Any) -> Value:
        return self._with(">", other)

    def __ge__(self, other: Any) -> Value:
        return self._with(">=", other)

    def __add__(self, other: Any) -> Value:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Value:
        return self._with("+", other, turned=True)

    def __sub__(self, other: Any) -> Value:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Value:
        return self._with("-", other, turned=True)

    def __mul__(self, other: Any) -> Value:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Value:
        return self._with("*", other, turned=True)

    def __truediv__(self, other: Any) -> Value:
        return self._with("/", other)

    def __and__(self, other: Any) -> Value:
        return self._with("&&", other)

    def __or__(self, other: Any) -> Value:
        return self._with("||", other)

    def __invert__(self) -> Value:
        return Value(f"!{self._text}", None, self._steps)

    def __bool__(self) -> bool:
        raise Problem(
            "workflow_invalid",
            f"A workflow cannot test whether {self._text} is true: only a run has its value.",
            fix="Give the step `when=…`, and write & and | for `and` and `or`.",
        )

    __hash__ = object.__hash__


class Step(Value):
    """A node of the workflow; `step.total` or `step["total"]` is one of its outputs."""

    def __init__(self, id: str) -> None:
        super().__init__(f"nodes{_member(id)}.output", None, frozenset({id}))
        self._id = id

    def __getitem__(self, key: str) -> Value:
        port = {"type": "connection", "nodeId": self._id, "outputKey": key}
        return Value(f"{self._text}{_member(key)}", port, self._steps)


class _Drawing:
    """Collects the nodes and edges while the function runs."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[dict[str, Any]] = []

    def add(
        self,
        type_id: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, Any],
        *,
        id: str | None,
        name: str | None,
        after: Sequence[Step] | None,
        when: Value | None,
        rule: TriggerRule | None,
        settings: Mapping[str, Any],
    ) -> Step:
        taken = {node["id"] for node in self.nodes}
        base = id or type_id.rsplit(".", 1)[-1]
        unique = next(name for n in itertools.count(1) if (name := base if n == 1 else f"{base}-{n}") not in taken)
        sources = self._sources(inputs, after, when)
        if when is not None and not sources:
            raise Problem(
                "workflow_invalid", f"The first step, {unique}, cannot have a condition.", fix="Put a step before it."
            )
        if _unknown(config):
            raise Problem(
                "workflow_invalid",
                f"The configuration of {unique} is part of the document, but it contains a value that only a run has.",
                fix="Pass it as an input of the step.",
            )
        self.nodes.append(
            {
                "id": unique,
                "typeId": type_id,
                "name": name or unique,
                "config": dict(config),
                "inputs": {key: _port(value) for key, value in inputs.items()},
                "settings": dict(settings),
            }
        )
        for source in sources:
            edge: dict[str, Any] = {"id": f"{source}-{unique}", "sourceNodeId": source, "targetNodeId": unique}
            if when is not None:
                edge["condition"] = {"type": "expression", "expression": _text(when)}
            if rule is not None:
                edge["triggerRule"] = rule
            self.edges.append(edge)
        return Step(unique)

    def _sources(self, inputs: Mapping[str, Any], after: Sequence[Step] | None, when: Value | None) -> list[str]:
        """Return the steps that a step follows (A2), in the order of the steps."""
        used = {step for value in (*inputs.values(), when) for step in _steps_of(value)}
        used |= {step._id for step in after or ()}
        if not used and after is None and self.nodes:
            return [self.nodes[-1]["id"]]
        return [node["id"] for node in self.nodes if node["id"] in used]


class Workflow:
    """A declared workflow; `forestay workflow put` stores its `document`."""

    def __init__(self, document: dict[str, Any]) -> None:
        read_workflow(document)
        self.document = document
        self.id: str = document["id"]


Author = Callable[..., Any]


class _Workflows:
    """`@workflow`, and the steps of the built-in types."""

    @overload
    def __call__(self, author: Author, /) -> Workflow: ...

    @overload
    def __call__(self, author: None = None, /, **options: Any) -> Callable[[Author], Workflow]: ...

    def __call__(self, author: Author | None = None, /, **options: Any) -> Workflow | Callable[[Author], Workflow]:
        """Declare a workflow. `options` are `id`, `name`, `version`, and further fields of the document."""

        def declare(function: Author) -> Workflow:
            return Workflow(_document(function, **options))

        return declare if author is None else declare(author)

    def step(
        self,
        type_id: str,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        id: str | None = None,
        name: str | None = None,
        after: Sequence[Step] | None = None,
        when: Value | None = None,
        rule: TriggerRule | None = None,
        settings: Mapping[str, Any] | None = None,
        **inputs: Any,
    ) -> Step:
        """Add a step of any node type. `inputs` are its ports; `after=[]` starts it with the run."""
        drawing = _drawing.get()
        if drawing is None:
            raise Problem(
                "workflow_invalid", f"The step {type_id} is outside a workflow.", fix="Call it inside `@workflow`."
            )
        return drawing.add(
            type_id,
            config or {},
            inputs,
            id=id,
            name=name,
            after=after,
            when=when,
            rule=rule,
            settings=settings or {},
        )


workflow = _Workflows()


def being_drawn() -> bool:
    """Whether the function of a workflow is running, so that calling a node means a step."""
    return _drawing.get() is not None


def _document(
    function: Author, id: str | None = None, name: str | None = None, version: str = "1.0.0", **fields: Any
) -> dict[str, Any]:
    drawing = _Drawing()
    variables = _variables(function)
    token = _drawing.set(drawing)
    try:
        given = {
            item["name"]: Value(f"variables.{item['name']}", {"type": "variable", "variableName": item["name"]})
            for item in variables
        }
        result = function(**given)
    finally:
        _drawing.reset(token)
    if not drawing.nodes:
        raise Problem("workflow_invalid", f"The workflow {function.__name__} has no step.", at="$.nodes")
    primary = result._id if isinstance(result, Step) else drawing.nodes[-1]["id"]
    places = layout(
        [node["id"] for node in drawing.nodes],
        [Edge(edge["sourceNodeId"], edge["targetNodeId"]) for edge in drawing.edges],
    ).boxes
    for node in drawing.nodes:
        x, y = places[node["id"]]
        node["position"] = {"x": x, "y": y}
        if node["id"] == primary:
            node["outputRole"] = "primary"
    described = inspect.getdoc(function)
    return {
        "id": id or function.__name__.replace("_", "-"),
        "name": name or function.__name__.replace("_", " ").capitalize(),
        "version": version,
        "nodes": drawing.nodes,
        "edges": drawing.edges,
        "triggers": [],
        "variables": variables,
        "metadata": {},
        "settings": {},
        **({"description": described} if described else {}),
        **fields,
    }


def _variables(function: Author) -> list[dict[str, Any]]:
    """Return the run's variables (A1). Refuse a parameter without a JSON type, because a run could not check it."""
    hints = get_type_hints(function)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, str)
        kind = _TYPES.get(getattr(hint, "__origin__", hint))
        if kind is None:
            known = ", ".join(item.__name__ for item in _TYPES)
            raise Problem(
                "workflow_invalid", f"The parameter {name} has no JSON type.", at=name, fix=f"Use one of {known}."
            )
        item: dict[str, Any] = {"name": name, "type": kind}
        if parameter.default is inspect.Parameter.empty:
            item["required"] = True
        else:
            item["defaultValue"] = parameter.default
        found.append(item)
    return found


def _port(value: Any) -> dict[str, Any]:
    if isinstance(value, Value):
        return value._port
    if _unknown(value):
        return {"type": "expression", "expression": _text(value)}
    return {"type": "static", "value": value}


def _text(value: Any) -> str:
    """Write `value` in the expression language."""
    if isinstance(value, Value):
        return value._text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    return canonical.encode(value).decode()


def _values(value: Any) -> Iterator[Value]:
    """Yield the values of a run inside `value`."""
    if isinstance(value, Value):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _values(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values(item)


def _unknown(value: Any) -> bool:
    """Whether some part of `value` is known only to a run."""
    return next(_values(value), None) is not None


def _steps_of(value: Any) -> frozenset[str]:
    return frozenset().union(*(found._steps for found in _values(value)))


def _member(key: str) -> str:
    return f".{key}" if _NAME.fullmatch(key) else f"[{canonical.encode(key).decode()}]"
