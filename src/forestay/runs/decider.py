"""`decide`: what follows from a run's state at a moment, as events. Pure; the engine appends what it says.

- D1  A node starts at most once per iteration, and only when its trigger rule holds (W10).
- D2  A node whose rule can no longer hold is skipped, and skipping propagates.
- D3  A failure that no downstream rule takes up ends the run; so does a breached limit.
- D4  When nothing is active and nothing can start, the run ends: every run ends.
- D5  A loopback is taken at most its limit's times, then the run fails (W11).
- D6  A call looks only at what changed since the last: cost does not grow with the log.
- D7  What follows depends on the state alone, not on the way it was reached: a fork decides as its source did.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from forestay.kernel import Problem
from forestay.runs import spending
from forestay.runs.definition import ConnectionPort, ExpressionPort, Port, Retry, StaticPort
from forestay.runs.expressions import compile_expression
from forestay.runs.plan import PlanEdge, PlanNode
from forestay.runs.state import Event, InterruptState, NodeState, RunState, shown_outputs
from forestay.runs.values import equal, member, plain

Chance = Callable[[], float]
LEAVING = {"node.failed": "failed", "node.cancelled": "cancelled"}
"""The ends of a node that leave its sessions with tools open, and what becomes of those (OpenWOP RFC 0078)."""
Verdict = str | None  # "start", "skip", or nothing yet


def decide(
    state: RunState, now: int, chance: Chance = lambda: 0.5, until: Callable[[], int] | None = None
) -> list[Event]:
    """The next events. Take them in and call again until there are none. Deadlines are taken up to `until()`, a time of
    the run's own clock; `now` is the wall clock's, which is never behind it."""
    if state.ended is not None or state.seq < 0:
        return []
    if state.budget is not None and (spent := _spent(state, now, state.budget)):
        return spent
    if state.failure is not None:
        error = state.nodes[state.failure].error or {}
        return finish_failed(state, now, error, state.failure)
    following = [] if state.paused_ms is not None else _paused(state) or _following(state, now)
    return following or _due(state, now, until, chance)


def _paused(state: RunState) -> list[Event]:
    """A pause that waited for the nodes under way (W17)."""
    return [Event("run.paused", state.pausing)] if state.pausing is not None and not state.executing else []


def _following(state: RunState, now: int) -> list[Event]:
    """What follows at once, without time (T3)."""
    if state.pausing is not None:
        return []
    return (
        _answered(state)
        or _loops(state, now)
        or _ready(state, now)
        or _signals(state)
        or ([] if state.active else [_completed(state, now)])
    )


def rule_verdict(plan: PlanNode, node: NodeState) -> Verdict:
    """What a node's trigger rule says over its incoming edges (W10)."""
    total = len(plan.incoming)
    ended = node.success + node.failed + node.skipped
    if plan.rule == "all_success":
        return "start" if node.success == total else "skip" if node.failed or node.skipped else None
    if plan.rule == "any_success":
        return "start" if node.success else "skip" if ended == total else None
    if plan.rule == "all_complete":
        return "start" if ended == total else None
    if plan.rule == "none_failed":
        if node.failed:
            return "skip"
        return None if ended < total else "start" if node.success else "skip"
    return "start" if node.failed else "skip" if ended == total else None


def _ready(state: RunState, now: int) -> list[Event]:
    """The first node in the document's order that can be decided (D7)."""
    while state.dirty:
        _, name = heapq.heappop(state.dirty)  # what is not decided now is touched again when an edge settles
        node, plan = state.nodes[name], state.plan.nodes[name]
        if node.status != "idle":
            continue
        verdict = "start" if name in state.forced else rule_verdict(plan, node)
        if verdict == "start" and plan.doc.disabled:
            return [_node_event("node.skipped", name, reason="disabled")]
        if verdict == "start":
            if state.executions >= state.execution_limit:
                return _too_many_executions(state, now, name, state.executions + 1)
            return start_node(state, name)
        if verdict == "skip":
            return [_node_event("node.skipped", name, reason=f"{plan.rule} cannot hold")]
    return []


def start_node(state: RunState, name: str) -> list[Event]:
    """The events that start a node, its inputs resolved."""
    refusal = state.refusals.get(name)
    if refusal is not None:
        return [_node_event("node.failed", name, error=refusal)]
    plan, node = state.plan.nodes[name], state.nodes[name]
    payload: dict[str, Any] = {"nodeId": name, "typeId": plan.doc.type_id, "attempt": 1}
    if node.iteration:
        payload["iteration"] = node.iteration
    try:
        inputs = resolve_inputs(state, plan)
    except Problem as problem:
        error = {"code": "input_unresolved", "message": problem.message}
        return [Event("node.started", payload, name), _node_event("node.failed", name, error=error, attempts=1)]
    return [Event("node.started", payload, name, {"inputs": inputs} if inputs else None)]


