"""The configuration: show every value with its source, set or unset a value."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
import typer

from forestay.cli.command import Group
from forestay.cli.output import Answer
from forestay.kernel import Config, Problem, config, redact

app = Group("config")
_FIX = "`forestay config show` has every setting with a value of its kind; docs/reference/config.md explains them."


@app.command("show")
def show() -> Answer:
    """Every setting, its value, and whether a flag, the environment, a file or the default decided it."""
    loaded = config.load()
    settings = list(_settings(msgspec.to_builtins(loaded.config), loaded.sources))
    settings = [{**item, "value": redact(item["value"])} for item in settings]  # an address may contain a password
    return Answer({"settings": settings}, human=map(_line, settings))


@app.command("set")
def set_(
    name: Annotated[str, typer.Argument(help="The setting, with dots: http.port.")],
    value: Annotated[str, typer.Argument(help="Its value: JSON, or a text.")],
    user: Annotated[bool, typer.Option("--user", help="In your own settings, not in the project's.")] = False,
) -> Answer:
    """Set a value in forestay.toml; everything else in the file stays as it was written."""
    return _changed(name, _value(value), user=user)


@app.command("unset")
def unset(
    name: Annotated[str, typer.Argument(help="The setting, with dots: http.port.")],
    user: Annotated[bool, typer.Option("--user", help="In your own settings, not in the project's.")] = False,
) -> Answer:
    """Take a value out of forestay.toml: the default holds again."""
    return _changed(name, None, user=user)


def _changed(name: str, value: Any, *, user: bool) -> Answer:
    """Change the file and show the value now in force: a flag or the environment may still override the file."""
    from forestay.cli.settings_file import project_file, user_file

    known = {item["name"] for item in _settings(msgspec.to_builtins(Config()), {})}
    first = name.partition(".")[0]
    if not any(item == name or item.startswith((f"{name}.", f"{first}.")) for item in known):
        near = get_close_matches(name, known, 3)
        fix = f"Did you mean {' or '.join(near)}?" if near else "`forestay config show` lists the settings."
        raise Problem("invalid_usage", f"There is no setting {name}.", at="NAME", fix=fix)
    file = user_file() if user else project_file()
    try:
        file.change({tuple(name.split(".")): value})
    except Problem as problem:
        raise Problem(problem.key, problem.message, **{**problem.details, "at": name, "fix": _FIX}) from problem
    loaded = config.load()
    settings = _settings(msgspec.to_builtins(loaded.config), loaded.sources)
    settings = [{**item, "value": redact(item["value"])} for item in settings]
    holds = [item for item in settings if item["name"] == name or item["name"].startswith(f"{name}.")]
    return Answer({"file": str(file.path), "settings": holds}, human=[str(file.path), *map(_line, holds)])


def _value(text: str) -> Any:
    """Decode `text` as JSON; return the text itself when it is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


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
