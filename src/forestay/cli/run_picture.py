"""One picture of a run for a terminal of any size: nodes over time, questions, the last events, the end.

A small terminal shows what a person needs most. Questions and errors are wrapped and never cut; then come as many nodes
as fit; then the last events. A narrow terminal drops the time bars first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forestay.cli.run_outcome import answering
from forestay.cli.run_view import OVER, Node, View, span

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

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
_BAR, _NAME, _TOOK, _GAP = 24, 32, 6, 2
_FEWEST = 3  # nodes that even the lowest terminal shows
_MARGIN = 1  # a picture as high as the terminal would make it scroll


def picture(view: View, now_ms: int, hint: str = "", width: int = 120, height: int = 40) -> RenderableType:
    """Draw the run at a moment, in at most `height` lines where possible."""
    from rich.console import Group
    from rich.text import Text

    moment = view.now if view.over else max(view.now, now_ms)
    head, below = [_head(view, moment, width), Text()], _below(view)
    foot: list[RenderableType] = [] if view.over or not hint else [Text(), Text(hint, "reverse dim")]
    free = height - _MARGIN - _lines([*head, *below, *foot], width)
    nodes, before, after = view.lines(max(_FEWEST, free if len(view.nodes) <= free else free - 2))
    parts = [*head]
    if before:
        parts.append(Text(f"   {before} more above", "dim"))
    parts.append(_table(view, nodes, moment, width))
    if after:
        parts.append(Text(f"   {after} more below", "dim"))
    parts += below
    room = free - len(nodes) - bool(before) - bool(after) - 1
    if not view.over and room > 0:
        parts += [Text(), *(_cut(line, "dim") for line in list(view.recent)[-room:])]
    return Group(*parts, *foot)


def _below(view: View) -> list[RenderableType]:
    """Return the parts below the nodes: children, questions, a model's words, the outcome."""
    from rich.text import Text

    running = [child for child in view.children.items() if child[1][1] == "running"]
    parts: list[RenderableType] = [_cut(f"↳ {run}  {status}", "dim") for run, (_, status) in running[-3:]]
    parts += [_question(view, name, asked) for name, asked in list(view.asked.items())[:3]]
    if view.words is not None and not view.over:
        parts.append(Text(f"\n{view.words[0]}: {view.words[1][-240:]}", "italic"))
    if view.error:
        parts.append(Text("\n" + view.error, "red"))
    return parts + (_outcome(view) if view.over else [])


def _lines(parts: Sequence[RenderableType], width: int) -> int:
    """Count the lines that the parts take."""
    import io

    from rich.console import Console

    console = Console(width=width, file=io.StringIO())
    return sum(len(console.render_lines(part, pad=False)) for part in parts)


def _cut(text: str, style: str = "") -> Text:
    """Return one line that ends in `…` at the terminal's edge."""
    from rich.text import Text

    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _head(view: View, moment: int, width: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    done, total = view.progress()
    moving = not view.over and view.status == "running" and not view.away
    turn = _SPINNER[moment // 125 % len(_SPINNER)] + " " if moving else ""
    status = "the host does not answer; trying again" if view.away else view.status
    full = round(_BAR * done / total) if total else 0
    said = [
        (turn + status, "bold red" if view.away else _STYLES.get(view.status, "bold cyan")),
        ("  ", ""),
        ("━" * full, "green"),
        ("─" * (_BAR - full), "dim"),
        (f" {done}/{total}  ", ""),
        (span(moment - view.began if view.began else 0), "dim"),
    ]
    name, standing = _cut(view.workflow, "bold"), Text.assemble(*said, no_wrap=True, overflow="ellipsis")
    run = _cut(view.run_id, "dim")
    if name.cell_len + _GAP + standing.cell_len <= width:
        return Group(Text.assemble(name, " " * _GAP, standing), run)
    if standing.cell_len > width:
        standing = Text.assemble(said[0], *said[4:], no_wrap=True, overflow="ellipsis")
    return Group(name, standing, run)


def _table(view: View, nodes: list[Node], moment: int, width: int) -> RenderableType:
    from rich.cells import cell_len
    from rich.table import Table

    table = Table.grid(padding=(0, _GAP), expand=True)
    longest = max((cell_len(_name(node).plain) for node in nodes), default=0)
    bar = _BAR if width >= 90 else _BAR // 2 if width >= 64 else 0
    name = min(longest, _NAME if width >= 64 else max(8, width // 2 - 4))
    for column in (1, name, bar, _TOOK):
        if column:
            table.add_column(no_wrap=True, width=column, overflow="ellipsis")
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for node in nodes:
        mark, colour = _MARKS[node.state]
        if node.state == "running":
            mark = _SPINNER[moment // 125 % len(_SPINNER)]
        row = [_cut(mark, colour), _name(node), *([_bar(view, node, moment, colour, bar)] if bar else [])]
        table.add_row(*row, _took(node, moment), _note(view, node, moment))
    return table


def _name(node: Node) -> Text:
    from rich.text import Text

    name = Text(node.id, "dim" if node.state == "pending" else "")
    return name.append(f"  {node.name}", "dim") if node.name else name


def _took(node: Node, moment: int) -> Text:
    idle = node.state in ("pending", "skipped")
    return _cut("" if idle else span((node.ended or moment) - node.began), "dim")


def _bar(view: View, node: Node, moment: int, colour: str, length: int) -> Text:
    """Draw when the node ran within the run's time so far."""
    from rich.text import Text

    total = max(1, moment - view.began)
    if node.state in ("pending", "skipped") or not node.began:
        return Text(" " * length)
    start = min(length - 1, int(length * (node.began - view.began) / total))
    full = max(1, min(length - start, round(length * ((node.ended or moment) - node.began) / total)))
    return Text(" " * start + "▇" * full + " " * (length - start - full), colour)


def _note(view: View, node: Node, moment: int) -> Text:
    parts = []
    if node.iteration:
        parts.append(f"round {node.iteration + 1}")
    if node.attempt > 1 or node.state == "retrying":
        parts.append(f"attempt {node.attempt}")
    if node.due and node.state not in OVER:
        what = "again in" if node.state == "retrying" else "wakes in"
        parts.append(f"{what} {span(node.due - moment)}")
    if counted := _counted(view, node):
        parts.append(counted)
    if node.note:
        parts.append(node.note)
    return _cut(", ".join(parts), "red" if node.state == "failed" else "dim")


def _counted(view: View, node: Node) -> str:
    """Return the progress of a node with children or items."""
    statuses = [status for owner, status in view.children.values() if owner == node.id]
    if len(statuses) > 1:
        return f"{sum(status != 'running' for status in statuses)} of {len(statuses)} children ended"
    return f"{node.items} items done" if node.items else ""


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
        return [Text(f"\nforestay run show {view.run_id} shows the outputs.", "dim")]
    return [Text(), shown]
