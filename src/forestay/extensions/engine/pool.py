"""Warm instances: keeps a loaded extension as data, so that it need not be loaded again.

P1  Only a load without input (no clock, no randomness, no host call) is kept: it would give the same result again.
P2  An instance goes to one owner and never returns.
P3  A spare is made only for an extension that was taken from the pool before: most are loaded once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.extensions.engine.limits import Limits
from forestay.extensions.engine.snapshot import Nobody

if TYPE_CHECKING:
    from forestay.extensions.isolate import Frozen, Isolate


class Key(msgspec.Struct, frozen=True):
    """The inputs that decide a loaded instance: artifact, surroundings, image, limits."""

    artifact: str
    environment: bytes
    image: str
    limits: Limits


class Loaded(msgspec.Struct, frozen=True):
    """An extension right after its load: its VM and its registrations, in order."""

    frozen: Any  # an isolate.Frozen
    registrations: list[tuple[str, dict[str, Any]]]


class _Still(Nobody):
    """The host of an instance that waits in the pool; the instance never calls it."""

    touched = False

    def now_ms(self) -> int:
        return 0

    def tick_time(self) -> int:
        return 0


class Pool:
    """Keeps up to `images` loaded extensions as data, and `spares` restored instances of each one in use (P3)."""

    def __init__(self, *, images: int = 64, spares: int = 1) -> None:
        self._images = images
        self._spares = spares
        self._lock = threading.Lock()
        self._loaded: OrderedDict[Key, Loaded] = OrderedDict()
        self._ready: dict[Key, deque[Isolate]] = {}
        self._used: set[Key] = set()
        self._closed = False
        self._filling: threading.Thread | None = None

    def keep(self, key: Key, loaded: Loaded) -> None:
        with self._lock:
            if self._closed:
                return
            self._loaded[key] = loaded
            self._loaded.move_to_end(key)
            dropped = [self._loaded.popitem(last=False)[0] for _ in range(len(self._loaded) - self._images)]
            self._used.difference_update(dropped)
            spare = [isolate for old in dropped for isolate in self._ready.pop(old, ())]
        for isolate in spare:
            isolate.close()

    def ready(self, key: Key) -> tuple[Isolate, Loaded] | None:
        """Return a spare instance (P2), or None."""
        with self._lock:
            loaded, ready = self._loaded.get(key), self._ready.get(key)
            if loaded is None or not ready:
                return None
            self._loaded.move_to_end(key)
            return ready.popleft(), loaded

    def take(self, key: Key) -> tuple[Isolate, Loaded] | None:
        """Restore and return an instance of that extension; None when it is not in the pool."""
        with self._lock:
            loaded = self._loaded.get(key)
            if loaded is not None:
                self._used.add(key)
        return None if loaded is None else (_restored(loaded.frozen, key.limits), loaded)

    def fill(self) -> None:
        """Restore missing spares in the background."""
        with self._lock:
            if self._closed or self._filling is not None:
                return
            self._filling = threading.Thread(target=self._fill, name="forestay-pool", daemon=True)
            self._filling.start()

    def wait(self) -> None:
        """Wait until the current filling is done."""
        filling = self._filling
        if filling is not None:
            filling.join()

    def _fill(self) -> None:
        while True:
            with self._lock:
                missing = next(
                    (
                        (key, loaded.frozen)
                        for key, loaded in reversed(self._loaded.items())
                        if key in self._used and len(self._ready.get(key, ())) < self._spares
                    ),
                    None,
                )
                if self._closed or missing is None:
                    self._filling = None
                    return
            key, frozen = missing
            isolate = _restored(frozen, key.limits)
            isolate.warm()
            with self._lock:
                if key in self._loaded and not self._closed:
                    self._ready.setdefault(key, deque()).append(isolate)
                    continue
            isolate.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            spare = [isolate for ready in self._ready.values() for isolate in ready]
            self._ready.clear()
            self._loaded.clear()
            self._used.clear()
        self.wait()
        for isolate in spare:
            isolate.close()


def _restored(frozen: Frozen, limits: Limits) -> Isolate:
    from forestay.extensions.isolate import Isolate

    return Isolate.thaw(frozen, _Still(), limits)
