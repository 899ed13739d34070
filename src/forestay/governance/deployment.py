"""The states of an agent's versions (OpenWOP RFC 0082): which one serves, on which channel, with which share. Pure.

- D1  A state changes only along the contract's arrows: draft → test → staged → active, active ↔ paused,
      active → deprecated, active → rolled-back.
- D2  On a channel at most two versions are active: the previous one, and a canary that gets `canaryPercent` of the
      runs. A full promotion removes the previous version from the channel.
- D3  A rollback restores the version that the rolled-back one replaced, and its `rollbackPointer` names it.
- D4  A draw depends only on the run, the agent and the channel: it is stable, and shares are met over many runs.
- D5  A channel without an active version resolves to none; there is no fallback to another channel.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from forestay.agents import precedence
from forestay.kernel import Problem

State = Literal["draft", "test", "staged", "active", "paused", "deprecated", "rolled-back"]
Verb = Literal["promote", "pause", "deprecate", "rollback", "adjust-canary"]
CHANNELS = ("stable", "canary", "latest")
LATEST = "latest"
_LADDER: dict[State, State] = {"draft": "test", "test": "staged", "staged": "active", "paused": "active"}


class Deployment(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The record of one version of an agent, in the contract's form."""

    agent_id: str
    version: str
    state: State
    canary_percent: int | None = None
    rollback_pointer: str | None = None
    channels: tuple[str, ...] = ()
    eval_run_id: str | None = None
    approval_gate_id: str | None = None


class Transition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The body of POST /v1/agents/{agentId}/deployments."""

    version: str
    transition: Verb
    to_state: State | None = None
    channel: str | None = None
    canary_percent: int | None = None
    eval_run_id: str | None = None
    reason: str | None = None


class Event(msgspec.Struct, frozen=True):
    """A `deployment.*` event: ids, states and numbers only."""

    type: str
    payload: dict[str, Any]


class Fleet(msgspec.Struct, frozen=True):
    """All versions of one agent: `records` by version, and for each channel the versions that served it, oldest
    first."""

    agent_id: str
    records: dict[str, Deployment] = {}
    serving: dict[str, tuple[str, ...]] = {}
    applied: dict[str, str] = {}  # completed transitions by their identity, with the version

    def get(self, version: str) -> Deployment | None:
        return self.records.get(version)

    def listed(self) -> list[Deployment]:
        """Return the records, in order of version."""
        return sorted(self.records.values(), key=lambda item: precedence(item.version))

    def active(self, channel: str) -> list[Deployment]:
        """Return the active versions of a channel, the earliest first."""
        found = (self.records.get(version) for version in self.serving.get(channel, ()))
        return [item for item in found if item is not None and item.state == "active" and channel in item.channels]


class Change(msgspec.Struct, frozen=True):
    """The result of a transition: the changed records and the event."""

    records: tuple[Deployment, ...]
    event: Event


def decide(fleet: Fleet, wanted: Transition) -> Change:
    """Return the change of a transition; a Problem when the version's state does not allow it (D1)."""
    _check_shape(wanted)
    found = fleet.get(wanted.version)
    if wanted.transition == "promote":
        return _promote(fleet, found, wanted)
    if found is None:
        raise Problem("not_found", f"There is no deployment of {wanted.version}.", version=wanted.version)
    if found.state != "active":
        raise _illegal(found, wanted)
    if wanted.transition == "adjust-canary":
        return _adjust(found, wanted)
    if wanted.transition == "rollback":
        return _roll_back(fleet, found, wanted)
    state: State = "paused" if wanted.transition == "pause" else "deprecated"
    changed = msgspec.structs.replace(found, state=state, canary_percent=None)
    return Change((changed,), Event("deployment.state.changed", _moved(found, state)))


