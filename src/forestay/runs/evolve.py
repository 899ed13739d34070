"""`evolve`: what one event does to a run's state. No clock, no I/O, no cost that grows with the log.

- V1  State is a function of the log: the same events give the same state.
- V2  An event that is not known changes nothing but the position (OpenWOP §1.8).
- V3  An edge's condition is evaluated once, when its source ends, over the state at that moment.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from forestay.runs import channels
from forestay.runs.plan import TAKES_UP_FAILURE, PlanEdge, PlanNode, passes
from forestay.runs.secrets import learn
from forestay.runs.spending import MOVES, take_in
from forestay.runs.state import (
    ENDED,
    MAX_HEARD,
    REAL,
    WAIT_OF_KIND,
    WITH_PARENT,
    Event,
    InterruptState,
    NodeState,
    RunState,
    Said,
)
from forestay.runs.types import Owner


def fold(state: RunState, events: Iterable[Event]) -> RunState:
    for event in events:
        evolve(state, event)
    return state


def evolve(state: RunState, event: Event) -> None:
    """Take `event` into `state`, in place: its owner is the only one that holds it."""
    state.seq = event.seq
    state.ts = max(state.ts, event.ts)
    state.at = max(state.at, event.at)
    if event.private is not None and (mark := event.private.get("emit")) is not None and event.node is not None:
        node = state.nodes[event.node]
        value = _private(event, "next", event.payload.get("next"))
        node.memo[f"emit:{mark}"] = Said(node.attempt, event.type, event.payload, value, event.id)
    if event.type in MOVES:
        state.budget = take_in(state.budget, event.type, event.payload, event.private)
    handler = _HANDLERS.get(event.type)
    if handler is not None:
        handler(state, event)


def _private(event: Event, name: str, default: Any = None) -> Any:
    return event.private.get(name, default) if event.private else default


def _move(state: RunState, name: str, status: str, wake: tuple[str, int] | None = None) -> NodeState:
    node = state.nodes[name]
    counts = state.counts
    before = node.status
    if status == "running" and state.paused_ms is not None:
        status = "stopped"
    if before != "idle" and before not in ENDED:
        counts[before] -= 1
    node.status = status
    node.wake = wake
    if status == "idle" or status in ENDED:
        state.active.pop(name, None)
    else:
        counts[status] = counts.get(status, 0) + 1
        state.active[name] = None
    _keep_pace(state, name)
    return node


def _keep_pace(state: RunState, name: str) -> None:
    """What this node begins now takes real time, from where the run's clock stands (T2)."""
    node = state.nodes[name]
    node.lag = state.ts - state.at if node.status in REAL else 0
    if node.lag:
        heapq.heappush(state.late, (-node.lag, name))


# The run


def _run_started(state: RunState, event: Event) -> None:
    payload = event.payload
    state.started = payload
    state.created_ms, state.begun = event.ts, event.at
    state.owner = msgspec.convert(payload["owner"], Owner) if "owner" in payload else None
    state.inputs = _private(event, "inputs", payload.get("inputs", {}))
    state.configurable = payload.get("configurable", {})
    state.parent = payload.get("parent")
    unset = (state.parent or {}).get("unset", ())
    state.variables = {
        item.name: item.default_value
        for item in state.plan.workflow.variables
        if item.default_value is not msgspec.UNSET and item.name not in unset
    }
    state.variables.update(state.inputs)
    declared = state.plan.workflow.channels
    state.channels = {name: channels.open_channel(item, event.at) for name, item in declared.items()}
    for name in state.plan.sensitive:
        learn(state, state.variables.get(name))
    if given := _private(event, "secrets"):
        learn(state, given)
    _apply_limits(state)
    for name in state.plan.roots:
        _touch(state, name)


def _apply_limits(state: RunState) -> None:
    limits, wanted = state.limits, state.configurable
    executions, duration = int(wanted.get("recursionLimit") or 0), int(wanted.get("runTimeoutMs") or 0)
    state.execution_limit = min(limits.max_node_executions, executions or limits.max_node_executions)
    durations = (limits.max_run_duration_ms, state.plan.workflow.settings.timeout, duration)
    state.duration_limit = min(item for item in durations if item)
    state.deadline = state.begun + state.duration_limit


