"""Workflows: check, store, list, show, draw."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.cli.command import Group
from forestay.cli.connection import Connection, Data, Key, Url, connected, names_file
from forestay.cli.data_folder import opened_ledger
from forestay.cli.ext_project import OnlyShow, Withdraw, decide_trust
from forestay.cli.files import read_bytes, write_file
from forestay.cli.output import Answer
from forestay.kernel import Problem, canonical, config

if TYPE_CHECKING:
    from rich.console import Console

    from forestay.kernel import Ledger
    from forestay.runs import NodeRegistry

app = Group("workflow")

Files = Annotated[list[str], typer.Argument(help="Workflow documents (JSON), or MODULE:NAME of one written in Python.")]
_IN_PYTHON = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")


@app.command("check")
def check(files: Files) -> Answer:
    """What is wrong with workflow documents, and where; needs no host."""
    from forestay.host import types_to_check

    registry = types_to_check(Path(), config.load().config.workflows.nodes)
    results = [{"file": Path(name).name, **_checked(name, registry)} for name in files]
    problem = None
    if bad := [item["file"] for item in results if not item["valid"]]:
        said, fix = f"{len(bad)} of {len(results)} documents do not hold.", "Correct what is listed for each file."
        problem = Problem("workflow_invalid", said, files=bad, fix=fix)
    return Answer({"results": results}, human=lambda console: _show_checks(console, results), problem=problem)


@app.command("put", using=connected)
async def put(host: Connection, files: Files) -> Answer:
    """Store workflow documents on the host; what is stored already stays as it is."""
    documents = [(Path(name).name, document_of(name)) for name in files]
    stored = [await _stored(host, name, item) for name, item in documents]
    return Answer({"workflows": stored}, human=map(_stored_line, stored))


@app.command("trust", using=opened_ledger)
async def trust(ledger: Ledger, withdraw: Withdraw = False, show: OnlyShow = False) -> Answer:
    """Let the project's node files (workflows.nodes) run. Trust is bound to their content: a change asks again."""
    from forestay.host import trust_in_nodes

    nodes = config.load().config.workflows.nodes
    return await decide_trust(trust_in_nodes(ledger, Path(), nodes), Path(), withdraw, show)


@app.command("list", using=connected)
async def list_(host: Connection) -> Answer:
    """The workflows that can be run."""
    found = await host.get("/v1/workflows")
    return Answer(found, human=map(_stored_line, found["workflows"]))


@app.command("show", using=connected)
async def show(
    host: Connection,
    workflow: Annotated[str, typer.Argument(help="A workflow's id.")],
    revision: Annotated[int | None, typer.Option(min=1, help="An older one; default: the latest.")] = None,
) -> Any:
    """A stored definition."""
    return await host.get(f"/v1/workflows/{workflow}", revision=revision)


@app.command("graph")
async def graph(
    workflow: Annotated[str, typer.Argument(help="A file, or the id of a stored workflow.")],
    format: Annotated[str, typer.Option(help="mermaid or svg.")] = "mermaid",
    run: Annotated[str | None, typer.Option(help="Colour the nodes by where this run stands.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file.")] = None,
    url: Url = None,
    key: Key = None,
    data: Data = None,
) -> Answer:
    """A workflow as a picture."""
    from forestay.runs import mermaid, svg

    drawers: dict[str, Callable[[dict[str, Any], dict[str, str]], str]] = {
        "mermaid": mermaid,
        "svg": functools.partial(svg, alone=True),
    }
    if format not in drawers:
        raise Problem("invalid_usage", f"{format!r} is no format.", at="--format", fix="Use mermaid or svg.")
    document: dict[str, Any] | None = (
        document_of(workflow) if names_file(workflow) or _IN_PYTHON.fullmatch(workflow) else None
    )
    states: dict[str, str] = {}
    if document is None or run is not None:
        async with connected(url, key, data) as host:
            document = document or await host.get(f"/v1/workflows/{workflow}")
            if run is not None:
                nodes = (await host.get(f"/v1/runs/{run}")).get("nodeStates") or {}
                states = {name: str(node.get("status", "")) for name, node in nodes.items() if isinstance(node, dict)}
    drawn = drawers[format](document or {}, states)
    if output is not None:
        write_file(output, drawn)
        return Answer({"file": str(output), "format": format})
    return Answer({"format": format, "graph": drawn}, human=lambda console: console.print(drawn, markup=False, end=""))


