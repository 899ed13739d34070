"""Questions about a tool as interrupts of a run: the node parks, and the answer wakes it."""

from __future__ import annotations

from typing import Any

from forestay.runs import Execution
from forestay.tools import ApprovalAnswer, ApprovalRequest


class RunApprovals:
    """`tools.Approvals` over a node's interrupts (OpenWOP §1.8)."""

    def __init__(self, ctx: Execution) -> None:
        self._ctx = ctx

    async def ask(self, key: str, request: ApprovalRequest) -> ApprovalAnswer:
        ctx = self._ctx
        shown: dict[str, Any] = {
            "artifactId": f"{ctx.node_id}/{key}",
            "artifactType": request.kind,
            "title": request.title,
        }
        about = {"tool": request.tool, "arguments": request.arguments, **request.known}
        data = {
            **shown,
            "description": request.reason,
            "actions": list(request.actions),
            "artifactData": {name: value for name, value in about.items() if value is not None},
        }
        actions = ["edit" if action == "edit-accept" else action for action in request.actions]
        value = await ctx.interrupt(
            "approval",
            data,
            key=f"{ctx.run_id}:{ctx.node_id}:{ctx.iteration}:{key}",
            announce=("approval.requested", {**shown, "actions": actions}),
        )
        return _answer(value if isinstance(value, dict) else {})


def _answer(value: dict[str, Any]) -> ApprovalAnswer:
    """What was said; anything that is not plainly a yes is a no."""
    note = str(value.get("comment") or value.get("feedback") or "")
    if value.get("action") == "edit-accept":
        edited = value.get("editedArtifactData")
        arguments = edited.get("arguments", edited) if isinstance(edited, dict) else None
        return ApprovalAnswer("edit-accept", arguments, note)
    return ApprovalAnswer("accept" if value.get("action") == "accept" else "reject", note=note)