def _run_ended(status: Any) -> Callable[[RunState, Event], None]:
    def handler(state: RunState, event: Event) -> None:
        state.ended = status
        state.ended_ms = event.ts
        state.paused_ms = state.pausing = None
        state.outputs = event.payload.get("outputs")
        state.error = event.payload.get("error")
        state.dirty.clear()
        state.loops.clear()
        state.timers.clear()
        state.late.clear()
        for item in state.interrupts.values():
            if item.status == "open":
                item.status = "cancelled"
            item.withdrawn = item.status == "cancelled" and event.payload.get("reason") == WITH_PARENT

    return handler


def _pausing(state: RunState, event: Event) -> None:
    state.pausing = event.payload


def _paused(state: RunState, event: Event) -> None:
    """Nothing runs while a run is paused: attempts under way are given up, what they have on record is kept (W17)."""
    state.paused_ms, state.pausing = event.ts, None
    for name in [name for name in state.active if state.nodes[name].status == "running"]:
        _move(state, name, "stopped")


def _resumed(state: RunState, event: Event) -> None:
    state.paused_ms = state.pausing = None
    for name in [name for name in state.active if state.nodes[name].status == "stopped"]:
        _move(state, name, "running")
        _limit(state, name)


def _tool_session(state: RunState, event: Event) -> None:
    """A session with a tool begins or ends (OpenWOP RFC 0078)."""
    if (node := state.nodes.get(event.node or "")) is None:
        return
    others = {name: tool for name, tool in node.sessions.items() if name != event.payload["sessionId"]}
    opened = event.type == "tool.session.opened"
    node.sessions = {**others, event.payload["sessionId"]: event.payload["toolId"]} if opened else others


def _forked(state: RunState, event: Event) -> None:
    """A branch: the overlay is laid over, and children of the source are not ours (OpenWOP §1.11)."""
    shown: dict[str, Any] = event.payload.get("overlay", {})
    overlay = _private(event, "overlay", shown)
    state.variables.update(overlay.get("variables", {}))
    if "inputs" in overlay:
        state.inputs = {**state.inputs, **overlay["inputs"]}
        state.variables.update(overlay["inputs"])
    laid: dict[str, Any] = {
        name: {**state.started.get(name, {}), **shown[name]} for name in ("inputs", "metadata") if name in shown
    }
    if "tags" in shown:
        laid["tags"] = shown["tags"]
    state.started = {**state.started, **laid}
    if "configurable" in overlay:
        state.configurable = {**state.configurable, **overlay["configurable"]}
        _apply_limits(state)
    for name in state.plan.sensitive:
        learn(state, state.variables.get(name))
    state.deadline = event.at + state.duration_limit
    for name, key in state.children.values():
        state.nodes[name].memo.pop(f"child:{key}", None)
        if state.nodes[name].status == "child":
            _move(state, name, "running")
    state.children.clear()
    state.orphans.clear()
    for asked in state.interrupts.values():
        if asked.status == "open" and asked.kind == "approval" and asked.data.get("requiredApprovals", 1) <= 1:
            asked.votes.clear()  # the vote was cut off from what it did


# Nodes


def _node_started(state: RunState, event: Event) -> None:
    payload = event.payload
    name = payload["nodeId"]
    node = _move(state, name, "running")
    node.attempt = payload.get("attempt", 1)
    if node.attempt == 1:
        state.executions += 1
        node.inputs = _private(event, "inputs", {})
        node.started_ms = event.ts
        state.forced.discard(name)
    node.error = None
    _limit(state, name)
    agent = state.plan.nodes[name].doc.agent
    if agent is not None:
        state.agent = agent


def _limit(state: RunState, name: str) -> None:
    """The time that an attempt has, from now on."""
    node, limit = state.nodes[name], state.plan.nodes[name].timeout_ms
    node.timeout_at = state.at + limit if limit is not None else None
    if node.timeout_at is not None:
        heapq.heappush(state.timers, (node.timeout_at, "timeout", name))


