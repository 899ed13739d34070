"""Metrics of the HTTP server, beside the host's own; and `GET /metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import Response

from forestay.host import CONTENT_TYPE, Host
from forestay.surface.connection_limits import Guard
from forestay.surface.limits import Load
from forestay.surface.operations import Call, Operations

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class HttpMetrics:
    """Counts requests by route and status. Routes are names from the code, so no caller can add one."""

    def __init__(self, registry: CollectorRegistry, load: Load, guard: Guard) -> None:
        self._requests = Counter(
            "forestay_http_requests",
            "Requests by method, route and code.",
            ["method", "route", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "forestay_http_request_seconds",
            "From the first byte of a request's head to the last of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        registry.register(_Now(load, guard))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        known = self._known.get((method, route, status))
        if known is None:
            code = str(status) if status else "none"
            known = self._requests.labels(method, route, code), self._seconds.labels(route)
            self._known[method, route, status] = known
        known[0].inc()
        known[1].observe(seconds)


class _Now(Collector):
    """The open requests, streams and connections, and the refused connections."""

    def __init__(self, load: Load, guard: Guard) -> None:
        self._load = load
        self._guard = guard

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        yield GaugeMetricFamily("forestay_http_requests_open", "Requests under way.", self._load.active)
        yield GaugeMetricFamily("forestay_http_streams_open", "Streams of events that are open.", self._load.streams)
        yield GaugeMetricFamily("forestay_http_connections_open", "Connections that are open.", self._guard.open)
        refused = CounterMetricFamily(
            "forestay_http_connections_refused", "Connections that were ended for what they did.", labels=["reason"]
        )
        for reason, count in sorted(self._guard.refused.items()):
            refused.add_metric([reason], count)
        yield refused


api = Operations[Host](scopes=("metrics:read",), operator=True, media=CONTENT_TYPE.partition(";")[0], tag="meta")


@api.get("/metrics", "metrics", str)
async def metrics(host: Host, call: Call) -> Response:
    """Numbers about the whole host, for Prometheus; the operator's alone."""
    return Response(host.metrics.text(), media_type=CONTENT_TYPE, headers={"Cache-Control": "no-store"})
