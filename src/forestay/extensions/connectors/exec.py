"""Runs programs: confined, with a deadline and limits; stopping one also stops everything that it started.

Operations: `run` (the default), and during a streamed `run` also `write` to its standard input and `kill`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import os
import posixpath
import re
import shlex
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forestay.extensions.connectors.contract import Call, Output, io_problem, number, text
from forestay.extensions.connectors.doorway import Doorway
from forestay.extensions.connectors.environment import Environment
from forestay.extensions.connectors.hosted import Hosted, Serve
from forestay.extensions.connectors.paths import Roots, resolve
from forestay.extensions.connectors.process import MAX_OUTPUT, Process
from forestay.extensions.layout import Confinement
from forestay.extensions.protection import Protected, of_git
from forestay.extensions.sandbox import Prepared, Sandbox
from forestay.extensions.stand_ins import standing_in
from forestay.kernel import Problem

MAX_RUNNING = 32
_SHELL = "/bin/sh"
_QUOTED = re.compile(r"""'[^']*'|"[^"$`\\!]*\"""")  # a shell takes this literally
_MEANT_FOR_A_SHELL = frozenset("|&;<>()$`\\*?[]#~{}!\n=\"'")


class ExecConnector:
    method = "exec"

    def __init__(
        self,
        *,
        environment: Environment | None = None,
        sandbox: Sandbox | None = None,
        temp: str | None = None,
        unconfined: bool = False,
        hosted: Mapping[str, Serve] | None = None,
        loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None,
    ) -> None:
        """`hosted` maps names to programs that the host itself provides; they run on `loop`."""
        self._hosted = hosted or {}
        self._loop = loop
        self._environment = environment or Environment()
        self._sandbox = sandbox
        self._temp = temp
        self._unconfined = unconfined
        self._running: dict[tuple[str, str], Process | Hosted | None] = {}  # None while it starts
        self._lock = threading.Lock()

    @property
    def sandbox(self) -> Sandbox:
        return self._sandbox or Sandbox.detect()

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        operation = params.get("op", "run")
        try:
            if operation == "run":
                return self._start(call, params)
            if operation in ("write", "kill"):
                return self._steer(call, operation, params)
        except OSError as error:
            raise io_problem(error, params.get("command")) from error
        raise Problem("invalid_request", f"There is no exec operation {operation!r}.", at="$.params.op")

    def _start(self, call: Call, params: Mapping[str, Any]) -> Output:
        params = {**params, **_options(params)}
        if (own := self._own(call, params)) is not None:
            return self._served(call, params, own)
        check_confined(self.sandbox, unconfined=self._unconfined)
        cwd = self._folder(call, params)
        temp = call.roots.temp or self._temp
        environ = self._environment.for_process(call, params.get("env"), temp=temp)
        command = _command(params, cwd, environ["PATH"])
        limits = confinement(call, cwd, temp)
        call.facts = {"sandbox": self.sandbox.kind, "network": limits.network}
        given = _input(params)
        key = (call.extension, str(params.get("process", call.call_id)))
        self._reserve(key)
        prepared = self.sandbox.prepare(limits)
        try:
            with standing_in(prepared.stand_ins), self._doors(call, temp, environ["PATH"]) as environ["PATH"]:
                process = self._launched(call, command, cwd, prepared, environ, given)
                self._running[key] = process
                call.on_cancel(lambda: process.kill("cancelled"))
                limit = number(params, "max_output_bytes", MAX_OUTPUT, most=MAX_OUTPUT)
                timeout = number(params, "timeout", 0) or number(params, "timeout_ms", 0)
                outcome = process.run(call, timeout=timeout / 1000 or None, limit=limit)
        finally:
            with self._lock:
                self._running.pop(key, None)
        if outcome["timed_out"] and call.remaining(1.0) <= 0:
            raise Problem("timeout", "The command was stopped at the call's deadline.", killed=True)
        return self._report(call, params, limits, outcome)

    @contextlib.contextmanager
    def _doors(self, call: Call, temp: str | None, search: str) -> Iterator[str]:
        """Yield a PATH on which a program finds the host's own programs first."""
        loop = self._loop()
        with contextlib.ExitStack() as opened:
            if loop is not None and temp is not None:
                for name, serve in self._hosted.items():
                    door = opened.enter_context(contextlib.closing(Doorway(name, serve, loop, call, temp)))
                    search = f"{door.folder}{os.pathsep}{search}"
            yield search

    def _own(self, call: Call, params: Mapping[str, Any]) -> Hosted | None:
        """Return the host's own program that a command names, if any."""
        argv, loop = plain_command(params), self._loop()
        serve = self._hosted.get(argv[0]) if argv else None
        if serve is None or loop is None:
            return None
        cwd = self._folder(call, params)
        return Hosted(serve, loop, argv[1:], cwd, stdin=_input(params), live=call.streaming)

    def _served(self, call: Call, params: Mapping[str, Any], process: Hosted) -> Output:
        key = (call.extension, str(params.get("process", call.call_id)))
        self._reserve(key)
        call.facts = {"sandbox": "host", "network": False}
        try:
            self._running[key] = process
            call.on_cancel(lambda: process.kill("cancelled"))
            timeout = number(params, "timeout", 0) or number(params, "timeout_ms", 0)
            outcome = process.run(call, timeout=timeout / 1000 or None, limit=MAX_OUTPUT)
        finally:
            with self._lock:
                self._running.pop(key, None)
        stdout, stderr = outcome.pop("stdout"), outcome.pop("stderr")
        return {**outcome, "exitCode": outcome["code"], "sandbox": "host", **_said(params, stdout, stderr)}

    def _reserve(self, key: tuple[str, str]) -> None:
        """Reserve a name before the program starts: a name runs one program, an extension at most `MAX_RUNNING`."""
        with self._lock:
            if key in self._running:
                raise OSError(errno.EEXIST, f"a program {key[1][:80]!r} is already running")
            if sum(1 for owner, _ in self._running if owner == key[0]) >= MAX_RUNNING:
                raise OSError(errno.EAGAIN, f"at most {MAX_RUNNING} programs may run at a time")
            self._running[key] = None

    def _launched(
        self, call: Call, command: Sequence[str], cwd: str, prepared: Prepared, environ: Mapping[str, str],
        given: bytes | None,
    ) -> Process:  # fmt: skip
        launch = self.sandbox.wrap(command, cwd, prepared, environ, search=self._environment.search)
        try:
            return Process(launch, stdin=given, live=call.streaming)
        finally:
            os.close(launch.descriptor)

    def _report(self, call: Call, params: Mapping[str, Any], limits: Confinement, outcome: Output) -> Output:
        stdout, stderr = outcome.pop("stdout"), outcome.pop("stderr")
        output: Output = {**outcome, "exitCode": outcome["code"], "sandbox": self.sandbox.kind}
        said = (stderr or stdout)[-4096:].decode("utf-8", "replace")  # a shell may redirect stderr to stdout
        note = self.sandbox.explains(outcome["code"], said, limits)
        if note:
            # The note goes where each reader of the error looks: extension, model, user and evidence.
            output["note"] = call.facts["note"] = note
            told = f"[{note}]\n".encode()
            stderr += told if not stderr or stderr.endswith(b"\n") else b"\n" + told
            if call.streaming:
                call.emit({"stream": "stderr", "base64": base64.b64encode(told).decode()})
        return {**output, **_said(params, stdout, stderr)}

    def _steer(self, call: Call, operation: str, params: Mapping[str, Any]) -> Output:
        with self._lock:
            process = self._running.get((call.extension, text(params, "process")))
        if process is None:
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        if operation == "kill":
            process.signal(_signal(params.get("signal", "SIGTERM")))
        else:
            process.write(base64.b64decode(text(params, "base64", "")), end=params.get("end") is True)
        return {}

    def _folder(self, call: Call, params: Mapping[str, Any]) -> str:
        path = params.get("cwd") or call.roots.cwd
        if not isinstance(path, str):
            raise Problem("schema_mismatch", "`cwd` must be a string.", at="$.params.cwd")
        with resolve(call.roots, path) as place:
            if not Path(place.real).is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return place.real


