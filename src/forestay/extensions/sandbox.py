"""Confines an extension's commands: with bubblewrap where it works, else with Landlock, else not, which is reported.

A sandboxed command sees the system's programs, the granted folders, a private temporary folder, no other process of
the host, and no network unless `http` is granted without a scope (a sandbox cannot limit a process to hosts).
"""

from __future__ import annotations

import functools
import json
import os
import posixpath
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from forestay.extensions.layout import Confinement, Layout, beside, mounts
from forestay.extensions.protection import Kind as StandIn

Kind = Literal["bubblewrap", "landlock", "none"]

_LAUNCH = str(Path(__file__).with_name("launch.py"))
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/opt", "/snap")
# The parts of /etc that programs need to link, resolve names and trust certificates; without user accounts.
_ETC = tuple(
    "/etc/" + name
    for name in (
        "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "resolv.conf", "hosts", "host.conf", "gai.conf",
        "ssl", "pki", "ca-certificates", "ca-certificates.conf", "localtime", "timezone", "alternatives", "gitconfig",
        "mime.types", "protocols", "services", "inputrc", "terminfo", "profile", "bash.bashrc", "java", "python3",
    )
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_LIMITS = {"CORE": 0, "NPROC": 512, "NOFILE": 4096, "FSIZE": 4 << 30}
_SIGNS = (
    "permission denied", "eacces", "read-only file system", "erofs", "operation not permitted",
    "device or resource busy", "ebusy", "network is unreachable", "could not resolve host",
    "temporary failure in name resolution", "enetunreach", "name or service not known", "eai_again",
)  # fmt: skip


class Launch(msgspec.Struct, frozen=True):
    """A command line, and the open file with its instructions; close the file once the program runs."""

    argv: list[str]
    descriptor: int


class Prepared(msgspec.Struct, frozen=True):
    """A command's limits as this sandbox enforces them; `stand_ins` must exist while it runs."""

    limits: Confinement
    layout: Layout | None

    @property
    def stand_ins(self) -> tuple[tuple[str, StandIn], ...]:
        return self.layout.stand_ins if self.layout is not None else ()


CLEAN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
"""The environment of the program that builds the sandbox."""


class Sandbox(msgspec.Struct, frozen=True):
    """The strongest confinement that this system offers."""

    kind: Kind
    namespaces: bool = False
    landlock: int = 0

    @classmethod
    def detect(cls) -> Sandbox:
        """Return the strongest confinement."""
        return _offered()[0]

    @classmethod
    def offered(cls) -> tuple[Sandbox, ...]:
        """Return all that work here, strongest first; the last one is `none`."""
        return _offered()

    @property
    def describes(self) -> str:
        """One sentence for prompts, `doctor` and evidence."""
        if self.kind == "bubblewrap":
            return "Commands run in bubblewrap: granted folders only, own processes, no network unless granted."
        if self.kind == "landlock":
            parts = "own processes and network" if self.namespaces else "shared process table; TCP only is blocked"
            return f"Commands run under Landlock version {self.landlock}: granted folders only, {parts}."
        return (
            "Nothing confines commands here: this system offers neither bubblewrap nor Landlock. They run, UNCONFINED, "
            "only where the settings say `unconfined_programs`."
        )

    def prepare(self, limits: Confinement) -> Prepared:
        """Plan mounts over the protected places; where mounting is impossible, allow only their neighbours by name."""
        if self.kind == "none":
            return Prepared(limits, None)
        return Prepared(limits, mounts(limits)) if self.namespaces else Prepared(beside(limits), None)

    def wrap(
        self, command: Sequence[str], cwd: str, prepared: Prepared, environ: Mapping[str, str], *, search: str
    ) -> Launch:
        """Return how to run `command` confined, with the programs on the host's own `search` path.

        The extension's own variables and paths are passed in a separate file and take effect only inside. The program
        that builds the sandbox runs with a clean environment, so that no LD_PRELOAD reaches it.
        """
        programs, limits, layout = _programs(search), prepared.limits, prepared.layout
        if self.kind == "bubblewrap":
            assert layout is not None
            options = _bubblewrap(cwd, limits, layout, programs, environ)
            descriptor = _sealed(b"".join(os.fsencode(option) + b"\0" for option in options))
            return Launch(["bwrap", "--args", str(descriptor), "--", *command], descriptor)
        write = layout.write if layout is not None else limits.write
        spec = {
            "cwd": cwd,
            "environ": dict(environ),
            "landlock": self.kind == "landlock",
            "namespaces": self.namespaces,
            "network": limits.network,
            "read": [*_SYSTEM, *_ETC, *programs, *limits.read, *limits.write],
            "write": [*_DEVICES, *write],
            "limits": _LIMITS,
            "mounts": [(item.mode, item.path, item.shown) for item in layout.mounts] if layout is not None else [],
        }
        descriptor = _sealed(json.dumps(spec).encode())
        return Launch([sys.executable, "-I", "-S", _LAUNCH, str(descriptor), "--", *command], descriptor)

    def explains(self, code: int | None, errors: str, limits: Confinement) -> str | None:
        """Return why the sandbox may have made a command fail, and the grant that would change it."""
        if self.kind == "none" or not code:
            return None
        low = errors.lower()
        if not any(sign in low for sign in _SIGNS):
            return None
        wants_network = any(sign in low for sign in _SIGNS[7:])
        if wants_network and limits.network:
            return None
        grant = "--grant http" if wants_network else "--grant write (or write:FOLDER/**)"
        protected = "" if wants_network else " What `forestay doctor` lists as protected stays so."
        return f"The {self.kind} sandbox may have refused this. To allow it: {grant}.{protected}"


_NO_LIMITS = Confinement(), Layout((), (), ())


@functools.cache
def _offered() -> tuple[Sandbox, ...]:
    if sys.platform != "linux":
        return (Sandbox("none"),)
    found: list[Sandbox] = []
    if shutil.which("bwrap") and _succeeds(["bwrap", *_bubblewrap("/", *_NO_LIMITS, [], {}), "--", "true"]):
        found.append(Sandbox("bubblewrap", namespaces=True))
    try:
        run = subprocess.run([sys.executable, "-I", "-S", _LAUNCH, "--probe"], capture_output=True, timeout=10)
        probed = json.loads(run.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        probed = {"landlock": 0, "namespaces": False}
    if probed["landlock"] >= 1:
        found.append(Sandbox("landlock", namespaces=probed["namespaces"], landlock=probed["landlock"]))
    return (*found, Sandbox("none", namespaces=probed["namespaces"]))


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=10, env=CLEAN).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


_MOUNTS = {
    "fixed": "--ro-bind", "standing": "--ro-bind-try", "held": "--bind", "open": "--bind-try",
}  # fmt: skip


def _bubblewrap(
    cwd: str, limits: Confinement, layout: Layout, programs: list[str], environ: Mapping[str, str]
) -> list[str]:
    # Drop all capabilities: else a program of a root host could undo the following mounts.
    options = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
    options += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108
    if limits.network:
        options.append("--share-net")
    for path in (*_SYSTEM, *_ETC, *programs, *limits.read, *limits.write):
        options += ["--ro-bind-try", path, path]
    for path in layout.write:
        options += ["--bind-try", path, path]
    for item in layout.mounts:
        if item.mode != "hidden":
            options += [_MOUNTS[item.mode], item.path, item.path]
        elif posixpath.isdir(item.path):
            options += ["--tmpfs", item.path]
            for name in item.shown:
                path = posixpath.join(item.path, name)
                options += ["--ro-bind-try", path, path]
        else:
            options += ["--ro-bind", os.devnull, item.path]
    options.append("--clearenv")
    for name, value in environ.items():
        options += ["--setenv", name, value]
    return [*options, "--chdir", cwd]


def _sealed(data: bytes) -> int:
    """Return an unnamed file with `data`, for a process that inherits it and reads it from its start."""
    descriptor = os.memfd_create("forestay-launch") if hasattr(os, "memfd_create") else _unnamed()
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _unnamed() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _programs(search: str) -> list[str]:
    """Return the folders of the search path and the libraries beside them, except those of the system."""
    found: list[str] = []
    for entry in search.split(os.pathsep):
        if not entry.startswith("/"):
            continue
        real = os.path.realpath(entry)
        if real.startswith(tuple(folder + "/" for folder in _SYSTEM)) or real in ("/", *_SYSTEM):
            continue
        found.append(real)
        if posixpath.basename(real) in ("bin", "sbin"):
            found += [
                posixpath.join(posixpath.dirname(real), name) for name in ("lib", "lib64", "libexec", "pyvenv.cfg")
            ]
        elif posixpath.basename(real) == "shims" and not _holds_home(posixpath.dirname(real)):
            found.append(posixpath.dirname(real))  # of a version manager: each shim starts a program beside it
    return found


def _holds_home(folder: str) -> bool:
    return (os.path.realpath(Path.home()) + "/").startswith(folder.rstrip("/") + "/")