def _node_completed(state: RunState, event: Event) -> None:
    name = event.payload["nodeId"]
    node = _move(state, name, "completed")
    node.ended_ms = event.ts
    node.memo = {}
    node.outputs = _private(event, "outputs", event.payload.get("outputs", {}))
    plan = state.plan.nodes[name]
    for key, hidden in plan.doc.output_sensitivity.items():
        learn(state, node.outputs.get(key) if hidden else None)
    scope = state.scope(node.outputs, "completed") if _conditional(plan) else None
    for loop in plan.loops:
        if passes(loop, scope):  # type: ignore[arg-type]
            state.loops.append(loop.id)
            return
    for edge in plan.outgoing:
        _settle(state, edge, "success" if edge.test is None or passes(edge, scope) else "skipped")  # type: ignore[arg-type]


def _conditional(plan: PlanNode) -> bool:
    return bool(plan.loops) or any(edge.test is not None for edge in plan.outgoing)


def _node_failed(state: RunState, event: Event) -> None:
    name = event.payload["nodeId"]
    node = _move(state, name, "failed")
    node.ended_ms = event.ts
    node.error = event.payload["error"]
    node.memo = {}
    state.forced.discard(name)
    _withdraw(state, node)
    _disown(state, name)
    taken_up = False
    scope = state.scope({"error": node.error}, "failed")
    for edge in state.plan.nodes[name].outgoing:
        failed = edge.test is None or passes(edge, scope)
        target = state.plan.nodes[edge.target]
        taken_up = taken_up or (failed and target.rule in TAKES_UP_FAILURE and not target.doc.disabled)
        _settle(state, edge, "failed" if failed else "skipped")
    exhausted = node.error.get("code") == "budget_exhausted"  # no edge leads on from there (RFC 0084 §D)
    if (not taken_up or exhausted) and state.failure is None:
        state.failure = name


def _node_skipped(state: RunState, event: Event) -> None:
    name = event.payload["nodeId"]
    _move(state, name, "skipped").ended_ms = event.ts
    for edge in state.plan.nodes[name].outgoing:
        _settle(state, edge, "skipped")


def _node_cancelled(state: RunState, event: Event) -> None:
    node = _move(state, event.payload["nodeId"], "cancelled")
    node.ended_ms = event.ts
    node.memo = {}
    _withdraw(state, node)
    _disown(state, event.payload["nodeId"])


def _node_retried(state: RunState, event: Event) -> None:
    name, due = event.payload["nodeId"], event.at + event.payload.get("delayMs", 0)
    node = _move(state, name, "retrying", ("retry", due))
    node.error = event.payload.get("lastError")
    node.timeout_at = None
    _withdraw(state, node)
    for key in [key for key in node.memo if key.startswith("ended:") and node.memo[key]["status"] != "completed"]:
        del node.memo[key]  # a child that failed is tried again as a new one
        node.memo.pop(f"child:{key[6:]}", None)
    heapq.heappush(state.timers, (due, "retry", name))


def _withdraw(state: RunState, node: NodeState) -> None:
    """An attempt that ended while it asked: its question is no longer open."""
    asked = state.interrupts.get(node.interrupt or "")
    if asked is not None and asked.status == "open":
        asked.status = "cancelled"
    node.interrupt = None


def _disown(state: RunState, *names: str) -> None:
    """Children that these nodes no longer wait for."""
    for child in [child for child, (name, _) in state.children.items() if name in names]:
        del state.children[child]
        state.orphans[child] = None


def _settle(state: RunState, edge: PlanEdge, outcome: str) -> None:
    """Record what an edge brought to its target (W10)."""
    state.edges[edge.id] = outcome
    target = state.nodes[edge.target]
    _count(target, outcome)
    if target.status == "idle":
        _touch(state, edge.target)


def _touch(state: RunState, name: str) -> None:
    """Have a node looked at again: in the document's order, so that what follows depends on the state alone."""
    heapq.heappush(state.dirty, (state.plan.nodes[name].index, name))


def _count(node: NodeState, outcome: str, by: int = 1) -> None:
    if outcome == "success":
        node.success += by
    elif outcome == "failed":
        node.failed += by
    else:
        node.skipped += by


