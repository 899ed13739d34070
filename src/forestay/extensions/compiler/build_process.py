"""Builds in a process of their own: the host answers meanwhile, and a build that takes too long is ended.

K1  The event loop only waits: bundling, scanning and inference happen in a child process, which the next build uses
    again. Several builds at a time have a child each.
K2  A build has a deadline. When it passes, or nobody waits for the build any more, the child is killed with everything
    that it started, and the next build gets a new one.
K3  A child ends with the process that started it, whatever it is doing.
K4  A child hands over what it compiled and keeps nothing: only the host can seal what goes into the cache.
K5  A build says what it does: the caller's loop hears each step before the build's end.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from forestay.extensions.compiler.artifact import Artifact, enforce
from forestay.extensions.compiler.build_order import Built, Order, Step
from forestay.extensions.compiler.cache import Cache
from forestay.kernel import Problem, outside_work

BUILD_SECONDS = 60.0
_KEPT = 1  # idle children


class Child:
    """One process that builds one extension after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # Without -P the current folder, which may be anybody's project, would be searched for modules.
            [sys.executable, "-P", "-m", "forestay.extensions.compiler.build_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._talking = threading.Lock()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def build(self, path: Path, told: Callable[[str], None] = lambda words: None) -> Built:
        """Wait for one build, on a thread; a child that ends before it answers is a Problem."""
        order = Order(str(path.absolute()))
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with self._talking:
            try:
                stdin.write(msgspec.json.encode(order) + b"\n")
                stdin.flush()
                while isinstance(said := _said(stdout.readline()), Step):
                    told(said.words)
            except (OSError, ValueError):
                said = None
        if said is None:
            raise Problem("compile_failed", "The compiler ended before it answered.", at=Path(order.path).name)
        return said

    def kill(self) -> None:
        """End it, and the bundler that it started (K2)."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        with self._talking:  # waiting callers have heard that there is no answer
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()


class Workshop:
    """The children of this process."""

    def __init__(self) -> None:
        self._idle: list[Child] = []
        self._lock = threading.Lock()

    async def build(
        self,
        path: Path,
        cache: Cache | None,
        *,
        seconds: float = BUILD_SECONDS,
        told: Callable[[str], None] = lambda words: None,
    ) -> Artifact:
        """The artifact of the extension at `path`: as the cache has it, or built by a child (K1).

        `told` hears the steps of a build (K5)."""
        found = cache.find(path) if cache is not None else None
        if found is not None:
            enforce(found)
            return found
        loop = asyncio.get_running_loop()
        child = self._take()
        try:
            with outside_work(loop):
                work = asyncio.to_thread(child.build, path, lambda words: _tell(loop, told, words))
                built = await asyncio.wait_for(work, seconds)
        except BaseException as error:  # given up: by the deadline, by its caller, or by the child itself (K2)
            child.kill()
            if isinstance(error, TimeoutError):
                raise _too_slow(path, seconds) from None
            raise
        self._give_back(child)
        artifact = _taken(built)
        if cache is not None:
            with outside_work(loop):
                await asyncio.to_thread(cache.keep, path, artifact, built.looked_at)
        enforce(artifact)
        return artifact

    def idle(self) -> list[int]:
        """The process ids of the children that wait for work."""
        return [child.pid for child in self._idle]

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()

    def _take(self) -> Child:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.lives:
                    return child
        return Child()

    def _give_back(self, child: Child) -> None:
        with self._lock:
            if len(self._idle) < _KEPT:
                self._idle.append(child)
                return
        child.kill()


def _tell(loop: asyncio.AbstractEventLoop, told: Callable[[str], None], words: str) -> None:
    with suppress(RuntimeError):  # the loop was closed: nobody waits for the build any more
        loop.call_soon_threadsafe(told, words)


def _said(line: bytes) -> Step | Built | None:
    """A line of a child; None where it ended."""
    return msgspec.json.decode(line, type=Step | Built) if line else None


def _too_slow(path: Path, seconds: float) -> Problem:
    return Problem(
        "compile_timeout",
        f"{path.name} was not compiled within {seconds:g} seconds, and the build was stopped.",
        at=path.name,
        seconds=seconds,
        setting="extensions.build_seconds",
        fix="Leave out what is not the extension's own code, or raise extensions.build_seconds.",
    )


def _taken(built: Built) -> Artifact:
    if built.artifact is None:
        raise Problem(built.problem, built.message, **built.details)
    return built.artifact


_workshop: Workshop | None = None


def workshop() -> Workshop:
    """The workshop of this process."""
    global _workshop
    if _workshop is None:
        _workshop = Workshop()
        atexit.register(_workshop.close)
    return _workshop
