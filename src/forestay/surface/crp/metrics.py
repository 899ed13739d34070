"""What the sidecar shows of itself: open sessions and requests, as a collector of `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class Sidecar:
    """One look at a sidecar."""

    def __init__(self, sessions: Sequence[Mapping[str, Any]], requests: Mapping[tuple[str, int], int]) -> None:
        self._sessions = sessions
        self._requests = requests

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        sessions = self._sessions
        facts = sum(item["facts_in_warm_state"] for item in sessions)
        windows = sum(item["windows_completed"] for item in sessions)
        yield GaugeMetricFamily("crp_sessions_active", "Open sessions.", len(sessions))
        yield GaugeMetricFamily("crp_session_facts", "Facts of open sessions.", facts)
        yield GaugeMetricFamily("crp_session_windows", "Windows completed by open sessions.", windows)
        requests = CounterMetricFamily(
            "crp_requests", "Requests by operation and status.", labels=["operation", "status"]
        )
        for (name, status), count in sorted(self._requests.items()):
            requests.add_metric([name, str(status)], count)
        yield requests