def _loop_taken(state: RunState, event: Event) -> None:
    """Start the loop's body again; what was skipped behind it may still come (W11)."""
    payload = event.payload
    loop = state.plan.loops[payload["edgeId"]]
    state.iterations[loop.id] = payload["iteration"]
    reset = {*loop.body, *(name for name in loop.tail if state.nodes[name].status == "skipped")}
    state.loops = [id for id in state.loops if state.plan.loops[id].source not in reset]
    for name in reset:
        node = _move(state, name, "idle")
        node.iteration += 1
        node.memo = {}
        node.error = None
        node.timeout_at = None
        for inner in state.plan.nodes[name].loops:
            if inner is not loop:
                state.iterations.pop(inner.id, None)
        for edge in state.plan.nodes[name].outgoing:
            if (brought := state.edges.pop(edge.id, None)) is not None:
                _count(state.nodes[edge.target], brought, -1)  # it will bring something again
    _disown(state, *reset)
    state.forced.add(loop.target)
    for name in reset:
        _touch(state, name)


# Waiting


def _suspended(state: RunState, event: Event) -> None:
    payload = event.payload
    name, id = payload["nodeId"], payload["interruptId"]
    kind = payload["kind"]
    asked = InterruptState(id, name, kind, payload["key"], None, event.ts)
    for field in ("data", "resume_schema", "timeout_ms", "default"):
        setattr(asked, field, _private(event, field))
    state.interrupts[id] = asked
    _move(state, name, WAIT_OF_KIND.get(kind, "input")).interrupt = id
    if asked.timeout_ms is not None:
        heapq.heappush(state.timers, (event.at + asked.timeout_ms, "interrupt", id))
    state.check_signals = state.check_signals or kind == "external-event"


def _resolved(state: RunState, event: Event) -> None:
    asked = state.interrupts[event.payload["interruptId"]]
    asked.status = "resolved"
    asked.timed_out = _private(event, "timedOut", False)
    state.answers[asked.key] = event.payload.get("resumeValue")
    state.answered[asked.id] = None
    if (name := _private(event, "signal")) is not None:
        state.signals[name].pop(_private(event, "index"))


def _voted(vote: str) -> Callable[[RunState, Event], None]:
    def handler(state: RunState, event: Event) -> None:
        asked = state.interrupts.get(_private(event, "interrupt", ""))
        if asked is not None:
            asked.votes[_private(event, "voter", event.payload["principal"])] = vote

    return handler


def _asked(state: RunState, event: Event) -> None:
    state.interrupts[event.payload["interruptId"]].asked.append(event.payload)


def _node_resumed(state: RunState, event: Event) -> None:
    state.answered.pop(event.payload.get("interruptId", ""), None)
    _move(state, event.payload["nodeId"], "running").interrupt = None


def _timer_set(state: RunState, event: Event) -> None:
    name, key, due = event.payload["nodeId"], event.payload["key"], event.payload["dueAt"]
    _move(state, name, "sleeping", ("sleep", due)).memo[f"timer:{key}"] = due
    heapq.heappush(state.timers, (due, "sleep", name))


def _timer_fired(state: RunState, event: Event) -> None:
    node = _move(state, event.payload["nodeId"], "running")
    node.memo[f"fired:{event.payload['key']}"] = True


def _signalled(state: RunState, event: Event) -> None:
    state.signals.setdefault(event.payload["name"], []).append(_private(event, "payload"))
    if (id := _private(event, "id")) is not None:
        state.heard[id] = None
        if len(state.heard) > MAX_HEARD:
            del state.heard[next(iter(state.heard))]
    state.check_signals = True


def _effect(state: RunState, event: Event) -> None:
    node = state.nodes[event.payload["nodeId"]]
    node.memo[f"effect:{event.payload['key']}"] = _private(event, "result")


