"""A workflow compiled for execution: the graph, the conditions, and the nodes that each loopback resets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from forestay.kernel import Problem
from forestay.runs.conditions import Scope, Test, compile_condition
from forestay.runs.definition import Edge, Node, NodeSettings, Retry, TriggerRule, Workflow, read_settings
from forestay.runs.values import member

LOOPBACK = "loopback"
MAX_LOOP_WORK = 1_000_000
SUPERVISOR = "core.orchestrator.supervisor"
DISPATCH = "core.dispatch"
TAKES_UP_FAILURE = frozenset({"any_failed", "all_complete"})


class PlanEdge(msgspec.Struct, frozen=True, eq=False):
    """An edge with its compiled condition. A loopback also has its body, and the tail after the body."""

    id: str
    source: str
    target: str
    source_output: str
    target_input: str
    test: Test | None
    body: frozenset[str] = frozenset()
    tail: frozenset[str] = frozenset()
    implicit: bool = False


class PlanNode(msgspec.Struct, frozen=True, eq=False):
    """A node with its neighbours. `rule` is the trigger rule over all its incoming edges (W10)."""

    index: int
    doc: Node
    rule: TriggerRule
    incoming: list[PlanEdge]
    outgoing: list[PlanEdge]
    loops: list[PlanEdge]
    retry: Retry | None
    timeout_ms: int | None

    @property
    def id(self) -> str:
        return self.doc.id


class Plan(msgspec.Struct, frozen=True, eq=False):
    workflow: Workflow
    nodes: dict[str, PlanNode]
    roots: list[str]
    loops: dict[str, PlanEdge]
    sensitive: frozenset[str]


class Graph(msgspec.Struct, frozen=True):
    """The edges that go forward and those that go back."""

    forward: list[Edge]
    back: list[Edge]


def split_edges(workflow: Workflow) -> Graph:
    """Split edges by direction; the edge from a dispatch back to its supervisor is a loopback without a label."""
    types = {node.id: node.type_id for node in workflow.nodes}
    forward: list[Edge] = []
    labelled: list[Edge] = []
    implicit: list[Edge] = []
    for edge in workflow.edges:
        back = types.get(edge.source_node_id) == DISPATCH and types.get(edge.target_node_id) == SUPERVISOR
        (labelled if edge.label == LOOPBACK else implicit if back else forward).append(edge)
    reach = successors(forward)
    for edge in implicit:
        closes = edge.source_node_id in descendants([edge.target_node_id], reach)
        (labelled if closes else forward).append(edge)
    return Graph(forward, labelled)


def loop_work(workflow: Workflow) -> int:
    """Return the cost of analysing a graph: each edge that may go back is followed through all of it."""
    types = {node.id: node.type_id for node in workflow.nodes}
    back = sum(edge.label == LOOPBACK or types.get(edge.source_node_id) == DISPATCH for edge in workflow.edges)
    return back * (len(workflow.nodes) + len(workflow.edges))


def successors(edges: Iterable[Edge]) -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for edge in edges:
        table.setdefault(edge.source_node_id, []).append(edge.target_node_id)
    return table


def predecessors(edges: Iterable[Edge]) -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for edge in edges:
        table.setdefault(edge.target_node_id, []).append(edge.source_node_id)
    return table


def descendants(starts: Iterable[str], table: dict[str, list[str]]) -> set[str]:
    """Return everything reachable from `starts`, including `starts`."""
    pending = list(starts)
    seen = set(pending)
    while pending:
        for other in table.get(pending.pop(), ()):
            if other not in seen:
                seen.add(other)
                pending.append(other)
    return seen


def cycle(nodes: Iterable[str], table: dict[str, list[str]]) -> list[str] | None:
    """Return the nodes of one cycle, or None."""
    colour: dict[str, int] = {}
    for root in nodes:
        if root in colour:
            continue
        path: list[tuple[str, Iterator[str]]] = [(root, iter(table.get(root, ())))]
        colour[root] = 1
        while path:
            name, rest = path[-1]
            for other in rest:
                if colour.get(other) == 1:
                    names = [item for item, _ in path]
                    return [*names[names.index(other) :], other]
                if other not in colour:
                    colour[other] = 1
                    path.append((other, iter(table.get(other, ()))))
                    break
            else:
                colour[name] = 2
                path.pop()
    return None


def compile_plan(workflow: Workflow) -> Plan:
    """Compile a valid workflow (`check.check_workflow` checks that)."""
    graph = split_edges(workflow)
    onward, backward = successors(graph.forward), predecessors(graph.forward)
    incoming: dict[str, list[PlanEdge]] = {node.id: [] for node in workflow.nodes}
    outgoing: dict[str, list[PlanEdge]] = {node.id: [] for node in workflow.nodes}
    loops: dict[str, list[PlanEdge]] = {node.id: [] for node in workflow.nodes}
    rules: dict[str, TriggerRule] = {}
    for edge in graph.forward:
        compiled = _edge(edge)
        incoming[edge.target_node_id].append(compiled)
        outgoing[edge.source_node_id].append(compiled)
        if edge.trigger_rule is not None:
            rules[edge.target_node_id] = edge.trigger_rule
    for edge in graph.back:
        after = descendants([edge.target_node_id], onward)
        body = after & descendants([edge.source_node_id], backward)
        implicit = edge.label != LOOPBACK
        loops[edge.source_node_id].append(
            _edge(edge, frozenset(body), frozenset(after - body), _continues if implicit else None, implicit)
        )
    nodes = {}
    for index, node in enumerate(workflow.nodes):
        settings = read_settings(node)
        nodes[node.id] = PlanNode(
            index,
            node,
            rules.get(node.id, "all_success"),
            incoming[node.id],
            outgoing[node.id],
            loops[node.id],
            _retry(workflow, settings),
            settings.timeout_ms,
        )
    roots = [node.id for node in workflow.nodes if not incoming[node.id]]
    sensitive = frozenset(item.name for item in workflow.variables if item.sensitive)
    return Plan(workflow, nodes, roots, {e.id: e for group in loops.values() for e in group}, sensitive)


def _edge(
    edge: Edge,
    body: frozenset[str] = frozenset(),
    tail: frozenset[str] = frozenset(),
    test: Test | None = None,
    implicit: bool = False,
) -> PlanEdge:
    if edge.condition is not None:
        test = compile_condition(edge.condition)
    return PlanEdge(
        edge.id,
        edge.source_node_id,
        edge.target_node_id,
        edge.source_output,
        edge.target_input,
        test,
        body,
        tail,
        implicit,
    )


def _continues(scope: Scope) -> bool:
    """Whether a dispatch returns to its supervisor: yes, unless the supervisor has ended the work."""
    return member(scope("output"), "terminated") is not True


def _retry(workflow: Workflow, settings: NodeSettings) -> Retry | None:
    if settings.retry is not None:
        return settings.retry
    if workflow.settings.max_retries:
        return Retry(max_attempts=workflow.settings.max_retries + 1)
    return None


def passes(edge: PlanEdge, scope: Scope) -> bool:
    """Whether an edge's condition is true; one that cannot be evaluated is false."""
    if edge.test is None:
        return True
    try:
        return edge.test(scope)
    except Problem:
        return False
