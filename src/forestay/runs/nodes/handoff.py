"""Hands work of a dispatch over to a worker; a person is asked first when the supervisor is not confident.

- M1  Each transition of a handoff is one `core.workflowChain.event`, caused by the one before it, the first by the
      supervisor's decision (OpenWOP RFC 0037). Output is harvested only from a completed child.
- M2  A decision with a confidence below the floor is executed only after a person has confirmed it; the log records
      that before the person is asked (RFC 0039 §A).
"""

from __future__ import annotations

from typing import Any

from forestay.kernel import Problem
from forestay.runs.channels import is_number
from forestay.runs.execution import Execution
from forestay.runs.nodes.registry import NodeError

CONFIDENCE_FLOOR = 0.5
_TRANSITION = "core.workflowChain.event"
_QUESTION = "confirm"


def is_unsure(decision: dict[str, Any]) -> bool:
    """Whether a decision to act has a confidence below the floor; one without a confidence is not unsure."""
    confidence: Any = decision.get("confidence")
    return decision["kind"] != "ask-user" and is_number(confidence) and bool(confidence < CONFIDENCE_FLOOR)


async def confirmed(ctx: Execution, decision: dict[str, Any]) -> None:
    """Ask a person to confirm an unsure decision (M2); a NodeError when the person does not."""
    told: dict[str, Any] = {
        "confidence": decision["confidence"],
        "floor": CONFIDENCE_FLOOR,
        "escalationKind": "clarify",
        "parentRunId": ctx.run_id,
        "originalDecision": decision,
    }
    plan = decision["kind"]
    if workers := decision.get("nextWorkerIds"):
        told["workerId"] = workers[0]
        plan = f"run {', '.join(workers)}"
    ctx.emit("core.workflowChain.confidence-escalated", told, place="escalation", cause=ctx.decided)
    question = f"The supervisor would {plan} with a confidence of {decision['confidence']}. Should it do so?"
    questions = [{"id": _QUESTION, "question": question, "schema": {"type": "boolean"}}]
    answer = await ctx.interrupt(
        "clarification", {"questions": questions}, announce=("clarification.requested", {"questions": questions})
    )
    if answer.get("answers", answer).get(_QUESTION) is not True:
        raise NodeError("decision_rejected", "The supervisor's decision was not confirmed.", retryable=False)


class Handoff:
    """The handoff to one worker of a decision; its events have their own place among the node's events."""

    def __init__(self, ctx: Execution, worker: str, key: str) -> None:
        self._ctx = ctx
        self._worker = worker
        self._key = key

    async def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Run the worker as a child; return its result."""
        began = self._tell("dispatch.began", self._ctx.decided)

        def started(child_id: str) -> str:
            return self._tell("dispatch.succeeded", began, childRunId=child_id)

        try:
            result = await self._ctx.child(self._worker, inputs, key=self._key, cause="core.dispatch", started=started)
        except Problem as problem:
            self._tell("dispatch.failed", began, error={"code": problem.key, "message": problem.message})
            raise
        phase = f"child.{result['status']}"
        failure = {"error": error} if (error := result.get("error")) else {}
        self._ended = self._tell(phase, started(result["runId"]), childRunId=result["runId"], **failure)
        return result

    def harvested(self, result: dict[str, Any], keys: list[str]) -> None:
        """Record which of the parent's variables got the child's results."""
        self._tell("output.harvested", self._ended, childRunId=result["runId"], harvestedKeys=keys)

    def _tell(self, phase: str, cause: str | None, **more: Any) -> str:
        payload = {"phase": phase, "workerId": self._worker, "parentRunId": self._ctx.run_id, **more}
        return self._ctx.emit(_TRANSITION, payload, place=f"{self._key}:{phase}", cause=cause)
