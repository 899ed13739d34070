"""version, problems, setup."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay import __version__, assets
from forestay.cli.command import answers
from forestay.cli.output import Answer, note
from forestay.kernel import SQLITE_VERSION, TABLE, Problem, Row

if TYPE_CHECKING:
    from rich.console import Console

_PARTS = ("msgspec", "starlette", "uvicorn", "wasmtime")


@answers("version")
def version() -> Answer:
    """The version of forestay and of what it stands on."""
    result = {
        "forestay": __version__,
        "python": platform.python_version(),
        "sqlite": SQLITE_VERSION,
        "contracts": {"lafs": "1.8.0", "openwop": "1.11", "crp": "2.0", "pi": "1.0"},
        "packages": {name: metadata.version(name) for name in _PARTS},
    }
    return Answer(result, human=[f"forestay {__version__}"])


@answers("problems")
def problems(
    key: Annotated[str | None, typer.Argument(help="One kind of problem, by its key or a contract's code.")] = None,
) -> Answer:
    """Every kind of problem, explained: what it means, what to do, and what each contract calls it."""
    if key is None:
        rows = list(TABLE.values())
        return Answer({"problems": rows}, human=lambda console: _show_table(console, rows))
    found = [row for row in TABLE.values() if key in _names(row)]
    if not found:
        raise Problem("not_found", f"There is no problem {key!r}.", at=key, fix="Run `forestay problems` for the list.")
    return Answer({"problems": found}, human=(line for row in found for line in _lines(row)))


@answers("setup")
def setup() -> dict[str, Any]:
    """Fetch what forestay takes from npm, once: the JavaScript engine, the bundler. Each is checked by its hash."""
    if not assets.ready():
        note("Fetching the JavaScript engine and the bundler from npm …")
    assets.ensure()
    return {"assets": "ready", "lock": assets.folder().name}


def _names(row: Row) -> set[str]:
    return {row.key, row.lafs, row.openwop, str(row.crp), str(row.jsonrpc)}


def _show_table(console: Console, rows: list[Row]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("key", "what it means", "lafs", "http", "exit", "openwop", "pi", "crp"):
        table.add_column(heading, no_wrap=heading != "what it means")
    for row in rows:
        table.add_row(row.key, row.title, row.lafs, str(row.http), str(row.exit), row.openwop, row.pi, str(row.crp))
    console.print(table)


def _lines(row: Row) -> Iterator[str]:
    yield f"{row.key}: {row.title}."
    yield f"What to do: {row.remedy}\n"
    for name, value in msgspec.to_builtins(row).items():
        if name not in ("key", "title", "remedy"):
            yield f"  {name:<10} {value}"
