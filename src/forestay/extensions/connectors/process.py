"""One running program: passes its output on in parts or whole, and makes sure that it ends."""

from __future__ import annotations

import base64
import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from forestay.extensions.connectors.contract import Call, Output
from forestay.extensions.sandbox import CLEAN, Launch
from forestay.kernel import Problem

MAX_OUTPUT = 16 * 1024 * 1024
_CHUNK = 64 * 1024
_TURN = 0.05
_GRACE = 1.0


class Process:
    """Runs a command in its own session, so that its whole process tree can be ended together."""

    def __init__(self, launch: Launch, *, stdin: bytes | None, live: bool) -> None:
        self._pending = bytearray(stdin or b"")
        self._ended_input = stdin is not None or not live
        self._wants_input = stdin is not None or live
        self._lock = threading.Lock()
        self._stopped: str | None = None
        self._child = subprocess.Popen(
            launch.argv,
            cwd="/",
            env=CLEAN,
            pass_fds=[launch.descriptor],
            stdin=subprocess.PIPE if self._wants_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, call: Call, *, timeout: float | None, limit: int) -> Output:
        """Run to the end; return {stdout, stderr, code, signal, killed, truncated}. A streaming call gets chunks."""
        started = time.monotonic()
        parts: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        truncated = False
        if call.streaming:
            call.emit({"pid": self._child.pid})
        try:
            for name, data in self._output(call, started, timeout):
                if call.streaming:
                    call.emit({"stream": name, "base64": base64.b64encode(data).decode()})
                    continue
                room = limit - len(parts[name])
                parts[name] += data[:room]
                if len(data) > room:
                    truncated = True
                    self.kill("output")
        except Problem:
            self.kill("cancelled")
            raise
        finally:
            self._end()
        if call.cancelled.is_set():
            raise Problem("cancelled", "The call was cancelled; the program was stopped.")
        code = self._child.returncode
        return {
            "stdout": bytes(parts["stdout"]),
            "stderr": bytes(parts["stderr"]),
            "code": code if code >= 0 else None,
            "signal": _name(-code) if code < 0 else None,
            "killed": self._stopped is not None,
            "timed_out": self._stopped == "timeout",
            "truncated": truncated,
        }

    def _output(self, call: Call, started: float, timeout: float | None) -> Any:
        assert self._child.stdout is not None and self._child.stderr is not None
        with selectors.DefaultSelector() as selector:
            for name, pipe in (("stdout", self._child.stdout), ("stderr", self._child.stderr)):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, name)
            ended_at: float | None = None
            while selector.get_map():
                if self._stopped is None:
                    late = timeout is not None and time.monotonic() - started >= timeout
                    if late or call.remaining(1.0) <= 0:
                        self.kill("timeout")
                self._feed()
                for key, _ in selector.select(_TURN):
                    data = os.read(key.fd, _CHUNK)
                    if data:
                        yield key.data, data
                    else:
                        selector.unregister(key.fileobj)
                # A grandchild may keep the pipe open after the program has ended; it gets `_GRACE` seconds.
                if self._child.poll() is not None:
                    ended_at = ended_at or time.monotonic()
                    if time.monotonic() - ended_at > _GRACE:
                        return

    def _feed(self) -> None:
        pipe = self._child.stdin
        if pipe is None or pipe.closed:
            return
        with self._lock:
            try:
                if self._pending:
                    os.set_blocking(pipe.fileno(), False)
                    del self._pending[: os.write(pipe.fileno(), self._pending[:_CHUNK])]
                if not self._pending and self._ended_input:
                    pipe.close()
            except BlockingIOError:
                return
            except OSError:
                self._pending.clear()
                with contextlib.suppress(OSError):
                    pipe.close()

    def write(self, data: bytes, *, end: bool) -> None:
        with self._lock:
            if len(self._pending) + len(data) > MAX_OUTPUT:
                raise Problem("payload_too_large", "The program does not read its input.", limit=MAX_OUTPUT)
            self._pending += data
            self._ended_input = self._ended_input or end
        self._feed()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and its children."""
        if number == signal.SIGKILL:
            self.kill("killed")
        elif self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def kill(self, why: str) -> None:
        """Kill the whole tree: the process group, and descendants that left it."""
        self._stopped = self._stopped or why
        if self._child.poll() is None:
            kill_tree(self._child.pid)

    def _end(self) -> None:
        if self._child.poll() is None:
            try:
                self._child.wait(_GRACE if self._stopped is None else 5)
            except subprocess.TimeoutExpired:
                self.kill("killed")
                self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def kill_tree(pid: int) -> None:
    """Kill the leader of a process group, the group, and descendants that left it."""
    family = descendants(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for member in family:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Return every process below `pid` from `/proc`; empty where there is no `/proc`."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
