"""Annotations of runs (OpenWOP RFC 0056): feedback of people and agents on a run, beside its log."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from forestay.host import Host
from forestay.runs import Anchor, Annotation, FeedbackSignal
from forestay.surface.operations import Body, Call, Operations, View

_PATH = "/v1/runs/{runId}/annotations"
api = Operations[Host](scopes=("runs:read",), tag="runs")


class AnnotationCreate(Body, frozen=True):
    signal: FeedbackSignal
    target: Anchor | None = None
    note: Annotated[str, Meta(max_length=10_000)] | None = None


class AnnotationList(View, frozen=True):
    annotations: list[Annotation]


@api.post(
    _PATH,
    "annotations.create",
    {201: Annotation},
    scopes=("approvals:respond",),
    problems=("not_found", "state_conflict"),
)
async def create(host: Host, call: Call, body: AnnotationCreate) -> Annotation:
    """Keep a rating, a correction, a label or a flag of a run, one of its events or one of its nodes."""
    return await host.annotations.add(
        call.path["runId"],
        call.tenant,
        body.signal,
        by=call.caller.name,
        anchor=body.target,
        note=body.note,
        annotation_id=call.id_for("ann"),
    )


@api.get(_PATH, "annotations.list", AnnotationList)
async def listed(host: Host, call: Call) -> AnnotationList:
    """The annotations of a run, the oldest first."""
    return AnnotationList(annotations=await host.annotations.listed(call.path["runId"], call.tenant))
