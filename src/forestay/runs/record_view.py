"""Shows the ledger's records to a caller, and masks the parts of runs that the caller may not read (W24).

Invariants:

- V1  A run's secrets are masked in every record about it: its own, its artifacts', and those that name it.
- V2  The private part of a run's record is masked whole. If the run has secrets, so are the texts of its relay session,
      because a model's text may contain a part of one.
- V3  Sensitive variables are masked by name in inputs of schedules and inbound events, and in a workflow's defaults.
- V4  Everything that looks like a credential is masked in every record.
- V5  A caller who may read the runs of the tenant sees the stored record, so that its hash can be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from forestay.kernel import OPERATOR, Ledger, Record, redact
from forestay.runs.log import PRIVATE
from forestay.runs.secrets import MASK, cover, cover_payload, masked_defaults
from forestay.runs.service import Runs
from forestay.runs.state import RunState
from forestay.runs.workflows import SHARED

Reads = Callable[[str], bool]


class RecordShown(msgspec.Struct, frozen=True):
    """A record, and whether a part of it is masked: then its hash does not match the shown content."""

    record: Record
    masked: bool


class LedgerView:
    """One ledger for one caller; `reads` says whether the caller may read the runs of a tenant."""

    def __init__(self, ledger: Ledger, runs: Runs, reads: Reads) -> None:
        self._ledger = ledger
        self._runs = runs
        self._reads = reads
        self._states: dict[str, RunState | None] = {}

    async def read(self, stream: str, start: int = 0, limit: int | None = None) -> list[RecordShown]:
        """Return records of one stream from `start` on."""
        return await self._shown(stream, await self._ledger.read(stream, start, limit))

    async def _shown(self, stream: str, records: Iterable[Record]) -> list[RecordShown]:
        family, _, rest = stream.partition("/")
        first = await self._first(stream) if family in ("relay", "schedule", "trigger") else {}
        shown = []
        for record in records:
            covered = await self._covered(family, rest, first, record)
            shown.append(RecordShown(covered, covered is not record))
        return shown

    async def _covered(self, family: str, rest: str, first: dict[str, Any], record: Record) -> Record:
        """Return the record as the caller may see it; the same object when nothing is masked."""
        run = await self._run_of(family, rest, first, record)
        tenant = _tenant(family, rest, first) if run is None else run.owner.tenant if run.owner else ""
        if self._reads(tenant):  # V5
            return record
        if family == "relay" and run is not None and run.secrets:
            record = _with(record, payload=_wordless(record.payload))  # V2
        elif run is not None:
            record = _covered(run, record)  # V1, V2
        elif family == "schedule":
            record = _with(record, payload=await self._schedule(record.payload, tenant))  # V3
        elif family == "trigger":
            record = _with(record, payload=await self._event(record.payload, first, tenant))  # V3
        elif family == "workflow":
            record = _with(record, payload=masked_defaults(record.payload))  # V3
        return _with(record, payload=redact(record.payload), attrs=redact(record.attrs))  # V4

    async def _run_of(self, family: str, rest: str, first: dict[str, Any], record: Record) -> RunState | None:
        """Return the run that a record is about."""
        if family in ("run", "artifact"):
            name: Any = rest.partition("/")[0]
        elif family == "relay":
            name = run_of(str(first.get("app_id", "")))
        else:
            payload = record.payload if isinstance(record.payload, dict) else {}
            name = payload.get("runId") or record.attrs.get("run_id")
        if not isinstance(name, str):
            return None
        if name not in self._states:
            self._states[name] = await self._runs.find_state(name)
        return self._states[name]

    async def _schedule(self, payload: Any, tenant: str) -> Any:
        spec = payload.get("spec")
        if not isinstance(spec, dict):
            return payload
        inputs = await self._runs.shown_inputs(str(spec.get("workflowId")), tenant, spec.get("inputs", {}))
        return {**payload, "spec": {**spec, "inputs": inputs}}

    async def _event(self, payload: Any, first: dict[str, Any], tenant: str) -> Any:
        if "inputs" not in payload:
            return payload
        inputs = await self._runs.shown_inputs(str(first.get("workflowId")), tenant, payload["inputs"])
        return {**payload, "inputs": inputs}

    async def _first(self, stream: str) -> dict[str, Any]:
        """Return the first payload of a stream, which names its owner."""
        records = await self._ledger.read(stream, 0, 1)
        return records[0].payload if records and isinstance(records[0].payload, dict) else {}


def run_of(app: str) -> str | None:
    """Return the run of a relay session, whose application is named `tenant::run/node/iteration`."""
    run, _, rest = app.rpartition("::")[2].partition("/")
    return run if run.startswith("run_") and rest else None


def _tenant(family: str, rest: str, first: dict[str, Any]) -> str:
    """Return the tenant of records without a run; records without an owner are the operator's."""
    if family == "workflow":
        owner = rest.partition("/")[0]
        return OPERATOR if owner == SHARED else owner
    if family == "relay":
        tenant, mark, _ = str(first.get("app_id", "")).rpartition("::")
        return tenant if mark else OPERATOR
    return str(first.get("tenant", OPERATOR))


def _with(record: Record, **parts: Any) -> Record:
    """Return the record with these parts; the same object when nothing changes."""
    if all(getattr(record, name) == value for name, value in parts.items()):
        return record
    return msgspec.structs.replace(record, **parts)


def _wordless(value: Any) -> Any:
    if isinstance(value, str):
        return MASK
    if isinstance(value, dict):
        return {name: _wordless(item) for name, item in value.items()}
    return [_wordless(item) for item in value] if isinstance(value, list) else value


def _covered(state: RunState, record: Record) -> Record:
    """Mask secrets and the private part of a record, for a caller who may not read the run."""
    attrs = {name: MASK if name == PRIVATE else cover(state, item) for name, item in record.attrs.items()}
    payload = record.payload
    if isinstance(payload, dict):
        payload = cover_payload(state, payload)
    if (payload, attrs) == (record.payload, record.attrs):
        return record
    return msgspec.structs.replace(record, payload=payload, attrs=attrs)
