"""`forestay dev`: serve a project while it is edited.

D1  A change restarts the host on the same address. Runs are in the ledger and continue, so nothing is lost.
D2  A change that cannot be read (settings, a node file, an agent) is reported, and the running host stays.
D3  A person decides once to trust their own edits here while this command runs. Files of other people are not included:
    they are named, and need the usual trust.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from forestay.cli.command import answers
from forestay.cli.data_folder import announce, announced
from forestay.cli.model_trust import with_trusted_keys
from forestay.cli.output import note
from forestay.cli.terminal import asked, attended
from forestay.cli.up import first_key, key_lines
from forestay.cli.watch import Look, differences, look, of_others
from forestay.kernel import Config, Problem, config

if TYPE_CHECKING:
    from forestay.host import Host, Options
    from forestay.surface import Serving

_SECONDS = 0.3
"""The time between two looks; a change counts when two looks in a row agree."""
_NOT_OF_THE_PROJECT = ("unavailable", "state_conflict", "io_failed")
"""Problems that no edit of the project corrects: a port in use, a folder that another host has open."""
_QUESTION = "Trust what you edit in this folder while this runs? Node files run with your rights. [y/N] "


@answers("dev")
def dev(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 picks one; default: http.port.")] = None,
    data: Annotated[Path | None, typer.Option(help="The data folder; default: data.dir.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Trust what is edited here, without being asked.")] = False,
) -> None:
    """Serve this folder while you edit it: a change to its settings, nodes, workflows, agents or extensions is taken
    over at once, and what is wrong with it is told here."""
    from forestay.surface import run

    run(_developed(port, data, trust))


async def _developed(port: int | None, data: Path | None, trust: bool) -> None:
    if not trust and attended():
        trust = await asked(_QUESTION) == "y"
    if not trust:
        note("trust  nobody trusts what changes here: extensions and node files are loaded as they were trusted before")
    async with _stopped() as stopped:
        await Development(Path(), port, data, trust, stopped).until_stopped()


@asynccontextmanager
async def _stopped() -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set on Ctrl-C or SIGTERM."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


class Development:
    """Serves a project, watches its files, and serves it again after a change."""

    def __init__(self, root: Path, port: int | None, data: Path | None, trust: bool, stopped: asyncio.Event) -> None:
        self._root = root
        self._port = port
        self._data = data
        self._trust = trust
        self._stopped = stopped
        self._seen: Look = {}
        self._known = Config()
        self._greeted = False

    async def until_stopped(self) -> None:
        while not self._stopped.is_set():
            try:
                await self._once()
            except Problem as problem:
                if problem.key in _NOT_OF_THE_PROJECT:
                    raise
                _tell("broken", problem)
                await self._changed()

    async def _once(self) -> None:
        """Serve the project until it changes to something that can be served (D1, D2)."""
        from forestay.console import Console
        from forestay.host import Options
        from forestay.surface import serve

        self._seen = await asyncio.to_thread(look, self._root, self._known)
        self._known = await with_trusted_keys(config.load(self._root).config)
        self._seen = await asyncio.to_thread(look, self._root, self._known)
        trusted = self._trust and not self._of_others()
        options = Options(config=self._known, root=self._root, data=self._data, trust_nodes=trusted)
        if (running := announced(options.folder)) is not None:
            raise Problem("state_conflict", f"A host has this folder open already: {running}")
        port = self._known.http.port if self._port is None else self._port

        async def prepare(serving: Serving) -> None:
            if trusted:
                await serving.host.extensions.trust.give(self._root, by="dev")
            key = await first_key(serving.services.keys, options.folder, shown=attended())
            for line in () if self._greeted else key_lines(key):
                note(line.strip())
            self._greeted = True

        address = self._known.http.host
        async with serve(options, address=address, port=port, console=Console, prepare=prepare) as serving:
            self._port = urlsplit(serving.url).port
            await self._serve(serving, options)

    async def _serve(self, serving: Serving, options: Options) -> None:
        mark = announce(options.folder, serving.url)
        try:
            await _tell_standing(serving.host)
            note(f"ready  {serving.url}/")
            while (names := await self._changed()) is not None:
                note(f"change {', '.join(names[:5])}{' …' if len(names) > 5 else ''}")
                problem = await asyncio.to_thread(_fault, self._root)
                if problem is None:
                    return
                _tell("broken", problem)
        finally:
            mark.unlink(missing_ok=True)

    async def _changed(self) -> list[str] | None:
        """Wait for a change that has settled and return its files; None when it is time to stop."""
        before = latest = self._seen
        while True:
            try:
                await asyncio.wait_for(self._stopped.wait(), _SECONDS)
                return None
            except TimeoutError:
                now = await asyncio.to_thread(look, self._root, self._known)
            if now == latest and (names := differences(before, now)):
                self._seen = now
                return names
            latest = now

    def _of_others(self) -> list[str]:
        """Name and return the files that another person owns (D3)."""
        found = of_others(self._seen, os.getuid())
        if found:
            note(
                f"trust  {', '.join(found[:5])}: another person's; look, then `forestay ext trust` or `workflow trust`"
            )
        return found


def _fault(root: Path) -> Problem | None:
    """Return what keeps the project from being served, as far as reading its files shows (D2)."""
    from forestay.agents import Catalogue
    from forestay.host import types_to_check

    try:
        settings = config.load(root).config
        types_to_check(root, settings.workflows.nodes)
        Catalogue.read(root, settings.agents.paths)
    except Problem as problem:
        return problem
    return None


async def _tell_standing(host: Host) -> None:
    """Tell which parts of the project are loaded, and what is wrong with the others."""
    if host.workflows:
        note(f"flows  {', '.join(host.workflows)}")
    for item in host.left_out:
        note(f"broken {item.file}: {item.reason}")
    if (found := await host.extensions.unloadable()) is not None:
        note(f"skip   {', '.join(found[0])}: {found[1].message} {found[1].details['fix']}")
        return
    if waiting := await host.extensions.untrusted():
        note(f"skip   {', '.join(waiting)}: nobody trusts it yet")
    elif (await host.extensions.standing()).brings:
        suite = await host.extensions.suite()
        for failure in suite.failures:
            _tell(f"broken {Path(failure.path).name}:", failure.problem)
        note(f"tools  {', '.join(tool.name for tool in suite.tools()) or 'none'}")


def _tell(what: str, problem: Problem) -> None:
    fix = problem.details.get("fix")
    note(f"{what} {problem.message}{f' {fix}' if fix else ''}")
    for name in ("reason", "at"):
        if problem.details.get(name):
            note(f"       {name}: {problem.details[name]}")
