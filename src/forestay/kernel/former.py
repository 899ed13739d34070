"""What was made under the project's former name opens under this one.

The project was called holdfast until 0.1. Its settings, its environment variables, its folder and the names in its
records are read as if they carried the new name. The folder is renamed once; no file inside it is rewritten.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from forestay.kernel.problems import Problem

NAME, FORMER = "forestay", "holdfast"
FOLDER, FORMER_FOLDER = f".{NAME}", f".{FORMER}"
VARIABLES = f"{FORMER.upper()}_"
MOVED = "MOVED"
"""The file that the renamed folder carries: which folder it was."""
_OWN = re.compile(rf"(?:^|(?<=^core\.)){FORMER}(?=[.:])")


def renamed(name: str) -> str:
    """Today's name of an event type (`holdfast.timer.set`), an agent (`core.holdfast.…`) or a tool (`holdfast:…`)."""
    return _OWN.sub(NAME, name) if FORMER in name else name


def manifest(document: dict[str, Any]) -> dict[str, Any]:
    """An agent's manifest with its own section and its tools under today's name."""
    found = dict(document)
    if FORMER in found and NAME not in found:
        found[NAME] = found.pop(FORMER)
    if isinstance(tools := found.get("toolAllowlist"), list):
        found["toolAllowlist"] = [renamed(tool) if isinstance(tool, str) else tool for tool in tools]
    return found


def values(found: Any) -> Any:
    """The values of a settings file with paths below the former folder, and tools, under today's names."""
    if isinstance(found, dict):
        return {key: values(item) for key, item in found.items()}
    if isinstance(found, list):
        return [values(item) for item in found]
    if not isinstance(found, str):
        return found
    below = found == FORMER_FOLDER or found.startswith(f"{FORMER_FOLDER}/")
    return FOLDER + found[len(FORMER_FOLDER) :] if below else renamed(found)


def settings(path: Path) -> Path:
    """`path`, or the file of 0.1 when that alone is there."""
    former = former_settings(path)
    return former if former.is_file() and not path.exists() else path


def former_settings(path: Path) -> Path:
    """Where 0.1 had what is at `path` now: `holdfast.toml`, or `holdfast/config.toml` below the user's folder."""
    if NAME in path.name:
        return path.with_name(path.name.replace(NAME, FORMER))
    return path.parent.with_name(path.parent.name.replace(NAME, FORMER)) / path.name


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of 0.1 under today's names, where those are not set."""
    found = {
        f"{NAME.upper()}_{name[len(VARIABLES) :]}": text for name, text in environ.items() if name.startswith(VARIABLES)
    }
    return {name: text for name, text in found.items() if name not in environ}


def variable(name: str) -> str:
    """The name that an environment variable had in 0.1."""
    return name.replace(NAME.upper(), FORMER.upper(), 1)


def former_path(name: str) -> str:
    """The path of 0.1 for a path below today's folder."""
    return FORMER_FOLDER + name[len(FOLDER) :] if name.startswith(f"{FOLDER}/") else name


class Found(msgspec.Struct, frozen=True):
    """What of 0.1 is in a project folder. `moved` is the folder that today's one was."""

    settings: Path | None
    folder: Path | None
    both: bool
    moved: str | None


def look(root: Path, project_file: str) -> Found:
    path = root / project_file
    former, folder = former_settings(path), root / FORMER_FOLDER
    try:
        moved = (root / FOLDER / MOVED).read_text("utf-8").strip()
    except OSError:
        moved = None
    return Found(
        settings=former if former.is_file() else None,
        folder=folder if folder.is_dir() else None,
        both=(former.is_file() and path.exists()) or (folder.is_dir() and (root / FOLDER).exists()),
        moved=moved,
    )


def adopt(root: Path) -> bool:
    """Give the folder of 0.1 its new name, unless there is one of that name; whether it was done.

    `state_conflict` while a host of 0.1 has the folder open.
    """
    old, new = root / FORMER_FOLDER, root / FOLDER
    if not old.is_dir() or old.is_symlink() or new.exists():
        return False
    lock = os.open(old / "host.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (old / MOVED).write_text(f"This folder was {FORMER_FOLDER} before the project was renamed.\n", "utf-8")
        old.rename(new)
    except BlockingIOError:
        raise Problem(
            "state_conflict",
            f"A host of the version before has {FORMER_FOLDER} open, so it cannot be taken over.",
            at=FORMER_FOLDER,
            fix="Stop that host, then try again.",
        ) from None
    except FileNotFoundError:
        return False  # another process did it meanwhile
    finally:
        os.close(lock)
    return True
