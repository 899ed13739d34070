"""A settings file that a command changes: the rest of the file stays as it was written, comments too.

W1  Only the requested values change. The new text is parsed before it is written, and must mean exactly that.
W2  The file is always whole, in its old or its new form; an invalid file is not touched.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec

from forestay.kernel import PROJECT_FILE, Config, Problem, config, former

Names = tuple[str, ...]


class SettingsFile:
    """The settings of a project or of the user; a missing file counts as empty."""

    def __init__(self, path: Path) -> None:
        self.path = former.settings(path)
        self._text = self._read()
        self.values = tomllib.loads(self._text)

    def get(self, *names: str) -> Any:
        """Return the value under `names`, or None."""
        found: Any = self.values
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def change(self, changes: Mapping[Names, Any]) -> None:
        """Set each of `changes` by its names; None removes the value (W1, W2)."""
        import tomlkit  # loaded only to change a file
        from tomlkit.exceptions import TOMLKitError

        document, wanted = tomlkit.parse(self._text), deepcopy(self.values)
        try:
            for names, value in changes.items():
                _put(document, names, value, tomlkit.table)
                _put(wanted, names, value, dict)
            text = tomlkit.dumps(document)
            same = tomllib.loads(text) == wanted
            msgspec.convert(wanted, Config)
        except msgspec.ValidationError as error:
            raise Problem("config_invalid", str(error), at=self.path.name, fix="Correct the file first.") from error
        except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
            raise self._by_hand(str(error)[:200]) from error
        if not same:
            raise self._by_hand("The file is written in a way that this command cannot change.")
        self._write(text)
        self._text, self.values = text, wanted

    def _by_hand(self, reason: str) -> Problem:
        told = f"{self.path.name} cannot be changed by a command."
        return Problem("config_invalid", told, at=self.path.name, reason=reason, fix="Change it in an editor.")

    def _read(self) -> str:
        try:
            text = self.path.read_text("utf-8")
            tomllib.loads(text)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise Problem("io_failed", f"{self.path} cannot be read.", reason=error.strerror or "") from error
        except (tomllib.TOMLDecodeError, UnicodeError) as error:
            told = f"{self.path.name} is not valid TOML."
            raise Problem("config_invalid", told, at=self.path.name, reason=str(error)[:200]) from error
        return text

    def _write(self, text: str) -> None:
        """Replace the file's text in one step; a symbolic link keeps pointing to the file."""
        path = self.path.resolve()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).chmod(mode)
                Path(name).replace(path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise Problem("io_failed", f"{path} cannot be written.", reason=error.strerror or "") from error


def project_file() -> SettingsFile:
    return SettingsFile(Path(PROJECT_FILE))


def user_file() -> SettingsFile:
    return SettingsFile(config.users_file(os.environ))


def _put(tables: Any, names: Names, value: Any, table: Any) -> None:
    """Set the value under `names`; None removes it, with the tables that become empty."""
    first, *rest = names
    if rest:
        if value is None and first not in tables:
            return
        if first not in tables:
            tables[first] = table()
        _put(tables[first], tuple(rest), value, table)
        if value is None and not tables[first]:
            del tables[first]
    elif value is None:
        tables.pop(first, None)
    else:
        tables[first] = _written(value) if table is not dict else value


def _written(value: Any) -> Any:
    """Return a value in TOML form: a table gets its own heading, and tables inside it stand on one line."""
    if not isinstance(value, dict):
        return value
    import tomlkit

    block = tomlkit.table()
    for name, item in value.items():
        inner = tomlkit.inline_table() if isinstance(item, dict) else None
        block[name] = item if inner is None else inner
        if inner is not None:
            inner.update(item)
    block.add(tomlkit.nl())
    return block