def evolve(fleet: Fleet, records: tuple[Deployment, ...], identity: str = "") -> Fleet:
    """Return the fleet with the changed records; `identity` names the transition."""
    known = {**fleet.records, **{item.version: item for item in records}}
    serving = dict(fleet.serving)
    for item in records:
        for channel in item.channels:
            if item.state == "active" and (serving.get(channel) or ("",))[-1] != item.version:
                served = (version for version in serving.get(channel, ()) if version != item.version)
                serving[channel] = (*served, item.version)
    applied = {**fleet.applied, identity: records[0].version} if identity else fleet.applied
    return Fleet(fleet.agent_id, known, serving, applied)


def resolve(fleet: Fleet, channel: str, run_id: str) -> str | None:
    """Return the version that a run gets from a channel; None when none is active (D4, D5)."""
    if channel == LATEST:
        active = [item for item in fleet.records.values() if item.state == "active"]
        return max(active, key=lambda item: precedence(item.version)).version if active else None
    found = shares(fleet, channel)
    if not found:
        return None
    (newest, share), *before = found
    return newest if draw(run_id, fleet.agent_id, channel) < share else before[0][0]


def shares(fleet: Fleet, channel: str) -> list[tuple[str, int]]:
    """Return the versions that serve a channel, newest first, each with its share in percent."""
    active = fleet.active(channel)
    if not active:
        return []
    newest = active[-1]
    if newest.canary_percent is None or len(active) == 1:
        return [(newest.version, 100)]
    return [(newest.version, newest.canary_percent), (active[-2].version, 100 - newest.canary_percent)]


