"""What no extension and no program of one may change, whatever was granted (Pi §4).

Who may write here decides what the host runs next, or what it allows: its settings, its data, its own code, and what
runs when a person opens a shell or uses git. A person may lift one by name, in the settings; those that would make a
grant every grant stay.
"""

from __future__ import annotations

import os
import posixpath
import site
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from forestay import assets
from forestay.extensions.git_places import git_places
from forestay.kernel import HOST_SECRET, config, former

Kind = Literal["file", "folder"]

LASTING = ("settings", "data")
"""Names that cannot be lifted: who writes these writes every grant."""
BROUGHT = ("extensions", "skills", "prompts", "themes", "packages.json")
"""What a project may bring in the folder that the host also keeps its data in."""
DATA_FILES = (
    "ledger.db",
    "ledger.db-wal",
    "ledger.db-shm",
    HOST_SECRET,
    "host.lock",
    "host.json",
    "vectors",
    "ledger.db.sessions",
)
"""What the host keeps in its data folder, where that folder cannot be told from the project."""
_SHELLS = (
    ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshenv", ".zprofile",
    ".zshrc", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".xprofile", ".xinitrc",
    ".xsession", ".xsessionrc", ".pam_environment", ".config/fish", ".config/nushell", ".config/powershell",
    ".config/autostart", ".config/systemd/user", ".config/environment.d",
)  # fmt: skip
_LOGINS = (".ssh", ".gitconfig", ".config/git")
_PREFIX_PARTS = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share", "pyvenv.cfg")
_WHY = {
    "settings": "says what every extension may do",
    "data": "the ledger of every grant, and the host's secret",
    "interpreter": "the host's own code",
    "import-path": "the host imports from here",
    "search-path": "the host finds programs here",
    "cache": "compiled extensions that the host runs",
    "assets": "the engine and the bundler that the host runs",
    "git": "git runs what this names",
    "shell": "a shell or a session runs it when it starts",
    "login": "decides who may log in, and what git and ssh run",
}


class Protected(msgspec.Struct, frozen=True):
    """One place. `path` is absolute, its folder resolved; its end may be a link, or not be there yet."""

    name: str
    path: str
    stand_in: Kind | None = None
    """What may lie there, empty, while there is nothing, without changing what anything does."""
    secret: bool = False
    """Not to be read either, but for what a project brings in it (`shown`)."""
    shown: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        return _WHY.get(self.name, "")


def protected(
    project: Path,
    data: Path | None = None,
    *,
    cache: Path | None = None,
    lifted: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[Protected, ...]:
    """Everything for a host of this process: what is the same for each program, git's places aside."""
    environ = os.environ if environ is None else environ
    root = os.path.realpath(project)
    searched = [path for path in environ.get("PATH", "").split(os.pathsep) if path]
    found = _named("settings", settings_files(project, environ), "file")
    found += _data(root, data)
    found += _named("interpreter", _interpreter(root))
    found += _named("import-path", _imports())
    found += _named("search-path", searched)
    found += _named("cache", [cache] if cache is not None else [], "folder")
    found += _named("assets", [assets.folder().parent], "folder")
    for home in dict.fromkeys(_placed(path) for path in (Path.home(), environ.get("HOME", "")) if str(path)):
        found += [Protected("shell", posixpath.join(home, name)) for name in _SHELLS]
        found += [Protected("login", posixpath.join(home, name)) for name in _LOGINS]
    return _kept(found, root, lifted)


def of_git(project: str, lifted: Sequence[str] = ()) -> tuple[Protected, ...]:
    """The places of the project's repository as it is now."""
    found = (Protected("git", _placed(item.path), item.kind) for item in git_places(project))
    return _kept(found, project, lifted)


def settings_files(project: Path, environ: Mapping[str, str]) -> list[Path]:
    """Every file that settings are read from: of this project, of where the host was started, and the user's."""
    today = [project / config.PROJECT_FILE, Path(config.PROJECT_FILE).absolute(), config.users_file(environ)]
    return [*today, *(former.former_settings(path) for path in today)]


def _kept(found: Iterable[Protected], root: str, lifted: Sequence[str]) -> tuple[Protected, ...]:
    """Each once, less what a person lifted by its name or its path."""
    free = {posixpath.normpath(posixpath.join(root, os.path.expanduser(text))) for text in lifted}  # noqa: PTH111
    names = set(lifted) - set(LASTING)
    kept: dict[str, Protected] = {}
    for item in found:
        is_free = item.name not in LASTING and (item.name in names or item.path in free)
        if not is_free and item.path not in ("", "/"):
            kept.setdefault(item.path, item)
    return tuple(kept.values())


def _named(name: str, paths: Iterable[Path | str], stand_in: Kind | None = None) -> list[Protected]:
    """A place for each path, for where it really is, and for every link on the way."""
    return [Protected(name, spelled, stand_in) for path in paths for spelled in _spellings(path)]


def _data(root: str, data: Path | None) -> list[Protected]:
    """The data folder, or what the host has in it when it is the project's folder, or one around that."""
    if data is None:
        return []
    folder = os.path.realpath(data)
    if root == folder or root.startswith(folder.rstrip("/") + "/"):
        return [Protected("data", posixpath.join(folder, name), secret=True) for name in DATA_FILES]
    return [Protected("data", path, "folder", True, BROUGHT) for path in _spellings(data)]


def _interpreter(root: str) -> list[str]:
    """The folders that Python runs from; where the project lies in one (/usr/src/app), only Python's parts of it."""
    found: list[str] = []
    for prefix in sorted({sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}):
        inside = (root + "/").startswith(os.path.realpath(prefix).rstrip("/") + "/")
        found += [posixpath.join(prefix, part) for part in _PREFIX_PARTS] if inside else [prefix]
    return [*found, sys.executable]


def _imports() -> list[str]:
    """Every folder that modules come from: the import path, the user's packages, and where loaded ones lie."""
    paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109 - letters only
    if site.ENABLE_USER_SITE:
        paths.append(site.getusersitepackages())
    for name, module in sys.modules.copy().items():  # another thread may import meanwhile
        file = getattr(module, "__file__", None)
        if "." not in name and isinstance(file, str) and posixpath.basename(file).startswith("__init__."):
            paths.append(posixpath.dirname(file))
    outer: list[str] = []
    for path in sorted(dict.fromkeys(map(os.path.abspath, paths))):
        if not any(path.startswith(folder + "/") for folder in outer):
            outer.append(path)
    return outer


def _spellings(path: Path | str) -> list[str]:
    """Where a path leads, and each link that it leads over: who replaces one of those leads it elsewhere."""
    whole = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - letters only
    above = [str(part) for part in reversed(Path(whole).parents)]
    links = [_placed(part) for part in (*above, whole) if posixpath.islink(part)]
    return list(dict.fromkeys((*links, _placed(whole), os.path.realpath(whole))))


def _placed(path: Path | str) -> str:
    """Absolute, with the folder resolved and the end as it is spelled: a link there is a place of its own."""
    whole = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - letters only
    return posixpath.join(os.path.realpath(posixpath.dirname(whole)), posixpath.basename(whole))
