"""The extensions of one project, side by side: compiled, resolved, admitted, loaded, asked.

U1  Nothing is executed before its capabilities are resolved and the resolution is in the ledger (Pi §2B.3, §2B.5).
U2  An extension that cannot be loaded is a Problem of its own; the others load.
U3  The same tool name twice: the first extension's is the one that is called (rules/pi P10).
"""

from __future__ import annotations

import asyncio
import functools
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from forestay.extensions.capabilities import Requirement, resolve
from forestay.extensions.compiler import Artifact
from forestay.extensions.compiler.apart import workshop
from forestay.extensions.compiler.cache import Cache, cache_folder, default_cache
from forestay.extensions.compiler.source import is_own_folder, sources
from forestay.extensions.connectors.compute import ComputeConnector
from forestay.extensions.connectors.environment import EnvConnector, Environment
from forestay.extensions.connectors.exec import ExecConnector
from forestay.extensions.connectors.fs import FsConnector
from forestay.extensions.connectors.http import HttpConnector
from forestay.extensions.connectors.paths import Kept, Roots
from forestay.extensions.connectors.small import (
    EventsConnector,
    LogConnector,
    Model,
    ModelConnector,
    SessionConnector,
    UiConnector,
)
from forestay.extensions.connectors.tool import ToolConnector
from forestay.extensions.connectors.ui import NoUi, Ui
from forestay.extensions.consent import Consent
from forestay.extensions.control import Control
from forestay.extensions.dispatcher import Dispatcher, Subject
from forestay.extensions.engine.bytecode import KeptBytecode
from forestay.extensions.engine.limits import Limits
from forestay.extensions.engine.pool import Pool
from forestay.extensions.evidence import Correlation, Event, Evidence, LogFile
from forestay.extensions.grants import Grants, about, checked, fold, granted_folders, policy_of, with_standing
from forestay.extensions.hooks import Hooks
from forestay.extensions.isolate import Artifact as Loadable
from forestay.extensions.outcomes import Surroundings, ToolOutcome
from forestay.extensions.packs import Resource, adopt, expanded
from forestay.extensions.protection import protected
from forestay.extensions.quotas import Quotas
from forestay.extensions.registry import Tool, command_names, tool_owners
from forestay.extensions.risk import weighed
from forestay.extensions.runtime import Extension
from forestay.extensions.session import Session
from forestay.extensions.themes import BUILT_IN as BUILT_IN_THEMES
from forestay.extensions.themes import Theme, Themes
from forestay.extensions.tool_sources import OtherTools
from forestay.extensions.words import read_wording
from forestay.kernel import Clock, Ids, Ledger, Mode, Policy, Problem, Randomness, Scope, SystemClock, Weighed
from forestay.kernel import config as configuration
from forestay.tools import BUILT_IN
from forestay.tools import Tool as AnyTool

_KEPT_FAILURES = 100


class Member(msgspec.Struct, frozen=True):
    """One extension of the suite: where it is, what it was compiled to, and the running thing."""

    path: str
    artifact: Artifact
    extension: Extension


class Failure(msgspec.Struct, frozen=True):
    """An extension that could not be loaded, and why."""

    path: str
    problem: Problem


