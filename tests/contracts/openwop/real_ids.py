"""Hooks for schemathesis: half of the requests about a run, a workflow or a schedule are about one that is there."""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

import schemathesis

_KNOWN: dict[str, list[str]] = json.loads(os.environ.get("HOLDFAST_KNOWN_IDS", "{}"))
_count = 0


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any = None) -> None:
    global _count
    _count += 1
    if case.meta is not None and case.meta.generation.mode.is_negative:  # what is wrong on purpose stays wrong
        return
    if case.headers and "Idempotency-Key" in case.headers:
        # Used twice it gives the first answer again, also when what that created was deleted since.
        case.headers["Idempotency-Key"] = f"suite-{uuid.uuid4()}"
    if case.meta is not None and case.meta.phase.name == "stateful":  # it goes on with what it made itself
        return
    for name, ids in _KNOWN.items():
        if _count % 2 and case.path_parameters and name in case.path_parameters and ids:
            case.path_parameters[name] = ids[_count // 2 % len(ids)]
    if case.operation.path == "/v1/runs" and isinstance(case.body, dict):
        for name in ("mode", "evalSuiteRef", "agentId"):  # a capability that is off is 501, as the contract says
            case.body.pop(name, None)
    if case.operation.path == "/v1/runs" and isinstance(case.body, dict) and "workflowId" in case.body and _count % 2:
        case.body["workflowId"] = _KNOWN["workflowId"][0]
