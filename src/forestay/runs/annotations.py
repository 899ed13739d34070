"""`Annotations`: feedback of people and agents on a run, beside its log (OpenWOP RFC 0056).

- N1  An annotation is not an event of the run: forks and replays do not copy it, and an ended run accepts it.
- N2  It belongs to the run's tenant. The stream `audit` records its author.
- N3  Texts of people are stored without anything that looks like a secret.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec

from forestay.kernel import AUDIT, Append, Clock, Draft, Ids, Ledger, Problem, iso, redact_text
from forestay.runs.service import Runs

TARGETS = ("run", "event", "node")
SIGNALS = ("rating", "correction", "label", "flag")
_MOST = 1_000
_Text = Annotated[str, msgspec.Meta(max_length=10_000)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A part of an annotation's document."""


class Anchor(_Part, frozen=True):
    """The part of a run that an annotation is about; the whole run when neither is named."""

    event_id: _Id | None = None
    node_id: _Id | None = None


class FeedbackSignal(_Part, frozen=True):
    kind: Literal["rating", "correction", "label", "flag"]
    rating: Annotated[int, msgspec.Meta(ge=1, le=5)] | None = None
    label: _Text | None = None
    correction: _Text | None = None


class AnnotationTarget(_Part, frozen=True):
    run_id: str
    event_id: str | None = None
    node_id: str | None = None


class Actor(_Part, frozen=True):
    principal_ref: str


class Annotation(_Part, frozen=True):
    annotation_id: str
    target: AnnotationTarget
    signal: FeedbackSignal
    actor: Actor
    created_at: str
    note: str | None = None


class Annotations:
    """The annotations of every run of one ledger."""

    def __init__(self, ledger: Ledger, runs: Runs, clock: Clock, ids: Ids) -> None:
        self._ledger = ledger
        self._runs = runs
        self._clock = clock
        self._ids = ids

    def capability(self) -> dict[str, Any]:
        return {"supported": True, "targets": list(TARGETS), "signals": list(SIGNALS)}

    async def add(
        self,
        run_id: str,
        tenant: str,
        signal: FeedbackSignal,
        *,
        by: str,
        anchor: Anchor | None = None,
        note: str | None = None,
        annotation_id: str | None = None,
    ) -> Annotation:
        """Store a signal; a repeated `annotation_id` returns the stored one. `not_found`, `schema_mismatch`."""
        anchor = anchor or Anchor()
        _check(signal)
        await self._check_anchor(run_id, tenant, anchor)
        known = await self.listed(run_id, tenant)
        if (before := next((item for item in known if item.annotation_id == annotation_id), None)) is not None:
            return before
        if len(known) >= _MOST:
            raise Problem("state_conflict", f"The run has {_MOST} annotations already.", runId=run_id)
        made = Annotation(
            annotation_id=annotation_id or self._ids.new("ann"),
            target=AnnotationTarget(run_id=run_id, event_id=anchor.event_id, node_id=anchor.node_id),
            signal=msgspec.structs.replace(
                signal, label=_without_secrets(signal.label), correction=_without_secrets(signal.correction)
            ),
            actor=Actor(principal_ref=by),
            created_at=iso(self._clock.now_ms()),
            note=_without_secrets(note),
        )
        said = {"runId": run_id, "annotationId": made.annotation_id, "principal": by, "kind": signal.kind}
        await self._ledger.commit(
            Append(_stream(run_id), [Draft("run.annotated", msgspec.to_builtins(made))]),
            Append(AUDIT, [Draft("run.annotated", said)]),
        )
        return made

    async def listed(self, run_id: str, tenant: str) -> list[Annotation]:
        """Return the annotations of a run, oldest first."""
        await self._runs.get_run(run_id, tenant)
        return [_read(record.payload) for record in await self._ledger.read(_stream(run_id))]

    async def watch(self, run_id: str, tenant: str) -> AsyncGenerator[Annotation, None]:
        """Yield each annotation that is added from now on."""
        return self._follow(run_id, len(await self.listed(run_id, tenant)))

    async def _follow(self, run_id: str, start: int) -> AsyncGenerator[Annotation, None]:
        async with aclosing(self._ledger.follow(_stream(run_id), start)) as records:
            async for record in records:
                yield _read(record.payload)

    async def _check_anchor(self, run_id: str, tenant: str, anchor: Anchor) -> None:
        run = await self._runs.get_run(run_id, tenant)
        if anchor.node_id is not None and anchor.node_id not in (run.node_states or {}):
            raise Problem("schema_mismatch", "The run has no such node.", at="$.target.nodeId")
        if anchor.event_id is not None:
            events = await self._runs.events(run_id, tenant)
            if all(event.event_id != anchor.event_id for event in events):
                raise Problem("schema_mismatch", "The run has no such event.", at="$.target.eventId")


def _check(signal: FeedbackSignal) -> None:
    """Refuse a signal without the field of its kind, or with a field of another kind."""
    for kind, value in (("rating", signal.rating), ("label", signal.label), ("correction", signal.correction)):
        if (value is not None) != (signal.kind == kind):
            wanted = f"A {signal.kind} has a {kind}." if signal.kind == kind else f"A {signal.kind} has no {kind}."
            raise Problem("schema_mismatch", wanted, at=f"$.signal.{kind}")


def _without_secrets(text: str | None) -> str | None:
    return None if text is None else redact_text(text)


def _read(payload: dict[str, Any]) -> Annotation:
    return msgspec.convert(payload, Annotation)


def _stream(run_id: str) -> str:
    return f"annotations/{run_id}"
