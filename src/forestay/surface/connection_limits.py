"""Limits the connections of a server, in all and per client (G4 of `guard`), and to the files it may open."""

from __future__ import annotations

from collections import Counter

import msgspec

from forestay.kernel import HttpLimits, Ids, Problem, SystemClock

_OTHER_FILES = 256  # the ledger, extensions, calls out


class Guard:
    """The limits of one server, and its current connections."""

    def __init__(self, limits: HttpLimits, ids: Ids | None = None) -> None:
        self.limits = limits
        self.ids = ids or Ids(SystemClock())
        self.open = 0
        self.lingering = 0
        self.refused: Counter[str] = Counter()
        self._clients: Counter[str] = Counter()

    def enter(self, client: str) -> Problem | None:
        """Count a connection; return a Problem when it is one too many (G4)."""
        self.open += 1
        self._clients[client] += 1
        limits = self.limits
        if self.open > limits.connections:
            return Problem("unavailable", "The host has too many connections open.", reason="connections")
        if self._clients[client] > limits.connections_per_client:
            return Problem("unavailable", "This client has too many connections open.", reason="client_connections")
        return None

    def leave(self, client: str) -> None:
        self.open -= 1
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]


def within_files(limits: HttpLimits) -> HttpLimits:
    """Raise the process's soft limit of open files; return limits that fit into what the system allows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _OTHER_FILES
    if soft < wanted and soft != resource.RLIM_INFINITY:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    return msgspec.structs.replace(limits, connections=max(1, soft - _OTHER_FILES))
