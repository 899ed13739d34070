"""Typed state channels: reducers, entry age, size, access and schema versions (OpenWOP §1.6).

A channel's value is the fold of its `channel.written` events; each write has its reducer and its time, so the fold
needs nothing else. A read returns a copy, which later writes do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from forestay.kernel import Problem, misfit
from forestay.runs.definition import Access, Channel

MAX_COUNT = 2**53


class Entry(msgspec.Struct, frozen=True):
    """One element of a list-like channel, with its time."""

    ts: int
    value: Any


class ChannelState(msgspec.Struct):
    """The state of a channel in a run. List-like reducers use `entries`, the others `value`."""

    reducer: str
    ttl_ms: int | None = None
    max_size: int | None = None
    sensitive: bool = False
    value: Any = None
    entries: list[Entry] = []
    ids: set[str] = set()


def open_channel(declared: Channel, ts: int = 0) -> ChannelState:
    """Return a channel as the workflow declares it; its first entries are as old as the run."""
    state = ChannelState(declared.reducer, declared.ttl_ms, declared.max_size, declared.sensitive)
    reducer = REDUCERS[declared.reducer]
    default = None if declared.default is msgspec.UNSET else declared.default
    if reducer.lists:
        for item in default if isinstance(default, list) else []:
            reducer.fold(state, item, ts)
    else:
        state.value = reducer.begin(default)
    return state


def write(state: ChannelState, value: Any, ts: int) -> None:
    """Fold one write in."""
    reducer = REDUCERS[state.reducer]
    reducer.fold(state, value, ts)
    if reducer.ages and state.ttl_ms is not None:
        _age(state, ts)
    if state.max_size is not None and len(state.entries) > state.max_size:
        del state.entries[: len(state.entries) - state.max_size]


def read(state: ChannelState, now: int) -> Any:
    """Return the channel's value at `now`: without entries older than its time to live, and the others with the time
    of their write (W20)."""
    reducer = REDUCERS[state.reducer]
    if not reducer.lists:
        return dict(state.value) if isinstance(state.value, dict) else state.value
    if reducer.ages and state.ttl_ms is not None:
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
    """Add a number; ignore a value that is not a number or too large."""
    before, more = state.value or 0, 1 if value is None else value
    if is_number(more) and abs(more) <= MAX_COUNT and abs(total := before + more) <= MAX_COUNT:
        state.value = total


def _votes(state: ChannelState, value: Any, ts: int) -> None:
    """Keep one vote for each user: a later one replaces the earlier (W20)."""
    voter = value.get("userId") if isinstance(value, dict) else None
    if isinstance(voter, str):
        if voter in state.ids:
            state.entries = [e for e in state.entries if not _is_of(e.value, voter)]
        state.ids.add(voter)
    state.entries.append(Entry(ts, value))


def _is_of(vote: Any, voter: str) -> bool:
    return isinstance(vote, dict) and vote.get("userId") == voter


def _message(state: ChannelState, value: Any, ts: int) -> None:
    """Append a message; ignore a repeated `messageId`."""
    key = value.get("messageId") if isinstance(value, dict) else None
    if isinstance(key, str):
        if key in state.ids:
            return
        state.ids.add(key)
    state.entries.append(Entry(ts, value))


def _counts(value: Any) -> bool:
    return is_number(value) and abs(value) <= MAX_COUNT


class Reducer(msgspec.Struct, frozen=True):
    """Turns the writes of a channel into its value."""

    fold: Callable[[ChannelState, Any, int], None]
    fits: Callable[[Any], bool] = lambda _: True  # whether a channel can begin with a value
    begin: Callable[[Any], Any] = lambda default: default
    lists: bool = False  # the value is a list of entries
    ages: bool = False  # entries have a time to live
    key: str | None = None  # the field that identifies an entry or its author


def _list(fold: Callable[[ChannelState, Any, int], None], ages: bool = True, key: str | None = None) -> Reducer:
    return Reducer(fold, lambda value: isinstance(value, list), lists=True, ages=ages, key=key)


REDUCERS = {
    "replace": Reducer(_replace),
    "append": _list(_append),
    "merge": Reducer(
        _merge,
        lambda value: isinstance(value, dict),
        lambda default: dict(default) if isinstance(default, dict) else {},
    ),
    "counter": Reducer(_counter, _counts, lambda default: default if is_number(default) else 0),
    "votes": _list(_votes, key="userId"),
    "feedback": _list(_append),
    "message": _list(_message, ages=False, key="messageId"),
}


def check_write(
    name: str, declared: Channel | None, reducer: str, value: Any, node_id: str, type_id: str, version: int | None
) -> None:
    """Refuse a write that the channel's declaration does not allow."""
    if reducer not in REDUCERS:
        raise Problem("schema_mismatch", f"There is no reducer {reducer!r}.", at="$.config.reducer")
    if reducer == "counter" and value is not None and not _counts(value):
        raise Problem("schema_mismatch", f"The counter {name!r} takes numbers up to 2 ** 53.", at="$.config.value")
    if (key := REDUCERS[reducer].key) and isinstance(value, dict) and not isinstance(value.get(key, ""), str):
        raise Problem("schema_mismatch", f"`{key}` must be a string.", at=f"$.config.value.{key}", channel=name)
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
        checked = [value] if REDUCERS[declared.reducer].lists and declared.schema.get("type") == "array" else value
        found = misfit(declared.schema, checked)
        if found is not None:
            raise Problem("schema_mismatch", f"The value does not fit the channel {name!r}: {found[1]}", channel=name)


def allowed(declared: Channel, side: str, node_id: str, type_id: str) -> bool:
    """Whether a channel's list of readers or writers has a node: its id, its type, or a prefix of its type with `*`."""
    access = declared.access
    if access == "public":
        return True
    if not isinstance(access, Access):
        return False
    for entry in getattr(access, side):
        if entry in ("*", node_id, type_id) or (entry.endswith("*") and type_id.startswith(entry[:-1])):
            return True
    return False
