"""The protected places: no extension and no program of one may change them, whatever is granted (Pi §4).

These places decide what the host runs next or what it allows: its settings, its data, its own code, and what runs when
a person opens a shell or uses git. In the settings, a person may lift a protection by name, but not those in `LASTING`.
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
"""Names that cannot be lifted: an extension that can write these can give itself every grant."""
BROUGHT = ("extensions", "skills", "prompts", "themes", "packages.json")
"""The project's own entries in the folder that the host also uses for its data."""
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
"""The host's files in a data folder that is also the project's folder."""
_SHELLS = (
    ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshenv", ".zprofile",
    ".zshrc", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".xprofile", ".xinitrc",
    ".xsession", ".xsessionrc", ".pam_environment", ".config/fish", ".config/nushell", ".config/powershell",
    ".config/autostart", ".config/systemd/user", ".config/environment.d",
)  # fmt: skip
_LOGINS = (".ssh", ".gitconfig", ".config/git")
_PREFIX_PARTS = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share", "pyvenv.cfg")
_WHY = {
    "settings": "decides what every extension may do",
    "data": "the ledger of every grant, and the host's secret",
    "interpreter": "the host's own code",
    "import-path": "the host imports from here",
    "search-path": "the host finds programs here",
    "cache": "compiled extensions that the host runs",
    "assets": "the engine and the bundler that the host runs",
    "git": "git runs programs that this names",
    "shell": "a shell or a login session runs it at its start",
    "login": "decides who may log in, and which programs git and ssh run",
}


class Protected(msgspec.Struct, frozen=True):
    """One protected place. `path` is absolute, with its folder resolved; it may be a link, or not exist yet."""

    name: str
    path: str
    stand_in: Kind | None = None
    """The kind of an empty stand-in that has no effect while the place is missing; None: no stand-in."""
    secret: bool = False
    """Whether it cannot be read either, except the project's entries in it (`shown`)."""
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
    """Return all protected places of this process's host, without git's."""
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
    """Return the protected places of the project's repository in its current state."""
    found = (Protected("git", _placed(item.path), item.kind) for item in git_places(project))
    return _kept(found, project, lifted)


def settings_files(project: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return every settings file: of this project, of the folder where the host was started, and of the user."""
    today = [project / config.PROJECT_FILE, Path(config.PROJECT_FILE).absolute(), config.users_file(environ)]
    return [*today, *(former.former_settings(path) for path in today)]


def _kept(found: Iterable[Protected], root: str, lifted: Sequence[str]) -> tuple[Protected, ...]:
    """Return each place once, without those that a person lifted by name or path."""
    free = {posixpath.normpath(posixpath.join(root, os.path.expanduser(text))) for text in lifted}  # noqa: PTH111
    names = set(lifted) - set(LASTING)
    kept: dict[str, Protected] = {}
    for item in found:
        is_free = item.name not in LASTING and (item.name in names or item.path in free)
        if not is_free and item.path not in ("", "/"):
            kept.setdefault(item.path, item)
    return tuple(kept.values())


def _named(name: str, paths: Iterable[Path | str], stand_in: Kind | None = None) -> list[Protected]:
    """Return a place for each path, for its real location, and for every link on the way."""
    return [Protected(name, spelled, stand_in) for path in paths for spelled in _spellings(path)]


def _data(root: str, data: Path | None) -> list[Protected]:
    """Return the data folder; or only the host's files, when the project is the data folder or is inside it."""
    if data is None:
        return []
    folder = os.path.realpath(data)
    if root == folder or root.startswith(folder.rstrip("/") + "/"):
        return [Protected("data", posixpath.join(folder, name), secret=True) for name in DATA_FILES]
    return [Protected("data", path, "folder", True, BROUGHT) for path in _spellings(data)]


def _interpreter(root: str) -> list[str]:
    """Return the folders of Python; where one contains the project (/usr/src/app), only Python's parts of it."""
    found: list[str] = []
    for prefix in sorted({sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}):
        inside = (root + "/").startswith(os.path.realpath(prefix).rstrip("/") + "/")
        found += [posixpath.join(prefix, part) for part in _PREFIX_PARTS] if inside else [prefix]
    return [*found, sys.executable]


def _imports() -> list[str]:
    """Return every folder of modules: the import path, the user's packages, and the folders of loaded modules."""
    paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109 - letters only
    if site.ENABLE_USER_SITE:
        paths.append(site.getusersitepackages())
    for name, module in sys.modules.copy().items():  # a copy, because another thread may import
        file = getattr(module, "__file__", None)
        if "." not in name and isinstance(file, str) and posixpath.basename(file).startswith("__init__."):
            paths.append(posixpath.dirname(file))
    outer: list[str] = []
    for path in sorted(dict.fromkeys(map(os.path.abspath, paths))):
        if not any(path.startswith(folder + "/") for folder in outer):
            outer.append(path)
    return outer


def _spellings(path: Path | str) -> list[str]:
    """Return a path's real location and each link on the way: replacing one of those would redirect the path."""
    whole = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - letters only
    above = [str(part) for part in reversed(Path(whole).parents)]
    links = [_placed(part) for part in (*above, whole) if posixpath.islink(part)]
    return list(dict.fromkeys((*links, _placed(whole), os.path.realpath(whole))))


def _placed(path: Path | str) -> str:
    """Return the absolute path with its folder resolved, but not its last part: a link there is its own place."""
    whole = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - letters only
    return posixpath.join(os.path.realpath(posixpath.dirname(whole)), posixpath.basename(whole))
