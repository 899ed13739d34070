"""The tools of this host: which sources a caller has, workflows as tools, and the `core.tool` node.

H1  Tools belong to the host's operator: runs of other tenants have none, because the project folder is not theirs.
H2  A workflow's node calls the same tools through the same gate and with the same questions as an agent.
H3  A new kind of tool is one more source in `HostTools.sources`.

`fetch` and `send_request` are requests of agents, to the hosts that the settings name (OpenWOP RFC 0076 §B, 0079).

F1  Without hosts in `agents.fetch` there are no such tools. A host that is not named is not reached, redirected or not.
F2  A request goes the way of a node's: the SSRF-safe connector, and a credential that the agent names and never has.
F3  What must be asked about a credential is asked at the gate, before the call.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urljoin

import msgspec

from forestay.extensions import PERSON, BuiltInTools, ExtensionTools, McpTools, PersonShell, at_once
from forestay.host.extensions import ProjectExtensions
from forestay.host.outbound import Outbound
from forestay.host.telemetry import Tracing
from forestay.kernel import OPERATOR, Agents, Append, Clock, Decision, Problem, canonical, object_schema, place_of
from forestay.runs import (
    Caller,
    CreateRun,
    EgressDecision,
    Execution,
    HttpRequest,
    HttpResponse,
    Runs,
    body_of,
    forbidden,
    tell_expired,
)
from forestay.tools import (
    BUILT_IN,
    ApprovalAnswer,
    ApprovalRequest,
    Gate,
    Guarded,
    Tool,
    ToolGate,
    ToolOutcome,
    Toolset,
    ToolSource,
    Update,
    approved,
    fit_for,
    gated,
    once_or_ask,
)

KIND = "http"
_MAX_ANSWER = 200_000  # characters that a model is given
_HOPS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_URL = {"type": "string", "description": "An https address"}
_HEADERS = {"type": "object", "additionalProperties": {"type": "string"}, "description": "Further headers"}
_CREDENTIAL = {"type": "string", "description": "The id of a credential that the host adds, where one is needed"}
_FETCH = Tool(
    "fetch",
    "Read what stands at a web address.",
    object_schema(("url",), url=_URL, headers=_HEADERS, credential=_CREDENTIAL),
    "read",
    f"{KIND}:fetch",
    transport="http",
)
_SEND = Tool(
    "send_request",
    "Send a request that changes something to a web address.",
    object_schema(
        ("url", "method"),
        url=_URL,
        method={"type": "string", "enum": ["POST", "PUT", "PATCH", "DELETE"]},
        headers=_HEADERS,
        body={"description": "The body; what is no text is sent as JSON"},
        credential=_CREDENTIAL,
    ),
    "unsafe",
    f"{KIND}:send_request",
    transport="http",
)


class HttpTools(ToolSource):
    """The tools of one execution of a node; without `ctx` they can only be looked at."""

    kind = KIND

    def __init__(self, outbound: Outbound, hosts: Sequence[str], ctx: Execution | None = None) -> None:
        self._outbound = outbound
        self._hosts = hosts
        self._ctx = ctx

    async def list(self) -> Sequence[Tool]:
        return [_FETCH, _SEND] if self._hosts else []

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        assert self._ctx is not None, "tools are called for a node"
        caller = self._ctx.caller(call_id, KIND)
        request = msgspec.structs.replace(request_of(arguments), approved=True)  # the gate asked (F3)
        for hop in range(_HOPS + 1):
            response = await self._sent(request, caller)
            leads = response.headers.get("location")
            if tool.name != "fetch" or response.status not in _REDIRECTS or leads is None or hop == _HOPS:
                break
            request = msgspec.structs.replace(request, url=urljoin(request.url, leads), redirected=True)
        text = canonical.encode({"status": response.status, "body": body_of(response.body)}).decode()
        return ToolOutcome(text[:_MAX_ANSWER], is_error=response.status >= 400)

    async def _sent(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        assert self._ctx is not None, "tools are called for a node"
        host = place_of(request.url).host
        if not any(fnmatchcase(host, pattern.lower()) for pattern in self._hosts):
            fix = "Name the host in agents.fetch."
            raise Problem("capability_denied", f"Agents may not reach {host}.", host=host, fix=fix)
        try:
            response = await self._outbound.send(request, caller)
        except Problem as problem:
            if problem.key == "credential_forbidden":
                tell(self._ctx, msgspec.convert(problem.details, EgressDecision))
                tell_expired(self._ctx, problem)
            elif problem.key == "address_blocked" and request.credential is not None:
                tell(self._ctx, EgressDecision("denied", host, request.credential, "ssrf-blocked"))
            raise
        if response.decided is not None:
            tell(self._ctx, response.decided)
        return response


class EgressGate:
    """A gate that also asks what becomes of a request's credential, and lets a person decide where one must."""

    def __init__(self, gate: Gate, outbound: Outbound, ctx: Execution) -> None:
        self._gate = gate
        self._outbound = outbound
        self._ctx = ctx

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        decision = await self._gate.decide(tool, arguments)
        if tool.source != KIND or decision.effect == "deny" or not arguments.get("credential"):
            return decision
        egress = await self._outbound.decide(request_of(arguments), self._ctx.caller("gate", KIND))
        about = {**decision.evidence, **msgspec.to_builtins(egress)}
        if egress.decision == "denied":
            tell(self._ctx, egress)
            return Decision("deny", "egress", forbidden(egress).message, about)
        if egress.decision == "approval-required":
            tell(self._ctx, egress)
            reason = f"{egress.credential_id} is sent to {egress.destination} when a person agrees."
            return Decision("prompt", "egress", reason, about)
        return decision


