"""Nodes that run other workflows: sub-workflow, supervisor and dispatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forestay.kernel import misfit
from forestay.runs.channels import is_number
from forestay.runs.execution import Execution
from forestay.runs.nodes.checks import needs_text, numbers, positive, shaped
from forestay.runs.nodes.handoff import Handoff, confirmed, is_unsure
from forestay.runs.nodes.registry import NodeError, NodeType

_THRESHOLD = 0.7
_PLANS = ("plan", "mockDispatchPlan", "mockDecisions")


async def sub_workflow(ctx: Execution) -> dict[str, Any]:
    """Run a workflow as a child; map variables in at its start and out at its end."""
    config = ctx.config
    given = ctx.inputs.get("inputs") or {}
    if not isinstance(given, dict):
        raise NodeError("invalid_input", "`inputs` must be an object.", retryable=False)
    mapping = config.get("inputMapping")
    inputs = {**_mapped(ctx, mapping), **given}
    unset = sorted((mapping or {}).keys() - inputs.keys())  # an unset variable overrides the child's default
    workflow = str(config["workflowId"])
    if config.get("waitForCompletion") is False:
        run_id = await ctx.start_child(
            workflow, inputs, key="child", cause="core.subWorkflow", detached=True, unset=unset
        )
        return {"childRunId": run_id}
    result = await ctx.child(
        workflow,
        inputs,
        key="child",
        cause="core.subWorkflow",
        propagate=config.get("propagateCancellation", True) is not False,
        unset=unset,
    )
    if result["status"] == "completed":
        _harvest(ctx, config.get("outputMapping"), result)
    elif config.get("onChildFailure", "fail-parent") != "continue":
        raise _child_failed(workflow, result)
    return {"childRunId": result["runId"], "childStatus": result["status"], "outputs": result["outputs"]}


def _mapped(ctx: Execution, mapping: dict[str, str] | None) -> dict[str, Any]:
    """Return the child's inputs from the parent's variables; unset variables are left out."""
    variables = ctx.variables
    return {child: variables[parent] for child, parent in (mapping or {}).items() if parent in variables}


def _harvest(ctx: Execution, mapping: dict[str, str] | None, result: dict[str, Any]) -> list[str]:
    """Copy the child's results into the parent's variables; return the names of the changed variables."""
    known = {**result["outputs"], **result["variables"]}
    found = {parent: known[child] for parent, child in (mapping or {}).items() if child in known}
    for parent, value in found.items():
        ctx.set_variable(parent, value)
    return list(found)


def _child_failed(workflow: str, result: dict[str, Any]) -> NodeError:
    cause = result.get("error") or {}
    return NodeError(
        "child_run_failed" if result["status"] == "failed" else "child_run_cancelled",
        f"The workflow {workflow!r} ended as {result['status']}.",
        details={"childRunId": result["runId"], "childStatus": result["status"], "childError": cause},
    )


async def supervisor(ctx: Execution) -> dict[str, Any]:
    """Decide which worker is next, from the plan in the configuration or by asking the model."""
    agent_id = str((ctx.agent or {}).get("agentId") or f"core.supervisor.{ctx.node_id}")
    decision = await _decision(ctx)
    confidence = decision.get("confidence", ctx.config.get("mockConfidence"))
    threshold = ctx.configurable.get("escalationThreshold", ctx.config.get("threshold", _THRESHOLD))
    asked_later = is_unsure(decision) and ctx.leads_to("core.dispatch")  # the dispatch asks before it acts (M2)
    if is_number(confidence) and is_number(threshold) and confidence < threshold and not asked_later:
        data = {"agentId": agent_id, "threshold": threshold, "observed": confidence, "decision": decision}
        answer = await ctx.interrupt("low-confidence", data)
        if isinstance(answer, dict) and answer.get("action") == "reject":
            raise NodeError("decision_rejected", "The supervisor's decision was rejected.", retryable=False)
        if isinstance(answer, dict) and isinstance(answer.get("decision"), dict):
            decision = answer["decision"]
    decision = _valid(decision)
    payload = {"agentId": agent_id, "decision": decision, "iteration": ctx.iteration + 1}
    ctx.emit("runOrchestrator.decided", payload)
    return {"decision": decision}


async def _decision(ctx: Execution) -> dict[str, Any]:
    config = ctx.config
    if isinstance(pending := config.get("mockPendingDecision"), dict):
        return pending
    plan = next((config[key] for key in _PLANS if config.get(key)), None)
    if isinstance(plan, list):
        if ctx.iteration < len(plan):
            return _valid(plan[ctx.iteration])
        return {"kind": "terminate", "reason": "plan-exhausted"}
    from forestay.runs.nodes.ai import ask_structured

    prompt = str(config.get("prompt") or "Decide what happens next.")
    state = {"variables": ctx.variables, "workers": config.get("workers", [])}
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": str(state)}]
    return await ask_structured(ctx, messages, _DECISION, "decision")


_DECISION: dict[str, Any] = {
    "type": "object",
    "required": ["kind"],
    "properties": {
        "kind": {"enum": ["next-worker", "ask-user", "terminate"]},
        "nextWorkerIds": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "prompt": {"type": "string"},
        "reason": {"type": "string"},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    },
}


_NEEDS = {"next-worker": "nextWorkerIds", "ask-user": "prompt"}


def _mistake(decision: Any) -> str | None:
    """Return what is wrong with a decision, or None."""
    found = misfit(_DECISION, decision)
    if found is not None:
        return f"{found[1]} (at ${found[0]})"
    needed = _NEEDS.get(decision["kind"])
    return f"A decision {decision['kind']!r} needs `{needed}`." if needed and needed not in decision else None


def _valid(decision: Any) -> dict[str, Any]:
    if (mistake := _mistake(decision)) is not None:
        raise NodeError("invalid_decision", f"This is not a valid decision: {mistake}", retryable=False)
    return dict(decision)


async def dispatch(ctx: Execution) -> dict[str, Any]:
    """Execute the supervisor's decision: run workers one after the other, ask the user, or end."""
    decision = (ctx.inputs.get("input") or {}).get("decision") if isinstance(ctx.inputs.get("input"), dict) else None
    if decision is None:  # the latest decision; the effect makes it the same on every execution
        decision = await ctx.effect("decision", lambda: ctx.decision, later=True)
    if decision is None:
        raise NodeError("no_decision", "There is no decision to dispatch.", retryable=False)
    decision = _valid(decision)
    cap = ctx.config.get("iterationCap")
    if isinstance(cap, int) and ctx.iteration + 1 > cap:
        ctx.emit("cap.breached", {"kind": "loop-iterations", "limit": cap, "observed": ctx.iteration + 1})
        raise NodeError("loop_limit_exceeded", f"The dispatch ran more than {cap} times.", retryable=False)
    if is_unsure(decision):
        await confirmed(ctx, decision)
    if decision["kind"] == "terminate":
        return {"kind": "terminate", "terminated": True, "reason": decision.get("reason")}
    if decision["kind"] == "ask-user":
        return {"kind": "ask-user", "terminated": False, "answer": await _ask_user(ctx, decision["prompt"])}
    return await _workers(ctx, decision["nextWorkerIds"])


