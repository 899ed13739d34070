"""The project's extensions, opened when somebody first needs them: engines and compilers are not paid for before.

N1  Extensions are executed when a person trusts what the folder brings, as it is; otherwise they are only listed. That
    holds for the project's folder and, apart from it, for the user's own; the project's come first, as in pi.
N2  What a person decides while the host runs (in a run, over HTTP, by a command) holds from then on. The decision is a
    record before it is in force. Taking back takes exactly what people decided; what the settings say stays.
N3  An agent's own tools go through the same door as an extension's host calls: same policy, same evidence.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from forestay import assets
from forestay.extensions import MCP_STREAM, SIGNED_IN, USER, Grants, Standing, Trust, checked
from forestay.extensions import STREAM as GRANTS
from forestay.host.servers import ProjectServers
from forestay.kernel import Clock, Config, Grant, Ledger, Problem, Randomness

if TYPE_CHECKING:
    from forestay.extensions import Consent, Extensions, Model, Resource, Ui
    from forestay.host.prompts import Prompts
    from forestay.runs import Execution
    from forestay.sessions import SessionKeeper, SessionTree

GRANTS_SECONDS = 1.0
"""How often other processes' decisions are looked for; those of this process are heard at once."""


class ProjectExtensions:
    """The suite of one project folder, once."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        root: Path,
        config: Config,
        clock: Clock,
        randomness: Randomness,
        prompts: Prompts,
        consent: Consent | None = None,
        ui: Ui | None = None,
        model: Model | None = None,
        data: Path | None = None,
        sessions: SessionKeeper | None = None,
    ) -> None:
        self.root = root
        self.prompts = prompts
        self.trust = Trust(ledger, config.extensions.paths)
        self.own = Trust(ledger, places=USER)
        self.has_consent = consent is not None
        self.ledger = ledger
        self.settings = config.extensions
        self.named_servers = config.mcpServers
        self._scope = tuple(config.models.enabled)
        self._sign_in_url = config.http.url + SIGNED_IN
        self.clock = clock
        self._randomness = randomness
        self._consent = consent
        self._ui = ui
        self._model = model
        self.data = data
        self._sessions = sessions
        self.opened: Extensions | None = None  # the running suite
        self._living: Extensions | None = None  # the suite, also while it is opened
        self.arrived = asyncio.Event()
        """Set when the suite is open."""
        self.runs: str | None = None  # the hash of what was loaded
        self._opening = asyncio.Lock()
        self._servers_changed = asyncio.Event()
        self._following: list[asyncio.Future[None]] = []
        self.servers = ProjectServers(self)

    async def standing(self) -> Standing:
        """What the project brings, and whether a person trusts it."""
        return await self.trust.standing(self.root)

    async def users(self) -> Standing:
        """The same of the user's own folder."""
        return await self.own.standing(Path.home())

    async def untrusted(self) -> list[str]:
        """What the project brings and is not loaded, because nobody trusts it as it is."""
        return _waiting(await self.standing())

    async def untrusted_of_user(self) -> list[str]:
        return [f"~/{path}" for path in _waiting(await self.users())]

    async def unloadable(self) -> tuple[list[str], Problem] | None:
        """What is trusted and cannot be loaded because the engine was not fetched, and what to do; None if it can."""
        if (problem := assets.missing()) is None:
            return None
        project, own = await self.standing(), await self.users()
        named = [item.path for item in project.brings if project.state == "trusted"]
        named += [f"~/{item.path}" for item in own.brings if own.state == "trusted"]
        return (named, problem) if named else None

    async def give_trust(self, digest: str, by: str) -> Standing:
        """Trust what the folder brings, if it still is what was looked at (N1).

        A suite that loaded nothing of the project loads it now. One that runs older content goes on with that until the
        host is started again: what is under way is not taken from it.
        """
        standing = await self.trust.give(self.root, by=by, digest=digest)
        async with self._opening:
            if self.opened is not None and self.runs is None:
                await self._bring(self.opened, standing, "reload")
        return standing

    async def decide(self, extension: str, effect: Literal["allow", "deny"], grant: Grant, *, by: str) -> None:
        """Allow or deny `grant` to the extension from now on (N2)."""
        grants = Grants(self.ledger, self.clock)
        await (grants.allow if effect == "allow" else grants.deny)(extension, grant, by=by)
        await self._take_in()

    async def take_back(self, extension: str, capability: str, *, by: str) -> int:
        """Undo what people decided about one capability of the extension; how many decisions that were (N2)."""
        count = await Grants(self.ledger, self.clock).revoke(extension, capability, by=by)
        await self._take_in()
        return count

    async def _take_in(self) -> None:
        if self.opened is not None:  # a suite that is opened later reads the ledger then
            await self.opened.refresh()

    async def suite(self, ctx: Execution | None = None, tree: SessionTree | None = None) -> Extensions:
        """The running suite; the first caller opens it, in its session when it has one, and the others wait.

        What an extension asks for while it is loaded, the node that opens the suite asks a person about.
        """
        if self.opened is not None:
            return self.opened
        if ctx is None or self.has_consent:
            return await self._opened(tree)
        return await self.prompts.during(ctx, lambda: self._opened(tree), name="extensions:", repeats=True)

    async def enter(self, ctx: Execution, tree: SessionTree) -> None:
        """Have the extensions live in this session; what they ask for then, the node asks a person about."""
        suite = await self.suite(ctx, tree)
        if suite.session.tree is tree:
            return
        if self.has_consent:
            await suite.control.enter(tree)
        else:
            name = f"session:{tree.id}:"
            await self.prompts.during(ctx, lambda: suite.control.enter(tree), name=name, repeats=True)

    async def _opened(self, tree: SessionTree | None) -> Extensions:
        async with self._opening:
            if self.opened is None:
                self.opened = await self._open(tree)
                self.arrived.set()
            return self.opened

    @property
    def living(self) -> str | None:
        """The session that the extensions live in."""
        return self._living.session.id if self._living is not None else None

    def attend(self) -> None:
        """Somebody came to a session, or left it: extensions hear of it when it is theirs."""
        if self._living is not None:
            self._living.attend()

    async def _open(self, tree: SessionTree | None) -> Extensions:
        from forestay.extensions import Extensions, Settings

        suite = Extensions(
            self.ledger,
            root=self.root,
            consent=self._consent or self.prompts,
            ui=self._ui,
            sessions=self._sessions,
            tree=tree,
            keeper=self.prompts,
            settings=Settings(
                config=self.settings,
                trusted=True,
                model=self._model,
                scope=self._scope,
                clock=self.clock,
                randomness=self._randomness,
                log_file=True,
                data=self.data,
                sign_in_url=self._sign_in_url,
            ),
        )
        await suite.__aenter__()
        self._living = suite
        self.prompts.recorded, self.prompts.callers = suite.recorded, suite.others.callers
        decided = (await self.ledger.head(MCP_STREAM)).next
        try:
            await self._bring(suite, await self.standing(), "startup")
        except BaseException:
            self._living = None
            await suite.__aexit__(None, None, None)
            raise
        suite.servers_changed = self._servers_changed.set
        following = (self._follow(suite), self._follow_servers(suite, decided), self._follow_registered(suite))
        self._following = [asyncio.ensure_future(work) for work in following]
        return suite

    async def _bring(self, suite: Extensions, standing: Standing, reason: str) -> None:
        """Load what a person trusts, and let it begin; a suite without the project may be given it later."""
        trusted = standing.state == "trusted"
        if trusted:
            self.runs = standing.digest
            await self._load_brought(suite, standing)
        if reason == "startup":
            await self._load_users(suite)
        await self.use_servers(suite)
        await suite.emit({"type": "session_start", "reason": reason})
        await suite.find_resources(texts(self.root, trusted))

    async def _load_brought(self, suite: Extensions, standing: Standing) -> None:
        """Everything executable that the project brings; what cannot be loaded is kept as a failure."""
        from forestay.extensions import Failure, named

        for item in standing.brings:
            if item.kind in ("file", "folder"):
                await self._load(suite, self.root / item.path, self.trust, self.root)
        settings = named(self.root)
        suite.failures.extend(Failure(file, problem) for file, problem in settings.problems)
        for package in settings.packages:
            if package.problem:
                missing = Problem("extension_invalid", f"The package {package.source} {package.problem}.")
                suite.failures.append(Failure(package.source, missing))
        for resource in settings.resources():
            if resource.kind == "extension" and not resource.problem:
                await self._load(suite, Path(resource.path), self.trust, self.root)

    async def _load(self, suite: Extensions, path: Path, trust: Trust, folder: Path) -> None:
        """Load what stands at `path` in a trusted folder; what cannot be loaded is kept apart, the rest is loaded."""
        from forestay.extensions import Failure

        try:
            entries = _entries(path)
        except Problem as problem:
            suite.failures.append(Failure(str(path), problem))
            return
        for entry in entries:
            try:
                trust.check(folder, entry)
            except Problem as problem:
                suite.failures.append(Failure(str(entry), problem))
            else:
                await suite.try_load(entry)

    async def _load_users(self, suite: Extensions) -> None:
        """What lies in the user's own folder, when the user trusts it as it is (N1)."""
        standing, home = await self.users(), Path.home()
        if standing.state == "trusted" and home.resolve() != self.root.resolve():  # else it is the project's already
            for item in standing.brings:
                await self._load(suite, home / item.path, self.own, home)

    async def use_servers(self, suite: Extensions) -> None:
        """Offer the pinned tools of the MCP servers that a person approved as they are configured; none is started."""
        from forestay.extensions import read_servers, use_servers

        await use_servers(suite, read_servers(self.root, self.named_servers))

    async def _follow_servers(self, suite: Extensions, start: int) -> None:
        """Approvals and pins on the ledger hold as they are written, by whichever process (N2)."""
        async for _ in self.ledger.follow(MCP_STREAM, start, poll=GRANTS_SECONDS):
            await self.use_servers(suite)

    async def _follow_registered(self, suite: Extensions) -> None:
        """The tools of servers that extensions name and take back come and go with them."""
        while True:
            await self._servers_changed.wait()
            self._servers_changed.clear()
            await self.use_servers(suite)

    async def _follow(self, suite: Extensions) -> None:
        """Decisions on the ledger become the suite's as they are written, by whichever process (N2)."""
        async for _ in self.ledger.follow(GRANTS, suite.decided + 1, poll=GRANTS_SECONDS):
            await suite.refresh()

    async def close(self) -> None:
        for following in self._following:
            following.cancel()
        if self.opened is not None:
            await self.opened.emit({"type": "session_shutdown", "reason": "quit"})
            await self.opened.__aexit__(None, None, None)
            self.opened, self._living, self.runs = None, None, None


def grant_of(capability: str, scope: str, expires_ms: int | None) -> Grant:
    """What a form says, checked: `scope` is a list of patterns with commas between them."""
    patterns = ",".join(part.strip() for part in scope.split(",") if part.strip())
    text = f"{capability}:{patterns}" if patterns else capability
    return msgspec.structs.replace(checked(text), expires_ms=expires_ms, source="person")


def _waiting(standing: Standing) -> list[str]:
    return [item.path for item in standing.brings] if standing.state in ("untrusted", "changed") else []


def texts(root: Path, trusted: bool) -> list[Resource]:
    """Skills, prompts and themes of the user, and of the project when a person trusts what it brings."""
    from forestay.extensions import discover_resources as discover
    from forestay.extensions import named

    found = discover(root, more=named(root).resources() if trusted else ())
    return [item for item in found if trusted or item.scope == "user"]


def _entries(path: Path) -> list[Path]:
    """The extension at `path`, or those in it when it is a folder of extensions."""
    from forestay.extensions import discover, folder_entries

    return discover(path) if path.is_dir() and not folder_entries(path) else [path]
