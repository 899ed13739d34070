"""Configuration: one typed object, with the source of every value.

The order of precedence is: flag, environment, project file, user file, default.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from forestay.kernel import canonical, former
from forestay.kernel.problems import Problem
from forestay.kernel.settings import Config, ModelEntry, UntrustedEntry

PROJECT_FILE = "forestay.toml"
_MAX_BYTES = 1024 * 1024
_MAX_DEPTH = 32
_SHORT = {"data.ledger": "FORESTAY_DATABASE"}
"""Settings with a short environment variable, which takes precedence over the long one."""
_ONE_TABLE = "A [table] or a setting is there twice. Move its content to the first one, and delete the second."


class Loaded(msgspec.Struct, frozen=True):
    """A configuration and, for each dotted name that was set, its source."""

    config: Config
    sources: dict[str, str]


def load(
    project: Path | None = None,
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    user_file: Path | None = None,
) -> Loaded:
    """Read every layer, weakest first. `flags` has dotted names: {"http.port": 0}."""
    environ = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    brought: dict[str, Any] = {}
    for source, path in (
        ("user file", user_file or users_file(environ)),
        ("project file", (project or Path()) / PROJECT_FILE),
    ):
        path = former.settings(path)
        values = former.values(_read_file(path))
        if source == "project file":
            _take_entries_whole(merged, values, path)
            brought = _entries(values)
        _merge(merged, values, source, sources)
        _convert(merged, path.name, path)
    _merge(merged, _from_environ(environ), "environment", sources)
    _convert(merged, "the environment", None)
    _merge(merged, _nest(flags or {}), "flag", sources)
    return Loaded(_guarded(_convert(merged, "the flags", None), brought, project or Path()), sources)


def key_use(entry: ModelEntry, folder: Path) -> str:
    """Return which variable an entry of the project in `folder` sends where, in one line; empty if it names none."""
    address = entry.base_url or f"{entry.provider}:"
    return f"{entry.api_key_env} {address} {os.path.realpath(folder)}" if entry.api_key_env else ""


def _guarded(config: Config, brought: Mapping[str, Any], folder: Path) -> Config:
    """Return the configuration with a project's entries marked untrusted, unless a person trusts their use of a key."""
    models = config.models
    entries = dict(models.entries)
    for name in brought.keys() & entries.keys():
        use = key_use(entries[name], folder)
        if use and use not in models.trusted_keys:
            entries[name] = UntrustedEntry(**msgspec.structs.asdict(entries[name]), use=use)
    return msgspec.structs.replace(config, models=msgspec.structs.replace(models, entries=entries))


def _take_entries_whole(merged: dict[str, Any], values: Mapping[str, Any], path: Path) -> None:
    """Let a project's model replace the user's model of that name: a project's address never gets a user's key."""
    models = values.get("models")
    if isinstance(models, dict) and "trusted_keys" in models:
        told = "trusted_keys counts in your own settings only: a project must not trust itself."
        fix = "Remove it, check the project's models, then run `forestay model trust NAME`."
        raise Problem("config_invalid", told, at="models.trusted_keys", file=path.name, fix=fix)
    found = _entries(values)
    for name, entry in found.items():
        _entries(merged).pop(name, None)
        for field in ("api_key_file", "api_key_command"):
            if isinstance(entry, dict) and entry.get(field):
                raise Problem(
                    "config_invalid",
                    f"{field} counts in your own settings only: a project could read any file with it.",
                    at=f"models.entries.{name}.{field}",
                    file=path.name,
                    fix="Use api_key_env here, or move the entry to your own file with `forestay model add --user`.",
                )


def _entries(values: Mapping[str, Any]) -> dict[str, Any]:
    models = values.get("models")
    entries = models.get("entries") if isinstance(models, dict) else None
    return entries if isinstance(entries, dict) else {}


