"""Between a run's events and the ledger's records."""

from __future__ import annotations

from typing import Any

from forestay.kernel import Draft, Record, former, iso
from forestay.runs.state import Event, RunState
from forestay.runs.types import RunEvent

PREFIX = "run/"
ENGINE_VERSION = "1.0.0"
# Attributes of a record: node, cause, private part, standing (what the `runs` table is told), fork, and the run's own
# time where the wall clock was ahead of it.
NODE, CAUSE, PRIVATE, STANDING, FORK, AT = "n", "c", "p", "s", "f", "t"


def stream_of(run_id: str) -> str:
    return PREFIX + run_id


def to_draft(event: Event, standing: dict[str, Any] | None = None, fork: dict[str, Any] | None = None) -> Draft:
    attrs: dict[str, Any] = {}
    if event.node is not None:
        attrs[NODE] = event.node
    if event.cause is not None:
        attrs[CAUSE] = event.cause
    if event.private is not None:
        attrs[PRIVATE] = event.private
    if event.at and event.at != event.ts:
        attrs[AT] = event.at
    if standing is not None:
        attrs[STANDING] = standing
    if fork is not None:
        attrs[FORK] = fork
    return Draft(event.type, event.payload, attrs, event.id, event.ts)


def type_of(record: Record) -> str:
    """The event's type; those of our own had another first word until 0.1."""
    return former.renamed(record.type)


def to_event(record: Record) -> Event:
    attrs = record.attrs
    return Event(
        type_of(record),
        record.payload,
        attrs.get(NODE),
        attrs.get(PRIVATE),
        attrs.get(CAUSE),
        record.id,
        record.ts,
        record.seq,
        attrs.get(AT, record.ts),
    )


def to_wire(record: Record) -> RunEvent:
    """The event as the contract shows it: nothing private."""
    return RunEvent(
        event_id=record.id,
        run_id=record.stream[len(PREFIX) :],
        type=type_of(record),
        payload=record.payload,
        timestamp=iso(record.ts),
        sequence=record.seq,
        node_id=record.attrs.get(NODE),
        engine_version=ENGINE_VERSION,
        causation_id=record.attrs.get(CAUSE),
    )


def overlaid_tags(record: Record) -> list[str] | None:
    """The tags that a branch lays over its source's; None when the record is none that does."""
    overlay = record.payload.get("overlay", {}) if record.type == "forestay.run.forked" else {}
    return overlay.get("tags")


def standing_of(state: RunState, instance: str) -> dict[str, Any]:
    """What the `runs` table keeps of a run, told with the last event of each batch."""
    standing: dict[str, Any] = {"st": state.status, "i": instance}
    if (wake := state.next_wake()) is not None:
        standing["w"] = wake
    if state.busy:
        standing["b"] = 1
    if state.ended is not None:
        if state.parent is not None:
            standing["p"] = state.parent["runId"]
        if state.children or state.orphans:
            standing["k"] = 1
        if state.error is not None:
            standing["e"] = str(state.error.get("code", ""))
    return standing