async def _ask_user(ctx: Execution, prompt: str) -> Any:
    if ctx.config.get("askUserRouting", "auto") == "clarification":
        questions = [{"id": "answer", "question": prompt}]
        told = ("clarification.requested", {"questions": questions})
        return await ctx.interrupt("clarification", {"questions": questions}, announce=told)
    id = f"{ctx.origin}:{ctx.node_id}:{ctx.iteration}"
    return await ctx.interrupt("conversation.exchange", {"conversationId": id, "prompt": prompt})


async def _workers(ctx: Execution, workers: list[str]) -> dict[str, Any]:
    config = ctx.config
    if len(workers) > 1 and config.get("fanOutPolicy", "sequential") == "reject":
        raise NodeError("fan_out_rejected", "This dispatch takes one worker at a time.", retryable=False)
    result: dict[str, Any] = {}
    for index, worker in enumerate(workers):
        mapping = config.get("perWorkerInputMappings", {}).get(worker, config.get("inputMapping"))
        handoff = Handoff(ctx, worker, f"worker:{index}")
        result = await handoff.run(_mapped(ctx, mapping))
        if result["status"] == "completed":
            taken = config.get("perWorkerOutputMappings", {}).get(worker, config.get("outputMapping"))
            keys = _harvest(ctx, taken, result)
            if taken:
                handoff.harvested(result, keys)
        elif config.get("onChildFailure") == "fail-parent":
            raise _child_failed(worker, result)
    return {
        "kind": "next-worker",
        "terminated": False,
        "childRunId": result["runId"],
        "childStatus": result["status"],
    }


def _check_mappings(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Check that mappings are objects of names, and per-worker mappings objects of such objects."""
    for key in ("inputMapping", "outputMapping"):
        if not _names(config.get(key, {})):
            yield f".{key}", "An object of variable names is expected."
    for key in ("perWorkerInputMappings", "perWorkerOutputMappings"):
        table = config.get(key, {})
        if not isinstance(table, dict) or not all(_names(item) for item in table.values()):
            yield f".{key}", "An object of mappings by workflow is expected."


def _names(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _check_sub_workflow(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from needs_text(config, "workflowId")
    yield from _check_mappings(config)


def _check_dispatch(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    choices = {
        "askUserRouting": ("conversation", "clarification", "auto"),
        "workerDispatchModel": ("child-run",),
        "fanOutPolicy": ("sequential", "reject"),
    }
    yield from _check_mappings(config)
    yield from positive(config, "iterationCap")
    for key, allowed in choices.items():
        if key in config and config[key] not in allowed:
            yield f".{key}", f"One of {', '.join(allowed)} is expected."


def _check_supervisor(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from numbers(config, "threshold", "mockConfidence")
    yield from shaped(config, list, *_PLANS)
    for key in _PLANS:
        for index, decision in enumerate(config[key]) if isinstance(config.get(key), list) else ():
            if (mistake := _mistake(decision)) is not None:
                yield f".{key}[{index}]", mistake


TYPES = [
    NodeType(
        type_id="core.subWorkflow",
        execute=sub_workflow,
        check=_check_sub_workflow,
        summary="Runs another workflow as a child.",
    ),
    NodeType(
        type_id="core.orchestrator.supervisor",
        execute=supervisor,
        check=_check_supervisor,
        summary="Decides which worker is next.",
    ),
    NodeType(
        type_id="core.dispatch", execute=dispatch, check=_check_dispatch, summary="Runs what the supervisor decided."
    ),
]
