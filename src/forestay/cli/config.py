"""The configuration and where each value comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import typer

from forestay.cli.output import Answer, answers
from forestay.kernel import config, redact

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """The configuration and where each value comes from."""


@app.command("show")
@answers("config.show")
def show() -> Answer:
    """Every setting, its value, and whether a flag, the environment, a file or the default decided it."""
    loaded = config.load()
    settings = list(_settings(msgspec.to_builtins(loaded.config), loaded.sources))
    settings = [{**item, "value": redact(item["value"])} for item in settings]  # an address may hold a password
    return Answer({"settings": settings}, human=lambda console: _show(console, settings))


def _settings(values: dict[str, Any], sources: dict[str, str], prefix: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, value in values.items():
        dotted = prefix + name
        if isinstance(value, dict) and value:
            found.extend(_settings(value, sources, dotted + "."))
        else:
            found.append({"name": dotted, "value": value, "source": sources.get(dotted, "default")})
    return found


def _show(console: Console, settings: list[dict[str, Any]]) -> None:
    for item in settings:
        value = msgspec.json.encode(item["value"]).decode()
        console.print(f"{item['name']} = {value}  [dim]({item['source']})[/dim]", markup=True)
