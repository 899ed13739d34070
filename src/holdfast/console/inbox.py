"""What waits for a person: approvals, clarifications and everything else a run asks."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.console.parts import Parts, caller_of, form_of
from holdfast.console.render import go
from holdfast.http.auth import Caller
from holdfast.kernel import canonical
from holdfast.kernel.problems import Problem
from holdfast.runs.types import Interrupt, RunFilter

# A run that still works on another branch may ask all the same.
_WAITING = ["waiting-approval", "waiting-input", "waiting-external", "running", "paused"]


class Question(msgspec.Struct, frozen=True):
    """An open interrupt and the run that asks it."""

    run_id: str
    workflow_id: str
    interrupt: Interrupt

    @property
    def data(self) -> dict[str, Any]:
        return self.interrupt.data if isinstance(self.interrupt.data, dict) else {}

    @property
    def text(self) -> str:
        """What the run says it wants to know."""
        for name in ("title", "message", "prompt", "question", "description"):
            if isinstance(self.data.get(name), str) and self.data[name]:
                return str(self.data[name])
        return f"{self.interrupt.node_id} waits for an answer."

    @property
    def reason(self) -> str:
        """Why it asks, when it says more than its title."""
        said = self.data.get("description")
        return said if isinstance(said, str) and said != self.text else ""

    @property
    def is_gate(self) -> bool:
        return self.interrupt.kind in ("approval", "low-confidence")

    @property
    def label(self) -> str:
        return self.interrupt.kind

    @property
    def look(self) -> str:
        return "approval" if self.is_gate else "asking"

    @property
    def asks(self) -> list[tuple[str, Any]]:
        """What the question is about, line by line."""
        about = self.data.get("artifactData")
        if not isinstance(about, dict):
            return []
        return [("agent" if name == "agentId" else str(name), value) for name, value in about.items()]


async def open_questions(parts: Parts, caller: Caller) -> list[Question]:
    """The open questions of the caller's tenant, oldest first; none for a caller who may not answer."""
    if "approvals:respond" not in caller.scopes:
        return []
    page = await parts.runs.list_runs(RunFilter(status=_WAITING), caller.tenant, limit=200)
    found: list[Question] = []
    for run in reversed(page.runs):
        found.extend(await questions_of(parts, caller, run.run_id, run.workflow_id))
    return found


async def waiting(parts: Parts, caller: Caller) -> int:
    """How many runs wait for a person, for the number beside the inbox; no run is read for it."""
    if not {"approvals:respond", "runs:read"} <= caller.scopes:
        return 0
    page = await parts.runs.list_runs(RunFilter(status=["waiting-approval", "waiting-input"]), caller.tenant, limit=100)
    return len(page.runs)


async def questions_of(parts: Parts, caller: Caller, run_id: str, workflow_id: str = "") -> list[Question]:
    if "approvals:respond" not in caller.scopes:
        return []
    return [Question(run_id, workflow_id, item) for item in await parts.runs.interrupts(run_id, caller.tenant)]


async def show(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "approvals:respond")
    return parts.templates.page(request, "inbox.html", questions=await open_questions(parts, caller))


async def answer(request: Request, parts: Parts) -> Response:
    caller = caller_of(request, "approvals:respond")
    form = form_of(request)
    run_id, node_id = request.path_params["run_id"], request.path_params["node_id"]
    body = {"resumeValue": _value(form)}
    await parts.runs.resolve_by_node(run_id, node_id, caller.tenant, body, caller.principal or caller.key_id)
    return go(f"/runs/{run_id}" if form.get("back") == "run" else "/inbox")


def _value(form: dict[str, str]) -> Any:
    """An action with an optional comment, or the JSON (or plain text) that a person typed."""
    action, text = form.get("action"), form.get("value", "").strip()
    if action:
        value: dict[str, Any] = {"action": action}
        if text:
            value["comment"] = text
        return value
    if not text:
        raise Problem("schema_mismatch", "The answer is empty.", at="value")
    if text[0] in '{["' or text in ("true", "false", "null"):
        return canonical.decode(text)
    return text
