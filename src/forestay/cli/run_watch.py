"""The live view of a run: its nodes over time, its questions, and keys to answer, pause or cancel it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from forestay.cli.output import console
from forestay.cli.run_picture import picture
from forestay.cli.run_view import View
from forestay.kernel import Problem

if TYPE_CHECKING:
    from rich.console import RenderableType

    from forestay.cli.connection import Connection

_FRAME_SECONDS = 0.125

Act = Callable[[], Awaitable[Any]]


class Keys:
    """The keys of a watched run. A key that changes the run asks for confirmation with `y`."""

    def __init__(self, host: Connection, view: View) -> None:
        self._host = host
        self._view = view
        self._asked: tuple[str, Act] | None = None
        self.said = ""
        self.quit = asyncio.Event()

    def hint(self) -> str:
        if self._asked is not None:
            return f"{self._asked[0]}  y: yes, any other key: no"
        names = [f"{key}: {label}" for key, (label, _) in self._offers().items()]
        return self.said or "   ".join([*names, "q: leave"])

    async def press(self, key: str) -> None:
        self.said = ""
        asked, self._asked = self._asked, None
        if asked is not None:
            if key == "y":
                await self._do(asked[1])
        elif key == "q":
            self.quit.set()
        elif (offer := self._offers().get(key)) is not None:
            self._asked = (f"{offer[0]}?", offer[1])

    async def _do(self, act: Act) -> None:
        try:
            await act()
        except Problem as problem:
            self.said = problem.message

    def _offers(self) -> dict[str, tuple[str, Act]]:
        """Return the actions that are possible now, by key."""
        run, found = f"/v1/runs/{self._view.run_id}", dict[str, tuple[str, Act]]()
        name, asked = next(iter(self._view.asked.items()), ("", {}))
        for key, action in (("a", "accept"), ("r", "reject")):
            if action in asked.get("actions", ()):
                found[key] = (f"{action} {name}", self._answer(name, action))
        if self._view.status == "paused":
            found["p"] = ("go on", lambda: self._host.post(f"{run}:resume"))
        else:
            found["p"] = ("pause", lambda: self._host.post(f"{run}:pause"))
        found["c"] = ("cancel the run", lambda: self._host.post(f"{run}/cancel", {"reason": "cancelled while watched"}))
        return found

    def _answer(self, node: str, action: str) -> Act:
        return lambda: self._host.resolve(self._view.run_id, node, {"action": action})


async def watch_live(host: Connection, run_id: str) -> dict[str, Any]:
    """Show a run until it ends or the watcher leaves; the last picture stays."""
    from rich.live import Live

    found: dict[str, Any] = await host.get(f"/v1/runs/{run_id}")
    view = View(run_id, found, await _definition(host, found["workflowId"]))
    keys = Keys(host, view)
    screen = console()
    screen.soft_wrap = False  # Live draws over its lines, so it must know how many it drew

    def now(hint: bool = True) -> RenderableType:
        keyboard = hint and sys.stdin.isatty()
        return picture(view, _now(), keys.hint() if keyboard else "", screen.size.width, screen.size.height)

    async def follow() -> None:
        async for event in host.events(run_id, lost=view.lose):
            view.take(event)

    async def tick(live: Live) -> None:
        while True:
            live.update(now(), refresh=True)
            await asyncio.sleep(_FRAME_SECONDS)

    with Live(now(), console=screen, auto_refresh=False, transient=False) as live:
        async with _pressed(keys):
            following, ticking = asyncio.create_task(follow()), asyncio.create_task(tick(live))
            leaving = asyncio.create_task(keys.quit.wait())
            try:
                await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (following, ticking, leaving):
                    if not task.done():
                        task.cancel()
                live.update(now(hint=False), refresh=True)
        if following.done() and not following.cancelled():
            following.result()  # raise what went wrong while following
    standing: dict[str, Any] = await host.get(f"/v1/runs/{run_id}")
    return standing


@contextlib.asynccontextmanager
async def _pressed(keys: Keys) -> AsyncIterator[None]:
    """Pass every key to `keys` where there is a keyboard; restore the terminal afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    try:
        import termios
        import tty
    except ImportError:  # a terminal of another kind: the view works without keys
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def read() -> None:
        import os

        for key in os.read(descriptor, 64).decode("utf-8", "ignore"):
            task = loop.create_task(keys.press(key))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def _definition(host: Connection, workflow_id: str) -> dict[str, Any] | None:
    """Return the workflow, for the order and names of its nodes; None when the key may not read it."""
    try:
        found: dict[str, Any] = await host.get(f"/v1/workflows/{workflow_id}")
    except Problem:
        return None
    return found


def _now() -> int:
    return time.time_ns() // 1_000_000
