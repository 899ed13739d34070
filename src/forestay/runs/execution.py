"""One execution of one node: the context its code is given, and what it leaves behind.

- X1  On resume a node's code runs again from its start; what is on record is given back, not done again. A later
      attempt makes no change twice, and says only what no earlier one said at the same place.
- X2  An execution's events go into the log together with the fact that ends it, or with the next effect.
- X3  `Parked` is no error: it leaves the code where it waits; the log says for what.
- F1  The identity of an effect (layer 2 of idempotency, OpenWOP §1.5) has no attempt in it: a retry of a node asks for
      the same effect.
- F2  A result is on disk before the node sees it; from then on the effect is never performed again.
- F3  What was not recorded is performed again, under the same identity.
- X4  An effect recorded for `later` goes into the log with what comes next. Nothing reaches the outside on top of it
      before that: the next effect that is not for later begins when it is on disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from forestay.kernel import Append, Draft, Problem, base64url, iso
from forestay.models import Model
from forestay.runs import channels
from forestay.runs.artifacts import artifact_stream
from forestay.runs.expressions import compile_expression
from forestay.runs.mock_models import MockModels
from forestay.runs.node_http import NodeHttp
from forestay.runs.node_memory import NodeMemory
from forestay.runs.outcome import Make, Outcome, Parked, along
from forestay.runs.plan import passes
from forestay.runs.ports import Caller, PromptSource, ToolSource
from forestay.runs.secrets import MASK
from forestay.runs.spending import RunBudget
from forestay.runs.state import Event, RunState, Said, check_reader, shown_outputs
from forestay.runs.types import Limits
from forestay.runs.values import plain

if TYPE_CHECKING:
    from forestay.runs.actor import RunActor

T = TypeVar("T")
# What is said inside an effect is counted apart: when the effect is on record, it is not said again.
_SCOPE: ContextVar[str] = ContextVar("scope", default="")
_VENDOR = re.compile(r"(?!(?:openwop|core|community|vendor|private|local|run|node|interrupt)\.)[a-z][\w-]*(\.[\w-]+)+")
# What a node may say about itself; the rest of the catalogue is the engine's.
EMITTED = (
    "agent.", "provider.usage", "prompt.composed", "model.capability.", "envelope.", "conversation.", "output.chunk",
    "log.appended", "cap.breached", "runOrchestrator.decided", "tool.session.", "memory.", "egress.decided",
    "budget.", "deployment.", "eval.", "connector.", "authorization.decided", "artifact.created",
    "core.workflowChain.",
)  # fmt: skip
_UNDONE = frozenset({"variable.changed", "channel.written", "artifact.created"})


class Execution:
    """The NodeContext of one execution."""

    def __init__(self, actor: RunActor, node_id: str, prefix: str = "", moment: int | None = None) -> None:
        """`moment`: the run's own time, where the code is instant and takes none."""
        state = actor.state
        node = state.nodes[node_id]
        doc = state.plan.nodes[node_id].doc
        self._actor = actor
        self._state = state
        self._node = node
        self._prefix = prefix
        self._moment = moment
        self._emits: dict[str, int] = {}
        self._waits = 0
        self._memory: NodeMemory | None = None
        self._http: NodeHttp | None = None
        self._writes: dict[str, Any] = {}
        self._pins: dict[str, int] = {}
        self._later: dict[str, Any] = {}  # results that are among `events` still
        self.events: list[Event] = []
        self.appends: list[Append] = []
        self.run_id = state.run_id
        self.origin = state.source["origin"] if state.source else state.run_id  # the same in every fork
        self.node_id = node_id
        self.type_id = doc.type_id
        self.tenant = state.owner.tenant if state.owner else ""
        self.attempt = node.attempt
        self.iteration = node.iteration
        self.config = doc.config
        self.inputs = node.inputs
        self.configurable = state.configurable
        self.agent = doc.agent
        self.credential = doc.credentials_ref

    @property
    def live(self) -> bool:
        """Whether this execution is still the one that the log knows."""
        node = self._node
        return node.status == "running" and node.attempt == self.attempt and node.iteration == self.iteration

    @property
    def place(self) -> str:
        """Where the code stands: the effect that it is inside of, the same on every execution."""
        return f"{self.run_id}:{self.node_id}:{self.iteration}:{self._prefix}{_SCOPE.get()}"

    def recorded(self, key: str) -> Any:
        """What the effect `key` gave, when it is on record; else None."""
        name = self._prefix + key
        return self._later.get(name, self._node.memo.get(f"effect:{name}"))

    @property
    def replays(self) -> bool:
        """Whether this only computes again what is on record: nothing outside the run may change."""
        return self._actor.instead is not None

    def is_recorded(self, key: str) -> bool:
        """Whether the effect `key` is on record, whatever it gave."""
        name = self._prefix + key
        return name in self._later or f"effect:{name}" in self._node.memo

    def within(self, prefix: str, config: dict[str, Any], inputs: dict[str, Any], type_id: str) -> Execution:
        """A part of this execution with its own names: an item of a map."""
        part = Execution(self._actor, self.node_id, f"{self._prefix}{prefix}/", self._moment)
        part.config, part.inputs, part.type_id = config, inputs, type_id
        return part

    # What it can read

    @property
    def variables(self) -> dict[str, Any]:
        return {**self._state.variables, **self._writes}

    @property
    def decision(self) -> dict[str, Any] | None:
        """The supervisor's last decision."""
        return self._state.decision

    @property
    def decided(self) -> str | None:
        """The id of the event that holds this decision."""
        return self._state.decided

    def leads_to(self, type_id: str) -> bool:
        """Whether an edge leads from this node to one of this type."""
        nodes = self._state.plan.nodes
        return any(nodes[edge.target].doc.type_id == type_id for edge in nodes[self.node_id].outgoing)

    @property
    def limits(self) -> Limits:
        return self._state.limits

    @property
    def now_ms(self) -> int:
        """The time of the run's own clock (T1)."""
        return self._actor.moment() if self._moment is None else self._moment

    @property
    def wall_ms(self) -> int:
        return self._actor.now()

    @property
    def models(self) -> MockModels:
        return _wired(self._actor.engine.ports.models, "models")

    def capabilities_of(self, model: Model) -> frozenset[str]:
        """What a model is known to be capable of (RFC 0031)."""
        known = self._actor.engine.ports.capabilities_of
        return frozenset() if known is None else known(model)

    async def secret(self, credential_id: str) -> str:
        """The value of a credential, where the host gives nodes any; it is in no record."""
        value = await _wired(self._actor.engine.ports.secrets, "secrets")(self.tenant, credential_id)
        if value is None:
            raise Problem("credential_unavailable", f"There is no credential {credential_id[:64]}.")
        return value

    @property
    def tools(self) -> ToolSource:
        return _wired(self._actor.engine.ports.tools, "tools")

    @property
    def http(self) -> NodeHttp:
        """Requests out, through the SSRF-safe connector."""
        if self._http is None:
            self._http = NodeHttp(self, _wired(self._actor.engine.ports.http, "http"))
        return self._http

    @property
    def prompts(self) -> PromptSource:
        return _wired(self._actor.engine.ports.prompts, "prompts")

    @property
    def has_prompts(self) -> bool:
        return self._actor.engine.ports.prompts is not None

    @property
    def untrusted(self) -> bool:
        """Whether the run took in content that nobody vouches for: it may be in everything that nodes say since."""
        return any((node.outputs or {}).get("contentTrust") == "untrusted" for node in self._state.nodes.values())

    @property
    def memory(self) -> NodeMemory:
        """What is kept between runs."""
        if self._memory is None:
            self._memory = NodeMemory(self, _wired(self._actor.engine.ports.memory, "memory"))
        return self._memory

    def caller(self, key: str, provider: str = "node") -> Caller:
        identity = self.identity(key, provider)
        principal = self._state.owner.principal if self._state.owner else None
        return Caller(self.tenant, self.run_id, self.node_id, identity, principal, self, self.workflow_id)

    def identity(self, key: str, provider: str) -> str:
        """The effect's identity, the same on every attempt (F1)."""
        return invocation_id(self.tenant, self.run_id, self.node_id, self.iteration, self._prefix + key, provider)

    def evaluate(self, expression: str, **names: Any) -> Any:
        extra = {**names, "variables": self.variables}
        scope = self._state.scope(self.inputs, "running", extra, (self.node_id, self.type_id))
        return compile_expression(expression).evaluate(scope)

    def routes(self, outputs: dict[str, Any]) -> bool:
        """Whether a conditional edge out of this node would take these outputs."""
        plan = self._state.plan.nodes[self.node_id]
        scope = self._state.scope(outputs, "completed")
        return any(edge.test is not None and passes(edge, scope) for edge in (*plan.loops, *plan.outgoing))

    def read_channel(self, name: str) -> Any:
        check_reader(self._state, name, self.node_id, self.type_id)
        found = self._state.channels.get(name)
        return None if found is None else channels.read(found, self.now_ms)

    # The budget of the run, which its children share (RFC 0084)

    @property
    def root(self) -> str:
        """The run that this one descends from, or the run itself."""
        return str((self._state.parent or {}).get("root", self.run_id))

    @property
    def workflow_id(self) -> str:
        return self._state.plan.workflow.id

    @property
    def workflow_name(self) -> str:
        return self._state.plan.workflow.name

    @property
    def workflow_defaults(self) -> dict[str, Any] | None:
        return self._state.plan.workflow.defaults

    @property
    def may_have_budget(self) -> bool:
        """Whether the run has a budget, or is a child of one that may."""
        return self._state.budget is not None or self._state.parent is not None

    async def budget(self) -> RunBudget | None:
        """The ceilings of the root run and what its log says was used; None when nothing limits it."""
        if self.root == self.run_id:
            return self._state.budget
        return (await self._actor.engine.state(self.root)).budget

    def metered(self, model: Model, agent_id: str | None = None) -> Model:
        """The model as this node may ask it: with the budget's meter, where there is one."""
        governor = self._actor.engine.ports.governor
        return model if governor is None else governor.metered(model, self, agent_id)

    async def raise_budget(self, mark: str, payload: dict[str, Any]) -> None:
        """Record a second `budget.reserved` with more, once for each `mark`."""

        def outcome(state: RunState) -> Outcome:
            if state.budget is None or mark in state.budget.raises:
                return Outcome([])
            return Outcome([Event("budget.reserved", payload, None, {"raised": [mark]})])

        await self._actor.engine.command(self.root, outcome)

    # What it can say

    def _record(
        self,
        type: str,
        payload: dict[str, Any],
        private: dict[str, Any] | None = None,
        place: str = "",
        cause: str | None = None,
        id: str = "",
    ) -> str:
        """Keep an event for the log, unless an earlier execution put it there (X1). Its mark in the log."""
        scope = self._prefix + _SCOPE.get() + place
        count = self._emits[scope] = self._emits.get(scope, 0) + 1
        mark = f"{scope}{count}"
        if not self._has_said(mark, type, payload):
            self.events.append(Event(type, payload, self.node_id, {**(private or {}), "emit": mark}, cause, id))
        return mark

    def _has_said(self, mark: str, type: str, payload: dict[str, Any]) -> bool:
        said: Said | None = self._node.memo.get(f"emit:{mark}")
        if said is None or said.attempt == self.attempt:
            return said is not None
        return said.type == type and (type in _UNDONE or said.payload == payload)

    def say(self, type: str, payload: dict[str, Any], place: str = "", cause: str | None = None, id: str = "") -> str:
        """As `emit`, where nobody needs the event's id: the log gives it one. The event's mark (X1)."""
        if not type.startswith(EMITTED) and not _VENDOR.fullmatch(type):
            raise Problem("schema_mismatch", f"A node cannot emit {type!r}.", fix="Prefix it with a vendor's name.")
        return self._record(type, plain(payload), place=place, cause=cause, id=id)

    def emit(self, type: str, payload: dict[str, Any], place: str = "", cause: str | None = None) -> str:
        """Say `type` in the run's log; the event's id. What is said under a `place` of its own is counted apart (X1).
        `cause` is the id of the event that led to this one."""
        id, before = self._actor.engine.ids.new(""), len(self.events)
        mark = self.say(type, payload, place, cause, id)
        if len(self.events) > before:
            return id
        said: Said = self._node.memo[f"emit:{mark}"]
        return said.id

    def log(self, level: str, message: str, **fields: Any) -> None:
        payload: dict[str, Any] = {"level": level, "message": message, "nodeId": self.node_id}
        self._record("log.appended", {**payload, "fields": plain(fields)} if fields else payload)

    def version(self, change_id: str, latest: int) -> int:
        """The version of a piece of node code that this run began with: `latest` the first time, then ever the same."""
        known = {**self._pins, **self._state.pins}.get(change_id)
        if known is not None:
            return known
        payload = {"changeId": change_id, "version": latest, "nodeId": self.node_id}
        self.events.append(Event("version.pinned", payload, self.node_id))
        self._pins[change_id] = latest
        return latest

    def set_variable(self, name: str, value: Any) -> None:
        value = plain(value)
        before = self.variables.get(name)
        payload: dict[str, Any] = {"name": name, "nodeId": self.node_id}
        if name in self._state.plan.sensitive:
            mark = self._record("variable.changed", {**payload, "previous": MASK, "next": MASK}, {"next": value})
        else:
            mark = self._record("variable.changed", {**payload, "previous": before, "next": value})
        # What an earlier execution wrote stands: computing it again may have read its own write.
        said: Said | None = self._node.memo.get(f"emit:{mark}")
        self._writes[name] = said.value if said is not None and said.type == "variable.changed" else value

    def write_channel(self, name: str, value: Any, **options: Any) -> None:
        declared = self._state.plan.workflow.channels.get(name)
        known = self._state.channels.get(name)
        reducer = declared.reducer if declared else known.reducer if known else options.get("reducer", "replace")
        version = options.get("schema_version")
        value = plain(value)
        channels.check_write(name, declared, reducer, value, self.node_id, self.type_id, version)
        payload = {
            "channel": name,
            "value": value,
            "reducer": reducer,
            "nodeId": self.node_id,
            "writtenAt": iso(self.wall_ms),
            "schemaVersion": version or (declared.schema_version if declared else 1),
        }
        private: dict[str, Any] = {}
        if options.get("ttl_ms") is not None:
            private["ttl_ms"] = options["ttl_ms"]
        if declared is not None and declared.sensitive:
            payload["value"], private["value"] = MASK, value
        self._record("channel.written", payload, private)

    def artifact(self, artifact_type: str, data: Any, *, media_type: str = "application/json") -> str:
        """Keep `data` as an artifact of the run; its id is the same on every execution, and in every fork."""
        self._waits += 1
        key = f"{self._prefix}artifact:{self._waits}"
        id = "art_" + invocation_id(self.tenant, self.origin, self.node_id, self.iteration, key, "artifact")[:26]
        stream = artifact_stream(self.run_id, id)
        before = len(self.events)
        self._record("artifact.created", {"artifactId": id, "artifactType": artifact_type, "nodeId": self.node_id})
        if len(self.events) > before:
            body = {"artifactId": id, "artifactType": artifact_type, "mediaType": media_type, "data": plain(data)}
            self.appends.append(Append(stream, [Draft("artifact.stored", {**body, "nodeId": self.node_id})]))
        return id

    # What it can wait for

    async def effect(
        self,
        key: str,
        fn: Callable[[], Awaitable[T]] | Callable[[], T],
        *,
        provider: str = "node",
        later: bool = False,
    ) -> T:
        """Do `fn` once and for all: its result is on disk before this returns (F2).

        With `later` it is on disk before the next effect begins (X4): for what may be done again after a crash.
        """
        name = self.named(key)
        if f"effect:{name}" in self._node.memo:
            return self._node.memo[f"effect:{name}"]  # type: ignore[no-any-return]
        if name in self._later:
            return self._later[name]  # type: ignore[no-any-return]
        if self._later and not later:
            await self.flush()
        token = _SCOPE.set(f"{_SCOPE.get()}{key}>")
        try:
            made = fn() if self._actor.instead is None else self._actor.instead(self, key, fn)
            result = plain(await made if inspect.isawaitable(made) else made)
        finally:
            _SCOPE.reset(token)
        payload = {"nodeId": self.node_id, "key": name, "invocationId": self.identity(key, provider)}
        event = Event("forestay.effect.recorded", {**payload, "provider": provider}, self.node_id, {"result": result})
        if later:
            self.events.append(event)
            self._later[name] = result
        else:
            await self.flush(event)
        return result  # type: ignore[no-any-return]

    def named(self, key: str) -> str:
        """How the log calls an effect of this execution."""
        return self._prefix + key

    async def flush(self, *events: Event) -> None:
        """Put what this execution has to say into the log now."""
        later, left = tuple(self._later), self.left(*events)

        def outcome(state: RunState) -> Outcome:
            if not self.live:
                raise asyncio.CancelledError
            return left

        await self._actor.post(outcome)
        for name in later:  # the log has them now
            self._later.pop(name, None)

    def along(self, append: Append) -> None:
        """Write `append` together with what this execution says next."""
        along(self.appends, append)

    async def write(self, append: Append) -> None:
        """Write `append` now, together with what this execution has to say."""
        self.along(append)
        await self.flush()

    def take(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def take_appends(self) -> list[Append]:
        appends, self.appends = self.appends, []
        return appends

    def left(self, *events: Event) -> Outcome:
        """What this execution has said and wants written, and then `events`: it is the log's now."""
        return Outcome([*self.take(), *events], appends=self.take_appends())

    def completed(self, outputs: Any) -> Make:
        """The node's code has come to its end."""
        if not isinstance(outputs, dict):
            outputs = {} if outputs is None else {"output": outputs}

        def make(state: RunState) -> Outcome:
            name = self.node_id
            shown = shown_outputs(state, name, outputs)
            took = self._actor.now() - state.nodes[name].started_ms
            payload = {"nodeId": name, "outputs": shown, "durationMs": max(0, took)}
            private = {"outputs": outputs} if shown is not outputs else None
            return self.left(Event("node.completed", payload, name, private))

        return make

    def drop_changes(self) -> None:
        """A failed attempt says what it met, but changes nothing."""
        self.events = [event for event in self.events if event.type not in _UNDONE]
        self.appends = []

    async def interrupt(
        self,
        kind: str,
        data: Any,
        *,
        key: str | None = None,
        resume_schema: dict[str, Any] | None = None,
        timeout_ms: int | None = None,
        default: Any = None,
        announce: tuple[str, dict[str, Any]] | None = None,
    ) -> Any:
        """Ask once for the life of the run, and go on with the answer (OpenWOP §1.8)."""
        self._waits += 1
        key = key or f"{self.node_id}:{self.iteration}:{self._prefix}{self._waits}"
        if key in self._state.answers:
            return self._state.answers[key]
        id = self._actor.engine.ids.new("int")
        payload = {"nodeId": self.node_id, "interruptId": id, "kind": kind, "key": key}
        private = {"data": data, "resume_schema": resume_schema, "timeout_ms": timeout_ms, "default": default}
        request: dict[str, Any] = {"kind": kind, "key": key, "data": data}
        if resume_schema is not None:
            request["resumeSchema"] = resume_schema
        if timeout_ms is not None:
            request["timeoutMs"] = timeout_ms
        events = [
            Event("node.suspended", {**payload, **_about(kind, data)}, self.node_id, private),
            Event("interrupt.requested", request, self.node_id),
        ]
        if announce is not None:
            about = {"nodeId": self.node_id, "interruptId": id, **announce[1]}
            events.append(Event(announce[0], about, self.node_id))
        raise Parked(lambda state: self.left(*events))

    async def sleep(self, ms: int, key: str | None = None) -> None:
        """Wait durably: the deadline is in the log, and no task is kept for it."""
        self._waits += 1
        key = self._prefix + (key or str(self._waits))
        if ms <= 0 or f"fired:{key}" in self._node.memo:
            return
        payload = {"nodeId": self.node_id, "key": key, "dueAt": self.now_ms + ms}
        event = Event("forestay.timer.set", payload, self.node_id)
        raise Parked(lambda state: self.left(event))

    async def signal(
        self,
        name: str,
        correlation: dict[str, Any] | None = None,
        *,
        timeout_ms: int | None = None,
        default: Any = None,
    ) -> Any:
        """Wait for an event from outside: a signal of that name, or an answer to the interrupt."""
        data = {"eventType": name, "correlation": correlation or {}}
        return await self.interrupt("external-event", data, timeout_ms=timeout_ms, default=default)

    async def child(
        self,
        workflow_id: str,
        inputs: dict[str, Any],
        *,
        key: str,
        cause: str,
        propagate: bool = True,
        unset: Sequence[str] = (),
        started: Callable[[str], object] | None = None,
    ) -> dict[str, Any]:
        """Run another workflow and wait for its end: `{status, outputs, variables, error, runId}`. Its variables in
        `unset` get no value. `started` may say something about the child with its start; it is given the run's id."""
        name = self._prefix + key
        if f"ended:{name}" in self._node.memo:
            return self._node.memo[f"ended:{name}"]  # type: ignore[no-any-return]
        if f"child:{name}" in self._node.memo:
            raise Parked(lambda state: Outcome(self.take()))
        start = await self._actor.new_child(
            self, name, workflow_id, inputs, cause=cause, wait=True, propagate=propagate, unset=unset, started=started
        )
        raise Parked(start)

    async def start_child(
        self,
        workflow_id: str,
        inputs: dict[str, Any],
        *,
        key: str,
        cause: str,
        detached: bool = False,
        unset: Sequence[str] = (),
    ) -> str:
        """Start a child without waiting; `ended` gives its result later. The child's run id."""
        name = self._prefix + key
        if f"child:{name}" not in self._node.memo:
            start = await self._actor.new_child(
                self, name, workflow_id, inputs, cause=cause, wait=False, propagate=True, detached=detached, unset=unset
            )
            await self._actor.post(start)
        return self._node.memo[f"child:{name}"]  # type: ignore[no-any-return]

    def ended(self, key: str) -> dict[str, Any] | None:
        """The result of a child that has ended."""
        return self._node.memo.get(f"ended:{self._prefix}{key}")

    async def next_ended(self) -> str:
        """The key of the next child of this node that ends from now on."""
        return await self._actor.next_ended(self.node_id)


def invocation_id(tenant: str, run_id: str, node_id: str, iteration: int, key: str, provider: str) -> str:
    """base64url of the hash over tenant, run, node, logical invocation ordinal and provider key. The ordinal is the
    node's iteration and the key that its code gave the effect."""
    text = "\0".join(("openwop:activity:v2", tenant, run_id, node_id, f"{iteration}:{key}", provider))
    return base64url.encode(hashlib.sha256(text.encode()).digest())


def _about(kind: str, data: Any) -> dict[str, Any]:
    """What `node.suspended` says of why: the contract names some reasons otherwise than their kinds."""
    about: dict[str, Any] = {"reason": "conversation-input" if kind == "conversation.exchange" else kind}
    if kind == "low-confidence" and isinstance(data, dict):
        about |= {key: data[key] for key in ("agentId", "threshold", "observed") if key in data}
    return about


def _wired(port: T | None, name: str) -> T:
    if port is None:
        raise Problem("capability_not_provided", f"This host has no {name}.", requiredCapability=name)
    return port