def draw(run_id: str, agent_id: str, channel: str) -> float:
    """Return a number from 0 up to 100 that depends only on the run, the agent and the channel (D4)."""
    digest = hashlib.sha256("\0".join(("forestay:canary:v1", run_id, agent_id, channel)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 * 100


def _check_shape(wanted: Transition) -> None:
    percent = wanted.canary_percent
    if percent is not None and not 0 <= percent <= 100:
        raise Problem("out_of_range", "A canary must have 0 to 100 percent.", at="$.canaryPercent")
    if not 1 <= len(wanted.version) <= 64:
        raise Problem("out_of_range", "A version must have 1 to 64 characters.", at="$.version")
    if wanted.reason is not None and not 1 <= len(wanted.reason) <= 512:
        raise Problem("out_of_range", "A reason must have 1 to 512 characters.", at="$.reason")
    if wanted.channel is not None and wanted.channel not in CHANNELS:
        known = [name for name in CHANNELS if name != LATEST]
        raise Problem("schema_mismatch", f"There is no channel {wanted.channel[:64]!r}.", at="$.channel", known=known)
    if wanted.channel == LATEST:
        message = "`latest` is always the highest active version; nothing can be promoted to it."
        raise Problem("schema_mismatch", message, at="$.channel")
    if wanted.transition == "adjust-canary" and percent is None:
        raise Problem("schema_mismatch", "`adjust-canary` needs a canaryPercent.", at="$.canaryPercent")


def _promote(fleet: Fleet, found: Deployment | None, wanted: Transition) -> Change:
    """Promote a version by one step, or make its first record."""
    target = _target(found, wanted)
    if found is None:
        found = Deployment(fleet.agent_id, wanted.version, "draft")
    before = fleet.active(wanted.channel) if target == "active" and wanted.channel else []
    percent = wanted.canary_percent if target == "active" else None
    channels = found.channels
    if target == "active" and wanted.channel and wanted.channel not in channels:
        channels = (*channels, wanted.channel)
    made = msgspec.structs.replace(
        found,
        state=target,
        channels=channels,
        canary_percent=None if percent == 100 else percent,
        eval_run_id=wanted.eval_run_id,
        rollback_pointer=None,
    )
    left = tuple(_without(item, wanted.channel) for item in _replaced(before, made)) if wanted.channel else ()
    payload: dict[str, Any] = {"agentId": fleet.agent_id, "toVersion": made.version, "toState": target}
    previous = next((item.version for item in reversed(before) if item.version != made.version), None)
    told = {
        "fromVersion": previous,
        "channel": wanted.channel if target == "active" else None,
        "canaryPercent": made.canary_percent,
        "evalRunId": wanted.eval_run_id,
    }
    payload |= {name: value for name, value in told.items() if value is not None}
    if found.state == "paused":
        return Change((made,), Event("deployment.state.changed", _moved(found, "active")))
    return Change((made, *left), Event("deployment.promoted", payload))


def _target(found: Deployment | None, wanted: Transition) -> State:
    """Return the state after a promotion: a new version begins as a draft, any other takes one step (D1)."""
    if found is None:
        if wanted.to_state not in (None, "draft", "test"):
            message = f"{wanted.version} has no record yet: promote it to draft first."
            raise Problem("state_conflict", message, version=wanted.version)
        return wanted.to_state or "draft"
    if found.state == "active" and wanted.to_state in (None, "active") and wanted.channel:
        return "active"  # an active version joins another channel, or takes all runs of its own
    target = _LADDER.get(found.state)
    if target is None or wanted.to_state not in (None, target):
        raise _illegal(found, wanted)
    return target


def _replaced(before: list[Deployment], made: Deployment) -> list[Deployment]:
    """Return the versions that leave the channel: all that served it or, with a canary, earlier canaries (D2)."""
    others = [item for item in before if item.version != made.version]
    if made.canary_percent is None or not others:
        return others
    base = next((item for item in reversed(others) if item.canary_percent is None), others[-1])
    return [item for item in others if item is not base]


def _without(item: Deployment, channel: str | None) -> Deployment:
    return msgspec.structs.replace(item, channels=tuple(name for name in item.channels if name != channel))


def _adjust(found: Deployment, wanted: Transition) -> Change:
    percent = wanted.canary_percent or 0
    before = 100 if found.canary_percent is None else found.canary_percent
    changed = msgspec.structs.replace(found, canary_percent=None if percent == 100 else percent)
    payload = {"agentId": found.agent_id, "version": found.version, "fromPercent": before, "toPercent": percent}
    return Change((changed,), Event("deployment.canary.adjusted", payload))


def _roll_back(fleet: Fleet, found: Deployment, wanted: Transition) -> Change:
    """Let the previous version serve again on every channel of this one (D3)."""
    target = _restored(fleet, found)
    if target is None:
        raise Problem("state_conflict", f"No version served before {found.version}.", version=found.version)
    channels = tuple(dict.fromkeys((*target.channels, *found.channels)))
    restored = msgspec.structs.replace(target, state="active", channels=channels, canary_percent=None)
    gone = msgspec.structs.replace(
        found, state="rolled-back", rollback_pointer=target.version, channels=(), canary_percent=None
    )
    payload: dict[str, Any] = {
        "agentId": found.agent_id,
        "fromVersion": found.version,
        "toVersion": target.version,
        "rollbackPointer": target.version,
    }
    if wanted.reason is not None:
        payload["reason"] = wanted.reason
    return Change((gone, restored), Event("deployment.rolled-back", payload))


def _restored(fleet: Fleet, found: Deployment) -> Deployment | None:
    """Return the last earlier version of one of its channels that can still serve."""
    for channel in found.channels:
        served = fleet.serving.get(channel, ())
        earlier = served[: served.index(found.version)] if found.version in served else served
        for version in reversed(earlier):
            if fleet.records[version].state in ("active", "paused"):
                return fleet.records[version]
    return None


def _moved(found: Deployment, state: State) -> dict[str, Any]:
    return {"agentId": found.agent_id, "version": found.version, "fromState": found.state, "toState": state}


def _illegal(found: Deployment, wanted: Transition) -> Problem:
    message = f"A version that is {found.state} cannot take the transition {wanted.transition}."
    return Problem("state_conflict", message, version=found.version, state=found.state, toState=wanted.to_state)