def resolve_inputs(state: RunState, plan: PlanNode) -> dict[str, Any]:
    """A node's input ports: what its edges bring, and over it what the document says."""
    inputs: dict[str, Any] = {}
    for edge in plan.incoming:
        if state.edges.get(edge.id) == "success":
            inputs[edge.target_input] = _brought(state, edge)
    for name, port in plan.doc.inputs.items():
        value = _port(state, port, name, (plan.doc.id, plan.doc.type_id))
        if value is not _ABSENT:
            inputs[name] = value
    return inputs


def _brought(state: RunState, edge: PlanEdge) -> Any:
    outputs = state.nodes[edge.source].outputs or {}
    if edge.source_output == "output" and "output" not in outputs:
        return outputs
    return outputs.get(edge.source_output)


_ABSENT = object()


def _port(state: RunState, port: Port, name: str, reader: tuple[str, str]) -> Any:
    if isinstance(port, StaticPort):
        return port.value
    if isinstance(port, ExpressionPort):
        return plain(compile_expression(port.expression).evaluate(state.scope(reader=reader)))
    if isinstance(port, ConnectionPort):
        outputs = state.nodes[port.node_id].outputs
        value: Any = outputs
        for link in port.output_key.split("."):
            value = (
                outputs
                if link == "output" and isinstance(outputs, dict) and link not in outputs
                else member(value, link)
            )
        if value is None and outputs is None:
            if port.optional:
                return _ABSENT
            raise Problem("schema_mismatch", f"The input {name!r} needs {port.node_id!r}, which has no output.")
        return value
    if port.variable_name in state.variables:
        return state.variables[port.variable_name]
    if port.optional:
        return _ABSENT
    raise Problem("schema_mismatch", f"The input {name!r} needs the variable {port.variable_name!r}, which is not set.")


# Time


def _due(state: RunState, now: int, until: Callable[[], int] | None, chance: Chance) -> list[Event]:
    """The earliest deadline up to `until()`, with its own time (T3)."""
    due = state.next_due()
    if due is None or due > now or (until is not None and due > until()):
        return []
    if due == state.deadline:
        events = _out_of_time(state, now)
    else:
        events = _rung(state, heapq.heappop(state.timers), chance)
    for event in events:
        event.at = max(state.at, due)
    return events


def _rung(state: RunState, timer: tuple[int, str, str], chance: Chance) -> list[Event]:
    _, kind, name = timer
    if kind == "interrupt":
        return timed_out(state, state.interrupts[name])
    if kind == "timeout":
        limit = state.plan.nodes[name].timeout_ms
        error = {"code": "node_timeout", "message": f"The node took longer than {limit} ms."}
        return failed(state, name, error, chance)
    node = state.nodes[name]
    if kind == "retry":
        payload = {"nodeId": name, "typeId": state.plan.nodes[name].doc.type_id, "attempt": node.attempt + 1}
        return [Event("node.started", payload, name)]
    key = next(key[6:] for key, due in node.memo.items() if key.startswith("timer:") and _unfired(node, key, due))
    return [_node_event("forestay.timer.fired", name, key=key)]


def _unfired(node: NodeState, key: str, due: Any) -> bool:
    return node.wake == ("sleep", due) and f"fired:{key[6:]}" not in node.memo


def failed(state: RunState, name: str, error: dict[str, Any], chance: Chance) -> list[Event]:
    """A failed attempt: try again as the policy says, or fail the node (W13)."""
    node, retry = state.nodes[name], state.plan.nodes[name].retry
    if retry is None or node.attempt >= retry.max_attempts or not _retryable(retry, error):
        return [_node_event("node.failed", name, error=error, attempts=max(node.attempt, 1))]
    if state.budget is not None and state.budget.stops and state.budget.room("retries") == 0:
        told = spending.exhaustion(state.budget, "retries")
        return [*(Event(*item) for item in told), _node_event("node.failed", name, error=_exhausted("retries"))]
    delay = retry_delay(retry, node.attempt, chance)
    return [_node_event("node.retried", name, attempt=node.attempt + 1, delayMs=delay, lastError=error)]