class Suite:
    """`async with Suite(ledger, root=…) as suite: await suite.load(path)`."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        root: Path,
        config: configuration.Extensions | None = None,
        mode: Mode | None = None,
        grants: Iterable[str] = (),
        consent: Consent | None = None,
        ui: Ui | None = None,
        model: Model | None = None,
        environ: Mapping[str, str] | None = None,
        deadline: float = 30.0,
        limits: Limits | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        scenario: str = "scn-local",
        trusted: bool = False,
        record: Callable[[bytes], None] | None = None,
        log_file: bool = False,
        data: Path | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._ids = Ids(self._clock, randomness)
        self._config = config or configuration.Extensions()
        self._mode = mode
        self._flags = tuple(grants)
        self._granted = Grants(ledger, self._clock)
        self._randomness = randomness
        self._deadline = deadline
        # JavaScript that does not let go is stopped at the deadline too, and at the latest after five seconds.
        slice_ms = min(Limits().slice_ms, max(1, int(deadline * 1000)))
        self._limits = limits or Limits(memory_mb=self._config.policy.max_memory_mb, slice_ms=slice_ms)
        self._record = record
        self._scenario = scenario
        self._trusted = trusted
        self._model = model
        self.decided = -1  # the last of people's decisions that was taken in
        self._artifacts: dict[str, Artifact] = {}
        self._running: dict[str, Extension] = {}
        self._homes: dict[str, Path | None] = {}
        self.root = root.resolve()
        # What is the host's own is nobody's to read or change, whatever was granted.
        lifted = self._config.unprotected
        self._kept = Kept.of(protected(self.root, data, cache=cache_folder(), lifted=lifted), lifted)
        self._data = data
        self._words = read_wording(self.root / self._config.tool_words) if self._config.tool_words else {}
        self.ui = ui or NoUi()
        self.members: list[Member] = []
        self.failures: list[Failure] = []
        self.handler_failures: deque[dict[str, Any]] = deque(maxlen=_KEPT_FAILURES)
        """What handlers threw, the latest last."""
        self.resources: list[Resource] = []  # skills, prompts and themes
        self.themes = Themes(self._theme_chosen)
        self.session = Session(
            str(self.root), clock=self._clock, ids=self._ids, tools=self._listed, commands=self._named
        )
        self.control = Control(self.session, self._told, self._reachable, ended=self._session_ended, asked=self._asked)
        self.hooks = Hooks(timeout=min(deadline, 10.0), report=self._handler_failed)
        self._temp = Path(tempfile.mkdtemp(prefix="forestay-ext-"))
        self._temps: dict[str, Path] = {}
        self._log = LogFile(self.session.id, environ=environ) if log_file else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._quotas = Quotas(self._config.quotas, self._over_quota, clock=self._clock)
        self._evidence = Evidence(ledger, sink=self._log, weigh=self._spent, clock=self._clock)
        self._pool = Pool()
        environment = Environment(environ)
        files = FsConnector(randomness)
        programs = ExecConnector(environment=environment, unconfined=self._config.policy.unconfined_programs)
        self.others = OtherTools(self)
        self.dispatcher = Dispatcher(
            Policy(clock=self._clock),
            [
                files,
                programs,
                ToolConnector(files, programs),
                self.others,
                HttpConnector(),
                EnvConnector(environment),
                ComputeConnector(),
                LogConnector(self._said),
                EventsConnector(self._emitted),
                UiConnector(self.ui, self.themes, self._held),
                ModelConnector(model, tokens=self._config.policy.max_model_tokens, offered=self._reachable),
                SessionConnector(self.control),
            ],
            self._evidence,
            consent=consent,
            grants=self._granted,
            weigh=self._weighed,
            hold=self._held,
            reach=self.roots,
            quotas=self._quotas,
            clock=self._clock,
        )

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self.refresh()
        if self._model is not None:
            offered = await self._model.models()
            self.session.model = dict(offered[0]) if offered else None
        return self

    @property
    def asks(self) -> bool:
        """Whether some extension's call may have to wait for a person."""
        policy = self.dispatcher.policy
        return policy.mode == "prompt" or any(rules.mode == "prompt" for rules in policy.subjects.values())

    async def refresh(self) -> None:
        """Take in what people decided since: on the command line, over HTTP, in another process."""
        policy = policy_of(self._config, self._clock, mode=self._mode)
        records = await self._granted.records()
        news = {about(record) for record in records if record.seq > self.decided}
        self.decided = records[-1].seq if records else self.decided
        self.dispatcher.renew(with_standing(policy, fold(records)), news)

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            await member.extension.close()
        self.dispatcher.close()
        self._pool.close()
        if self._log is not None:
            self._log.close()
        shutil.rmtree(self._temp, ignore_errors=True)

    # Loading

    async def load(self, path: Path | str) -> list[Member]:
        """Load every extension at `path`; the first Problem is raised."""
        return [await self._load(source.entry, Path(path)) for source in sources(path)]

    async def try_load(self, path: Path | str) -> list[Member]:
        """As `load`, but what fails is kept in `failures` and the rest is loaded (U2)."""
        loaded: list[Member] = []
        try:
            found = sources(path)
        except Problem as problem:
            self.failures.append(Failure(str(path), problem))
            return loaded
        for source in found:
            try:
                loaded.append(await self._load(source.entry, Path(path)))
            except Problem as problem:
                self.failures.append(Failure(str(path), problem))
        return loaded

    async def _load(self, entry: Path, path: Path) -> Member:
        refused: list[tuple[str, str]] = []
        cache = default_cache(self._data, lambda what, name: refused.append((what, name)))
        artifact = await workshop().build(entry, cache, seconds=self._config.build_seconds)
        name = artifact.meta.extension_id
        if any(member.extension.name == name for member in self.members):
            raise Problem("already_exists", f"An extension {name} is loaded already.", at=path.name)
        for text in self._flags:
            self.dispatcher.learn(name, "allow", checked(text))
        correlation = Correlation(name, self._scenario, self.session.id, artifact_id=artifact.meta.hash)
        for what, file in refused:
            self._cache_refused(correlation, what, file)
        methods = self._resolve(artifact, correlation)
        home = Path(artifact.root or entry.parent)
        own = home if is_own_folder(home, entry) else None
        self._homes[name] = own
        self.dispatcher.admit(Subject(name, self.roots(name), correlation=correlation, methods=methods))
        extension = Extension(
            loadable(artifact),
            self._surroundings(name, home),
            self.dispatcher,
            limits=self._limits,
            deadline=self._deadline,
            clock=self._clock,
            randomness=self._randomness,
            pool=self._pool,
            record=self._record,
            bytecode_cache=self._bytecode(cache, correlation),
            report=lambda event, data: self._evidence.write(
                correlation, Event(f"extension.{event}", data, level="warn")
            ),
        )
        self._artifacts[name], self._running[name] = artifact, extension
        try:
            await extension.load()
        except BaseException:
            self.dispatcher.dismiss(name)
            del self._artifacts[name], self._running[name], self._homes[name]
            raise
        member = Member(str(path), artifact, extension)
        self.members.append(member)
        self.hooks.set([item.extension for item in self.members])
        self._evidence.write(correlation, Event("extension.ready", {"tools": sorted(extension.registrations.tools)}))
        return member

    def _bytecode(self, cache: Cache | None, correlation: Correlation) -> KeptBytecode | None:
        if cache is None:
            return None
        refused = functools.partial(self._cache_refused, correlation)
        return KeptBytecode(cache.folder / "bytecode", cache.seal, refused)

    def _cache_refused(self, correlation: Correlation, what: str, file: str) -> None:
        """Something in the cache is not as this host left it; it was not used, and is made again."""
        self._evidence.write(correlation, Event("cache.refused", {"what": what, "file": file}, level="warn"))

    def _surroundings(self, name: str, home: Path) -> Surroundings:
        active = self.themes.active
        return Surroundings(
            name,
            str(self.root),
            str(home),
            has_ui=self.ui.interactive,
            colour=self.ui.colour,
            color_mode=self.ui.color_mode,
            theme=None if active is BUILT_IN_THEMES["dark"] else active,
            flags=self._defaults(),
            tool_words=self._words,
        )

    def _defaults(self) -> dict[str, bool | str]:
        """What flags stand at so far: all extensions share them, and the first default of a name holds, as in pi."""
        found: dict[str, bool | str] = {}
        for member in self.members:
            found = {**member.extension.flag_values, **found}
        return found

    def _theme_chosen(self, theme: Theme, extension: str) -> None:
        """Everybody sees it; who chose it does already."""
        for name, running in self._running.items():
            running.use_theme(theme, tell=name != extension)

    def roots(self, name: str, policy: Policy | None = None) -> Roots:
        """The folders of one subject: the project, its own, a temporary one that no other has, and granted ones."""
        if name not in self._temps:
            self._temps[name] = Path(tempfile.mkdtemp(dir=self._temp))
        folders = granted_folders(policy or self.dispatcher.policy, name)
        home, temp = self._homes.get(name), self._temps[name]
        return Roots.of(self.root, extension=home, temp=temp, extra=folders, kept=self._kept)

    def _weighed(self, name: str, capability: str) -> Weighed | None:
        artifact = self._artifacts.get(name)
        return weighed(artifact, capability, trusted=self._trusted) if artifact is not None else None

    def _held(self, name: str, held: bool) -> None:
        extension = self._running.get(name)
        if extension is not None:
            extension.hold(held)

    def _resolve(self, artifact: Artifact, correlation: Correlation) -> dict[str, tuple[str, ...]]:
        """Declared and inferred needs against the user's decisions (U1); the methods the manifest limits it to."""
        manifest, name, policy = artifact.meta.manifest, artifact.meta.extension_id, self.dispatcher.policy
        declared = [_requirement(item) for item in manifest.declared()]
        inferred = [Requirement(capability) for capability in artifact.meta.capabilities_required]
        rules = policy.subjects.get(name)
        denied = {
            grant.capability for grant in (*policy.denials, *(rules.deny if rules else ())) if not grant.scope.patterns
        }
        resolution = resolve(declared, inferred, denied=denied, mode=(rules and rules.mode) or policy.mode)
        evidence = [msgspec.to_builtins(item) for item in artifact.meta.evidence]
        self._evidence.write(correlation, Event("capability.resolve", resolution.log_data(evidence)))
        if resolution.verdict == "refused":
            raise Problem(
                "capability_denied",
                f"{name} declares {', '.join(resolution.removed)}, which is denied, and the mode is strict.",
                extension=name,
                removed=list(resolution.removed),
            )
        return {item.capability: item.methods for item in declared if item.methods}

    # Asking

    def owner(self, tool: str) -> Member:
        """The extension whose tool a name means (U3)."""
        owners = tool_owners(member.extension.registrations for member in self.members)
        for member in self.members:
            if owners.get(tool) == member.extension.name:
                return member
        raise Problem("not_found", f"There is no tool {tool[:80]}.", tools=sorted(owners), fix="Use one of `tools`.")

    def tools(self) -> list[Tool]:
        """Every tool that can be called by its name."""
        owners = tool_owners(member.extension.registrations for member in self.members)
        return [
            tool
            for member in self.members
            for tool in member.extension.registrations.tools.values()
            if owners[tool.name] == member.extension.name
        ]

    async def call_tool(self, name: str, arguments: Any, **options: Any) -> ToolOutcome:
        return await self.owner(name).extension.call_tool(name, arguments, **options)

    async def prepare_arguments(self, name: str, arguments: Any) -> Any:
        return await self.owner(name).extension.prepare_arguments(name, arguments)

    async def run_command(self, invocation: str, arguments: str = "") -> Any:
        names = command_names(member.extension.registrations for member in self.members)
        text = expanded(self.resources, invocation, arguments) if invocation not in names else None
        if text is not None:
            return {"prompt": text}
        if invocation not in names:
            raise Problem("not_found", f"There is no command {invocation[:80]}.", commands=sorted(names))
        extension, name = names[invocation]
        member = next(item for item in self.members if item.extension.name == extension)
        returned = await member.extension.run_command(name, arguments)
        await self.settled()
        if {"kind": "reload"} in self.session.requests:
            await self.reload()
        return returned

    async def autocomplete(self, lines: list[str], line: int, column: int) -> Any:
        """The suggestions of the extension that was loaded last and has some, as if it stood around the others."""
        for member in reversed(self.members):
            found = await member.extension.autocomplete(lines, line, column)
            if found is not None:
                return found
        return None

    async def typed(self, data: str) -> str | None:
        """What a person typed, past every extension's listeners; None when one of them kept it."""
        kept: str | None = data
        for member in self.members:
            if kept is not None:
                kept = await member.extension.typed(kept)
        return kept

    async def emit(self, event: Mapping[str, Any]) -> Any:
        """Tell every extension; the merged answer. An agent that begins or ends is the session's to know as well."""
        kind = event.get("type")
        if kind == "agent_start":
            self._agent("start", 1)
        waited = self.session.turn() if kind == "before_agent_start" else []
        answer = await self.hooks.emit(dict(event))
        if kind == "agent_end":
            self._agent("end", -1)
        if kind == "before_agent_start":
            said = answer if isinstance(answer, Mapping) else {}
            self.session.system_prompt = str(said.get("systemPrompt") or event.get("systemPrompt") or "")
            if waited:
                answer = {**said, "messages": [*waited, *(said.get("messages") or ())]}
        await self.settled()
        return answer

    def _agent(self, state: str, change: int) -> None:
        """`ctx.signal` and `ctx.isIdle()`: while one of several agents works, there is work to abort."""
        before = self.session.idle
        self.session.working(change)
        if before != self.session.idle:
            for member in self.members:
                member.extension.agent(state)

    async def _told(self, event: dict[str, Any]) -> Any:
        return await self.hooks.emit(event)

    async def _reachable(self, asked_by: str | None = None) -> list[Mapping[str, Any]]:
        """The models of the host, and those of providers that extensions registered; whoever asks knows its own."""
        offered: list[Mapping[str, Any]] = list(await self._model.models()) if self._model is not None else []
        others = [member for member in self.members if member.extension.name != asked_by]
        for member in others:
            for provider in member.extension.registrations.providers.values():
                offered += [provider.described(model) for model in provider.models]
        return offered

    def _asked(self, what: str) -> None:
        """`abort` raises `ctx.signal`, and waits for whoever runs the agent; `reload` waits for the command's end."""
        self.session.requests.append({"kind": what})
        for member in self.members if what == "abort" else ():
            member.extension.agent("abort")

    async def reload(self) -> None:
        """Load every extension again, as it was compiled: what has changed on disk is a matter of trust."""
        self.session.requests = [item for item in self.session.requests if item["kind"] != "reload"]
        await self.hooks.emit({"type": "session_shutdown", "reason": "reload"})
        for member in self.members:
            await member.extension.restart()
        await self.hooks.emit({"type": "session_start", "reason": "reload"})
        await self.find_resources(self.resources, "reload")

    def _session_ended(self) -> None:
        self.session.requests.clear()
        self.dispatcher.end_session()

    async def find_resources(self, found: Iterable[Resource], reason: str = "startup") -> None:
        """Take in skills, prompts and themes, and those that extensions name (`resources_discover`)."""
        event = {"type": "resources_discover", "cwd": str(self.root), "reason": reason}
        named = await self.hooks.emit(event) if self.hooks.listening("resources_discover") else {}
        homes = {name: home or self.root for name, home in self._homes.items()}
        self.take_resources(adopt(found, named, self.root, homes))

    def take_resources(self, found: Iterable[Resource]) -> None:
        """Take in skills, prompts and themes without telling anybody."""
        self.resources = [item for item in found if item.kind != "extension"]
        self.themes.adopt(self.resources)

    async def settled(self) -> None:
        """Until notices and messages that extensions sent without waiting have arrived, and were told."""
        await self.control.settled()
        for member in self.members:
            await member.extension.settled()

    async def recorded(self) -> None:
        """Wait until the evidence of everything that was done so far is on disk."""
        await asyncio.to_thread(self._evidence.flush)

    # What extensions say

    def _said(self, extension: str, level: str, event: str, message: str, data: Any) -> None:
        attributes = {"event": event, "message": message}
        correlation = Correlation(extension, self._scenario, self.session.id)
        self._evidence.write(correlation, Event("extension.log", {"data": data}, attributes, level))  # type: ignore[arg-type]

    def _spent(self, extension: str, kind: Literal["evidence", "log"], size: int) -> None:
        """What a record costs is an extension's; an agent's own tools have no quota."""
        if extension in self._running:
            self._quotas.spend(extension, kind, size)

    def _over_quota(self, extension: str, problem: Problem) -> None:
        """Stop an extension that passed a quota, from whichever thread this is told; its neighbours go on."""
        running, loop = self._running.get(extension), self._loop
        if running is None or loop is None or loop.is_closed():
            return
        about = {name: problem.details[name] for name in ("quota", "limit", "setting")}
        event = Event("extension.stopped", {"message": problem.message, **about}, level="error")
        self._evidence.write(Correlation(extension, self._scenario, self.session.id), event)
        loop.call_soon_threadsafe(running.stop, problem)

    def _emitted(self, extension: str, channel: str, data: Any) -> None:
        for member in self.members:
            if member.extension.name != extension:
                member.extension.bus(channel, data)

    def _handler_failed(self, extension: str, event: str, problem: Problem) -> None:
        if problem.key == "quota_exceeded":
            return  # that it was stopped is on record, once
        data = {"event": event, "problem": problem.key, "message": problem.as_pi()["message"]}
        self.handler_failures.append({"extension": extension, "event": event, "problem": problem.as_lafs()})
        self._evidence.write(
            Correlation(extension, self._scenario, self.session.id), Event("event_hook.error", data, level="error")
        )

    def _listed(self) -> list[dict[str, Any]]:
        """The built-in tools, and those of extensions; one that has a built-in tool's name stands in its place."""
        found = {name: _about_tool(row.tool, f"<builtin:{name}>", "builtin") for name, row in BUILT_IN.items()}
        found.update({tool.name: _about_tool(tool, self.owner(tool.name).path, "local") for tool in self.tools()})
        return list(found.values())

    def _named(self) -> list[dict[str, Any]]:
        members = {member.extension.name: member for member in self.members}
        found: list[dict[str, Any]] = []
        names = command_names(member.extension.registrations for member in self.members)
        for invocation, (extension, name) in names.items():
            about = members[extension].extension.registrations.commands[name].description
            said = {} if about is None else {"description": about}
            place = _source_info(members[extension].path, "local")
            found.append({"name": invocation, **said, "source": "extension", "sourceInfo": place})
        for item in self.resources:
            if item.kind in ("prompt", "skill") and not item.problem:
                name = item.name if item.kind == "prompt" else f"skill:{item.name}"
                place = _source_info(item.path, "local", item.scope)
                told = {"description": item.description, "location": item.scope, "sourceInfo": place}
                found.append({"name": name, "source": item.kind, **told})
        return found


def loadable(artifact: Artifact) -> Loadable:
    """A compiled artifact as the runtime takes it."""
    meta = artifact.meta
    return Loadable(
        name=meta.entry_module,
        digest=meta.hash,
        text=artifact.code.decode(),
        bytecode=artifact.bytecode or b"",
        source_map=artifact.source_map.decode(),
    )


def _about_tool(tool: Tool | AnyTool, path: str, source: str) -> dict[str, Any]:
    about = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {**about, "sourceInfo": _source_info(path, source)}


def _source_info(path: str, source: str, scope: str = "temporary") -> dict[str, str]:
    """Where something comes from, as pi tells it."""
    return {"path": path, "source": source, "scope": scope, "origin": "top-level"}


def _requirement(item: Any) -> Requirement:
    scope = item.scope
    limits = (
        Scope() if scope is None else Scope(tuple(scope.paths or ()), tuple(scope.hosts or ()), tuple(scope.env or ()))
    )
    return Requirement(item.capability, tuple(item.methods or ()), limits)
