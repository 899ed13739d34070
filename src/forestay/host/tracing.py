"""Spans for OpenTelemetry, when somebody asked for them; otherwise nothing is imported and nothing is made.

Names and attributes are OpenTelemetry's, for HTTP and for generative AI. A span holds names, counts and outcomes;
never a prompt, an answer or an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from forestay.kernel import Problem, Telemetry

Kind = Literal["server", "client", "internal"]


class Span(Protocol):
    """One piece of work that is under way."""

    def set(self, attributes: Mapping[str, Any]) -> None: ...

    def fail(self, error: BaseException) -> None: ...

    def end(self) -> None: ...


class _NoSpan:
    def set(self, attributes: Mapping[str, Any]) -> None:
        pass

    def fail(self, error: BaseException) -> None:
        pass

    def end(self) -> None:
        pass


_NOTHING = _NoSpan()


class Tracing:
    """No tracing: every span is the same nothing."""

    active = False

    def begin(self, name: str, *, kind: Kind = "internal", parent: str | None = None) -> Span:
        """A span that its caller ends; children are found through `span` alone."""
        return _NOTHING

    @contextmanager
    def span(self, name: str, *, kind: Kind = "internal", parent: str | None = None) -> Iterator[Span]:
        """A span that is current while the block runs; `parent` is a `traceparent`."""
        yield _NOTHING

    def close(self) -> None:
        """Send what waits."""


class OtelTracing(Tracing):
    """Spans through an OpenTelemetry tracer provider."""

    active = True

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._trace = trace
        self._tracer = provider.get_tracer("forestay")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, *, kind: Kind = "internal", parent: str | None = None) -> Span:
        return _OtelSpan(self._start(name, kind, parent), self._trace)

    @contextmanager
    def span(self, name: str, *, kind: Kind = "internal", parent: str | None = None) -> Iterator[Span]:
        raw = self._start(name, kind, parent)
        made = _OtelSpan(raw, self._trace)
        with self._trace.use_span(raw, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield made
            except Exception as error:
                made.fail(error)
                raise

    def _start(self, name: str, kind: Kind, parent: str | None) -> Any:
        context = self._propagator.extract({"traceparent": parent}) if parent is not None else None
        return self._tracer.start_span(name, context=context, kind=getattr(self._trace.SpanKind, kind.upper()))

    def close(self) -> None:
        self._provider.shutdown()


class _OtelSpan:
    def __init__(self, span: Any, trace: Any) -> None:
        self._span = span
        self._trace = trace

    def set(self, attributes: Mapping[str, Any]) -> None:
        self._span.set_attributes(attributes)

    def fail(self, error: BaseException) -> None:
        """What kind of failure; its text may hold what a person wrote, and stays out."""
        kind = error.key if isinstance(error, Problem) else type(error).__name__
        self._span.set_attribute("error.type", kind)
        self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))

    def end(self) -> None:
        self._span.end()


def open_tracing(settings: Telemetry) -> Tracing:
    """What the configuration asks for."""
    if settings.traces == "off":
        return Tracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise Problem(
            "config_invalid",
            "Traces are asked for, and OpenTelemetry is not installed.",
            at="telemetry.traces",
            fix="Run `pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http`, "
            "or set telemetry.traces to off.",
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": settings.service_name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OtelTracing(provider)