def _said(params: Mapping[str, Any], stdout: bytes, stderr: bytes) -> Output:
    if params.get("encoding") == "base64":
        return {
            name: {"base64": base64.b64encode(data).decode()} for name, data in (("stdout", stdout), ("stderr", stderr))
        }
    return {"stdout": stdout.decode("utf-8", "replace"), "stderr": stderr.decode("utf-8", "replace")}


def plain_command(params: Mapping[str, Any]) -> list[str]:
    """Return the words of a command that needs no shell; an empty list when it needs one."""
    command, arguments = params.get("command"), params.get("args") or []
    if not isinstance(command, str) or not isinstance(arguments, list):
        return []
    if not params.get("shell"):
        return [command, *map(str, arguments)]
    line = " ".join([command, *map(str, arguments)])
    if _MEANT_FOR_A_SHELL & set(_QUOTED.sub("", line)):
        return []
    try:
        return shlex.split(line)
    except ValueError:
        return []


def check_confined(sandbox: Sandbox, *, unconfined: bool) -> None:
    """Refuse to run without a sandbox, unless a person allowed it: such a program could change the settings."""
    if sandbox.kind == "none" and not unconfined:
        raise Problem(
            "program_unconfined",
            "The program was not started: neither bubblewrap nor Landlock works here.",
            errno="EACCES",
            fix="Install bubblewrap, or set `unconfined_programs = true` under [extensions.policy].",
        )


