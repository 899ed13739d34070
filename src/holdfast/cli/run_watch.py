"""The live view of a run: its nodes, what it waits for, and the last things that happened."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import console
from holdfast.kernel.clock import parse_iso
from holdfast.kernel.printable import one_line, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from holdfast.cli.connection import Connection

_MARKS = {
    "completed": ("✔", "green"),
    "failed": ("✖", "red"),
    "skipped": ("–", "dim"),
    "cancelled": ("–", "dim"),
    "running": ("●", "blue"),
    "suspended": ("?", "yellow"),
    "retrying": ("↻", "yellow"),
}
_OF_EVENT = {
    "node.started": "running",
    "node.completed": "completed",
    "node.failed": "failed",
    "node.skipped": "skipped",
    "node.cancelled": "cancelled",
    "node.suspended": "suspended",
    "node.resumed": "running",
    "node.retried": "retrying",
}
_ENDED = {"run.completed": "completed", "run.failed": "failed", "run.cancelled": "cancelled"}


class View:
    """What is shown, changed by events alone."""

    def __init__(self, run_id: str, standing: dict[str, Any]) -> None:
        self.run_id = run_id
        self.workflow = standing["workflowId"]
        self.status = standing["status"]
        self.nodes: dict[str, tuple[str, int, int | None]] = {}
        self.recent: deque[str] = deque(maxlen=6)
        self.asked: dict[str, str] = {}
        self.began = self.now = 0
        self.error = ""

    def take(self, event: dict[str, Any]) -> None:
        type, payload = event["type"], event["payload"] if isinstance(event["payload"], dict) else {}
        self.now = parse_iso(event["timestamp"])
        self.began = self.began or self.now
        node = event.get("nodeId") or payload.get("nodeId")
        if node and type in _OF_EVENT:
            state = _OF_EVENT[type]
            start = self.now if type == "node.started" else self.nodes.get(node, ("", self.now, None))[1]
            self.nodes[node] = (state, start, None if state in ("running", "suspended", "retrying") else self.now)
            if type == "node.suspended":
                self.asked[node] = payload.get("kind", "")
            else:
                self.asked.pop(node, None)
        if type in _ENDED:
            self.status = _ENDED[type]
            error = payload.get("error")
            self.error = printable(f"{error.get('code')}: {error.get('message')}") if isinstance(error, dict) else ""
        elif type == "run.paused":
            self.status = "paused"
        elif type in ("run.started", "run.resumed") or not self.asked:
            self.status = "running"
        if self.asked and self.status == "running":
            self.status = "waiting"
        self.recent.append(one_line(f"{event['sequence']:>5}  {type}" + (f"  {node}" if node else "")))

    def render(self, now_ms: int) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        ended = self.status in _ENDED.values()
        moment = self.now if ended else max(self.now, now_ms)
        style = {"completed": "bold green", "failed": "bold red", "waiting": "bold yellow"}.get(
            self.status, "bold blue"
        )
        head = Text.assemble(
            (one_line(self.workflow), "bold"),
            "  ",
            (one_line(self.status), style),
            "  ",
            (_span(moment - self.began), "dim"),
            "\n",
            (self.run_id, "dim"),
        )
        table = Table.grid(padding=(0, 2))
        for name, (state, start, end) in self.nodes.items():
            mark, colour = _MARKS.get(state, ("·", "white"))
            table.add_row(
                Text(mark, colour),
                Text(one_line(name)),
                Text(state, colour),
                Text(_span((end or moment) - start), "dim"),
            )
        parts: list[RenderableType] = [head, Text(), table]
        for node, kind in self.asked.items():
            told = one_line(f"{node} asks ({kind}):  holdfast run approve {self.run_id} {node}")
            parts.append(Text("\n" + told, "yellow"))
        if self.error:
            parts.append(Text("\n" + self.error, "red"))
        parts.append(Text("\n" + "\n".join(self.recent), "dim"))
        return Group(*parts)


async def watch_live(host: Connection, run_id: str) -> dict[str, Any]:
    """Show a run until it ends; the last picture stays."""
    from rich.live import Live

    view = View(run_id, await host.get(f"/v1/runs/{run_id}"))
    with Live(view.render(_now()), console=console(), refresh_per_second=8, transient=False) as live:

        async def tick() -> None:
            while True:
                await asyncio.sleep(0.25)
                live.update(view.render(_now()))

        ticking = asyncio.create_task(tick())
        try:
            async for event in host.events(run_id, mode="debug"):
                view.take(event)
                live.update(view.render(_now()))
        finally:
            ticking.cancel()
            live.update(view.render(_now()), refresh=True)
    standing: dict[str, Any] = await host.get(f"/v1/runs/{run_id}")
    return standing


def _now() -> int:
    return time.time_ns() // 1_000_000


def _span(ms: int) -> str:
    seconds = max(0, ms) / 1000
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
