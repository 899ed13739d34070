"""Shows runs to people; a run's own texts are never read as markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forestay.cli.run_compare import Difference, remark
from forestay.cli.run_outcome import answering
from forestay.kernel import one_line, parse_iso

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"completed": "green", "failed": "red", "cancelled": "dim", "running": "blue", "pending": "blue"}
_MOST_DIFFERENCES = 40


def coloured(status: str, width: int = 0) -> str:
    return f"[{_STYLES.get(status, 'yellow')}]{text(status):<{width}}[/]"


def text(said: Any) -> str:
    """Escape a foreign text, whose brackets rich would read as markup."""
    from rich.markup import escape

    return escape(str(said))


def show_run(
    console: Console, run: dict[str, Any], asked: dict[str, dict[str, Any]] | None = None, *, traces: bool = True
) -> None:
    """Show a run, node by node; without `traces` when a problem shows them already."""
    from rich.markup import escape

    console.print(f"[bold]{run['runId']}[/bold]  {escape(run['workflowId'])}  {coloured(run['status'])}")
    for name, node in (run.get("nodeStates") or {}).items():
        console.print(f"  {escape(name):<28} {coloured(node['status'])}{escape(_remarks(node))}")
        for line in _trace(node) if traces else ():
            console.print(f"      {line}", markup=False)
        if question := (asked or {}).get(name):
            how = answering(run["runId"], name, question["kind"], shown(question))
            console.print(f"  [yellow]asks: {escape(how)}[/yellow]")
    if run.get("error"):
        console.print(f"  [red]{escape(run['error']['code'])}[/]: {escape(run['error']['message'])}")
    if run.get("outputs"):
        import msgspec

        console.print("  outputs  " + msgspec.json.encode(run["outputs"]).decode()[:2000], markup=False)


def _remarks(node: dict[str, Any]) -> str:
    """Return a node's duration, attempts and error."""
    from forestay.cli.run_view import span

    parts = []
    if node.get("endedAt") and node.get("startedAt"):
        parts.append(span(parse_iso(node["endedAt"]) - parse_iso(node["startedAt"])))
    if node.get("attempt", 1) > 1:
        parts.append(f"attempt {node['attempt']}")
    if node.get("error"):
        parts.append(f"{node['error'].get('code')}: {node['error'].get('message')}")
    return "".join(f"  {part}" for part in parts)


def _trace(node: dict[str, Any]) -> list[str]:
    """Return the traceback lines of a node's code."""
    found = ((node.get("error") or {}).get("details") or {}).get("traceback")
    return [str(line) for line in found] if isinstance(found, list) else []


_LIST = "{:<30} {:<16} {:<19} {:>8}  {}"


def show_list(console: Console, found: dict[str, Any], start: int = 0) -> None:
    """Show runs under a heading: their start (UTC), duration and question."""
    from forestay.cli.run_view import span

    if not found["runs"]:
        console.print("No runs.")
        return
    console.print(f"[dim]{_LIST.format('RUN', 'STATUS', 'STARTED (UTC)', 'TOOK', 'WORKFLOW  QUESTION')}[/dim]")
    for run in found["runs"]:
        took = span(run["tookMs"]) if run.get("tookMs") is not None else "–"
        about = "  ".join(part for part in (text(run["workflowId"]), text(one_line(run.get("title") or ""))) if part)
        status = coloured(run["status"], 16)
        began = text(run["createdAt"])[:19].replace("T", " ")
        console.print(f"{run['runId']:<30} {status} {began:<19} {took:>8}  {about}")
    if found["total"] > start + len(found["runs"]):
        console.print(f"[dim]{found['total']} in all; more: --start {start + len(found['runs'])}[/dim]")


def show_events(console: Console, events: list[dict[str, Any]]) -> None:
    for event in events:
        node = event.get("nodeId") or (event["payload"] or {}).get("nodeId", "")
        said = one_line(remark(event))
        line = f"{event['sequence']:>5}  {event['timestamp']}  {event['type']:<26} {node:<16} {said}"
        console.print(line.rstrip(), markup=False)


def show_results(console: Console, results: list[dict[str, Any]]) -> None:
    for item in results:
        said = item.get("status") or (item.get("error") or {}).get("message", "")
        console.print(f"{item['runId']}  {coloured(said)}")


def show_diff(console: Console, diff: dict[str, Any], apart: list[Difference]) -> None:
    if diff["divergedAtSeq"] is None:
        console.print(f"[green]The same[/green]: {diff['a']} and {diff['b']}")
        return
    console.print(f"They went apart at event {diff['divergedAtSeq']}.")
    if not apart:
        console.print("Inputs, nodes and ends are the same.")
    for item in apart[:_MOST_DIFFERENCES]:
        console.print(f"  {item.what}", markup=False)
        for sign, side in (("-", item.first), ("+", item.second)):
            console.print(f"    {sign} {_json(side)}", markup=False)
    if len(apart) > _MOST_DIFFERENCES:
        console.print(f"  and {len(apart) - _MOST_DIFFERENCES} more: --json has every event")


def _json(value: Any) -> str:
    import msgspec

    return "not there" if value is None else one_line(msgspec.json.encode(value).decode()[:400])


def shown(interrupt: dict[str, Any]) -> dict[str, Any]:
    data = interrupt.get("data")
    return data if isinstance(data, dict) else {}
