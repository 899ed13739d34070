"""Fork: a new run that shares the history of another, up to a sequence (OpenWOP §1.11, W14).

- K1  Events before `fromSeq` are the source's: payloads, times and event ids; only the run is new.
- K2  A branch continues independently: its overlay applies, and it performs effects that its history does not have.
- K3  A replay performs nothing: it decides again and runs pure code again, compares with the log, and takes every
      fact (effects, answers, children, timers, commands) from it.
- K4  A difference is reported once per place as `replay.diverged`; the recorded history stays.
- K5  A branch in the middle of a node that has read from memory is refused when one of these entries is gone: the node
      would continue with another memory than it had (RFC 0039 §B).
- K6  If the host says so (`replays_ask`), a replay asks each recorded question of a node to its model again. When the
      model now refuses what it answered, or answers what it refused, the replay stops there and fails. Other answers
      are not compared, and none replaces the recorded one (RFC 0041 §B).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forestay.kernel import Append, Draft, Problem, Record
from forestay.runs.engine import Engine, fork_origin
from forestay.runs.evolve import evolve, fold
from forestay.runs.log import FORK, PRIVATE, STANDING, standing_of, stream_of, to_draft, to_event
from forestay.runs.ports import Caller
from forestay.runs.replay import Replay
from forestay.runs.secrets import masked
from forestay.runs.state import Event, RunState
from forestay.runs.types import ForkRequest, RunForked
from forestay.runs.workflows import Ref, check_overlay

_VALUES = ("inputs", "variables")  # the parts of an overlay that a workflow may declare sensitive


async def fork_run(
    engine: Engine, run_id: str, request: ForkRequest, *, trusted: bool, fork_id: str | None = None
) -> RunForked:
    """Make the fork, unless `fork_id` exists; it is on disk when this returns, and a replay is complete."""
    records = await engine.ledger.read(stream_of(run_id))
    start = _check(request, len(records))
    if fork_id is not None and (await engine.ledger.head(stream_of(fork_id))).seq >= 0:
        return _forked(await engine.state(fork_id), run_id, start, request)
    fork_id = fork_id or engine.ids.new("run")
    origin = records[0].attrs.get(FORK, {}).get("origin", run_id)
    fork = {"source": run_id, "fromSeq": start, "mode": request.mode, "origin": origin, "at": engine.clock.now_ms()}
    stored = await engine.workflows.at(Ref(*records[0].attrs[PRIVATE]["workflow"]))
    state = engine.blank(fork_id, stored)
    overlay, given = request.run_options_overlay, records[0].payload.get("configurable", {})
    check_overlay(stored.plan.workflow, overlay, given, state.limits, trusted=trusted)
    history = [_copied(record, fork if record.seq == 0 else None) for record in records[:start]]
    fold(state, map(to_event, records[:start]))
    if start:
        fork_origin(state, fork)
    if request.mode == "replay":
        events = await Replay(engine, state, fork, records[start:]).run()
    else:
        await _check_memory(engine, state, start)
        events = _branch(engine, state, fork, records[0], overlay)
    owner = engine.next_owner
    await _write(engine, state, fork, history, events, owner)
    engine.adopt_fork(state, owner)
    return _forked(state, run_id, start, request)


def _forked(state: RunState, source: str, start: int, request: ForkRequest) -> RunForked:
    if state.error is not None and state.error.get("code") == "replay_diverged_at_refusal":  # K6
        raise Problem(state.error["code"], state.error["message"], runId=state.run_id, **state.error["details"])
    return RunForked(
        run_id=state.run_id,
        source_run_id=source,
        from_seq=start,
        mode=request.mode,
        status=state.status,
        events_url=f"/v1/runs/{state.run_id}/events",
    )


def _check(request: ForkRequest, length: int) -> int:
    if request.mode == "replay" and request.run_options_overlay:
        raise Problem("schema_mismatch", "A replay takes no overlay.", at="$.runOptionsOverlay", fix="Use mode branch.")
    if request.mode == "branch" and request.from_seq is None:
        raise Problem("schema_mismatch", "A branch needs `fromSeq`.", at="$.fromSeq")
    start = request.from_seq or 0
    if start < 0:
        raise Problem("out_of_range", "`fromSeq` must not be negative.", at="$.fromSeq")
    if start >= length:
        raise Problem("replay_out_of_range", f"The log ends at {length - 1}.", fromSeq=start, lastSequence=length - 1)
    return start


async def _check_memory(engine: Engine, state: RunState, start: int) -> None:
    """Refuse when an active node has read entries that the memory no longer has (K5)."""
    read = {name: sorted(set(_read_ids(state.nodes[name].memo))) for name in state.active}
    for name, ids in read.items():
        if not ids or engine.ports.memory is None or state.owner is None:
            continue
        caller = Caller(state.owner.tenant, state.run_id, name, "")
        if len(await engine.ports.memory.read(caller, None, ids)) < len(ids):
            message = f"The node {name} has read entries of the memory that are gone now."
            raise Problem("replay_memory_unavailable", message, fromSeq=start, nodeId=name)


def _read_ids(memo: dict[str, Any]) -> Iterator[str]:
    """Yield the ids of the entries that a node's recorded effects read: in lists, and in what an agent recalled."""
    for key, result in memo.items():
        if key.startswith("effect:") and key.endswith("-list") and "memory/" in key:
            yield from result
        elif key.startswith("effect:") and isinstance(result, dict):
            yield from (id for id in result.get("recalled") or () if id.startswith("mem_"))  # not a task's own memory


def _copied(record: Record, fork: dict[str, Any] | None) -> Draft:
    attrs = {key: value for key, value in record.attrs.items() if key not in (STANDING, FORK)}
    if fork is not None:
        attrs[FORK] = fork
    return Draft(record.type, record.payload, attrs, record.id, record.ts)


def _branch(
    engine: Engine, state: RunState, fork: dict[str, Any], first: Record, overlay: dict[str, Any]
) -> list[Event]:
    events = []
    if state.seq < 0:
        events.append(Event("run.started", first.payload, None, first.attrs.get(PRIVATE)))
    payload: dict[str, Any] = {"sourceRunId": fork["source"], "fromSeq": fork["fromSeq"], "mode": "branch"}
    shown = {name: _shown(state, value) if name in _VALUES else value for name, value in overlay.items()}
    private = None if shown == overlay else {"overlay": overlay}
    events.append(Event("forestay.run.forked", {**payload, "overlay": shown}, None, private))
    for event in events:
        event.ts, event.seq = engine.clock.now_ms(), state.seq + 1
        event.at = event.ts
        evolve(state, event)
        if event.seq == 0:
            fork_origin(state, fork)
    return events


def _shown(state: RunState, values: dict[str, Any]) -> dict[str, Any]:
    return masked(values, state.plan.sensitive)


async def _write(
    engine: Engine, state: RunState, fork: dict[str, Any], history: list[Draft], events: list[Event], owner: str
) -> None:
    """Write the history, the new events and the run's standing in one append."""
    drafts = [*history, *(to_draft(event, fork=fork if event.seq == 0 else None) for event in events)]
    last = drafts[-1]
    standing = standing_of(state, owner)
    drafts[-1] = Draft(last.type, last.payload, {**last.attrs, STANDING: standing}, last.id, last.ts)
    await engine.ledger.commit(Append(stream_of(state.run_id), drafts, -1))
