"""Evaluation suites (OpenWOP RFC 0081 §A): tasks, expected results and thresholds. Data only.

Beyond the contract's `exact`, `contains` and `json-match`, a task may be matched by `regex`, `json-schema`, `numeric`
and `python` (a scorer that the host registered by name).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from forestay.kernel import Problem, canonical

EvalMode = Literal["golden", "rubric", "adversarial", "regression", "live-shadow"]
Strategy = Literal["exact", "contains", "json-match", "regex", "json-schema", "numeric", "python"]
MAX_TASKS = 10_000
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]


class _Closed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A part of the contract's closed schema."""


class Match(_Closed, frozen=True):
    strategy: Strategy
    value: Any


class Criterion(_Closed, frozen=True):
    criterion: Annotated[str, msgspec.Meta(min_length=1)]
    weight: _Share


class Expected(_Closed, frozen=True):
    kind: Literal["golden", "rubric"]
    match: Match | None = None
    rubric: tuple[Criterion, ...] | None = None


class ToolResponse(_Closed, frozen=True):
    tool: Annotated[str, msgspec.Meta(min_length=1)]
    response: Any = None


class Fixtures(_Closed, frozen=True):
    tool_responses: list[ToolResponse] = []
    memory_seed: list[dict[str, Any]] = []


class Task(_Closed, frozen=True):
    task_id: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    input: Any
    expected: Expected
    fixtures: Fixtures | None = None


class Thresholds(_Closed, frozen=True):
    pass_score: _Share | None = None
    max_cost_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None
    max_p95_latency_ms: Annotated[int, msgspec.Meta(ge=0)] | None = msgspec.field(name="maxP95LatencyMs", default=None)


class EvalSuite(_Closed, frozen=True):
    suite_id: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9.-]+\.evals\.[a-z0-9-]+$")]
    version: _Version
    modes: Annotated[tuple[EvalMode, ...], msgspec.Meta(min_length=1)]
    tasks: Annotated[tuple[Task, ...], msgspec.Meta(min_length=1)]
    target_agent_id: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    allowed_models: tuple[str, ...] | None = None
    thresholds: Thresholds = Thresholds()

    @property
    def ref(self) -> str:
        return f"{self.suite_id}@{self.version}"


def read_suite(document: Any) -> EvalSuite:
    """Read a suite; a located Problem when it is not valid."""
    try:
        suite = msgspec.convert(document, EvalSuite)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, "$")
        raise Problem("schema_mismatch", f"{message}.", at=where) from error
    if len(suite.tasks) > MAX_TASKS:
        raise Problem("out_of_range", f"A suite has at most {MAX_TASKS} tasks.", at="$.tasks", limit=MAX_TASKS)
    if len(set(suite.modes)) < len(suite.modes):
        raise Problem("schema_mismatch", "A mode is listed twice.", at="$.modes")
    seen: set[str] = set()
    for index, task in enumerate(suite.tasks):
        at = f"$.tasks[{index}]"
        if task.task_id in seen:
            raise Problem("schema_mismatch", f"The task {task.task_id!r} is listed twice.", at=f"{at}.taskId")
        seen.add(task.task_id)
        _check_expected(task.expected, f"{at}.expected")
        tools = [item.tool for item in task.fixtures.tool_responses] if task.fixtures else []
        if len(set(tools)) < len(tools):
            message = "A tool may have only one response in a task."
            raise Problem("schema_mismatch", message, at=f"{at}.fixtures.toolResponses")
    return suite


def _check_expected(expected: Expected, at: str) -> None:
    if expected.kind == "golden" and expected.match is None:
        raise Problem("schema_mismatch", "A golden task needs `match`.", at=at)
    if expected.kind == "rubric" and not sum(item.weight for item in expected.rubric or ()):
        raise Problem("schema_mismatch", "A rubric needs criteria with a weight.", at=at)