def tell(ctx: Execution, decision: EgressDecision) -> None:
    """Put a decision into the run's log."""
    ctx.emit("egress.decided", msgspec.to_builtins(decision), place="egress")


def request_of(arguments: dict[str, Any]) -> HttpRequest:
    """The request that a tool call's arguments mean."""
    body, headers = arguments.get("body"), dict(arguments.get("headers") or {})
    if body is not None and not isinstance(body, str):
        headers.setdefault("Content-Type", "application/json")
    return HttpRequest(
        method=str(arguments.get("method", "GET")),
        url=arguments["url"],
        headers=headers,
        body=None if body is None else body.encode() if isinstance(body, str) else canonical.encode(body),
        credential=arguments.get("credential") or None,
    )


WORKFLOW = "core.forestay.workflow"
"""The subject of a workflow's own tool calls."""

CALL: dict[str, Any] = {
    "id": "forestay-tool",
    "name": "Call a tool",
    "version": "1.0.0",
    "description": "Calls one tool of the host, through its gate and with its questions.",
    "nodes": [
        {
            "id": "tool",
            "typeId": "core.tool",
            "name": "Tool",
            "position": {"x": 0, "y": 0},
            "config": {},
            "inputs": {
                "tool": {"type": "variable", "variableName": "tool"},
                "arguments": {"type": "variable", "variableName": "arguments", "optional": True},
            },
            "outputRole": "primary",
        }
    ],
    "edges": [],
    "triggers": [{"id": "manual", "type": "manual"}],
    "variables": [{"name": "tool", "type": "string", "required": True}, {"name": "arguments", "type": "object"}],
    "metadata": {},
    "settings": {},
}

_ANY_SERVER = "mcp:*"
_TYPES = {"string": "string", "number": "number", "integer": "integer", "boolean": "boolean", "array": "array"}


