"""The live view of a run: its nodes over time, what it asks, and keys to answer, pause or cancel it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import console
from holdfast.cli.run_outcome import answering
from holdfast.cli.run_view import OVER, Node, View, span
from holdfast.kernel.problems import Problem

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from holdfast.cli.connection import Connection

_MARKS = {
    "completed": ("✔", "green"),
    "failed": ("✖", "red"),
    "skipped": ("–", "dim"),
    "cancelled": ("–", "dim"),
    "running": ("●", "cyan"),
    "asks": ("?", "yellow"),
    "retrying": ("↻", "yellow"),
    "sleeping": ("◔", "blue"),
    "pending": ("·", "dim"),
}
_STYLES = {"completed": "bold green", "failed": "bold red", "waiting": "bold yellow", "cancelled": "bold"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR = 24
_FRAME_SECONDS = 0.125

Act = Callable[[], Awaitable[Any]]


class Keys:
    """What the keys of a watched run do. Whatever changes the run is asked once more: `y` does it."""

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
        """What can be done now, by key."""
        run, found = f"/v1/runs/{self._view.run_id}", dict[str, tuple[str, Act]]()
        name, asked = next(iter(self._view.asked.items()), ("", {}))
        for key, action in (("a", "accept"), ("r", "reject")):
            if action in asked.get("actions", ()):
                found[key] = (f"{action} {name}", self._answer(f"{run}/interrupts/{name}", action))
        if self._view.status == "paused":
            found["p"] = ("go on", lambda: self._host.post(f"{run}:resume"))
        else:
            found["p"] = ("pause", lambda: self._host.post(f"{run}:pause"))
        found["c"] = ("cancel the run", lambda: self._host.post(f"{run}/cancel", {"reason": "cancelled while watched"}))
        return found

    def _answer(self, path: str, action: str) -> Act:
        return lambda: self._host.post(path, {"resumeValue": {"action": action}})


def render(view: View, now_ms: int, hint: str = "", height: int = 40) -> RenderableType:
    """One picture."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    moment = view.now if view.over else max(view.now, now_ms)
    nodes, before, after = view.lines(max(4, height - 16))
    table = Table.grid(padding=(0, 2), expand=True)  # a long note is cut, the rest keeps its width
    names = max((len(node.id) + (len(node.name) + 2 if node.name else 0) for node in nodes), default=0)
    for width in (1, min(names, 32), _BAR, 6):
        table.add_column(no_wrap=True, width=width)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for node in nodes:
        table.add_row(*_row(view, node, moment))
    parts: list[RenderableType] = [_head(view, moment), Text()]
    if before:
        parts.append(Text(f"   {before} more above", "dim"))
    parts.append(table)
    if after:
        parts.append(Text(f"   {after} more below", "dim"))
    parts += [Text("↳ " + f"{run}  {status}", "dim") for run, (_, status) in list(view.children.items())[-3:]]
    parts += [_question(view, name, asked) for name, asked in list(view.asked.items())[:3]]
    if view.words is not None and not view.over:
        parts.append(Text(f"\n{view.words[0]}: {view.words[1][-240:]}", "italic"))
    if view.error:
        parts.append(Text("\n" + view.error, "red"))
    if view.over:
        parts += _outcome(view)
    else:
        parts.append(Text("\n" + "\n".join(view.recent), "dim"))
        parts.append(Text("\n" + hint, "reverse dim") if hint else Text())
    return Group(*parts)