def _retryable(retry: Retry, error: dict[str, Any]) -> bool:
    return error.get("retryable") is not False and error.get("code") not in retry.non_retryable


def retry_delay(retry: Retry, attempt: int, chance: Chance) -> int:
    """Milliseconds before the next attempt: `jitter` is the share of the delay that chance takes away."""
    factor: int = {"fixed": 1, "linear": attempt, "exponential": 2 ** min(attempt - 1, 40)}[retry.backoff]
    delay = min(retry.initial_delay_ms * factor, retry.max_delay_ms)
    jitter = (1.0 if retry.jitter else 0.0) if isinstance(retry.jitter, bool) else retry.jitter
    return round(delay * (1 - jitter * chance())) if jitter else delay


def timed_out(state: RunState, asked: InterruptState) -> list[Event]:
    """An interrupt without an answer in time: its default, a rejection of an approval, or a failure."""
    if asked.kind == "approval":
        action = asked.default if asked.default in ("accept", "reject") else "reject"
        value: Any = {"action": action, "timedOut": True}
    elif asked.default is not None:
        value = asked.default
    else:
        error = {"code": "interrupt_timeout", "message": f"Nobody answered within {asked.timeout_ms} ms."}
        return [_node_event("node.failed", asked.node, error=error, attempts=1)]
    events = resolve_events(asked, value, {"timedOut": True})
    if asked.kind == "approval":
        events.insert(0, _node_event("approval.received", asked.node, action="timeout"))
    return events


def resolve_events(asked: InterruptState, value: Any, private: dict[str, Any] | None = None) -> list[Event]:
    """An answer, and the node that goes on with it."""
    payload = {"nodeId": asked.node, "interruptId": asked.id, "kind": asked.kind, "resumeValue": value}
    resumed = {"nodeId": asked.node, "interruptId": asked.id, "resumeValue": value}
    return [Event("interrupt.resolved", payload, asked.node, private), Event("node.resumed", resumed, asked.node)]


def _answered(state: RunState) -> list[Event]:
    """A fork may begin between an answer and the node that goes on with it."""
    events = []
    for id in state.answered:
        asked = state.interrupts[id]
        resumed = {"nodeId": asked.node, "interruptId": id, "resumeValue": state.answers.get(asked.key)}
        events.append(Event("node.resumed", resumed, asked.node))
    return events


def _signals(state: RunState) -> list[Event]:
    """Give a kept signal to a node that waits for it."""
    if not state.check_signals:
        return []
    for name in state.active:
        asked = state.interrupts.get(state.nodes[name].interrupt or "")
        if asked is None or asked.status != "open" or asked.kind != "external-event":
            continue
        kept = state.signals.get(asked.data.get("eventType", ""), [])
        for index, value in enumerate(kept):
            if correlates(asked.data.get("correlation", {}), value):
                return resolve_events(asked, value, {"signal": asked.data["eventType"], "index": index})
    state.check_signals = False
    return []


def waits_for(state: RunState, name: str, value: Any) -> bool:
    """Whether a node would take this signal now."""
    asked = (state.interrupts.get(state.nodes[node].interrupt or "") for node in state.active)
    return any(
        item is not None
        and item.kind == "external-event"
        and item.data.get("eventType") == name
        and correlates(item.data.get("correlation", {}), value)
        for item in asked
    )


def correlates(wanted: dict[str, Any], value: Any) -> bool:
    """Whether an event carries what an interrupt waits for."""
    return not wanted or (isinstance(value, dict) and all(equal(value.get(key), item) for key, item in wanted.items()))


# Loops and ends


def _loops(state: RunState, now: int) -> list[Event]:
    if not state.loops:
        return []
    id = state.loops[0]
    loop = state.plan.loops[id]
    iteration = state.iterations.get(id, 0) + 1
    own = state.plan.workflow.settings.max_loopback_iterations
    limit = state.limits.max_loop_iterations if loop.implicit else min(own, state.limits.max_loop_iterations)
    if iteration > limit:
        error = {"code": "loop_limit_exceeded", "message": f"The loop {id!r} ran more than {limit} times."}
        return [
            _node_event("workflow.loopback-limit", loop.source, iterations=iteration, limit=limit),
            _breach("loop-iterations", limit, iteration, loop.source),
            *finish_failed(state, now, error, loop.source),
        ]
    cancelled = [cancel_node(name, "loopback") for name in state.active if name in loop.body]
    taken = {"edgeId": id, "sourceNodeId": loop.source, "targetNodeId": loop.target, "iteration": iteration}
    return [*cancelled, Event("forestay.loop.taken", taken, loop.source)]


