"""Where tools come from: built in, of extensions, and workflows; one list and one way to call each.

S1  A tool's effect class is what it could do, not what it says: an extension's tool is `read` only while nothing that
    the extension may use can change anything, and `unsafe` otherwise.
S2  Built-in tools pass through the extensions' dispatcher: the same policy and the same evidence as a host call.
S3  A tool's outcome is given back when the evidence of what it did is on disk.
S4  Tools belong to the host's operator: runs of other tenants have none, because the project folder is not theirs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Coroutine, Sequence
from typing import Any

from forestay.agents import EffectClass, Tool, ToolOutcome, Update, text_of
from forestay.extensions import Extensions, HostCall, Member, Subject, prepared
from forestay.extensions import ToolOutcome as Performed
from forestay.host.builtin import BUILTIN
from forestay.host.prompts import CHANGING, Prompts
from forestay.host.tracing import Tracing
from forestay.kernel import Grant, Problem, SubjectRules, canonical
from forestay.runs import CreateRun, Execution, Runs

_TYPES = {"string": "string", "number": "number", "integer": "integer", "boolean": "boolean", "array": "array"}
_OWN_CAPABILITIES = ("read", "write", "exec")


class NoTools:
    """`agents.ToolSource` for runs of other tenants (S4)."""

    async def tools(self) -> Sequence[Tool]:
        return ()

    async def prepare(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        return arguments

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        raise Problem("permission_denied", "Tools are the operator's alone.", tool=tool.name)


class AgentTools:
    """`agents.ToolSource` for one subject, in one execution of a node of the operator's."""

    def __init__(
        self,
        suite: Extensions,
        runs: Runs,
        ctx: Execution,
        *,
        subject: str,
        consents: bool,
        prompts: Prompts,
        tracing: Tracing | None = None,
    ) -> None:
        self._suite = suite
        self._runs = runs
        self._ctx = ctx
        self._subject = f"agent:{subject}"
        self._tenant = ctx.tenant
        self._scope = f"{ctx.run_id}:{ctx.node_id}"
        self._consents = consents
        self._prompts = prompts
        self._tracing = tracing or Tracing()

    async def tools(self) -> Sequence[Tool]:
        active = self._suite.session.active  # what an extension chose (`pi.setActiveTools`); workflows are not its own
        offered = [tool for tool in (*BUILTIN, *self._of_extensions()) if tool.name in active]
        return [*offered, *await self._of_workflows()]

    async def prepare(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        """The tool's own preparation; a host call on its way may ask a person, as one of the tool itself may."""
        if tool.id.startswith("forestay:"):
            return prepared(tool.name, arguments)
        return await self._prompts.during(
            self._ctx,
            lambda: self._suite.prepare_arguments(tool.name, arguments),
            extension=self._suite.owner(tool.name).extension.name,
            name=f"prepare:{tool.name}:",
            about={"tool": tool.name},
            repeats=True,
        )

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        with self._tracing.span(f"execute_tool {tool.name}") as span:
            span.set("gen_ai.operation.name", "execute_tool")
            span.set("gen_ai.tool.name", tool.name)
            span.set("gen_ai.tool.call.id", call_id)
            return await self._call(tool, arguments, call_id, idempotency_key, update)

    async def _call(
        self, tool: Tool, arguments: dict[str, Any], call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        kind = tool.id.partition(":")[0]
        if kind == "workflow":
            return await self._workflow(tool, arguments, idempotency_key)
        try:
            if kind == "forestay":
                return await self._builtin(tool, arguments, call_id)
            return await self._extension(tool, arguments, call_id, update)
        finally:
            await self._suite.recorded()

    # Extensions

    def _of_extensions(self) -> list[Tool]:
        found: list[Tool] = []
        for item in self._suite.tools():
            owner = self._suite.owner(item.name)
            name = f"ext:{owner.extension.name}/{item.name}"
            found.append(
                Tool(
                    item.name,
                    item.description,
                    item.parameters,
                    self._effect(owner),
                    name,
                    prepares=item.prepares,
                    typebox=item.typebox,
                )
            )
        return found

    def _effect(self, member: Member) -> EffectClass:
        """S1. What a person grants while the tool runs is on record before it is used (`prompts`, W3)."""
        policy = self._suite.dispatcher.policy
        rules = policy.subjects.get(member.extension.name, SubjectRules())
        mode = rules.mode or policy.mode
        granted = any(grant.capability in CHANGING for grant in (*rules.allow, *policy.defaults))
        may = granted or mode == "permissive" or (mode == "prompt" and self._consents)
        return "unsafe" if may else "read"

    async def _extension(self, tool: Tool, arguments: dict[str, Any], call_id: str, update: Update) -> ToolOutcome:
        def work() -> Coroutine[Any, Any, Performed]:
            return self._suite.call_tool(tool.name, arguments, call_id=call_id, prepared=True)

        owner = self._suite.owner(tool.name)
        guarded = tool.effect != "read"  # then whoever calls asks about what was begun and not recorded
        outcome = await self._prompts.during(
            self._ctx,
            work,
            extension=owner.extension.name,
            about={"tool": tool.name},
            changes=self._effect(owner) != "read",  # granted since the tools were listed
            repeats=guarded,
        )
        for partial in outcome.updates:
            await update(partial)
        return ToolOutcome(text_of(outcome.content), outcome.is_error, outcome.details)

    # Built in

    async def _builtin(self, tool: Tool, arguments: dict[str, Any], call_id: str) -> ToolOutcome:
        dispatcher = self._suite.dispatcher
        dispatcher.admit(Subject(self._subject, self._suite.roots(self._subject)))
        if self._subject not in dispatcher.policy.subjects:
            # Whether the agent may call the tool was decided before (`gate`); what nobody may do stays denied.
            for name in _OWN_CAPABILITIES:
                dispatcher.learn(self._subject, "allow", Grant(name, source="agent"))
        params = {"name": tool.name, "input": arguments}
        request = HostCall(f"{self._scope}:{call_id[:64]}", "", "tool", params)
        async for result in dispatcher.call(request, self._subject):
            if result.is_error:
                assert result.error is not None, "an error says what it is"
                return ToolOutcome(result.error.message, is_error=True, details={"code": result.error.code})
            return ToolOutcome(text_of(result.output.get("content")), details=result.output.get("details"))
        raise Problem("internal", f"The tool {tool.name} gave no answer.")

    # Workflows

    async def _of_workflows(self) -> list[Tool]:
        found: list[Tool] = []
        for item in await self._runs.list_workflows(self._tenant):
            document = await self._runs.get_workflow(item.workflow_id, self._tenant)
            if any(node["typeId"] == "core.agent" for node in document["nodes"]):
                continue  # an agent that runs agents would have no bottom
            name = "run_" + re.sub(r"\W+", "_", item.workflow_id)
            about = document.get("description") or document["name"]
            found.append(
                Tool(
                    name[:64],
                    f"Run the workflow: {about}",
                    _inputs(document),
                    "write",
                    f"workflow:{item.workflow_id}",
                    True,
                )
            )
        return found

    async def _workflow(self, tool: Tool, arguments: dict[str, Any], key: str | None) -> ToolOutcome:
        """Start the workflow once for the key, and wait for its end."""
        run_id = "run_" + hashlib.sha256(f"{self._tenant}\0{key}".encode()).hexdigest()[:26]
        request = CreateRun(workflow_id=tool.id.removeprefix("workflow:"), inputs=arguments)
        try:
            await self._runs.create_run(request, self._tenant, run_id=run_id)
        except Problem as problem:
            if problem.key != "run_already_active":
                raise
        async for _ in self._runs.follow(run_id, self._tenant):
            pass
        snapshot = await self._runs.get_run(run_id, self._tenant)
        if snapshot.status != "completed":
            why = snapshot.error.message if snapshot.error is not None else snapshot.status
            return ToolOutcome(f"The workflow did not complete: {why}", is_error=True, details={"runId": run_id})
        return ToolOutcome(canonical.encode(snapshot.outputs).decode(), details={"runId": run_id})


def _inputs(document: dict[str, Any]) -> dict[str, Any]:
    """The workflow's variables as a JSON Schema."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for variable in document.get("variables", ()):
        kind = _TYPES.get(str(variable.get("type")))
        about = {"description": variable["description"]} if variable.get("description") else {}
        properties[variable["name"]] = {**({"type": kind} if kind else {}), **about}
        if variable.get("required") and variable.get("defaultValue") is None:
            required.append(variable["name"])
    return {"type": "object", "properties": properties, "required": required}
