"""What the host tells about its work: numbers for Prometheus, and spans for OpenTelemetry where the settings say so.

One registry is filled from the ledger's commits and the models' answers. Its labels are words of the code (statuses,
capabilities, outcomes, configured models), never text of a caller, so nobody can make the registry grow.

Names and attributes of spans are OpenTelemetry's, for HTTP and for generative AI. A span holds names, counts and
outcomes, never a prompt, an answer or an argument. Without spans nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Literal, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from forestay.kernel import Ledger, Problem, Record, Telemetry, redact_text
from forestay.models import DEFAULT_PARAMS, Deltas, Message, OpenModel, Params, ToolSpec
from forestay.relay import Relay
from forestay.runs import TERMINAL_EVENTS, Execution, NodeType, Runs

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


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_COMMITS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_FAMILIES = frozenset({"run", "ext", "relay", "context", "audit", "grants", "key", "webhook", "schedule", "workflow"})
_COUNTED = frozenset({"host_call.end", "host_call.repeated", "policy.decision", "run.started", *TERMINAL_EVENTS})


class HostMetrics:
    """The counters of one host; other parts add theirs to `registry`."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._started = Counter("forestay_runs_started", "Runs that began.", registry=registry)
        self._ended = Counter("forestay_runs_ended", "Runs that ended, by status.", ["status"], registry=registry)
        self._calls = Counter(
            "forestay_host_calls",
            "Host calls of extensions and agents, by capability and outcome.",
            ["capability", "outcome"],
            registry=registry,
        )
        self._decisions = Counter(
            "forestay_policy_decisions", "Decisions of policy, by effect.", ["effect"], registry=registry
        )
        self._commits = Histogram(
            "forestay_ledger_commit_seconds",
            "From the start of a group of appends until it is on disk.",
            buckets=_COMMITS,
            registry=registry,
        )
        records = Counter(
            "forestay_ledger_records", "Records written, by family of streams.", ["family"], registry=registry
        )
        self._records = {family: records.labels(family) for family in (*_FAMILIES, "other")}
        self._models = Counter(
            "forestay_model_calls", "Calls of models, by model and outcome.", ["model", "outcome"], registry=registry
        )
        self._tokens = Counter(
            "forestay_model_tokens",
            "Tokens that models were given and gave.",
            ["model", "direction"],
            registry=registry,
        )

    def observe(self, records: list[Record], seconds: float) -> None:
        """Count one commit of the ledger; the ledger calls it for each commit."""
        self._commits.observe(seconds)
        families: dict[str, int] = {}
        for record in records:
            family = record.stream.partition("/")[0]
            families[family] = families.get(family, 0) + 1
            if record.type in _COUNTED:
                self._count(record)
        for family, count in families.items():
            self._records[family if family in _FAMILIES else "other"].inc(count)

    def _count(self, record: Record) -> None:
        type, payload = record.type, record.payload
        if type in ("host_call.end", "host_call.repeated"):
            count = int(payload.get("count", 1))
            error = payload.get("error") if payload.get("is_error") else None
            outcome = str(error.get("code", "error")) if error else "ok"
            self._calls.labels(str(payload.get("capability")), outcome).inc(count)
            if type == "host_call.repeated":
                self._decisions.labels(str(payload.get("effect"))).inc(count)
        elif type == "policy.decision":
            self._decisions.labels(str(payload.get("effect"))).inc()
        elif type == "run.started":
            self._started.inc()
        else:
            self._ended.labels(type.removeprefix("run.")).inc()

    def of_model(self, model: str, outcome: str, input_tokens: int, output_tokens: int) -> None:
        self._models.labels(model, outcome).inc()
        self._tokens.labels(model, "input").inc(input_tokens)
        self._tokens.labels(model, "output").inc(output_tokens)

    def watch(self, ledger: Ledger, runs: Runs, relay: Relay) -> None:
        """Count from now on what `ledger` commits, show how busy `runs` is and what `relay` did."""
        ledger.observe(self.observe)
        self.registry.register(_Engine(runs))
        self.registry.register(relay.meters)

    def text(self) -> bytes:
        """Everything in the text format of Prometheus."""
        return generate_latest(self.registry)