def _too_many_executions(state: RunState, now: int, name: str, observed: int) -> list[Event]:
    limit = state.execution_limit
    error = {"code": "recursion_limit_exceeded", "message": f"The run executed more than {limit} nodes."}
    return [_breach("node-executions", limit, observed, name), *finish_failed(state, now, error, name)]


def _out_of_time(state: RunState, now: int) -> list[Event]:
    limit = state.duration_limit
    error = {"code": "run_timeout", "message": f"The run took longer than {limit} ms."}
    breach = Event("cap.breached", {"kind": "run-duration", "limit": limit, "observed": now - state.created_ms})
    return [breach, *finish_failed(state, now, error, None)]


def _spent(state: RunState, now: int, budget: spending.RunBudget) -> list[Event]:
    """What follows from what the run used; a hard ceiling that was met ends it, whoever told it first (B3)."""
    if told := spending.following(budget, resting=not state.executing):
        return [Event(*item) for item in told]
    if not budget.stops or not budget.exhausted:
        return []
    return finish_failed(state, now, _exhausted(min(budget.exhausted)), state.failure)


def _untold(state: RunState) -> list[Event]:
    """What the budget of a run that ends has still to say."""
    return [] if state.budget is None else [Event(*item) for item in spending.untold(state.budget)]


def _exhausted(dimension: str) -> dict[str, Any]:
    message = f"The run's budget of {dimension} is used up."
    return {"code": "budget_exhausted", "message": message, "details": {"dimension": dimension}, "retryable": False}


def _breach(kind: str, limit: int, observed: int, name: str) -> Event:
    return _node_event("cap.breached", name, kind=kind, limit=limit, observed=observed)


def finish_failed(state: RunState, now: int, error: dict[str, Any], name: str | None) -> list[Event]:
    """Stop what is active and fail the run."""
    payload: dict[str, Any] = {"error": error, "durationMs": max(0, now - state.created_ms)}
    if name is not None:
        payload["failedNodeId"] = name
    stopped = [cancel_node(other, "run-failed") for other in state.active]
    return [*_untold(state), *stopped, Event("run.failed", payload)]


def pause_run(state: RunState, policy: str, reason: str | None) -> list[Event]:
    """Pause now, or when the nodes under way have ended (W17)."""
    payload: dict[str, Any] = {"drainPolicy": policy}
    if reason:
        payload["reason"] = reason
    drains = policy == "drain-current-node" and state.executing
    return [Event("forestay.pause.requested" if drains else "run.paused", payload)]


def cancel_run(
    state: RunState, now: int, reason: str | None = None, by: str | None = None, parent: str | None = None
) -> list[Event]:
    """Stop what is active and cancel the run."""
    named = {"reason": reason, "cancelledBy": by, "parentRunId": parent}
    payload: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    payload["durationMs"] = max(0, now - state.created_ms)
    stopped = [cancel_node(name, reason or "run-cancelled") for name in state.active]
    return [*_untold(state), *stopped, Event("run.cancelled", payload)]


def cancel_node(name: str, reason: str) -> Event:
    return _node_event("node.cancelled", name, reason=reason)


def _completed(state: RunState, now: int) -> Event:
    return Event("run.completed", {"outputs": run_outputs(state), "durationMs": max(0, now - state.created_ms)})


def run_outputs(state: RunState) -> dict[str, Any]:
    """The primary node's outputs, the only last node's, or those of all last nodes by id."""
    ended = {
        name: shown_outputs(state, name, node.outputs or {})
        for name, node in state.nodes.items()
        if node.status == "completed"
    }
    for name in ended:
        if state.plan.nodes[name].doc.output_role == "primary":
            return ended[name]
    last = {name: outputs for name, outputs in ended.items() if not state.plan.nodes[name].outgoing}
    return next(iter(last.values())) if len(last) == 1 else last


def _node_event(type: str, name: str, **payload: Any) -> Event:
    return Event(type, {"nodeId": name, **payload}, name)


def left_open(state: RunState, event: Event) -> list[Event]:
    """The ends of the sessions with tools that a node leaves open when `event`, one of `LEAVING`, ends it. A node
    closes what it opened; this closes in its place what it cannot any more."""
    node = state.nodes.get(event.node or "")
    return [
        Event("tool.session.closed", {"sessionId": name, "toolId": tool, "outcome": LEAVING[event.type]}, event.node)
        for name, tool in (node.sessions.items() if node is not None else ())
    ]
