"""The statistics of trials: mean, interval, percentile, and the summary of a suite (OpenWOP RFC 0081 §C). Pure.

- C1  A summary has only scores, counts, ids and labels: no output, no rubric, no prompt, no price.
- C2  `passed` means: the mean reaches the pass score, and cost and latency are within their limits.
- C3  The number of `eval.scored` events is the summary's `taskCount`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from forestay.governance.eval_suite import EvalSuite, Thresholds
from forestay.governance.scoring import Finding

DEFAULT_PASS_SCORE = 0.8
# Two-sided 95 % of Student's t for 1 to 30 degrees of freedom; beyond, the normal's 1.96.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


class Trial(msgspec.Struct, frozen=True):
    """One trial of one task."""

    score: float
    latency_ms: int
    cost_usd: float | None = None
    findings: tuple[Finding, ...] = ()


class TaskScore(msgspec.Struct, frozen=True):
    """All trials of one task."""

    task_id: str
    trials: tuple[Trial, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(trial.score for trial in self.trials)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, within 0 to 1; None for a single trial."""
        return interval([trial.score for trial in self.trials])

    @property
    def cost_usd(self) -> float | None:
        known = [trial.cost_usd for trial in self.trials if trial.cost_usd is not None]
        return sum(known) if known else None

    @property
    def latency_ms(self) -> int:
        return round(statistics.fmean(trial.latency_ms for trial in self.trials))

    @property
    def findings(self) -> list[Finding]:
        return [finding for trial in self.trials for finding in trial.findings]


def interval(scores: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of a few scores, by Student's t."""
    count = len(scores)
    if count < 2:
        return None
    factor = _T95[count - 2] if count - 2 < len(_T95) else 1.96
    half = factor * statistics.stdev(scores) / math.sqrt(count)
    mean = statistics.fmean(scores)
    return max(0.0, mean - half), min(1.0, mean + half)


def percentile(values: Sequence[int], share: float) -> int:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def bar(thresholds: Thresholds) -> float:
    return DEFAULT_PASS_SCORE if thresholds.pass_score is None else thresholds.pass_score


def scored(task: TaskScore, thresholds: Thresholds) -> dict[str, Any]:
    """Return the payload of `eval.scored`."""
    told: dict[str, Any] = {
        "taskId": task.task_id,
        "score": task.mean,
        "passed": _passed(task, thresholds),
        "latencyMs": task.latency_ms,
    }
    if task.cost_usd is not None:
        told["costUsd"] = task.cost_usd
    if task.findings:
        told["safetyFindingCount"] = len(task.findings)
    return told


def summary(suite: EvalSuite, tasks: Sequence[TaskScore], baseline: tuple[str, float] | None = None) -> dict[str, Any]:
    """Return the EvalSummary; `baseline` is a run of the same suite and its aggregate score."""
    aggregate = statistics.fmean(task.mean for task in tasks)
    costs = [task.cost_usd for task in tasks if task.cost_usd is not None]
    made: dict[str, Any] = {
        "suiteId": suite.suite_id,
        "suiteVersion": suite.version,
        "aggregateScore": aggregate,
        "passed": _cleared(suite.thresholds, tasks, aggregate, sum(costs)),
        "taskCount": len(tasks),
        "passedCount": sum(_passed(task, suite.thresholds) for task in tasks),
        "tasks": [_entry(task, suite.thresholds) for task in tasks],
    }
    if costs:
        made["totalCostUsd"] = sum(costs)
    if baseline is not None:
        made["regression"] = {"baselineRunId": baseline[0], "scoreDelta": aggregate - baseline[1]}
    return made


def completed(card: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of `eval.completed`."""
    told = {name: card[name] for name in ("aggregateScore", "passed", "taskCount", "passedCount")}
    return told | ({"regressionVsBaseline": card["regression"]["scoreDelta"]} if "regression" in card else {})


def _cleared(thresholds: Thresholds, tasks: Sequence[TaskScore], aggregate: float, cost: float) -> bool:
    if aggregate < bar(thresholds):
        return False
    if thresholds.max_cost_usd is not None and cost > thresholds.max_cost_usd:
        return False
    slowest = thresholds.max_p95_latency_ms
    times = [trial.latency_ms for task in tasks for trial in task.trials]
    return slowest is None or percentile(times, 0.95) <= slowest


def _passed(task: TaskScore, thresholds: Thresholds) -> bool:
    return task.mean >= bar(thresholds)


def _entry(task: TaskScore, thresholds: Thresholds) -> dict[str, Any]:
    told = scored(task, thresholds)
    told.pop("safetyFindingCount", None)
    if task.findings:
        told["safetyFindings"] = [msgspec.to_builtins(finding) for finding in task.findings]
    return told
