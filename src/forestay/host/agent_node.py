"""`core.agent`: an agent as a node of a run.

A1  Everything that influences the agent is an effect of the run: the session it reads from, each answer of the model,
    each decision, each tool call. A SIGKILL anywhere loses nothing that was recorded and repeats nothing of it.
A2  What must not be repeated leaves a mark before it begins; a mark of another life is a question for a person.
A3  A question parks the node; the run waits without this process.
A4  The agent's events go into the run's log in their order, once.

A node means an agent by id, by version, by a deployment channel, or by a member of the roster.

C1  What is chosen is an effect of the run where it could come out otherwise the next time: a resumed node, and a
    replay, have the agent that the node began with.
C2  A member of the roster is named where everybody can see it before the run starts: by the node's `agent`, or as the
    root of the run. The second record of a run that is a member's says whose it is, and only the host writes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import msgspec

from forestay.agents import (
    ASSISTANT,
    PROMPT_FIELDS,
    SYSTEM,
    Agent,
    AgentManifest,
    AgentResult,
    Hooks,
    Invocation,
    Memory,
    Quiet,
    ResolvedPrompt,
    Transcript,
    node_prompts,
)
from forestay.governance import MEMBER, AgentDirectory, AgentRef, Budgets, Deployments, MeteredGate, Staff
from forestay.host.agent_root import AGENT_ROOT
from forestay.host.completion import CallerTools, Conversation, GivenTranscript, conversation_of
from forestay.host.extensions import ProjectExtensions
from forestay.host.fixtures import FixtureTools, seeded
from forestay.host.hooks import SuiteHooks
from forestay.host.memory import AgentMemory
from forestay.host.mentions import addressed
from forestay.host.model_caller import RelayModel
from forestay.host.models import HostModels
from forestay.host.routed_model import RoutedModel
from forestay.host.session_turns import SessionTurns
from forestay.host.telemetry import Tracing
from forestay.host.tools import HostTools, RunApprovals
from forestay.kernel import OPERATOR, Agents, Clock, Ids, Ledger, Problem
from forestay.models import Model
from forestay.relay import MAX_SESSIONS_PER_APP, Memories, Relay, Session
from forestay.runs import Caller, Execution, NodeType, Parked, prompted, stream_of
from forestay.tools import Guarded, ToolSource


class Choice(msgspec.Struct, frozen=True):
    """An agent in a version; `channel` says where the version came from, `member` on whose behalf it works."""

    agent_id: str
    version: str
    channel: str | None = None
    member: str | None = None
    persona: str | None = None
    exact: bool = False


class ChosenAgent(msgspec.Struct, frozen=True):
    manifest: AgentManifest
    channel: str | None = None
    member: str | None = None


class AgentChoice:
    """How nodes find their agents."""

    def __init__(self, ledger: Ledger, directory: AgentDirectory, staff: Staff, deployments: Deployments) -> None:
        self._ledger = ledger
        self._directory = directory
        self._staff = staff
        self._deployments = deployments

    async def of(self, ctx: Execution) -> ChosenAgent:
        """The agent that a node means; `not_found`, or `no_active_deployment`."""
        ref = await self._ref(ctx)
        plain = ref.version is None and ref.channel is None and not ref.agent_id.startswith(MEMBER)
        if plain:
            versions = await self._directory.versions(ctx.tenant, ref.agent_id)
            if len(versions) == 1:
                (only,) = versions.values()
                return ChosenAgent(only)

        async def choose() -> Any:
            return msgspec.to_builtins(await self._choice(ctx, ref))

        choice = msgspec.convert(await ctx.effect("agent/choice", choose, later=True), Choice)
        manifest = await self._manifest(ctx.tenant, choice)
        if choice.persona is not None:
            manifest = msgspec.structs.replace(manifest, persona=choice.persona)
        return ChosenAgent(manifest, choice.channel, choice.member)

    async def _ref(self, ctx: Execution) -> AgentRef:
        """The agent that the node's inputs, its `agent` or its configuration name."""
        given = ctx.inputs.get("agentId")
        if given is None and ctx.agent is not None:
            return AgentRef(ctx.agent["agentId"], ctx.agent.get("version"), ctx.agent.get("channel"))
        named = str(given or ctx.config.get("agentId") or ASSISTANT)
        if named.startswith(MEMBER) and not await self._is_of(ctx, named):
            message = "A member of the roster is named by the node's `agent`, or as the root of the run."
            raise Problem("schema_mismatch", message, at="$.inputs.agentId")
        return AgentRef(named, ctx.inputs.get("agentVersion"), ctx.inputs.get("agentChannel"))

    async def _is_of(self, ctx: Execution, roster_id: str) -> bool:
        """Whether the run began as a member's (C2)."""
        said = await self._ledger.read(stream_of(ctx.run_id), 1, 1)
        return bool(said) and said[0].type == "roster.run.initiated" and said[0].payload["rosterId"] == roster_id

    async def _choice(self, ctx: Execution, ref: AgentRef) -> Choice:
        member = persona = None
        if ref.agent_id.startswith(MEMBER):
            entry = await self._staff.get(ctx.tenant, ref.agent_id)
            member, persona, ref = entry.roster_id, entry.persona, entry.agent_ref
        version = ref.version
        if ref.channel is not None:
            version = await self._deployments.pinned(ctx.tenant, ref.agent_id, ref.channel, ctx.run_id)
        manifest = await self._directory.get(ctx.tenant, ref.agent_id, version)
        return Choice(manifest.agent_id, manifest.version, ref.channel, member, persona, version is not None)

    async def _manifest(self, tenant: str, choice: Choice) -> AgentManifest:
        """The version that was chosen; where it was not asked for by name and is gone, the newest one."""
        try:
            return await self._directory.get(tenant, choice.agent_id, choice.version)
        except Problem:
            if choice.exact:
                raise
            return await self._directory.get(tenant, choice.agent_id)