class HostTools:
    """Every tool of the host. `runs.ToolSource` for the nodes of a workflow."""

    def __init__(
        self,
        extensions: ProjectExtensions,
        settings: Agents,
        clock: Clock,
        *,
        outbound: Outbound,
        runs: Callable[[], Runs],
        tracing: Tracing | None = None,
    ) -> None:
        self._extensions = extensions
        self._settings = settings
        self._clock = clock
        self._outbound = outbound
        self._runs = runs
        self._tracing = tracing or Tracing()

    async def sources(self, ctx: Execution, subject: str, *, consents: bool) -> ToolSource:
        """What `subject` may call in one execution of a node (H1)."""
        if ctx.tenant != OPERATOR:
            return Toolset()
        suite = self._extensions.opened or await self._extensions.suite(ctx)
        during = functools.partial(self._extensions.prompts.during, ctx)
        return _Traced(
            self._tracing,
            BuiltInTools(suite, f"agent:{subject}", f"{ctx.run_id}:{ctx.node_id}"),
            ExtensionTools(suite, during, consents=consents),
            McpTools(suite, during, consents=consents),
            HttpTools(self._outbound, self._settings.fetch, ctx),
            WorkflowTools(self._runs(), ctx.tenant),
        )

    def gate(self, ctx: Execution, subject: str, *, at_once: bool = False) -> Gate:
        """The gate of one execution. What it decides is on disk with what begins the call, which is an effect of the
        run, or `at_once`."""

        async def along(append: Append) -> None:
            ctx.along(append)

        about = {"runId": ctx.run_id, "nodeId": ctx.node_id}
        gate = ToolGate(self._settings, ctx.write if at_once else along, self._clock, subject, about)
        return EgressGate(gate, self._outbound, ctx)

    async def describe(self, name: str) -> Tool | None:
        """A tool by its name or id, outside a run: of an extension that runs already, built in, or a workflow."""
        if (suite := self._extensions.opened) is not None:
            consents = self._extensions.has_consent
            running = Toolset(*(kind(suite, at_once, consents=consents) for kind in (ExtensionTools, McpTools)))
            if (found := await running.describe(name)) is not None:
                return found
        if (own := BUILT_IN.get(name.removeprefix("forestay:"))) is not None:
            return own.tool
        http = HttpTools(self._outbound, self._settings.fetch)
        return await Toolset(http, WorkflowTools(self._runs(), OPERATOR)).describe(name)

    async def offered(self, tenant: str) -> list[tuple[Tool, Decision]]:
        """Every tool that a workflow of a tenant may call, with what policy says to it; none that it denies (H1)."""
        if tenant != OPERATOR:
            return []
        suite, consents = await self._extensions.suite(), self._extensions.has_consent
        known = Toolset(
            BuiltInTools(suite, f"agent:{WORKFLOW}", "catalogue"),
            ExtensionTools(suite, at_once, consents=consents),
            McpTools(suite, at_once, consents=consents),
            HttpTools(self._outbound, self._settings.fetch),
            WorkflowTools(self._runs(), tenant),
        )
        found = {tool.id: tool for tool in await known.list()}
        decided = [(tool, gated(self._settings, self._clock, WORKFLOW, tool)) for tool in found.values()]
        return [(tool, decision) for tool, decision in decided if decision.effect != "deny"]

    def names(self) -> list[str]:
        """The tools that are known without opening anything, and those of extensions that run already."""
        suite = self._extensions.opened
        return [*BUILT_IN, *(tool.name for tool in (suite.tools() if suite is not None else ()))]

    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller) -> Any:
        """Call a tool for a node; what policy asks about is an interrupt of the node (H2)."""
        if caller.tenant != OPERATOR:
            raise Problem("permission_denied", "Tools are the operator's alone.", tool=tool[:80])
        ctx: Execution = caller.node
        source = await self.sources(ctx, WORKFLOW, consents=False)
        found = await _found(source, tool)
        key = f"{ctx.place}prepared"
        arguments = await fit_for(source, found, arguments, lambda prepare: ctx.effect(key, prepare, later=True))
        # The class that the tool had when the node began is the one that decides after a crash.
        effect = await ctx.effect(f"{ctx.place}class", lambda: found.effect, later=True)
        found = msgspec.structs.replace(found, effect=effect)
        arguments = await self._allowed(ctx, found, arguments)
        outcome = await self._once(ctx, source, found, arguments, caller.idempotency_key)
        if outcome.is_error:
            raise Problem("extension_failed", outcome.content[:2000], tool=found.name)
        return {"output": outcome.content, "details": outcome.details}

    async def run_shell(self, ctx: Execution, shell: PersonShell, command: str) -> dict[str, Any]:
        """Run a person's `!command` in a run: the gate decides about it as about a tool, and it is run once (H2)."""
        tool = BUILT_IN["bash"].tool
        arguments = await self._allowed(ctx, tool, {"command": command}, PERSON, "person")
        outcome = await self._once(ctx, shell, tool, arguments, f"{ctx.run_id}:{ctx.node_id}")
        return dict(outcome.details or {})

    async def read_for(self, ctx: Execution, path: str) -> str | None:
        """A file that a person names in a message; None when it is none, or when it may not be read."""
        tool, suite = BUILT_IN["read"].tool, await self._extensions.suite(ctx)
        if (await self.gate(ctx, PERSON, at_once=True).decide(tool, {"path": path})).effect != "allow":
            return None
        source = BuiltInTools(suite, f"agent:{PERSON}", f"{ctx.run_id}:{ctx.node_id}")
        key = hashlib.sha256(path.encode()).hexdigest()[:16]
        found = await source.call(tool, {"path": path}, call_id=f"@{key}", idempotency_key=None, update=_unheard)
        return None if found.is_error else found.content

    async def _allowed(
        self, ctx: Execution, tool: Tool, arguments: dict[str, Any], subject: str = WORKFLOW, caller: str = "workflow"
    ) -> dict[str, Any]:
        """The arguments that policy, or the person it asks, lets the tool be called with; both are asked once."""

        async def decide() -> Any:
            decision = await self.gate(ctx, subject).decide(tool, arguments)
            return {"effect": decision.effect, "reason": decision.reason}

        decided: dict[str, str] = await ctx.effect(f"{ctx.place}gate", decide, later=True)
        fix = f"Name {tool.name} in agents.allow."
        if decided["effect"] == "deny":
            raise Problem("capability_denied", decided["reason"], tool=tool.name, fix=fix)
        if decided["effect"] != "prompt":
            return arguments
        key = f"{ctx.place}approval"
        answer = await approved(RunApprovals(ctx), key, caller, tool, arguments, decided["reason"])
        if answer.action == "reject":
            said = answer.note or f"A person refused {tool.name}."
            raise Problem("capability_denied", said, tool=tool.name, fix=fix)
        return answer.arguments if answer.arguments is not None else arguments

    async def _once(
        self, ctx: Execution, source: ToolSource, tool: Tool, arguments: dict[str, Any], key: str
    ) -> ToolOutcome:
        """The call, once; when another life began it and did not record it, a person says what to do."""
        effects = Guarded(ctx.effect, self._extensions.prompts.life, self._clock)
        identity = key if tool.takes_key else None

        async def body() -> Any:
            made = await source.call(tool, arguments, call_id=key, idempotency_key=key, update=_unheard)
            return msgspec.to_builtins(made)

        async def perform(attempt: str) -> ToolOutcome:
            return msgspec.convert(await effects.perform(attempt, body, tool.effect, identity), ToolOutcome)

        def fail(answer: ApprovalAnswer, problem: Problem) -> ToolOutcome:
            raise Problem(problem.key, answer.note or problem.message, tool=tool.name)

        return await once_or_ask(
            f"{ctx.place}{tool.name}",
            perform,
            RunApprovals(ctx),
            tool,
            arguments,
            otherwise="let the node fail.",
            rejected=fail,
        )


