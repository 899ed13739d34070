"""The configuration and where each value comes from."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.cli.command import Group
from forestay.cli.output import Answer
from forestay.kernel import config, redact

app = Group("config")


@app.command("show")
def show() -> Answer:
    """Every setting, its value, and whether a flag, the environment, a file or the default decided it."""
    loaded = config.load()
    settings = list(_settings(msgspec.to_builtins(loaded.config), loaded.sources))
    settings = [{**item, "value": redact(item["value"])} for item in settings]  # an address may hold a password
    return Answer({"settings": settings}, human=map(_line, settings))


def _settings(values: dict[str, Any], sources: dict[str, str], prefix: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, value in values.items():
        dotted = prefix + name
        if isinstance(value, dict) and value:
            found.extend(_settings(value, sources, dotted + "."))
        else:
            found.append({"name": dotted, "value": value, "source": sources.get(dotted, "default")})
    return found


def _line(item: dict[str, Any]) -> str:
    return f"{item['name']} = {msgspec.json.encode(item['value']).decode()}  ({item['source']})"
