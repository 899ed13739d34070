"""Typed state channels: seven reducers, entry age, size, access and schema versions (OpenWOP §1.6).

A channel's value is the fold of its `channel.written` events; each write carries its reducer and its time, so the
fold needs nothing else. What is read is a copy: a later write changes nothing that was read before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from forestay.kernel import Problem, misfit
from forestay.runs.definition import Access, Channel

AGING = frozenset({"append", "votes", "feedback"})
MAX_COUNT = 2**53
# The field of an entry that says whose it is, by reducer.
_KEYS = {"votes": "userId", "message": "messageId"}


class Entry(msgspec.Struct, frozen=True):
    """One element of a list-like channel, with its time."""

    ts: int
    value: Any


class ChannelState(msgspec.Struct):
    """A channel while a run lives. `entries` serves the list-like reducers, `value` the others."""

    reducer: str
    ttl_ms: int | None = None
    max_size: int | None = None
    sensitive: bool = False
    value: Any = None
    entries: list[Entry] = []
    ids: set[str] = set()


def open_channel(declared: Channel, ts: int = 0) -> ChannelState:
    """A channel as the workflow declares it; what it begins with is as old as the run."""
    state = ChannelState(declared.reducer, declared.ttl_ms, declared.max_size, declared.sensitive)
    default = None if declared.default is msgspec.UNSET else declared.default
    if declared.reducer in _LISTS:
        for item in default if isinstance(default, list) else []:
            REDUCERS[declared.reducer](state, item, ts)
    elif declared.reducer == "counter":
        state.value = default if is_number(default) else 0
    elif declared.reducer == "merge":
        state.value = dict(default) if isinstance(default, dict) else {}
    else:
        state.value = default
    return state


def write(state: ChannelState, value: Any, ts: int) -> None:
    """Fold one write in."""
    REDUCERS[state.reducer](state, value, ts)
    if state.reducer in AGING and state.ttl_ms is not None:
        _age(state, ts)
    if state.max_size is not None and len(state.entries) > state.max_size:
        del state.entries[: len(state.entries) - state.max_size]


def read(state: ChannelState, now: int) -> Any:
    """The channel's value at `now`: entries older than its time to live are gone, the others say when they were written
    (W20)."""
    if state.reducer not in _LISTS:
        return dict(state.value) if isinstance(state.value, dict) else state.value
    if state.reducer in AGING and state.ttl_ms is not None:
        fresh = now - state.ttl_ms
        return [{"value": entry.value, "_ts": entry.ts} for entry in state.entries if entry.ts >= fresh]
    return [entry.value for entry in state.entries]


def _age(state: ChannelState, now: int) -> None:
    assert state.ttl_ms is not None
    fresh = now - state.ttl_ms
    stale = 0
    while stale < len(state.entries) and state.entries[stale].ts < fresh:
        stale += 1
    if stale:
        del state.entries[:stale]


def _replace(state: ChannelState, value: Any, ts: int) -> None:
    state.value = value


def _append(state: ChannelState, value: Any, ts: int) -> None:
    state.entries.append(Entry(ts, value))


def _merge(state: ChannelState, value: Any, ts: int) -> None:
    if isinstance(state.value, dict) and isinstance(value, dict):
        state.value.update(value)
    else:
        state.value = dict(value) if isinstance(value, dict) else value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _counter(state: ChannelState, value: Any, ts: int) -> None:
    """Sum up; it stays where it is at what is no number, or too large for one."""
    before, more = state.value or 0, 1 if value is None else value
    if is_number(more) and abs(more) <= MAX_COUNT and abs(total := before + more) <= MAX_COUNT:
        state.value = total


def _votes(state: ChannelState, value: Any, ts: int) -> None:
    """One vote a user: a later one replaces the earlier (W20)."""
    voter = value.get(_KEYS["votes"]) if isinstance(value, dict) else None
    if isinstance(voter, str):
        if voter in state.ids:
            state.entries = [e for e in state.entries if not _is_of(e.value, voter)]
        state.ids.add(voter)
    state.entries.append(Entry(ts, value))


def _is_of(vote: Any, voter: str) -> bool:
    return isinstance(vote, dict) and vote.get(_KEYS["votes"]) == voter


def _message(state: ChannelState, value: Any, ts: int) -> None:
    """Append-only and idempotent on `messageId`."""
    key = value.get("messageId") if isinstance(value, dict) else None
    if isinstance(key, str):
        if key in state.ids:
            return
        state.ids.add(key)
    state.entries.append(Entry(ts, value))


REDUCERS: dict[str, Callable[[ChannelState, Any, int], None]] = {
    "replace": _replace,
    "append": _append,
    "merge": _merge,
    "counter": _counter,
    "votes": _votes,
    "feedback": _append,
    "message": _message,
}
_LISTS = frozenset({"append", "votes", "feedback", "message"})


def check_write(
    name: str, declared: Channel | None, reducer: str, value: Any, node_id: str, type_id: str, version: int | None
) -> None:
    """Refuse a write that the channel's declaration does not allow."""
    if reducer not in REDUCERS:
        raise Problem("schema_mismatch", f"There is no reducer {reducer!r}.", at="$.config.reducer")
    if reducer == "counter" and value is not None and not (is_number(value) and abs(value) <= MAX_COUNT):
        raise Problem("schema_mismatch", f"The counter {name!r} takes numbers up to 2 ** 53.", at="$.config.value")
    if (key := _KEYS.get(reducer)) and isinstance(value, dict) and not isinstance(value.get(key, ""), str):
        raise Problem("schema_mismatch", f"`{key}` is a string.", at=f"$.config.value.{key}", channel=name)
    if declared is None:
        return
    if not allowed(declared, "writers", node_id, type_id):
        raise Problem("channel_access_denied", f"The node {node_id!r} may not write {name!r}.", channel=name)
    if version is not None and version != declared.schema_version and version not in declared.compatible_with:
        raise Problem(
            "channel_schema_breaking_change",
            f"The write has schema version {version}, the channel {declared.schema_version}.",
            channel=name,
        )
    if declared.schema is not None:
        checked = [value] if declared.reducer in _LISTS and declared.schema.get("type") == "array" else value
        found = misfit(declared.schema, checked)
        if found is not None:
            raise Problem("schema_mismatch", f"The value does not fit the channel {name!r}: {found[1]}", channel=name)


def fits_reducer(value: Any, reducer: str) -> bool:
    """Whether a channel with this reducer can begin with `value`."""
    if reducer == "counter":
        return is_number(value) and abs(value) <= MAX_COUNT
    wanted = dict if reducer == "merge" else list if reducer in _LISTS else object
    return isinstance(value, wanted)


def allowed(declared: Channel, side: str, node_id: str, type_id: str) -> bool:
    """Whether a node is on a channel's list of readers or writers: its id, or a prefix of its type with `*`."""
    access = declared.access
    if access == "public":
        return True
    if not isinstance(access, Access):
        return False
    for entry in getattr(access, side):
        if entry in ("*", node_id, type_id) or (entry.endswith("*") and type_id.startswith(entry[:-1])):
            return True
    return False