def _head(view: View, moment: int) -> Text:
    from rich.text import Text

    done, total = view.progress()
    width = round(_BAR * done / total) if total else 0
    moving = not view.over and view.status == "running"
    turn = _SPINNER[moment // 125 % len(_SPINNER)] + " " if moving else ""
    return Text.assemble(
        (view.workflow, "bold"),
        "  ",
        (turn + view.status, _STYLES.get(view.status, "bold cyan")),
        "  ",
        ("━" * width, "green"),
        ("─" * (_BAR - width), "dim"),
        f" {done}/{total}  ",
        (span(moment - view.began if view.began else 0), "dim"),
        "\n",
        (view.run_id, "dim"),
    )


def _row(view: View, node: Node, moment: int) -> list[Text]:
    from rich.text import Text

    mark, colour = _MARKS[node.state]
    if node.state == "running":
        mark = _SPINNER[moment // 125 % len(_SPINNER)]
    name = Text(node.id, "dim" if node.state == "pending" else "")
    if node.name:
        name.append(f"  {node.name}", "dim")
    took = "" if node.state in ("pending", "skipped") else span((node.ended or moment) - node.began)
    return [Text(mark, colour), name, _bar(view, node, moment, colour), Text(took, "dim"), _note(node, moment)]


def _bar(view: View, node: Node, moment: int, colour: str) -> Text:
    """When the node ran, in the time that the run has taken so far."""
    from rich.text import Text

    total = max(1, moment - view.began)
    if node.state in ("pending", "skipped") or not node.began:
        return Text(" " * _BAR)
    start = min(_BAR - 1, int(_BAR * (node.began - view.began) / total))
    width = max(1, min(_BAR - start, round(_BAR * ((node.ended or moment) - node.began) / total)))
    return Text(" " * start + "▇" * width + " " * (_BAR - start - width), colour)


def _note(node: Node, moment: int) -> Text:
    from rich.text import Text

    parts = []
    if node.iteration:
        parts.append(f"round {node.iteration + 1}")
    if node.attempt > 1 or node.state == "retrying":
        parts.append(f"attempt {node.attempt}")
    if node.due and node.state not in OVER:
        what = "again in" if node.state == "retrying" else "wakes in"
        parts.append(f"{what} {span(node.due - moment)}")
    if node.note:
        parts.append(node.note)
    return Text(", ".join(parts), "red" if node.state == "failed" else "dim")


def _question(view: View, name: str, asked: dict[str, Any]) -> RenderableType:
    from rich.panel import Panel
    from rich.text import Text

    body = Text(str(asked.get("title") or asked.get("prompt") or asked.get("customKind") or asked["kind"]), "bold")
    if asked.get("description"):
        body.append(f"\n{asked['description']}", "")
    for question in asked.get("questions") or ():
        body.append(f"\n{question.get('id')}: {question.get('question')}", "")
    body.append(f"\n{answering(view.run_id, name, asked['kind'], asked)}", "dim")
    return Panel(body, title=f"{name} asks", title_align="left", border_style="yellow", padding=(0, 1))


def _outcome(view: View) -> list[RenderableType]:
    if not view.outputs:
        return []
    from rich.json import JSON
    from rich.text import Text

    shown = JSON.from_data(view.outputs, indent=2)
    if len(shown.text.plain) > 2000:
        return [Text(f"\nholdfast run show {view.run_id} shows the outputs.", "dim")]
    return [Text(), shown]


async def watch_live(host: Connection, run_id: str) -> dict[str, Any]:
    """Show a run until it ends or the watcher leaves; the last picture stays."""
    from rich.live import Live

    found: dict[str, Any] = await host.get(f"/v1/runs/{run_id}")
    view = View(run_id, found, await _definition(host, found["workflowId"]))
    keys = Keys(host, view)
    screen = console()

    def picture() -> RenderableType:
        return render(view, _now(), keys.hint() if sys.stdin.isatty() else "", screen.size.height)

    async def follow() -> None:
        async for event in host.events(run_id, mode="debug"):
            view.take(event)

    async def tick(live: Live) -> None:
        while True:
            live.update(picture(), refresh=True)
            await asyncio.sleep(_FRAME_SECONDS)

    with Live(picture(), console=screen, auto_refresh=False, transient=False) as live:
        async with _pressed(keys):
            following, ticking = asyncio.create_task(follow()), asyncio.create_task(tick(live))
            leaving = asyncio.create_task(keys.quit.wait())
            try:
                await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (following, ticking, leaving):
                    if not task.done():
                        task.cancel()
                live.update(render(view, _now(), "", screen.size.height), refresh=True)
        if following.done() and not following.cancelled():
            following.result()  # what went wrong on the way is said, not swallowed
    standing: dict[str, Any] = await host.get(f"/v1/runs/{run_id}")
    return standing


@contextlib.asynccontextmanager
async def _pressed(keys: Keys) -> AsyncIterator[None]:
    """Hand every key to `keys`, where there is a keyboard; the terminal is as it was afterwards."""
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
    """The workflow, for the order and the names of its nodes; a key that may not read it sees them as they come."""
    try:
        found: dict[str, Any] = await host.get(f"/v1/workflows/{workflow_id}")
    except Problem:
        return None
    return found


def _now() -> int:
    return time.time_ns() // 1_000_000
