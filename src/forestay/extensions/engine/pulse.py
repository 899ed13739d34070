"""The pulse of the engine's deadlines: it beats while any VM runs, and rests a second after the last one ran.

B1  while a VM runs, the pulse beats.
B2  a pulse that rests costs nothing: no timer, no turn of the processor.
B3  the thread ends with the last VM.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

TICK_SECONDS = 0.01
_QUIET = 100  # beats during which nobody ran, before it rests


class Pulse:
    def __init__(self, beat: Callable[[], None], *, tick: float = TICK_SECONDS, quiet: int = _QUIET) -> None:
        self._beat = beat
        self._tick = tick
        self._quiet = quiet
        self._lock = threading.Lock()
        self._live = 0
        self._running: set[object] = set()
        self._wake = threading.Event()
        self.resting = False
        self.thread: threading.Thread | None = None

    def hold(self) -> None:
        """A VM lives."""
        with self._lock:
            self._live += 1
            if self.thread is None:
                self.resting = False
                self.thread = threading.Thread(target=self._work, name="forestay-epoch", daemon=True)
                self.thread.start()

    def release(self) -> None:
        """A VM is gone."""
        with self._lock:
            self._live -= 1
        self._wake.set()

    def begin(self, who: object) -> None:
        """Somebody runs: time must pass for his deadline (B1)."""
        self._running.add(who)
        if self.resting:  # looked at after it was told, as the thread looks after it has said that it rests
            self._wake.set()

    def end(self, who: object) -> None:
        self._running.discard(who)

    def _work(self) -> None:
        quiet = 0
        while not self._ends():
            if quiet >= self._quiet:
                self._rest()
                quiet = 0
                continue
            time.sleep(self._tick)
            self._beat()
            quiet = 0 if self._running else quiet + 1

    def _ends(self) -> bool:
        with self._lock:
            if self._live > 0:
                return False
            self.thread = None
            return True

    def _rest(self) -> None:
        self._wake.clear()
        self.resting = True
        if not self._running and self._live > 0:
            self._wake.wait()
        self.resting = False
