"""The extensions of one project: compiled, resolved, admitted, loaded, asked.

U1  Nothing is executed before its capabilities are resolved and the resolution is in the ledger (Pi §2B.3, §2B.5).
U2  An extension that cannot be loaded is a Problem of its own; the others load.
U3  The same tool name twice: the first extension's is the one that is called (rules/pi P10).
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from forestay.extensions.authority import granted_folders
from forestay.extensions.compaction import summary
from forestay.extensions.compiler.artifact import Artifact
from forestay.extensions.compiler.cache import cache_folder
from forestay.extensions.compiler.source import is_own_folder, sources
from forestay.extensions.connectors.contract import Call, Connector, Waiting
from forestay.extensions.connectors.environment import Environment
from forestay.extensions.connectors.exec import ExecConnector
from forestay.extensions.connectors.fs import FsConnector
from forestay.extensions.connectors.model import ModelConnector
from forestay.extensions.connectors.paths import Kept, Roots
from forestay.extensions.connectors.standard import Neighbours, standard
from forestay.extensions.connectors.ui import NoUi, Ui, UiConnector
from forestay.extensions.consent import Consent
from forestay.extensions.control import Control
from forestay.extensions.dispatcher import Dispatcher
from forestay.extensions.evidence import Correlation, Event, Evidence, LogFile
from forestay.extensions.grants import Grants, about, checked, fold, policy_of, with_standing
from forestay.extensions.guests import Failure, Guest, Make, Member
from forestay.extensions.hooks import Hooks
from forestay.extensions.host_call import CallKeeper, Subject
from forestay.extensions.inventory import (
    CommandLine,
    commands_of,
    listed_commands,
    listed_servers,
    listed_tools,
    offering,
    owned_tools,
    shortcuts_of,
    unknown_tool,
)
from forestay.extensions.javascript_loader import JavaScriptLoader
from forestay.extensions.live_session import LiveSession
from forestay.extensions.mcp.loader import ServerLoader
from forestay.extensions.mcp.pins import Pins, ServerStanding
from forestay.extensions.mcp.server_config import ServerConfig
from forestay.extensions.mcp.tokens import TokenFiles
from forestay.extensions.model_catalogue import ModelCatalogue
from forestay.extensions.outcomes import Surroundings, ToolOutcome
from forestay.extensions.packs import Resource, adopt, expanded
from forestay.extensions.pi_agent import Door
from forestay.extensions.pi_program import Streams, serve
from forestay.extensions.protection import protected
from forestay.extensions.quotas import Quotas
from forestay.extensions.registry import Tool
from forestay.extensions.resolution import resolved
from forestay.extensions.risk import weighed
from forestay.extensions.settings import Settings
from forestay.extensions.themes import BUILT_IN as BUILT_IN_THEMES
from forestay.extensions.themes import Theme, Themes
from forestay.extensions.tool_sources import OtherTools
from forestay.extensions.tool_wording import read_wording
from forestay.kernel import Ids, Ledger, Mode, Policy, Problem, Weighed
from forestay.sessions import SessionKeeper, SessionTree

if TYPE_CHECKING:
    from forestay.extensions.components.loader import ComponentLoader

_KEPT_FAILURES = 100


class Extensions:
    """`async with Extensions(ledger, root=…, grants=["read"]) as extensions: await extensions.load(path)`."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        root: Path,
        mode: Mode | None = None,
        grants: Iterable[str] = (),
        consent: Consent | None = None,
        ui: Ui | None = None,
        settings: Settings | None = None,
        sessions: SessionKeeper | None = None,
        tree: SessionTree | None = None,
        keeper: CallKeeper | None = None,
    ) -> None:
        """`mode` and `grants` say what extensions may do, `consent` asks a person about the rest, `ui` shows things.

        `sessions` keeps the sessions beyond this process, `tree` is the first of them, and `keeper` keeps what may not
        happen twice, for work that begins again after a crash.
        """
        self._settings = settings = settings or Settings()
        self._clock, self._config = settings.clock, settings.config
        self._mode, self._flags = mode, tuple(grants)
        self._granted = Grants(ledger, self._clock)
        self.decided = -1  # the last of people's decisions that was taken in
        self._artifacts: dict[str, Artifact] = {}
        self._running: dict[str, Guest] = {}
        self._homes: dict[str, Path | None] = {}
        self._origins: dict[str, Path] = {}
        self.root = root.resolve()
        # What is the host's own is nobody's to read or change, whatever was granted.
        lifted = self._config.unprotected
        self._kept = Kept.of(protected(self.root, settings.data, cache=cache_folder(), lifted=lifted), lifted)
        self._wording = read_wording(self.root / self._config.tool_words) if self._config.tool_words else {}
        self.ui = ui or NoUi()
        self.servers_changed: Callable[[], None] = lambda: None  # hears that an extension named or took back a server
        self.pins = Pins(ledger, self.root)
        self.tokens = TokenFiles(settings.data, self.root, settings.randomness)
        self.members: list[Member] = []
        self.failures: list[Failure] = []
        self.handler_failures: deque[dict[str, Any]] = deque(maxlen=_KEPT_FAILURES)  # the latest last
        self.resources: list[Resource] = []  # skills, prompts and themes
        self.themes = Themes(self._theme_chosen)
        self.session = self._new_session(sessions, tree)
        self.hooks = Hooks(timeout=min(settings.deadline, 10.0), report=self._handler_failed)
        self.catalogue = ModelCatalogue(settings.model, lambda: self.members, settings.scope)
        self.control = Control(
            self.session,
            self.hooks.emit,
            self.catalogue,
            summarise=self._summary if settings.model is not None else None,
            ended=self._session_ended,
            asked=self._asked,
        )
        self._temp = Path(tempfile.mkdtemp(prefix="forestay-ext-"))
        self._temps: dict[str, Path] = {}
        self._programs = 0  # of `pi`, that were started
        self._log = LogFile(self.session.id, environ=settings.environ) if settings.log_file else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._quotas = Quotas(self._config.quotas, self._over_quota, clock=self._clock)
        self._evidence = Evidence(ledger, sink=self._log, weigh=self._spent, clock=self._clock)
        self._loader = JavaScriptLoader(settings)
        self.others = OtherTools(self)
        self.dispatcher = self._new_dispatcher(consent, keeper)

    def _new_session(self, sessions: SessionKeeper | None, tree: SessionTree | None) -> LiveSession:
        return LiveSession(
            str(self.root),
            keeper=sessions,
            tree=tree,
            clock=self._clock,
            ids=Ids(self._clock, self._settings.randomness),
            tools=lambda: listed_tools(self.members),
            commands=lambda: self.commands(),
            servers=lambda: listed_servers(self.members),
        )

    def _new_dispatcher(self, consent: Consent | None, keeper: CallKeeper | None) -> Dispatcher:
        return Dispatcher(
            Policy(clock=self._clock),
            [*self._connectors(), self.others],
            self._evidence,
            consent=consent,
            grants=self._granted,
            weigh=self._weighed,
            hold=self._held,
            reach=self.roots,
            quotas=self._quotas,
            keeper=keeper,
            clock=self._clock,
        )

    def _connectors(self) -> list[Connector | Waiting]:
        settings, policy = self._settings, self._config.policy
        environment = Environment(settings.environ)
        programs = ExecConnector(
            environment=environment,
            unconfined=policy.unconfined_programs,
            hosted={"pi": self._pi},
            loop=lambda: self._loop,
        )
        model = ModelConnector(settings.model, tokens=policy.max_model_tokens, offered=self.catalogue.reachable)
        ui = UiConnector(self.ui, self.themes, self._held, self._prompted, str(self.root))
        neighbours = Neighbours(ui, model, self.control, self._said, self._emitted)
        return standard(environment, programs, neighbours, files=FsConnector(settings.randomness))

    async def _pi(self, call: Call, argv: Sequence[str], cwd: str, streams: Streams) -> int:
        """The `pi` program that an extension starts: everything it does is the extension's own doing."""
        self._programs += 1
        door = Door(self.dispatcher, call.extension, f"{call.call_id}:pi-{self._programs}")
        return await serve(argv, cwd, door, streams, self._clock.now_ms)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self.refresh()
        offered = await self._settings.model.models() if self._settings.model is not None else ()
        if offered:
            self.session.model = dict(offered[0])
        return self

    @property
    def asks(self) -> bool:
        """Whether some extension's call may have to wait for a person."""
        policy = self.dispatcher.authority.policy
        return policy.mode == "prompt" or any(rules.mode == "prompt" for rules in policy.subjects.values())

    async def refresh(self) -> None:
        """Take in what people decided since: on the command line, over HTTP, in another process."""
        policy = policy_of(self._config, self._clock, mode=self._mode)
        records = await self._granted.records()
        news = {about(record) for record in records if record.seq > self.decided}
        self.decided = records[-1].seq if records else self.decided
        self.dispatcher.authority.renew(with_standing(policy, fold(records)), news)

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            await member.extension.close()
        self.dispatcher.close()
        self._loader.close()
        if self._log is not None:
            self._log.close()
        shutil.rmtree(self._temp, ignore_errors=True)

    # Loading

    async def load(self, path: Path | str) -> list[Member]:
        """Load every extension at `path`; the first Problem is raised."""
        return [await self._load(source.entry, Path(path)) for source in sources(path)]

    async def try_load(self, path: Path | str) -> list[Member]:
        """As `load`, but what fails is kept in `failures` and the rest is loaded (U2)."""
        try:
            found = sources(path)
        except Problem as problem:
            self.failures.append(Failure(str(path), problem))
            return []
        loaded: list[Member] = []
        for source in found:
            try:
                loaded.append(await self._load(source.entry, Path(path)))
            except Problem as problem:
                self.failures.append(Failure(str(path), problem))
        return loaded

    @cached_property
    def _components(self) -> ComponentLoader:
        from forestay.extensions.components.loader import ComponentLoader  # most projects have no component

        return ComponentLoader(self._settings)

    async def _load(self, entry: Path, path: Path) -> Member:
        tampered: list[tuple[str, str]] = []
        artifact = await self._loader.compile(entry, lambda what, file: tampered.append((what, file)))
        correlation = self._correlation(artifact)
        for what, file in tampered:
            self._cache_refused(correlation, what, file)
        home = Path(artifact.root or entry.parent)
        loader = self._components if artifact.meta.manifest.runtime == "wasm" else self._loader
        make = partial(loader.guest, artifact, refused=partial(self._cache_refused, correlation))
        return await self.add(artifact, make, path=path, home=home, reads_home=is_own_folder(home, entry))

    async def add_server(self, config: ServerConfig, standing: ServerStanding) -> Member:
        """Offer the pinned tools of an approved MCP server. The program starts when one is called."""
        own_call, may = self.dispatcher.own_call, self.dispatcher.may
        loader = ServerLoader(self._settings, own_call, may, self.ui, self.pins, self.tokens)
        make = partial(loader.guest, config, standing)
        return await self.add(loader.artifact(config), make, path=self.root / config.origin)

    async def add(
        self, artifact: Artifact, make: Make, *, path: Path, home: Path | None = None, reads_home: bool = False
    ) -> Member:
        """Resolve what an extension needs, admit it, and load the guest that `make` gives (U1).

        `home` is the folder that it comes from; with `reads_home` it may read what lies there.
        """
        name, correlation = artifact.meta.extension_id, self._correlation(artifact)
        if any(member.extension.name == name for member in self.members):
            raise Problem("already_exists", f"An extension {name} is loaded already.", at=path.name)
        for text in self._flags:
            self.dispatcher.learn(name, "allow", checked(text))
        methods = resolved(artifact, self.dispatcher.authority.policy, partial(self._evidence.write, correlation))
        self._homes[name], self._artifacts[name] = (home if reads_home else None), artifact
        self._origins[name] = path
        guest = make(self._surroundings(name, home), self.dispatcher, partial(self._reported, correlation))
        self._running[name] = guest
        self.dispatcher.admit(Subject(name, self.roots(name), guest.runtime, correlation, methods))
        try:
            await guest.load()
        except BaseException:
            self.dispatcher.dismiss(name)
            del self._artifacts[name], self._running[name], self._homes[name]
            raise
        guest.widen(self.ui.columns(name))
        member = Member(str(path), artifact, guest)
        # The names `mcp__server__…` are the server's, whatever an extension that was loaded before it registered.
        self.members.insert(0 if guest.runtime == "mcp" else len(self.members), member)
        self.hooks.set([item.extension for item in self.members])
        self._evidence.write(correlation, Event("extension.ready", {"tools": sorted(guest.registrations.tools)}))
        return member

    def _correlation(self, artifact: Artifact) -> Correlation:
        name, digest = artifact.meta.extension_id, artifact.meta.hash
        return Correlation(name, self._settings.scenario, self.session.id, artifact_id=digest)

    def _cache_refused(self, correlation: Correlation, what: str, file: str) -> None:
        """Something in the cache is not as this host left it; it was not used, and is made again."""
        self._evidence.write(correlation, Event("cache.refused", {"what": what, "file": file}, level="warn"))

    def _reported(self, correlation: Correlation, event: str, data: dict[str, Any]) -> None:
        if event == "servers_changed":
            self.servers_changed()
            self.control.tell({"type": "mcp_servers_change", "servers": listed_servers(self.members)})
            return
        self._evidence.write(correlation, Event(f"extension.{event}", data, level="warn"))

    def _surroundings(self, name: str, home: Path | None) -> Surroundings:
        active = self.themes.active
        flags: dict[str, bool | str] = {**self._config.flags}
        for member in self.members:  # extensions share their flags; the first default of a name holds, as in pi
            flags = {**member.extension.flag_values, **flags}
        return Surroundings(
            name,
            str(self.root),
            str(home or ""),
            has_ui=self.ui.interactive,
            colour=self.ui.colour,
            color_mode=self.ui.color_mode,
            theme=None if active is BUILT_IN_THEMES["dark"] else active,
            flags=flags,
            tool_words=self._wording,
        )

    def _theme_chosen(self, theme: Theme, extension: str) -> None:
        """Show the theme to every extension; the one that chose it knows it already."""
        for name, guest in self._running.items():
            guest.use_theme(theme, tell=name != extension)

    def roots(self, name: str, policy: Policy | None = None) -> Roots:
        """The folders of one subject: the project, its own, a temporary one that no other has, and granted ones."""
        if name not in self._temps:
            self._temps[name] = Path(tempfile.mkdtemp(dir=self._temp))
        folders = granted_folders(policy or self.dispatcher.authority.policy, name)
        home, temp = self._homes.get(name), self._temps[name]
        return Roots.of(self.root, extension=home, temp=temp, extra=folders, kept=self._kept)

    def _weighed(self, name: str, capability: str) -> Weighed | None:
        artifact = self._artifacts.get(name)
        return weighed(artifact, capability, trusted=self._trusts(name)) if artifact is not None else None

    def _trusts(self, name: str) -> bool:
        origin = self._origins[name].resolve()
        return self._settings.trusted or any(map(origin.is_relative_to, self._settings.trusted_places))

    def _held(self, name: str, held: bool) -> None:
        if (guest := self._running.get(name)) is not None:
            guest.hold(held)

    # Asking

    def owner(self, tool: str) -> Member:
        """The extension whose tool a name means (U3)."""
        found = self.holder(tool)
        if found is None:
            raise unknown_tool(self.members, tool)
        return found

    def holder(self, tool: str) -> Member | None:
        """As `owner`; None for a name that no extension has."""
        return self.withdrawn_by(tool) or offering(self.members, tool)

    def withdrawn_by(self, tool: str) -> Member | None:
        """The extension that once had the tool and does not offer it any more; calling it says why."""
        return next((item for item in self.members if item.extension.withdrawn(tool) is not None), None)

    def tools(self) -> list[Tool]:
        """Every tool that can be called by its name."""
        return [tool for tool, _ in owned_tools(self.members)] if self.members else []

    def commands(self) -> list[dict[str, Any]]:
        """The commands of extensions, and the prompts and skills that are called as commands."""
        return listed_commands(self.members, self.resources)

    async def call_tool(self, name: str, arguments: Any, **options: Any) -> ToolOutcome:
        return await self.owner(name).extension.call_tool(name, arguments, **options)

    async def prepare_arguments(self, name: str, arguments: Any) -> Any:
        return await self.owner(name).extension.prepare_arguments(name, arguments)

    async def run_command(self, invocation: str, arguments: str = "") -> Any:
        """Run a command, or give the text of a prompt or a skill of that name: `{"prompt": …}`."""
        commands = commands_of(self.members)
        if invocation not in commands:
            text = self.expanded(CommandLine(invocation, arguments))
            if text is None:
                raise Problem("not_found", f"There is no command {invocation[:80]}.", commands=sorted(commands))
            return {"prompt": text}
        member, name = commands[invocation]
        returned = await member.extension.run_command(name, arguments)
        await self.settled()
        if {"kind": "reload"} in self.session.requests:
            await self.reload()
        return returned

    def commander(self, invocation: str) -> str | None:
        """The extension whose command a name means; None when it is no command of one."""
        found = commands_of(self.members).get(invocation)
        return found[0].extension.name if found is not None else None

    def expanded(self, line: CommandLine) -> str | None:
        """The text of the prompt or the skill that a line calls; None when it calls none."""
        return expanded(self.resources, line.name, line.arguments)

    def shortcuts(self) -> dict[str, str]:
        """The keys that extensions registered, with what each is for."""
        return {key: about for key, (_, about) in shortcuts_of(self.members).items()}

    def shortcut(self, key: str) -> str | None:
        """The extension that a key means; None when it is no shortcut of one."""
        found = shortcuts_of(self.members).get(key.strip().lower())
        return found[0].extension.name if found is not None else None

    async def press(self, key: str) -> None:
        """Perform a shortcut of an extension."""
        known, key = shortcuts_of(self.members), key.strip().lower()
        if key not in known:
            raise Problem("not_found", f"No extension has the shortcut {key[:80]}.", shortcuts=sorted(known))
        extension = known[key][0].extension
        await extension.press(next(name for name in extension.registrations.shortcuts if name.lower() == key))
        await self.settled()

    def now_ms(self) -> int:
        """The time of the clock that extensions live by."""
        return self._clock.now_ms()

    async def complete(self, invocation: str, prefix: str) -> list[str]:
        """What the argument of a command may be, as its extension suggests."""
        member, name = commands_of(self.members).get(invocation, (None, ""))
        found = await member.extension.complete(name, prefix) if member is not None else []
        return [str(item["value"]) for item in found if isinstance(item, Mapping) and "value" in item]

    async def autocomplete(self, lines: list[str], line: int, column: int) -> Any:
        """The suggestions of the extension that was loaded last and has some."""
        for member in reversed(self.members):
            found = await member.extension.autocomplete(lines, line, column)
            if found is not None:
                return found
        return None

    async def typed(self, data: str) -> str | None:
        """What a person typed, after every extension's listeners; None when one of them kept it."""
        kept: str | None = data
        for member in self.members:
            if kept is not None:
                kept = await member.extension.typed(kept)
        return kept

    async def emit(self, event: Mapping[str, Any]) -> Any:
        """Tell every extension; the merged answer. The session learns when an agent begins and ends."""
        kind = event.get("type")
        if kind == "agent_start":
            self._agent("start", 1)
        if kind == "session_start":
            await self.control.restore()
        waited = self.session.turn() if kind == "before_agent_start" else []
        self.session.hear(str(kind))
        unheard = kind in ("agent_start", "agent_end") and not self.hooks.listeners
        answer = None if unheard else await self.hooks.emit(dict(event))
        if kind == "agent_end":
            self._agent("end", -1)
            await self.session.end_work()
            if self.hooks.listeners:
                await self._settle(event)
        if kind == "before_agent_start":
            said = answer if isinstance(answer, Mapping) else {}
            self.session.system_prompt = str(said.get("systemPrompt") or event.get("systemPrompt") or "")
            if waited:
                await self.session.save()
                kept = [{**message, "inSession": True} for message in waited]
                answer = {**said, "messages": [*kept, *(said.get("messages") or ())]}
        await self.settled()
        return answer

    async def _settle(self, event: Mapping[str, Any]) -> None:
        """Let handlers add entries and ask for one more turn, then tell them that the agent has settled."""
        session, error = self.session, event.get("error")
        if session.idle and not session.tree.wishes and self.hooks.listening("agent_before_settle"):
            boundary = session.boundary(error)
            wanted = await self.hooks.emit({"type": "agent_before_settle", **boundary})
            await session.settle(wanted["entries"], wanted["continue"] and boundary["outcome"] == "completed")
        if session.idle and not session.tree.wishes:
            await self.hooks.emit({"type": "agent_settled", "aborted": error == "cancelled"})

    def go_on(self) -> None:
        """An agent that began in another life is at work here."""
        if self.session.idle:
            self._agent("start", 1)

    def _agent(self, state: str, change: int) -> None:
        """`ctx.signal` and `ctx.isIdle()`: while one of several agents works, there is work to abort."""
        before = self.session.idle
        self.session.working(change)
        if before != self.session.idle:
            for member in self.members:
                member.extension.agent(state)

    async def _summary(self, messages: Sequence[Any], instructions: str | None) -> str:
        assert self._settings.model is not None, "it was asked for"
        return await summary(self._settings.model, self.session.model, messages, instructions)

    def _asked(self, what: str) -> None:
        """`abort` raises `ctx.signal` and waits for the agent's runner; `reload` waits for the command's end."""
        self.session.ask({"kind": what})
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

    def attend(self) -> None:
        """Tell extensions whether a person is there and how wide their place is, where that has changed."""
        for name, guest in self._running.items():
            guest.attend(self.ui.interactive)
            guest.widen(self.ui.columns(name))

    def _session_ended(self) -> None:
        self.attend()
        self.session.requests.clear()
        self.dispatcher.authority.end_session()

    async def find_resources(self, found: Iterable[Resource], reason: str = "startup") -> None:
        """Take in skills, prompts and themes, and those that extensions name (`resources_discover`)."""
        event = {"type": "resources_discover", "cwd": str(self.root), "reason": reason}
        named = await self.hooks.emit(event) if self.hooks.listening("resources_discover") else {}
        homes = {name: home or self.root for name, home in self._homes.items()}
        self.take_resources(adopt(found, named, self.root, homes))

    def take_resources(self, found: Iterable[Resource]) -> None:
        """Take in skills, prompts and themes; extensions are not told."""
        self.resources = [item for item in found if item.kind != "extension"]
        self.themes.adopt(self.resources)

    async def settled(self) -> None:
        """Wait until notices and messages that extensions sent without waiting have arrived."""
        if self.control.telling:
            await self.control.settled()
        for member in self.members:
            await member.extension.settled()

    async def recorded(self) -> None:
        """Wait until the evidence of everything that was done so far is on disk."""
        await asyncio.to_thread(self._evidence.flush)

    # What extensions say

    def _prompted(self, event: dict[str, Any]) -> None:
        """A dialog begins or ends; nobody waits for who listens."""
        if self.hooks.listening(str(event["type"])):
            self.control.tell(event)

    def _note(self, extension: str, event: Event) -> None:
        self._evidence.write(Correlation(extension, self._settings.scenario, self.session.id), event)

    def _said(self, extension: str, level: str, event: str, message: str, data: Any) -> None:
        attributes = {"event": event, "message": message}
        self._note(extension, Event("extension.log", {"data": data}, attributes, level))  # type: ignore[arg-type]

    def _spent(self, extension: str, kind: Literal["evidence", "log"], size: int) -> None:
        """Count what a record costs its extension; an agent's own tools have no quota."""
        if extension in self._running:
            self._quotas.spend(extension, kind, size)

    def _over_quota(self, extension: str, problem: Problem) -> None:
        """Stop an extension that passed a quota, from any thread; the others go on."""
        guest, loop = self._running.get(extension), self._loop
        if guest is None or loop is None or loop.is_closed():
            return
        about = {name: problem.details[name] for name in ("quota", "limit", "setting")}
        self._note(extension, Event("extension.stopped", {"message": problem.message, **about}, level="error"))
        guest.stopped = problem  # at once: what it does before the loop has a turn does not count
        loop.call_soon_threadsafe(guest.stop, problem)

    def _emitted(self, extension: str, channel: str, data: Any) -> None:
        for member in self.members:
            if member.extension.name != extension:
                member.extension.bus(channel, data)

    def _handler_failed(self, extension: str, event: str, problem: Problem) -> None:
        if problem.key == "quota_exceeded":
            return  # that it was stopped is on record, once
        self.handler_failures.append({"extension": extension, "event": event, "problem": problem.as_lafs()})
        data = {"event": event, "problem": problem.key, "message": problem.as_pi()["message"]}
        self._note(extension, Event("event_hook.error", data, level="error"))
