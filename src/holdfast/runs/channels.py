"""Typed state channels: seven reducers, entry age, size, access and schema versions (OpenWOP §1.6).

A channel's value is the fold of its `channel.written` events; each write carries its reducer and its time, so the
fold needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.kernel.json_schema import misfit
from holdfast.kernel.problems import Problem
from holdfast.runs.definition import Access, Channel

AGING = frozenset({"append", "votes", "feedback"})


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


def open_channel(declared: Channel | None, reducer: str = "replace", ttl_ms: int | None = None) -> ChannelState:
    """A channel as the workflow declares it, or as its first write says."""
    if declared is None:
        return ChannelState(reducer, ttl_ms)
    state = ChannelState(declared.reducer, declared.ttl_ms, declared.max_size, declared.sensitive)
    default = None if declared.default is msgspec.UNSET else declared.default
    if declared.reducer in _LISTS:
        state.entries = [Entry(0, item) for item in default] if isinstance(default, list) else []
    elif declared.reducer == "counter":
        state.value = default if isinstance(default, int | float) else 0
    elif declared.reducer == "merge":
        state.value = default if isinstance(default, dict) else {}
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
    """The channel's value at `now`: entries older than its time to live are gone."""
    if state.reducer not in _LISTS:
        return state.value
    if state.reducer in AGING and state.ttl_ms is not None:
        fresh = now - state.ttl_ms
        return [entry.value for entry in state.entries if entry.ts >= fresh]
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
        state.value = value


def _counter(state: ChannelState, value: Any, ts: int) -> None:
    state.value = (state.value or 0) + (1 if value is None else value)


def _votes(state: ChannelState, value: Any, ts: int) -> None:
    """One vote a voter: a later one replaces the earlier."""
    voter = value.get("voter") if isinstance(value, dict) else None
    if voter is not None:
        state.entries = [e for e in state.entries if not (isinstance(e.value, dict) and e.value.get("voter") == voter)]
    state.entries.append(Entry(ts, value))


def _message(state: ChannelState, value: Any, ts: int) -> None:
    """Append-only and idempotent on `messageId`."""
    key = value.get("messageId") if isinstance(value, dict) else None
    if key is not None:
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
    if reducer == "counter" and (isinstance(value, bool) or not isinstance(value, int | float | None)):
        raise Problem("schema_mismatch", f"The counter {name!r} takes numbers.", at="$.config.value")
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