def _checked(name: str, registry: NodeRegistry) -> dict[str, Any]:
    """Check one file; a file without a document is an error too."""
    from forestay.runs import check_workflow

    try:
        document = document_of(name)
    except Problem as problem:
        if problem.key == "not_found":
            raise
        reason = f" {problem.details['reason']}" if "reason" in problem.details else ""
        found = {
            "at": problem.details.get("at", "$"),
            "message": problem.message + reason,
            "fix": problem.details["fix"],
        }
        return {"valid": False, "errors": [found], "warnings": []}
    _, checked = check_workflow(document, registry)
    return {"valid": checked.valid, "errors": checked.errors, "warnings": checked.warnings}


async def _stored(host: Connection, name: str, document: dict[str, Any]) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = await host.ask("PUT", f"/v1/workflows/{_id_of(name, document)}", document)
    except Problem as problem:
        raise Problem(problem.key, f"{name}: {problem.message}", **problem.details) from problem
    return stored


def document_of(name: str) -> dict[str, Any]:
    """Return the document in a file, or the one that `MODULE:NAME` declares with `@workflow`."""
    written = None if names_file(name) else _IN_PYTHON.fullmatch(name)
    return read_document(Path(name)) if written is None else _declared(written["module"], written["name"])


def _declared(module: str, name: str) -> dict[str, Any]:
    """Import the named module, from this folder or the installation, and return its workflow's document."""
    import importlib
    import sys

    from forestay.runs import Workflow

    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise Problem("not_found", f"There is no module {error.name}.", at=module) from error
    finally:
        sys.path.pop(0)
    if not isinstance(found, Workflow):
        raise Problem("workflow_invalid", f"{module}:{name} is no workflow.", fix="Declare it with `@workflow`.")
    return found.document


def read_document(path: Path) -> dict[str, Any]:
    content = read_bytes(path)
    try:
        document = canonical.decode(content)
    except Problem as problem:
        raise Problem(problem.key, f"{path.name}: {problem.message}", **_located(content, problem)) from problem
    if not isinstance(document, dict):
        raise Problem(
            "workflow_invalid",
            f"{path.name} is no workflow: it holds no JSON object.",
            at="$",
            fix='Write one object: {"id": "…", "name": "…", "version": "1.0.0", "nodes": […], …}.',
        )
    return document


def _located(content: bytes, problem: Problem) -> dict[str, Any]:
    """Add the line and column of invalid JSON, and the most common correction."""
    details = dict(problem.details)
    if problem.key != "invalid_json":
        return details
    details["fix"] = "Correct the JSON there: names in double quotes, no comments, no comma before a closing bracket."
    if not content.strip():
        return {**details, "reason": "The file is empty.", "fix": "Write a workflow document into it."}
    if content.lstrip()[:1] not in b"{[":
        details["fix"] = "A workflow document is JSON; YAML and others are not read. Begin with {."
    if found := re.search(r"\(byte (\d+)\)", str(details.get("reason"))):
        before = content[: int(found[1])]
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        details["at"] = f"line {before.count(10) + 1}, column {column}"
    return details


def _id_of(name: str, document: dict[str, Any]) -> str:
    found = document.get("id")
    if not isinstance(found, str) or not found or "/" in found:
        raise Problem("workflow_invalid", f"{name} has no usable id.", at="$.id")
    return found


def _show_checks(console: Console, results: list[dict[str, Any]]) -> None:
    from rich.markup import escape

    for item in results:
        console.print(f"{'[green]✔[/]' if item['valid'] else '[red]✖[/]'} {escape(item['file'])}")
        for kind, colour in (("errors", "red"), ("warnings", "yellow")):
            for finding in item[kind]:
                fix = f"  [dim]{escape(finding['fix'])}[/]" if finding.get("fix") else ""
                console.print(f"    [{colour}]{escape(finding['at'])}[/] {escape(finding['message'])}{fix}")


def _stored_line(item: dict[str, Any]) -> str:
    return f"{item['workflowId']:<40} {item['version']:<10} revision {item['revision']}"
