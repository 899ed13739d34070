"""Whether a workflow can run: every mistake with its place, and warnings for what is probably not meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

import msgspec

from forestay.kernel import Problem, canonical, check_schema
from forestay.runs.channels import REDUCERS
from forestay.runs.conditions import compile_condition
from forestay.runs.definition import (
    ConnectionPort,
    ExpressionPort,
    VariablePort,
    Workflow,
    read_settings,
    read_workflow,
)
from forestay.runs.expressions import compile_expression
from forestay.runs.nodes.checks import check_config
from forestay.runs.nodes.registry import NodeRegistry
from forestay.runs.plan import LOOPBACK, MAX_LOOP_WORK, cycle, descendants, loop_work, split_edges, successors
from forestay.runs.shape import mistakes
from forestay.runs.types import Limits, WorkflowCheck

Finding = dict[str, Any]
_LOOKS = 5_000  # at names, while guessing what the wrong ones of one document were meant to be
_MOST = 100  # mistakes of shape that are told of one document
_CONDITION = 'Write {"type": "expression", "expression": "output.total > 100"}.'
_INSTEAD = {"schedule": "Make a schedule: POST /v1/schedules.", "webhook": "Have the sender call POST /v1/runs."}


_CHANNELS = "forestay.deployment"  # the node type that moves channels: a host that has it resolves them


def check_workflow(
    document: Any, registry: NodeRegistry, limits: Limits | None = None
) -> tuple[Workflow | None, WorkflowCheck]:
    """The typed workflow when it can be read, and everything that is wrong with it."""
    try:
        workflow = read_workflow(document)
    except Problem as problem:
        errors = list(islice(mistakes(document), _MOST)) or problem.details["errors"]
        return None, WorkflowCheck(valid=False, errors=errors, warnings=[])
    errors = [*_errors(workflow, registry), *_beyond(workflow, limits or Limits())]
    warnings = list(_warnings(workflow, registry)) if not errors else []
    return workflow, WorkflowCheck(valid=not errors, errors=errors, warnings=warnings)


def _finding(at: str, message: str, fix: str | None = None) -> Finding:
    return {"at": at, "message": message, **({"fix": fix} if fix else {})}


class _Guesses:
    """What a wrong name was probably meant to be. A guess looks at every name, so one document gets so many looks."""

    def __init__(self) -> None:
        self._looks = _LOOKS

    def __call__(self, name: str, known: Collection[str]) -> str:
        """The name that was probably meant, or those that there are."""
        self._looks -= len(known)
        if self._looks < 0:
            return "Correct the name."
        names = sorted(known)
        if close := difflib.get_close_matches(name[:128], names, 1):
            return f"Did you mean {close[0]!r}?"
        if not names:
            return "There are none."
        return f"There are: {', '.join(names[:30])}{' …' if len(names) > 30 else ''}."


def _beyond(workflow: Workflow, limits: Limits) -> Iterator[Finding]:
    """What the host would not do: a run must not stop at a limit that its document does not name."""
    wanted, most = workflow.settings.max_loopback_iterations, limits.max_loop_iterations
    if wanted > most:
        yield _finding(
            "$.settings.maxLoopbackIterations",
            f"This host lets a loop run {most:,} times, not {wanted:,}.",
            "Ask for less, or raise `workflows.max_loop_iterations` in the host's configuration.",
        )


def _errors(workflow: Workflow, registry: NodeRegistry) -> Iterator[Finding]:
    names = {node.id for node in workflow.nodes}
    yield from _duplicates(workflow)
    meant = _Guesses()
    yield from _nodes(workflow, registry, names, meant)
    yield from _edges(workflow, names, meant)
    yield from _data(workflow, meant)
    for index, trigger in enumerate(workflow.triggers):
        if trigger.type == "channel-write" and trigger.enabled:  # its node would start with the run, and only then
            yield _finding(
                f"$.triggers[{index}].type",
                "This host starts no node on a channel write.",
                "Remove the trigger or set `enabled` to false; a node can wait for a signal with core.waitForEvent.",
            )


def _duplicates(workflow: Workflow) -> Iterator[Finding]:
    groups: list[tuple[str, str, list[str]]] = [
        ("nodes", "id", [item.id for item in workflow.nodes]),
        ("edges", "id", [item.id for item in workflow.edges]),
        ("variables", "name", [item.name for item in workflow.variables]),
    ]
    for group, field, values in groups:
        seen: set[str] = set()
        for index, value in enumerate(values):
            if value in seen:
                yield _finding(f"$.{group}[{index}].{field}", f"{value!r} is used twice.", "Give each its own name.")
            seen.add(value)


def _agent(ref: dict[str, Any], registry: NodeRegistry, at: str) -> Iterator[Finding]:
    """An agent is named by its id, and by a version or a channel (RFC 0082 §A)."""
    for name in ("agentId", "version", "channel"):
        if not isinstance(ref.get(name, "" if name != "agentId" else None), str):
            yield _finding(f"{at}.{name}", "A text is expected.", "Correct the value.")
    if "channel" in ref and registry.get(_CHANNELS) is None:  # refused without agents.deployment
        yield _finding(f"{at}.channel", "This host has no deployment channels.", "Name the agent's `version` instead.")
    if "channel" in ref and "version" in ref:
        yield _finding(f"{at}.channel", "An agent has a version or a channel, not both.", "Remove one of them.")


def _nodes(workflow: Workflow, registry: NodeRegistry, names: set[str], meant: _Guesses) -> Iterator[Finding]:
    variables = {item.name for item in workflow.variables}
    for index, node in enumerate(workflow.nodes):
        at = f"$.nodes[{index}]"
        kind = registry.get(node.type_id)
        if kind is None:
            known = [item.type_id for item in registry]
            yield _finding(f"{at}.typeId", f"There is no node type {node.type_id!r}.", meant(node.type_id, known))
        if node.agent is not None:
            yield from _agent(node.agent, registry, f"{at}.agent")
        try:
            read_settings(node)
        except msgspec.ValidationError as error:
            message, where = canonical.located(error, f"{at}.settings")
            yield _finding(where, f"{message}.", "Correct the value.")
        for name, port in node.inputs.items():
            place = f"{at}.inputs.{name}"
            if isinstance(port, ConnectionPort) and port.node_id not in names:
                yield _finding(f"{place}.nodeId", f"There is no node {port.node_id!r}.", meant(port.node_id, names))
            if isinstance(port, VariablePort) and port.variable_name not in variables and not port.optional:
                said = f"There is no variable {port.variable_name!r}."
                yield _finding(f"{place}.variableName", said, meant(port.variable_name, variables))
            if isinstance(port, ExpressionPort):
                yield from _compiles(port.expression, f"{place}.expression")
        if kind is not None:
            fix = f"The page of node types says what {node.type_id} takes."
            for where, message in check_config(kind, node.config):
                yield _finding(f"{at}.config{where}", message, fix)


def _compiles(text: str, at: str) -> Iterator[Finding]:
    try:
        compile_expression(text)
    except Problem as problem:
        yield _finding(at, problem.message, "docs/reference/expressions.md has the language.")


def _edges(workflow: Workflow, names: set[str], meant: _Guesses) -> Iterator[Finding]:
    rules: dict[str, str] = {}
    dangling = False
    for index, edge in enumerate(workflow.edges):
        at = f"$.edges[{index}]"
        for field, name in (("sourceNodeId", edge.source_node_id), ("targetNodeId", edge.target_node_id)):
            if name not in names:
                dangling = True
                yield _finding(f"{at}.{field}", f"There is no node {name!r}.", meant(name, names))
        if edge.condition is not None:
            try:
                compile_condition(edge.condition)
            except Problem as problem:
                yield _finding(f"{at}.condition", problem.message, _CONDITION)
        elif edge.label == LOOPBACK:
            yield _finding(f"{at}.condition", "A loopback needs a condition that can end it.", _CONDITION)
        if edge.trigger_rule is not None and edge.label != LOOPBACK:
            other = rules.setdefault(edge.target_node_id, edge.trigger_rule)
            if other != edge.trigger_rule:
                yield _finding(
                    f"{at}.triggerRule",
                    f"Another edge into {edge.target_node_id!r} says {other}.",
                    "The edges into one node share one rule.",
                )
    if loop_work(workflow) > MAX_LOOP_WORK:
        yield _finding(
            "$.edges",
            f"Too many loopbacks for this graph: their number times its nodes and edges is over {MAX_LOOP_WORK}.",
            "Move a loop's body into a sub-workflow.",
        )
    elif not dangling:
        yield from _cycles(workflow)


def _cycles(workflow: Workflow) -> Iterator[Finding]:
    graph = split_edges(workflow)
    table = successors(graph.forward)
    found = cycle((node.id for node in workflow.nodes), table)
    if found is not None:
        pair = (found[-2], found[-1])
        index = next(
            i
            for i, e in enumerate(workflow.edges)
            if (e.source_node_id, e.target_node_id) == pair and e.label != LOOPBACK
        )
        yield _finding(
            f"$.edges[{index}]",
            f"The edges form a cycle: {' -> '.join(found[:12])}.",
            'Label the edge that goes back "loopback" and give it a condition.',
        )
    for index, edge in enumerate(workflow.edges):
        if edge.label == LOOPBACK and edge.source_node_id not in descendants([edge.target_node_id], table):
            yield _finding(f"$.edges[{index}].label", "This loopback closes no cycle.", "Remove the label.")


def _data(workflow: Workflow, meant: _Guesses) -> Iterator[Finding]:
    for index, variable in enumerate(workflow.variables):
        if variable.default_value is not msgspec.UNSET and not fits(variable.default_value, variable.type):
            said = f"The default is not of type {variable.type}."
            yield _finding(f"$.variables[{index}].defaultValue", said, "Change `type` or `defaultValue`.")
    for name, channel in workflow.channels.items():
        if channel.reducer not in REDUCERS:
            said = f"There is no reducer {channel.reducer!r}."
            yield _finding(f"$.channels.{name}.reducer", said, meant(channel.reducer, REDUCERS))
        elif channel.default is not msgspec.UNSET and not REDUCERS[channel.reducer].fits(channel.default):
            said = f"A {channel.reducer} channel cannot begin with this."
            yield _finding(f"$.channels.{name}.default", said, "Change `reducer` or `default`.")
        if channel.schema is not None:
            yield from _schema(channel.schema, f"$.channels.{name}.schema")
    if workflow.configurable_schema is not None:
        yield from _schema(workflow.configurable_schema, "$.configurableSchema")


def _schema(schema: dict[str, Any], at: str) -> Iterator[Finding]:
    for place, message in check_schema(schema, at):
        yield _finding(place, message)


def _warnings(workflow: Workflow, registry: NodeRegistry) -> Iterator[Finding]:
    graph = split_edges(workflow)
    disabled = {node.id for node in workflow.nodes if node.disabled}
    linked = {name for e in workflow.edges for name in (e.source_node_id, e.target_node_id)}
    table = successors(edge for edge in graph.forward if edge.source_node_id not in disabled)
    targets = {edge.target_node_id for edge in graph.forward}
    roots = [node.id for node in workflow.nodes if node.id not in targets and node.id not in disabled]
    reached = descendants(roots, table)
    for index, node in enumerate(workflow.nodes):
        at = f"$.nodes[{index}]"
        if node.id not in reached and not node.disabled:
            yield _finding(at, f"{node.id!r} is unreachable: everything before it is disabled.")
        elif len(workflow.nodes) > 1 and node.id not in linked:
            yield _finding(at, f"{node.id!r} is connected to nothing; it starts with the run.")
    for index, trigger in enumerate(workflow.triggers):
        if trigger.enabled and trigger.type not in ("manual", "channel-write"):
            yield _finding(
                f"$.triggers[{index}].type", f"Nothing here starts runs by {trigger.type}.", _INSTEAD.get(trigger.type)
            )


def fits(value: Any, kind: str) -> bool:
    """Whether a value has a variable's type; null fits none."""
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    python: dict[str, type] = {"string": str, "boolean": bool, "object": dict, "array": list}
    return isinstance(value, python[kind])
