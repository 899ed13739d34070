"""The last step before a command runs: gives up every right that the command must not have, then becomes it.

It runs as its own program (`python -I -S launch.py DESCRIPTOR -- COMMAND…`), with the standard library only. The open
file has the instructions and the command's environment. The steps: new process, mount and network namespaces where
the system allows them; a process 1 whose end kills all descendants; resource limits; Landlock; exec. `--probe` prints
what works here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import stat
import struct
import sys
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_REC_PRIVATE = 0x4000 | 0x40000
_MS_BIND_REC, _MS_NO_SUID_DEV_EXEC = 0x1000 | 0x4000, 2 | 4 | 8
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _READ_ONLY = 442, -100, 0x8000, 1
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 38, 36
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _CAP_VERSION = 23, 24, 47, 0x20080522
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446

# Rights of Landlock, by the version that added them.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE = 0b1_1111_1111_0000  # remove and make: bits 4 to 12
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: list[str]) -> int:
    if arguments == ["--probe"]:
        print(json.dumps(probe()))  # noqa: T201 - this is the program's answer
        return 0
    with open(int(arguments[0]), "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        spec = json.loads(file.read())
    command = arguments[arguments.index("--") + 1 :]
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if not spec.get("namespaces") or not _new_namespaces(network=not spec["network"]):
        if spec["mounts"]:
            _refuse("the protected places could not be mounted")
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _become(spec, command)
    return _stand_by(spec, command)


def probe() -> dict[str, Any]:
    """Return which restrictions this system lets an ordinary process set up."""
    child = os.fork()
    if child == 0:
        worked = _new_namespaces(network=True)
        if worked:
            inner = os.fork()
            if inner == 0:
                os._exit(0)
            worked = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) == 0
        os._exit(0 if worked else 1)
    namespaces = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return {"landlock": max(0, landlock_version()), "namespaces": namespaces}


def _new_namespaces(*, network: bool) -> bool:
    flags = _NEWNS | _NEWIPC | _NEWPID | (_NEWNET if network else 0)
    user, group = os.getuid(), os.getgid()
    if user != 0:
        flags |= _NEWUSER
    if _libc.unshare(flags) != 0:
        return False
    if user != 0:
        try:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{user} {user} 1")
            _write("/proc/self/gid_map", f"{group} {group} 1")
        except OSError:
            return False
    return bool(_libc.mount(None, b"/", None, _MS_REC_PRIVATE, None) == 0)


def _stand_by(spec: dict[str, Any], command: list[str]) -> int:
    """Start process 1 of the new namespace, wait for it, and end in the same way as the command."""
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    reader, writer = os.pipe()
    init = os.fork()
    if init == 0:
        os.close(reader)
        _init(spec, command, writer)
    os.close(writer)
    os.waitpid(init, 0)
    report = os.read(reader, 4)
    code = os.waitstatus_to_exitcode(struct.unpack("i", report)[0]) if len(report) == 4 else -signal.SIGKILL
    if code >= 0:
        return code
    with contextlib.suppress(OSError, ValueError):
        signal.signal(-code, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), -code)
    return 128 - code


def _init(spec: dict[str, Any], command: list[str], writer: int) -> None:
    """Run as process 1: when it ends, everything that the command started ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    spec["proc"] = _libc.mount(b"proc", b"/proc", b"proc", 2 | 4 | 8, None) == 0
    if not _arrange(spec["mounts"]):
        _refuse("the protected places could not be mounted")
    main_child = os.fork()
    if main_child == 0:
        os.close(writer)
        _become(spec, command)
    while True:
        ended, status = os.wait()
        if ended == main_child:
            os.write(writer, struct.pack("i", status))
            os._exit(0)


def _arrange(mounts: list[tuple[str, str, list[str]]]) -> bool:
    """Make the mounts of the layout: read-only, hidden, or a separate mount that cannot be moved.

    Places that stay writable are opened first: opened later, below a folder that is then read-only, they would be
    read-only too.
    """
    opened = {}
    for mode, path, _ in mounts:
        if mode in ("held", "open"):
            with contextlib.suppress(OSError):
                opened[path] = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    done = all(_mounted(mode, path, shown, opened.get(path)) for mode, path, shown in mounts)
    for descriptor in opened.values():
        os.close(descriptor)
    return done