TYPE = "core.agent"
# Of the project's files that an agent may quote from. Bounded, because a folder is not.
MOST_FILES = 200
MOST_BYTES = 2 * 1024 * 1024
_SKIPPED = frozenset({"node_modules", "__pycache__", "site"})


class AgentNode:
    """What runs an agent inside a run; built once by the host."""

    def __init__(
        self,
        *,
        relay: Relay,
        memories: Memories,
        models: HostModels,
        extensions: ProjectExtensions,
        budgets: Budgets,
        choice: AgentChoice,
        settings: Agents,
        clock: Clock,
        ids: Ids,
        data: Path,
        tools: HostTools,
        turns: SessionTurns,
        tracing: Tracing | None = None,
    ) -> None:
        self._relay = relay
        self._memories = memories
        self._models = models
        self._extensions = extensions
        self._budgets = budgets
        self._choice = choice
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._data = data
        self._tools = tools
        self._turns = turns
        self._tracing = tracing or Tracing()
        self._parked: dict[str, _Parked] = {}

    @property
    def type(self) -> NodeType:
        return msgspec.structs.replace(UNBOUND, execute=self.execute)

    def pinned(self, other: NodeType) -> NodeType:
        """Another type, whose work is done by the agent that a node pins by channel, if it does (RFC 0082 §B)."""

        async def execute(ctx: Execution) -> dict[str, Any]:
            if "channel" in (ctx.agent or {}):
                return await self._perform(ctx, dict(ctx.inputs))
            outputs: dict[str, Any] = await other.execute(ctx)
            return outputs

        return msgspec.structs.replace(other, execute=execute)

    async def execute(self, ctx: Execution) -> dict[str, Any]:
        return await self._perform(ctx, ctx.inputs.get("task", ctx.config.get("task")))

    async def _perform(self, ctx: Execution, task: Any) -> dict[str, Any]:
        chosen = await self._choice.of(ctx)
        if task is None:
            raise Problem("agent_input_invalid", "The agent has no task.", at="$.inputs.task")
        session = await self._session(ctx)
        node = f"{ctx.run_id}:{ctx.node_id}:{ctx.iteration}"
        waiting = self._extensions.prompts.waits
        self._parked = {name: kept for name, kept in self._parked.items() if waiting(name)}
        before = self._parked.pop(node, None) or _Parked(self._ids.new("life"))
        try:
            lives = self._turns.joined(ctx) if ctx.inputs.get("sessionId") else nullcontext()
            async with session.alone(), lives as joined:
                told = ctx.inputs.get("conversation")
                given = None if told is None else conversation_of(told)
                before.transcript = joined if given is None else GivenTranscript(given)
                return await self._invoke(ctx, chosen, session, task, before, given)
        except Exception:
            if ctx.appends:  # what the model said is on record, whatever failed after it
                await ctx.flush()
            raise
        except Parked:
            if waiting(node):
                self._parked[node] = before
            raise
        finally:
            if ctx.appends:  # the session is ahead of its stream until they are written
                self._relay.drop(session.id)

    async def _invoke(
        self,
        ctx: Execution,
        chosen: ChosenAgent,
        session: Session,
        task: Any,
        parked: _Parked,
        given: Conversation | None,
    ) -> dict[str, Any]:
        manifest, caller = chosen.manifest, ctx.caller("agent", "agent")
        has_prompts = ctx.has_prompts
        prompts: tuple[ResolvedPrompt, ...] = ()
        if not PROMPT_FIELDS.isdisjoint(ctx.config) or (
            has_prompts and (manifest.prompts or ctx.workflow_defaults or ctx.prompts.defaults)
        ):  # else the agent's own words are all that applies
            prompts = await prompted(ctx, agent=manifest, inputs={**ctx.inputs, "task": task})
        agent = await self._agent(ctx, caller, manifest, session, parked, given)
        invocation = Invocation(
            id=caller.idempotency_key,
            task=task,
            node_id=ctx.node_id,
            source=_source(ctx, task),
            channel=chosen.channel,
            prompts=prompts,
            principal=caller.principal or SYSTEM,
            observability=ctx.prompts.observability if has_prompts else "hashed",
        )
        result: AgentResult | None = None
        with self._tracing.span(f"invoke_agent {manifest.agent_id}") as span:
            agent_id = manifest.agent_id
            span.set(
                {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.id": agent_id, "forestay.run.id": ctx.run_id}
            )
            async for item in agent.invoke(invocation):
                if isinstance(item, AgentResult):
                    result = item
                else:
                    is_usage = item.type == "provider.usage"
                    ctx.say(item.type, self._budgets.priced(item.payload) if is_usage else item.payload)
        assert result is not None, "an invocation ends with its result"
        is_open = not session.warm.closed and not session.warm.expired
        if result.problem is not None:
            if is_open:
                await session.close(failed=True)
            raise result.problem
        if is_open:  # the session ends in the commit that ends the node
            ctx.along(await session.closing())
        return _outputs(chosen, session, result)

    async def _agent(
        self,
        ctx: Execution,
        caller: Caller,
        manifest: AgentManifest,
        session: Session,
        parked: _Parked,
        given: Conversation | None,
    ) -> Agent:
        consents = self._extensions.has_consent
        name = manifest.agent_id
        model = await self._model(ctx, manifest)
        tools: ToolSource = await self._tools.sources(ctx, name, consents=consents)
        own = (ctx.agent or {}).get("memoryRef")
        keeps = manifest.memory.long_term
        memory: Memory | None = AgentMemory(self._memories, caller, ctx.along, own) if keeps else None
        fixtures = ctx.inputs.get("fixtures")
        if isinstance(fixtures, dict):  # the agent is evaluated
            tools, memory = FixtureTools(fixtures, tools), seeded(fixtures)
        if given is not None:
            tools = CallerTools(given.tools, tools)
        gate = self._tools.gate(ctx, name)
        return Agent(
            manifest,
            model=RelayModel(ctx, self._relay, session, model),
            tools=tools,
            effects=Guarded(ctx.effect, parked.life, self._clock),
            gate=MeteredGate(gate, self._budgets, ctx, name) if self._budgets.concerns(ctx) else gate,
            approvals=RunApprovals(ctx),
            hooks=Quiet() if isinstance(fixtures, dict) else await self._hooks(ctx, parked),
            memory=memory,
            transcript=parked.transcript,
            clock=self._clock,
            verbosity="summary",
        )

    async def _model(self, ctx: Execution, manifest: AgentManifest) -> Model | RoutedModel:
        """The agent's own model or that of its class, unless the run's `configurable` names one (RFC 0077 §B-1), or one
        was chosen in its session and is still there."""
        wanted, mock = ctx.configurable.get("model"), ctx.configurable.get("mockProvider")

        def meter(model: Model) -> Model:
            return ctx.metered(model, manifest.agent_id)

        if wanted is not None or mock is not None:
            found = await self._routed(ctx, wanted, meter) if wanted is not None and mock is None else None
            return found or meter(ctx.models.chosen(None, wanted, ctx.caller("agent", "model"), mock))
        if (chosen := ctx.configurable.get("sessionModel")) is not None:
            if (found := await self._routed(ctx, chosen, meter)) is not None:
                return found
            if self._models.has(*chosen.split("/", 1)):
                return meter(self._models.chosen(None, chosen))
        named = self._models.named_for(manifest.agent_id, manifest.model_class)
        found = await self._routed(ctx, named, meter)
        return found or meter(self._models.for_agent(manifest.agent_id, manifest.model_class))

    async def _routed(self, ctx: Execution, name: str, meter: Callable[[Model], Model]) -> RoutedModel | None:
        """The virtual model of an extension that a name means (`PROVIDER/ID`); None when it means none."""
        provider, _, id = name.partition("/")
        if not id or ":" in provider or ctx.tenant != OPERATOR or self._models.has(provider, id):
            return None
        suite = await self._extensions.suite(ctx)
        if suite.catalogue.virtual(provider, id) is None:
            return None
        return RoutedModel((provider, id), suite, self._models, ctx, self._extensions.prompts, meter)

    async def _hooks(self, ctx: Execution, parked: _Parked) -> Hooks:
        """The hooks of the project's extensions; they are the operator's alone."""
        if ctx.tenant != OPERATOR:
            return Quiet()
        suite = self._extensions.opened or await self._extensions.suite(ctx)
        told = parked.hooks.told if parked.hooks else None
        parked.hooks = SuiteHooks(suite, self._extensions.prompts, self._tools, ctx, told)
        return parked.hooks

    # The relay session of one node

    async def _session(self, ctx: Execution) -> Session:
        """The session of this node. When an attempt failed in it, or an answer came so late that it expired, the next
        one; a node that has ended reads its answers in the one that it closed."""

        async def make() -> str:
            app = f"{ctx.tenant}::{ctx.run_id}/{ctx.node_id}/{ctx.iteration}"
            return await open_session(self._relay, app, self._sources(ctx))

        expired = 0
        for number in itertools.count():
            name: str = await ctx.effect(f"relay/session-{number}", make, provider="relay", later=True)
            try:
                session = await self._relay.session(name)
            except Problem as problem:
                if problem.key != "not_found":
                    raise
                continue  # nothing had happened in it when its process died
            if session.warm.failed:
                continue  # an attempt before this one ended in it
            if session.warm.closed or self._clock.now_ms() < session.warm.expires_ms:
                return session
            expired += 1
            if expired == MAX_SESSIONS_PER_APP:
                break
        raise Problem("session_expired", "The agent waited longer than its sessions live.", runId=ctx.run_id)

    def _sources(self, ctx: Execution) -> Iterator[tuple[str, str]]:
        """What the agent may quote from: the project's texts when the node asks for them, and they are the tenant's."""
        if not ctx.config.get("context") or ctx.tenant != OPERATOR:
            return iter(())
        return texts(self._extensions.root, self._settings.context, apart=self._data)


class _Parked(msgspec.Struct):
    """What an execution hands to the next one of this process, while its extensions wait for a person (A2)."""

    life: str
    hooks: SuiteHooks | None = None
    transcript: Transcript | None = None


def _check(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not isinstance(config.get("agentId", ""), str):
        yield ".agentId", "An agent's id is a text."
    if not isinstance(config.get("context", False), bool):
        yield ".context", "`context` is true or false."
    try:
        node_prompts(config)
    except Problem as problem:
        yield str(problem.details["at"]).removeprefix("$.config"), problem.message


async def _nowhere(ctx: Execution) -> dict[str, Any]:
    raise Problem("capability_not_provided", "An agent needs a host.", requiredCapability=TYPE)


# The type without a host behind it: what a document can be checked against.
UNBOUND = NodeType(type_id=TYPE, execute=_nowhere, check=_check, summary="Lets an agent do a task.")


def _outputs(chosen: ChosenAgent, session: Session, result: AgentResult) -> dict[str, Any]:
    outputs: dict[str, Any] = {
        "output": result.output,
        "agentId": chosen.manifest.agent_id,
        "outcome": result.outcome,
        "turns": result.turns,
        "usage": msgspec.to_builtins(result.usage),
        "relaySessionId": session.id,
    }
    if result.calls:
        outputs["toolCalls"] = [msgspec.to_builtins(call) for call in result.calls]
    known: dict[str, Any] = {"validated": result.validated, "confidence": result.confidence}
    if chosen.member is not None:
        known |= {"rosterId": chosen.member, "persona": chosen.manifest.persona}
    return outputs | {name: value for name, value in known.items() if value is not None}


def texts(root: Path, patterns: Sequence[str], *, apart: Path | None = None) -> Iterator[tuple[str, str]]:
    """The files that `patterns` name, by their name in the project; `apart` is the host's own folder. Nothing outside
    the project is read, whatever links say."""
    base = root.resolve()
    seen: set[Path] = set()
    left = MOST_BYTES
    for pattern in patterns:
        for path in sorted(base.glob(pattern)):
            real = path.resolve()
            if real in seen or not real.is_file() or not _is_ours(base, real, apart):
                continue
            size = real.stat().st_size
            if len(seen) >= MOST_FILES or size > left:
                return
            seen.add(real)
            left -= size
            yield path.relative_to(base).as_posix(), real.read_text("utf-8", "replace").replace("\0", "\ufffd")


def _is_ours(base: Path, real: Path, apart: Path | None) -> bool:
    if not real.is_relative_to(base) or (apart is not None and real.is_relative_to(apart.resolve())):
        return False
    return not any(part.startswith(".") or part in _SKIPPED for part in real.relative_to(base).parts)


async def open_session(relay: Relay, app: str, sources: Iterator[tuple[str, str]]) -> str:
    """A new session that holds `sources`; its id. One that holds nothing is in the ledger when it is first used."""
    limits = {"session_timeout": 604_800, "dispatches_per_minute": 100_000, "max_continuations": 50}
    session = await relay.init(app, config=limits, later=True)
    for name, text in sources:
        if text.strip():
            await session.ingest(text, name)
    return session.id


def _source(ctx: Execution, task: Any) -> Literal["workflow-node", "run-api", "chat-mention"]:
    """Where the invocation comes from: the root of a run, a person's `@agent` in a conversation, or a node."""
    if ctx.workflow_id == AGENT_ROOT["id"]:
        return "run-api"
    is_said = ctx.inputs.get("sessionId") is not None and isinstance(task, str)
    return "chat-mention" if is_said and addressed(task) == ctx.inputs.get("agentId", "") else "workflow-node"


ASK: dict[str, Any] = {
    "id": "forestay-ask",
    "name": "Ask the project",
    "version": "1.1.0",
    "description": "An agent answers a question from the project's files and with its tools.",
    "nodes": [
        {
            "id": "agent",
            "typeId": TYPE,
            "name": "Agent",
            "position": {"x": 0, "y": 0},
            "config": {"context": True},
            "inputs": {
                "task": {"type": "variable", "variableName": "question"},
                "agentId": {"type": "variable", "variableName": "agentId", "optional": True},
                "sessionId": {"type": "variable", "variableName": "sessionId", "optional": True},
                "source": {"type": "variable", "variableName": "source", "optional": True},
            },
            "outputRole": "primary",
        }
    ],
    "edges": [],
    "triggers": [{"id": "manual", "type": "manual"}],
    "variables": [
        {"name": "question", "type": "string", "required": True},
        {"name": "agentId", "type": "string"},
        {"name": "sessionId", "type": "string"},
        {"name": "source", "type": "string"},
    ],
    "metadata": {},
    "settings": {},
}
