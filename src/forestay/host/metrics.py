"""What the host did, in numbers: one registry, filled from the ledger's commits and the models' answers.

Labels are words of the code (statuses, capabilities, outcomes, configured models): never text of a caller, so that
nobody can make the registry grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from forestay.host.cost_attributes import cost_of
from forestay.host.tracing import Tracing
from forestay.kernel import Ledger, Record
from forestay.models import DEFAULT_PARAMS, Deltas, Message, OpenModel, Params, ToolSpec
from forestay.relay import Relay
from forestay.runs import TERMINAL_EVENTS, Runs

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
        """Count one commit of the ledger; called by whoever wrote, so records are counted by the commit."""
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
    """How busy the engine is, asked when somebody looks."""

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
