"""`forestay` as a process of its own, forked from one that has imported it already.

A command takes a fifth of a second to do its work and most of a second to import what it needs. One process for each
pytest worker imports everything once; each command is a fork of it, with its own folder, environment, input and
output. What a test says about the start of the interpreter itself (imports, `-P`, encodings) starts a real one.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

PIPE = subprocess.PIPE
_ASKING = threading.Lock()
_ROOT = Path(__file__).parents[1]


class Forked:
    """A command that runs; what a test asks of `subprocess.Popen`."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        environ: Mapping[str, str] | None = None,
        stdin: int | None = None,
        stdout: int | None = PIPE,
        stderr: int | None = None,
        terminal: int | None = None,
        module: str = "forestay",
    ) -> None:
        """Without `environ` it has this process's own; a `terminal` controls it and is its input and output.

        A `module` of the tests is run as `python -m module` would.
        """
        if terminal is not None:
            stdin = stdout = stderr = terminal
        self.stdout, out = _pipe(stdout, 1)
        self.stderr, err = _pipe(stderr, 2)
        self._reply, reply = os.pipe()
        source = os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin)
        given = dict(os.environ if environ is None else environ)
        asked = {"words": words, "folder": str(folder), "environ": given, "module": module}
        asked["terminal"] = terminal is not None
        try:
            with _ASKING:
                line = json.dumps(asked).encode() + b"\n"
                sent = socket.send_fds(_parent(), [line], [source, out, err, reply])
                _parent().sendall(line[sent:])
        finally:
            for number in (source, out, err, reply):
                os.close(number)
        self.returncode: int | None = None
        self.pid = int(self._line(None))

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._reply], [], [], 0)[0]:
            self._ended(None)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._ended(timeout)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """All that it writes; the pipes are read together, so that neither blocks it."""
        streams = {stream.fileno(): bytearray() for stream in (self.stdout, self.stderr) if stream is not None}
        held = list(streams)
        until = None if timeout is None else time.monotonic() + timeout
        while held:
            left = None if until is None else max(0.0, until - time.monotonic())
            ready = select.select(held, [], [], left)[0]
            if not ready:
                self.kill()
                raise subprocess.TimeoutExpired("forestay", timeout or 0)
            for number in ready:
                data = os.read(number, 1 << 16)
                streams[number] += data
                if not data:
                    held.remove(number)
        self.wait(timeout)
        texts = [b"" if stream is None else bytes(streams[stream.fileno()]) for stream in (self.stdout, self.stderr)]
        self.close()
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()

    def _ended(self, timeout: float | None) -> None:
        self.returncode = os.waitstatus_to_exitcode(int(self._line(timeout)))
        os.close(self._reply)

    def _line(self, timeout: float | None) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            if not select.select([self._reply], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("forestay", timeout or 0)
            letter = os.read(self._reply, 1)
            if not letter:
                raise RuntimeError("The process that commands are forked from has ended.")
            line += letter
        return bytes(line)


def forestay(
    folder: Path, *words: str, environ: Mapping[str, str] | None = None, stdin: str = "", timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; without `environ` it has this process's own."""
    with tempfile.TemporaryFile() as given:
        given.write(stdin.encode())
        given.seek(0)
        command = Forked(folder, *words, environ=environ, stdin=given.fileno(), stderr=PIPE)
    return _completed(command, words, timeout)


def python(module: str, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests to its end, in the project's folder."""
    return _completed(Forked(_ROOT, *words, stderr=PIPE, module=module), (module, *words), timeout)


def _completed(command: Forked, words: tuple[str, ...], timeout: float) -> subprocess.CompletedProcess[str]:
    out, err = command.communicate(timeout)
    return subprocess.CompletedProcess(words, command.wait(), out.decode(), err.decode())


def _pipe(asked: int | None, own: int) -> tuple[IO[bytes] | None, int]:
    """The stream that a test reads, and the descriptor that the command writes to."""
    if asked == PIPE:
        read, write = os.pipe()
        return os.fdopen(read, "rb"), write
    if asked == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_WRONLY)
    return None, os.dup(own if asked is None else asked)


def _parent() -> socket.socket:
    """The connection to the process that forks."""
    return _started()[0]


@cache
def _started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """That process, which ends with this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-P", "-c", "from tests.forked import serve; serve()", str(theirs.fileno())]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])}
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environ)
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours, process


def serve() -> None:
    """Import everything, then fork for each request until the other side is gone."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    asked.set_inheritable(False)
    if "FORESTAY_TEST_SERVER" in os.environ:
        from tests.kernel.ledger.at_path import use_postgres

        use_postgres()
    _import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, numbers, _, _ = socket.recv_fds(asked, 1 << 18, 4)
        while data and not data.endswith(b"\n"):
            data += asked.recv(1 << 18)
        if not data:
            return
        if os.fork() == 0:
            asked.close()
            _keep(json.loads(data), numbers)
        for number in numbers:
            os.close(number)


def _import_all() -> None:
    import forestay

    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    for module in pkgutil.walk_packages(forestay.__path__, "forestay.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # it needs an extra that is not installed
                continue
    threads = Path("/proc/self/task")
    assert not threads.exists() or len([*threads.iterdir()]) == 1, "a thread does not survive a fork"
    gc.collect()
    gc.freeze()


def _keep(asked: dict[str, Any], numbers: list[int]) -> None:
    """Start the command, say its number, wait for its end, say how it ended."""
    reply = numbers.pop()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command == 0:
        os.close(reply)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _perform(asked, numbers)
    for number in (0, 1, 2, *numbers):
        os.close(number)
    os.write(reply, b"%d\n" % command)
    os.write(reply, b"%d\n" % os.waitpid(command, 0)[1])
    os._exit(0)


def _perform(asked: dict[str, Any], numbers: list[int]) -> None:
    for own, number in enumerate(numbers):
        os.dup2(number, own)
        os.close(number)
    if asked["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, mode), encoding="utf-8", errors=errors, line_buffering=lines)
        for number, mode, errors, lines in (
            (0, "rb", "strict", False),
            (1, "wb", "strict", os.isatty(1)),
            (2, "wb", "backslashreplace", True),
        )
    )
    sys.argv = [asked["module"], *asked["words"]]
    code = 1
    try:
        runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 120
        os._exit(code)