async def _found(source: ToolSource, name: str) -> Tool:
    """The tool with this name or id; `mcp:*/NAME` is the tool of the one MCP server that has it."""
    server, _, own = name.partition("/")
    if server != _ANY_SERVER:
        if (found := await source.describe(name)) is not None:
            return found
    elif several := [tool for tool in await source.list() if _is_of_mcp(tool, own)]:
        if len(several) == 1:
            return several[0]
        ids = sorted(tool.id for tool in several)
        raise Problem("schema_mismatch", f"Several MCP servers have {own[:80]}.", tools=ids, fix="Name `mcp.server`.")
    offered = sorted(item.name for item in await source.list())
    raise Problem("not_found", f"There is no tool {name[:80]}.", tools=offered)


def _is_of_mcp(tool: Tool, name: str) -> bool:
    """Whether it is an MCP server's tool of this name, the server's own or ours."""
    return tool.id.startswith("mcp:") and name in (tool.name, tool.id.partition("/")[2])


class _Traced(Toolset):
    """Sources whose calls are traced (the names are OpenTelemetry's for generative AI)."""

    def __init__(self, tracing: Tracing, *sources: ToolSource) -> None:
        super().__init__(*sources)
        self._tracing = tracing

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        with self._tracing.span(f"execute_tool {tool.name}") as span:
            about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool.name}
            span.set({**about, "gen_ai.tool.call.id": call_id})
            return await super().call(tool, arguments, call_id=call_id, idempotency_key=idempotency_key, update=update)


class WorkflowTools(ToolSource):
    """The workflows of a tenant as tools: each starts one run for one key and waits for its end."""

    kind = "workflow"

    def __init__(self, runs: Runs, tenant: str) -> None:
        self._runs = runs
        self._tenant = tenant

    async def list(self) -> Sequence[Tool]:
        found: list[Tool] = []
        for stored in await self._runs.stored_workflows(self._tenant):
            document = stored.document
            if any(node["typeId"] == "core.agent" for node in document["nodes"]):
                continue  # an agent that runs agents would have no bottom
            name = "run_" + re.sub(r"\W+", "_", document["id"])
            about = f"Run the workflow: {document.get('description') or document['name']}"
            found.append(Tool(name[:64], about, _inputs(document), "write", f"workflow:{document['id']}", True))
        return found

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        run_id = "run_" + hashlib.sha256(f"{self._tenant}\0{idempotency_key}".encode()).hexdigest()[:26]
        request = CreateRun(workflow_id=tool.id.removeprefix("workflow:"), inputs=arguments)
        try:
            await self._runs.create_run(request, self._tenant, run_id=run_id)
        except Problem as problem:
            if problem.key != "run_already_active":
                raise
        snapshot = await self._runs.wait(run_id, self._tenant)
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


async def _unheard(partial: Any) -> None:
    """A node has nobody who watches a tool work."""


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
