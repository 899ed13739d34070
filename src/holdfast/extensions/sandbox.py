"""How a command of an extension is confined: bubblewrap where it works, else Landlock, else not, and said so.

A sandboxed command sees the system's programs, the folders that were granted, a private temporary folder, no other
process of the host, and no network unless `http` is granted without a scope (a process cannot be held to hosts).
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

Kind = Literal["bubblewrap", "landlock", "none"]

_LAUNCH = str(Path(__file__).with_name("launch.py"))
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/opt", "/snap")
# What programs need of /etc: how to link, resolve names and trust certificates. Not who lives here.
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
    "network is unreachable", "could not resolve host", "temporary failure in name resolution", "enetunreach",
    "name or service not known", "eai_again",
)  # fmt: skip


class Confinement(msgspec.Struct, frozen=True):
    """What one command may touch."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False


class Launch(msgspec.Struct, frozen=True):
    """A command line, and the open file that it reads its instructions from; close it once the program runs."""

    argv: list[str]
    descriptor: int


CLEAN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
"""What the program that builds the sandbox gets to see."""


class Sandbox(msgspec.Struct, frozen=True):
    """The strongest confinement that this system offers."""

    kind: Kind
    namespaces: bool = False
    landlock: int = 0

    @classmethod
    def detect(cls) -> Sandbox:
        """The strongest one."""
        return _offered()[0]

    @classmethod
    def offered(cls) -> tuple[Sandbox, ...]:
        """All that work here, strongest first; the last is none."""
        return _offered()

    @property
    def describes(self) -> str:
        """One sentence for prompts, `doctor` and evidence."""
        if self.kind == "bubblewrap":
            return "Commands run in bubblewrap: granted folders only, own processes, no network unless granted."
        if self.kind == "landlock":
            parts = "own processes and network" if self.namespaces else "shared process table; TCP only is blocked"
            return f"Commands run under Landlock version {self.landlock}: granted folders only, {parts}."
        return "Commands run UNCONFINED: this system offers neither bubblewrap nor Landlock."

    def wrap(self, command: Sequence[str], cwd: str, limits: Confinement, environ: Mapping[str, str]) -> Launch:
        """How to run `command` confined.

        What the extension chose (its variables, its paths) travels in a file of its own and takes effect inside:
        the program that builds the sandbox runs with a clean environment, so that no LD_PRELOAD reaches it.
        """
        programs = _programs(environ.get("PATH", ""))
        if self.kind == "bubblewrap":
            options = _bubblewrap(cwd, limits, programs, environ)
            descriptor = _sealed(b"".join(os.fsencode(option) + b"\0" for option in options))
            return Launch(["bwrap", "--args", str(descriptor), "--", *command], descriptor)
        spec = {
            "cwd": cwd,
            "environ": dict(environ),
            "landlock": self.kind == "landlock",
            "namespaces": self.namespaces,
            "network": limits.network,
            "read": [*_SYSTEM, *_ETC, *programs, *limits.read],
            "write": [*_DEVICES, *limits.write],
            "limits": _LIMITS,
        }
        descriptor = _sealed(json.dumps(spec).encode())
        return Launch([sys.executable, "-I", "-S", _LAUNCH, str(descriptor), "--", *command], descriptor)

    def explains(self, code: int | None, errors: str, limits: Confinement) -> str | None:
        """Why a command may have failed in here, and the grant that would change it."""
        if self.kind == "none" or not code:
            return None
        low = errors.lower()
        if not any(sign in low for sign in _SIGNS):
            return None
        wants_network = any(sign in low for sign in _SIGNS[5:])
        if wants_network and limits.network:
            return None
        grant = "--grant http" if wants_network else "--grant write (or write:FOLDER/**)"
        return f"The {self.kind} sandbox may have refused this. To allow it: {grant}."


@functools.cache
def _offered() -> tuple[Sandbox, ...]:
    if sys.platform != "linux":
        return (Sandbox("none"),)
    found: list[Sandbox] = []
    if shutil.which("bwrap") and _succeeds(["bwrap", *_bubblewrap("/", Confinement(), [], {}), "--", "true"]):
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


def _bubblewrap(cwd: str, limits: Confinement, programs: list[str], environ: Mapping[str, str]) -> list[str]:
    options = ["--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108
    if limits.network:
        options.append("--share-net")
    for path in (*_SYSTEM, *_ETC, *programs, *limits.read):
        options += ["--ro-bind-try", path, path]
    for path in limits.write:
        options += ["--bind-try", path, path]
    options.append("--clearenv")
    for name, value in environ.items():
        options += ["--setenv", name, value]
    return [*options, "--chdir", cwd]


def _sealed(data: bytes) -> int:
    """An unnamed file with `data`, read from its start by whoever inherits it."""
    descriptor = os.memfd_create("holdfast-launch") if hasattr(os, "memfd_create") else _unnamed()
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _unnamed() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _programs(search: str) -> list[str]:
    """The folders that programs are found in, and the libraries beside them, where the system's do not cover them."""
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
    return found