def confinement(call: Call, cwd: str, temp: str | None) -> Confinement:
    """Return the limits of a command: what its extension may use, as far as a sandbox can enforce it.

    A command may read the folder that it runs in; writing and the network need their own capability.
    """
    read: list[str] = []
    write = [temp] if temp else []
    for root in call.roots.items:
        resource = "." if root is call.roots.items[0] else root.real
        if root.private:
            (write if root.writable else read).append(root.real)
        elif root.writable and call.policy.granted("write", resource):
            write.append(root.real)
        elif call.policy.granted("read", resource) or (resource == "." and not call.policy.refused("read", resource)):
            read.append(root.real)
            write += _parts(call, root.real) if resource == "." else ()
    return Confinement(
        tuple(read), tuple(write), network=call.policy.granted("http", ""), places=_places(call.roots, (*read, *write))
    )


def _places(roots: Roots, used: Sequence[str]) -> tuple[Protected, ...]:
    """Return the protected places inside or around the folders that a command uses; git's are looked up now."""
    if roots.kept is None:
        return ()
    every = (*roots.kept.places, *of_git(roots.items[0].real, roots.kept.lifted))
    return tuple(
        item for item in every if any(posixpath.commonpath((item.path, path)) in (item.path, path) for path in used)
    )


def _parts(call: Call, project: str) -> list[str]:
    """Return the project's folders and files that a `write` grant names completely; links elsewhere are left out."""
    found: list[str] = []
    for pattern in call.policy.scopes("write"):
        name = pattern.removesuffix("/**")
        path = posixpath.join(project, name)
        plain = not any(mark in name for mark in "*?") and not name.startswith("/")
        if plain and posixpath.exists(path) and posixpath.realpath(path) == posixpath.normpath(path):
            found.append(path)
    return found


def _options(params: Mapping[str, Any]) -> Mapping[str, Any]:
    options = params.get("options")
    return options if isinstance(options, Mapping) else {}


def _command(params: Mapping[str, Any], cwd: str, search: str) -> Sequence[str]:
    command = text(params, "command")
    arguments = params.get("args") or []
    if not isinstance(arguments, list) or not all(isinstance(item, str) and "\0" not in item for item in arguments):
        raise Problem("schema_mismatch", "`args` must be a list of strings.", at="$.params.args")
    shell = params.get("shell")
    if shell:
        program = shell if isinstance(shell, str) else _SHELL
        return [find_program(program, cwd, search), "-c", " ".join([command, *arguments])]
    return [find_program(command, cwd, search), *arguments]


def find_program(program: str, cwd: str, search: str) -> str:
    """Return the path of a command: on the search path, or relative to the folder that it runs in."""
    path = posixpath.join(cwd, program) if "/" in program else program
    found = shutil.which(path, path=search)
    if not program or found is None:
        if program and Path(path).is_file():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return found


def _input(params: Mapping[str, Any]) -> bytes | None:
    value = params.get("input")
    if value is None:
        return None
    if isinstance(value, Mapping):
        return base64.b64decode(str(value.get("base64", "")))
    return str(value).encode("utf-8", "replace")


def _signal(value: Any) -> signal.Signals:
    try:
        return signal.Signals(value) if isinstance(value, int) else signal.Signals[str(value)]
    except (KeyError, ValueError):
        raise Problem("invalid_request", f"There is no signal {value!r}.", at="$.params.signal") from None