def users_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's own settings; the file need not exist."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "forestay" / "config.toml"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise Problem("config_invalid", f"{path.name} is larger than {_MAX_BYTES} bytes.", at=path.name)
        return _flat_enough(tomllib.loads(path.read_text("utf-8")), path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Problem("config_invalid", f"{path.name} cannot be read.", at=path.name, reason=error.strerror) from error
    except (tomllib.TOMLDecodeError, UnicodeError, RecursionError) as error:
        reason = str(error)[:200]
        more: dict[str, Any] = {"fix": _ONE_TABLE} if reason.startswith(("Cannot declare", "Cannot overwrite")) else {}
        raise Problem(
            "config_invalid", f"{path.name} is not valid TOML.", at=path.name, reason=reason, **more
        ) from error


def _flat_enough(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the values; refuse deeper nesting than any setting has, because a key may have thousands of dots."""
    level: list[Any] = [values]
    for _ in range(_MAX_DEPTH):
        tables = [list(item.values()) if isinstance(item, dict) else item for item in level]
        level = [item for table in tables for item in table if isinstance(item, dict | list)]
        if not level:
            return values
    raise Problem("config_invalid", f"{path.name} is nested more than {_MAX_DEPTH} levels deep.", at=path.name)


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read settings from variables: FORESTAY_HTTP_PORT is http.port. Ignore variables that name no setting."""
    flat: dict[str, Any] = {}
    for name, default in _leaves(Config()):
        text = environ.get(_SHORT.get(name, ""), environ.get("FORESTAY_" + name.upper().replace(".", "_")))
        if text is None:
            continue
        if isinstance(default, list):
            flat[name] = [part.strip() for part in text.split(",") if part.strip()]
        elif isinstance(default, bool) and text in ("true", "false"):
            flat[name] = text == "true"
        elif isinstance(default, int) and re.fullmatch(r"-?\d+", text):
            flat[name] = int(text)
        elif isinstance(default, float) and re.fullmatch(r"-?\d+(\.\d+)?", text):
            flat[name] = float(text)
        else:
            flat[name] = text
    return _nest(flat)


def _leaves(section: msgspec.Struct, prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for field in section.__struct_fields__:
        value = getattr(section, field)
        if isinstance(value, msgspec.Struct):
            found.extend(_leaves(value, f"{prefix}{field}."))
        elif not isinstance(value, dict):
            found.append((prefix + field, value))
    return found


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        table = nested
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return nested


def _merge(into: dict[str, Any], values: Mapping[str, Any], source: str, sources: dict[str, str], at: str = "") -> None:
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key, {}), dict):
            _merge(into.setdefault(key, {}), value, source, sources, f"{at}{key}.")
        else:
            into[key] = value
            sources[at + key] = source


def _convert(merged: dict[str, Any], origin: str, path: Path | None) -> Config:
    try:
        return msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        raise _located(error, origin, path) from error


def _located(error: msgspec.ValidationError, origin: str, path: Path | None) -> Problem:
    """Return a Problem with the dotted name, the line and, for an unknown name, the closest known one."""
    message, where = canonical.located(error, "")
    name = where.removeprefix(".")
    unknown = re.search(r"unknown field `([^`]*)`", message)
    if unknown is None:
        key = name.rsplit(".", 1)[-1]
        return Problem("config_invalid", f"{name} in {origin}: {message}.", at=name, line=_line(path, key))
    key = unknown[1]
    dotted = f"{name}.{key}" if name else key
    close = difflib.get_close_matches(key, _fields_at(name), n=1)
    fix = f"Did you mean `{close[0]}`?" if close else f"Known here: {', '.join(_fields_at(name))}."
    return Problem(
        "config_invalid",
        f"{origin} has a setting that does not exist: {dotted}.",
        at=dotted,
        line=_line(path, key),
        fix=fix,
    )


def _fields_at(name: str) -> list[str]:
    section: Any = Config
    for part in name.replace("[...]", "[]").split(".") if name else ():
        field = part.removesuffix("[]")  # with brackets, an entry of a table such as extensions.overrides
        section = next((known.type for known in msgspec.structs.fields(section) if known.name == field), None)
        if field != part:
            section = get_args(section)[1]
        if not (isinstance(section, type) and issubclass(section, msgspec.Struct)):
            return []
    return list(section.__struct_fields__)


def _line(path: Path | None, key: str) -> int | None:
    if path is None:
        return None
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if re.match(rf"\s*\[?(?:[\w.\"-]+\.)?\"?{re.escape(key)}\"?\s*[=\]]", line):
            return number
    return None
