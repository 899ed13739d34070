"""The JSON Schemas of every contract, generated from the types."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from forestay.cli.output import Answer, answers
from forestay.kernel import Problem

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

# A module with a function `schemas() -> dict[name, schema]` per contract; one that is not there is not listed.
SOURCES = {
    "forestay": "forestay.kernel.schemas",
    "lafs": "forestay.envelope.json_schemas",
    "pi": "forestay.extensions.schemas",
    "openwop": "forestay.runs.schemas",
    "crp": "forestay.surface.crp.schemas",
}


@app.callback()
def _group() -> None:
    """The JSON Schemas of every contract, generated from the types."""


@app.command("list")
@answers("schema.list")
def list_() -> Answer:
    """The names of all schemas."""
    names = sorted(_all())
    return Answer({"schemas": names}, human=lambda console: console.print("\n".join(names), markup=False))


@app.command("show")
@answers("schema.show")
def show(name: Annotated[str, typer.Argument(help="A name from `schema list`.")]) -> Answer:
    """One schema."""
    found = _all()
    if name not in found:
        raise Problem("not_found", f"There is no schema {name!r}.", at=name, fix="Run `forestay schema list`.")
    schema = found[name]
    return Answer(schema, human=lambda console: console.print(_pretty(schema), markup=False))


@app.command("export")
@answers("schema.export")
def export(folder: Annotated[Path, typer.Argument(help="Where the files go.")]) -> dict[str, Any]:
    """Write every schema as CONTRACT/NAME.json."""
    written = []
    for name, schema in sorted(_all().items()):
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_pretty(schema) + "\n", "utf-8")
        written.append(f"{name}.json")
    return {"files": written}


def _all() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for contract, module in SOURCES.items():
        make = getattr(importlib.import_module(module), "schemas", None) if _exists(module) else None
        for name, schema in (make() if make is not None else {}).items():
            found[f"{contract}/{name}"] = schema
    return found


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _pretty(schema: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2).decode()