def _mounted(mode: str, path: str, shown: list[str], descriptor: int | None) -> bool:
    if mode == "hidden":
        return _hidden(path, shown)
    if mode in ("held", "open"):
        gone = mode == "open" and descriptor is None
        return gone or (descriptor is not None and _bound(f"/proc/self/fd/{descriptor}", path, read_only=False))
    if mode == "standing" and not os.path.lexists(path):
        return True  # the host has no right to create it, so neither has the command
    return _bound(path, path, read_only=True)


def _hidden(path: str, shown: list[str]) -> bool:
    """Hide a file behind `/dev/null`; hide a folder behind an empty one with only the `shown` entries."""
    if not os.path.isdir(path):  # noqa: PTH112 - pathlib would double this program's start-up
        return _bound("/dev/null", path, read_only=True)
    kept = {}
    for name in shown:
        with contextlib.suppress(OSError):
            kept[name] = os.open(f"{path}/{name}", os.O_PATH | os.O_NOFOLLOW)
    done = _libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", _MS_NO_SUID_DEV_EXEC, b"mode=755") == 0
    for name, descriptor in kept.items():
        place = f"{path}/{name}"
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112 - as above
            os.mkdir(place)  # noqa: PTH102
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
        done = done and _bound(f"/proc/self/fd/{descriptor}", place, read_only=True)
        os.close(descriptor)
    return bool(done)


def _bound(source: str, place: str, *, read_only: bool) -> bool:
    """Mount `source` at `place`, including the mounts inside it."""
    there = os.fsencode(place)
    if _libc.mount(os.fsencode(source), there, None, _MS_BIND_REC, None) != 0:
        return False
    wanted = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    if not read_only:
        return True
    return bool(_libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, there, _AT_RECURSIVE, wanted, len(wanted)) == 0)


def _refuse(why: str) -> None:
    os.write(2, f"forestay: {why}; it was not run\n".encode())
    os._exit(126)


def _become(spec: dict[str, Any], command: list[str]) -> None:
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_DFL)
    for name, value in spec.get("limits", {}).items():
        with contextlib.suppress(OSError, ValueError):
            limit = getattr(resource, "RLIMIT_" + name)
            hard = resource.getrlimit(limit)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (value, value))
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if spec.get("landlock"):
        confine(spec["read"] + (["/proc"] if spec.get("proc") else []), spec["write"], network=spec["network"])
    _give_up_powers()
    try:
        os.chdir(spec["cwd"])
        os.execvpe(command[0], command, spec["environ"])  # noqa: S606 - becoming the command is the purpose
    except OSError as error:
        os.write(2, f"{command[0]}: {os.strerror(error.errno or 0)}\n".encode())
        os._exit(126 if error.errno == 13 else 127)


def _give_up_powers() -> None:
    """Drop all Linux capabilities for good: root without a user namespace could set the machine's clock or name."""
    for number in range(64):
        if _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) == 1:
            _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    _libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)  # clear all
    done = _libc.capset(struct.pack("Ii", _CAP_VERSION, 0), struct.pack("6I", 0, 0, 0, 0, 0, 0)) == 0
    if not done or (os.getuid() == 0 and any(_libc.prctl(_PR_CAPBSET_READ, n, 0, 0, 0) == 1 for n in range(64))):
        _refuse("the command could not be made powerless")


def landlock_version() -> int:
    return int(_libc.syscall(_LANDLOCK_CREATE, None, 0, 1))


def confine(read: list[str], write: list[str], *, network: bool) -> None:
    """Apply Landlock: read and execute below `read`, everything below `write`, nothing elsewhere."""
    version = landlock_version()
    reading = _EXECUTE | _READ_FILE | _READ_DIR
    everything = reading | _WRITE_FILE | _MAKE
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL)):
        if version >= since:
            everything |= right
    tcp = 3 if version >= 4 and not network else 0
    scoped = 3 if version >= 6 else 0  # no abstract sockets, no signals out of the sandbox
    fields = struct.pack("QQQ", everything, tcp, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _libc.syscall(_LANDLOCK_CREATE, fields, len(fields), 0)
    if ruleset < 0:
        _refuse("Landlock refused its rules for the command")
    for paths, rights in ((read, reading), (write, everything)):
        for path in paths:
            _allow(ruleset, path, rights, follow=paths is read)
    if _libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) != 0:
        _refuse("Landlock could not be applied to the command")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, *, follow: bool) -> None:
    """Add a rule for `path`; a rule that allows writing never follows a link."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except OSError:
        return  # a missing path needs no rule
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        rights &= _FILE_RIGHTS
    _libc.syscall(_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", rights, descriptor), 0)
    os.close(descriptor)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
