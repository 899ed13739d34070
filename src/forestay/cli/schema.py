"""The JSON Schemas of every contract, generated from the types."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from forestay.cli.command import Group
from forestay.cli.files import write_file
from forestay.cli.output import Answer
from forestay.kernel import Problem

app = Group("schema")

# Each contract's module has a function `schemas() -> dict[name, schema]`.
SOURCES = {
    "forestay": "forestay.kernel.schemas",
    "lafs": "forestay.envelope.json_schemas",
    "pi": "forestay.extensions.schemas",
    "openwop": "forestay.runs.schemas",
    "crp": "forestay.surface.crp",
}


@app.command("list")
def list_() -> Answer:
    """The names of all schemas."""
    names = sorted(_all())
    return Answer({"schemas": names}, human=names)


@app.command("show")
def show(name: Annotated[str, typer.Argument(help="A name from `schema list`.")]) -> Answer:
    """One schema."""
    found = _all()
    if name not in found:
        raise Problem("not_found", f"There is no schema {name!r}.", at=name, fix="Run `forestay schema list`.")
    schema = found[name]
    return Answer(schema, human=[_pretty(schema)])


@app.command("export")
def export(folder: Annotated[Path, typer.Argument(help="Where the files go.")]) -> dict[str, Any]:
    """Write every schema as CONTRACT/NAME.json."""
    written = []
    for name, schema in sorted(_all().items()):
        write_file(folder / f"{name}.json", _pretty(schema) + "\n", with_folders=True)
        written.append(f"{name}.json")
    return {"files": written}


def _all() -> dict[str, dict[str, Any]]:
    """Return every schema by CONTRACT/NAME."""
    made = {contract: importlib.import_module(module).schemas() for contract, module in SOURCES.items()}
    return {f"{contract}/{name}": schema for contract, found in made.items() for name, schema in found.items()}


def _pretty(schema: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2).decode()
