"""The clock of the engine's deadlines: it ticks while a VM runs, and stops a second after the last one ran.

B1  While a VM runs, the clock ticks.
B2  A stopped clock costs nothing: no timer, no processor time.
B3  The thread ends with the last VM.
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
        """A VM is running, so its deadline must advance (B1)."""
        self._running.add(who)
        if self.resting:  # read after the VM is listed; the thread lists itself as resting before it reads the list
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