def _dispatched(state: RunState, event: Event) -> None:
    child, name = event.payload["childRunId"], event.node
    state.had_children = True
    if name is None or name not in state.nodes:
        return
    key = _private(event, "key", "")
    memo = state.nodes[name].memo
    if (result := _private(event, "result")) is not None:
        memo[f"ended:{key}"] = result
        learn(state, result.get("secrets", []))
        state.children.pop(child, None)
        if state.nodes[name].status == "child":
            _move(state, name, "running")
        else:
            _keep_pace(state, name)
        return
    memo[f"child:{key}"] = child
    if _private(event, "detached"):
        return
    state.children[child] = (name, key)
    if _private(event, "wait"):
        _move(state, name, "child")


# Data


def _variable(state: RunState, event: Event) -> None:
    name = event.payload["name"]
    state.variables[name] = _private(event, "next", event.payload.get("next"))
    if name in state.plan.sensitive:
        learn(state, state.variables[name])


def _channel(state: RunState, event: Event) -> None:
    payload = event.payload
    name = payload["channel"]
    found = state.channels.get(name)
    if found is None:
        found = state.channels[name] = channels.ChannelState(payload["reducer"], _private(event, "ttl_ms"))
    value = _private(event, "value", payload["value"])
    if found.sensitive:
        learn(state, value)
    channels.write(found, value, event.at)


def _artifact(state: RunState, event: Event) -> None:
    state.artifacts[event.payload["artifactId"]] = {**event.payload, "createdAt": event.ts}


def _pinned(state: RunState, event: Event) -> None:
    state.pins[event.payload["changeId"]] = event.payload["version"]


def _usage(state: RunState, event: Event) -> None:
    payload, usage = event.payload, state.usage
    tokens = usage.setdefault("tokens", {"input": 0, "output": 0})
    tokens["input"] += payload["inputTokens"]
    tokens["output"] += payload["outputTokens"]
    usage["usd"] = usage.get("usd", 0) + payload.get("costEstimateUsd", 0)
    usage["model"], usage["provider"] = payload["model"], payload["provider"]


def _decided(state: RunState, event: Event) -> None:
    state.decision, state.decided = event.payload["decision"], event.id
    state.orchestrator = {"agentId": event.payload["agentId"]}


def _leased(state: RunState, event: Event) -> None:
    """A host takes the run up: work that was under way begins again, and so does the time it has (T4)."""
    state.lease = event.payload["leaseId"]
    parents = {name for name, _ in state.children.values()}
    for name in state.active:
        if state.nodes[name].status == "running" and name not in parents:
            _keep_pace(state, name)
            _limit(state, name)


def _jumped(state: RunState, event: Event) -> None:
    """The wall clock jumped: work that is under way did not have that time (T4)."""
    for name in state.active:
        if state.nodes[name].status == "running":
            _keep_pace(state, name)


_HANDLERS: dict[str, Callable[[RunState, Event], None]] = {
    "run.started": _run_started,
    "run.completed": _run_ended("completed"),
    "run.failed": _run_ended("failed"),
    "run.cancelled": _run_ended("cancelled"),
    "run.paused": _paused,
    "run.resumed": _resumed,
    "forestay.pause.requested": _pausing,
    "node.started": _node_started,
    "node.completed": _node_completed,
    "node.failed": _node_failed,
    "node.skipped": _node_skipped,
    "node.cancelled": _node_cancelled,
    "node.retried": _node_retried,
    "node.suspended": _suspended,
    "node.resumed": _node_resumed,
    "node.dispatched": _dispatched,
    "interrupt.resolved": _resolved,
    "approval.granted": _voted("accept"),
    "approval.rejected": _voted("reject"),
    "variable.changed": _variable,
    "channel.written": _channel,
    "artifact.created": _artifact,
    "version.pinned": _pinned,
    "provider.usage": _usage,
    "tool.session.opened": _tool_session,
    "tool.session.closed": _tool_session,
    "runOrchestrator.decided": _decided,
    "lease.acquired": _leased,
    "forestay.clock.jumped": _jumped,
    "forestay.loop.taken": _loop_taken,
    "forestay.timer.set": _timer_set,
    "forestay.timer.fired": _timer_fired,
    "forestay.effect.recorded": _effect,
    "forestay.signal.received": _signalled,
    "forestay.approval.asked": _asked,
    "forestay.run.forked": _forked,
}