class _Engine(Collector):
    """How busy the engine is, asked when the metrics are read."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def collect(self) -> list[GaugeMetricFamily]:
        load = self._runs.load()
        return [
            GaugeMetricFamily("forestay_runs_active", "Runs that the engine holds.", load.loaded_runs),
            GaugeMetricFamily("forestay_nodes_executing", "Nodes that are executing.", load.executing_nodes),
        ]


class WatchedModel:
    """A model whose calls are counted and traced (the names are OpenTelemetry's for generative AI)."""

    def __init__(self, model: OpenModel, metrics: HostMetrics, tracing: Tracing) -> None:
        self._model = model
        self._metrics = metrics
        self._tracing = tracing
        self.name = model.name
        self.max_output_tokens = model.max_output_tokens
        self.context_window = model.context_window
        self.count_tokens = model.count_tokens

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        provider, _, name = self.name.partition(":")
        span = self._tracing.begin(f"chat {name or provider}", kind="client")
        about: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": name or provider,
        }
        if params.max_tokens is not None:
            about["gen_ai.request.max_tokens"] = params.max_tokens
        outcome, used = "cancelled", (0, 0)
        try:
            async with aclosing(self._model.stream(messages, tools=tools, params=params)) as deltas:
                async for delta in deltas:
                    if delta.usage is not None:
                        used = (delta.usage.input_tokens, delta.usage.output_tokens)
                    if delta.finish_reason is not None:
                        outcome = "ok"
                        about["gen_ai.response.finish_reasons"] = [delta.finish_reason]
                    yield delta
        except Exception as error:
            outcome = "error"
            span.fail(error)
            raise
        finally:
            if self._tracing.active:
                tokens = {"input": used[0], "output": used[1], "total": sum(used)}
                cost = {f"openwop.cost.tokens.{name}": count for name, count in tokens.items()}
                usage = {"gen_ai.usage.input_tokens": used[0], "gen_ai.usage.output_tokens": used[1]}
                span.set({**about, **usage, **cost_of({**cost, "openwop.cost.provider": provider})})
                span.end()
            self._metrics.of_model(self.name, outcome, *used)

    async def aclose(self) -> None:
        await self._model.aclose()


# The cost attributes that a span may carry (OpenWOP observability, cost attribution), each with its type. Other names
# under `openwop.cost.` are dropped: an unknown name may carry anything, even a key.
_TYPES: dict[str, type | tuple[type, ...]] = {
    "openwop.cost.tokens.input": int,
    "openwop.cost.tokens.output": int,
    "openwop.cost.tokens.total": int,
    "openwop.cost.usd": (int, float),
    "openwop.cost.currency": str,
    "openwop.cost.estimated": bool,
    "openwop.cost.provider": str,
}
_LONGEST = 64


def cost_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost attributes that a span may carry, and nothing else of `attributes`."""
    said: dict[str, Any] = {}
    for name, kind in _TYPES.items():
        value = attributes.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            continue
        said[name] = redact_text(value)[:_LONGEST] if isinstance(value, str) else value
    return said


def cost_emit(tracing: Tracing) -> NodeType:
    """Return a node type of the contract's fixtures, for the sample seams: it reports the cost in its configuration."""

    async def execute(ctx: Execution) -> dict[str, Any]:
        given: dict[str, Any] = ctx.config.get("attrs") or {}
        with tracing.span(f"execute_node {ctx.node_id}") as span:
            span.set({"openwop.run_id": ctx.run_id, "openwop.node_id": ctx.node_id, **cost_of(given)})
        used = {name: int(given.get(f"openwop.cost.tokens.{name}", 0)) for name in ("input", "output")}
        usage: dict[str, Any] = {
            "provider": str(given.get("openwop.cost.provider", "unknown")),
            "model": "unknown",
            "inputTokens": used["input"],
            "outputTokens": used["output"],
            "costEstimateUsd": given.get("openwop.cost.usd", 0),
        }
        ctx.emit("provider.usage", usage)
        return {}

    return NodeType(type_id="conformance.cost.emit", execute=execute, summary="Reports a cost (sample seams).")
