"""The JSON Schemas of the bodies that runs return and accept, generated from their types."""

from __future__ import annotations

from typing import Any

from forestay.kernel import schema_of
from forestay.runs import types


def schemas() -> dict[str, dict[str, Any]]:
    return {
        "bulk-result": schema_of(types.BulkResult),
        "create-run": schema_of(types.CreateRun),
        "event-page": schema_of(types.EventPage),
        "fork-request": schema_of(types.ForkRequest),
        "interrupt": schema_of(types.Interrupt),
        "interrupt-view": schema_of(types.InterruptView),
        "run-created": schema_of(types.RunCreated),
        "run-event": schema_of(types.RunEvent),
        "run-forked": schema_of(types.RunForked),
        "run-page": schema_of(types.RunPage),
        "run-snapshot": schema_of(types.RunSnapshot),
        "run-standing": schema_of(types.RunStanding),
    }
