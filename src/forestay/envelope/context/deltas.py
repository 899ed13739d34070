"""Changes a context by `set`, `append`, `remove` and `update`, never silently (R26 to R28).

- C1  An accepted delta makes the version exactly one higher.
- C2  An active constraint disappears only by an explicit `remove` whose delta also records a decision about it.
- C3  A delta is applied whole or not at all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from forestay.envelope.context.types import LISTS, Context
from forestay.kernel import Problem

MAX_STEPS = 16


def apply(context: Context, delta: dict[str, Any]) -> Context:
    """Return the context after `delta`; a Problem names the invalid part of a delta."""
    if not isinstance(delta, dict) or not delta:
        _refuse("A change of context says what it sets, appends, removes or updates.", "$.contextDelta")
    plain: dict[str, Any] = copy.deepcopy(msgspec.to_builtins(context))
    for name, part in delta.items():
        change = _CHANGES.get(name)
        if change is None:
            _refuse(f"A context cannot be changed by {name[:40]!r}.", f"$.contextDelta.{name[:40]}")
        if not isinstance(part, dict):
            _refuse(f"{name} is an object from paths to values.", f"$.contextDelta.{name}")
        for path, value in part.items():
            change(plain, path, copy.deepcopy(value))
    after = _as_context(plain, context.version + 1)
    _keep_constraints(context, after, delta)
    return after


def removed_constraints(delta: dict[str, Any]) -> list[Any]:
    """Return the constraints that a delta removes; an agent that follows by deltas must hear of them (R27)."""
    removed = delta.get("remove", {})
    return _as_list(removed.get("constraints", [])) if isinstance(removed, dict) else []


def _set(plain: dict[str, Any], path: str, value: Any) -> None:
    """Set a whole member: the objective, the state, a list, or one member of the state."""
    if path in ("objective", "state", *LISTS):
        plain[path] = value
    else:
        _update(plain, path, value)


def _append(plain: dict[str, Any], path: str, value: Any) -> None:
    if path not in LISTS:
        _refuse(f"Nothing can be appended to {path[:40]!r}.", f"$.contextDelta.append.{path[:40]}")
    plain[path] = [*plain[path], *_as_list(value)]


def _remove(plain: dict[str, Any], path: str, value: Any) -> None:
    """Remove items of a list by id or value, or members of the state by name."""
    if path == "state":
        for name in _as_list(value):
            if plain["state"].pop(name, _MISSING) is _MISSING:
                _refuse(f"The state has no member {str(name)[:40]!r}.", "$.contextDelta.remove.state")
        return
    if path not in LISTS:
        _refuse(f"Nothing can be removed from {path[:40]!r}.", f"$.contextDelta.remove.{path[:40]}")
    for wanted in _as_list(value):
        rest = [item for item in plain[path] if _identity(item) != _identity(wanted) and item != wanted]
        if len(rest) == len(plain[path]):
            _refuse(f"{path} has no such item.", f"$.contextDelta.remove.{path}")
        plain[path] = rest


def _update(plain: dict[str, Any], path: str, value: Any) -> None:
    """Set one value inside the state, as `state.step` or `state.plan.first`; a path goes through objects only."""
    steps = path.split(".")
    if steps[0] != "state" or not 2 <= len(steps) <= MAX_STEPS or not all(steps):
        _refuse(f"{path[:80]!r} is not a path into the state.", f"$.contextDelta.update.{path[:80]}")
    holder = plain
    for step in steps[:-1]:
        inner = holder.setdefault(step, {})
        if not isinstance(inner, dict):
            _refuse(f"{path[:80]!r} goes through something that is no object.", f"$.contextDelta.update.{path[:80]}")
        holder = inner
    holder[steps[-1]] = value


_CHANGES: dict[str, Callable[[dict[str, Any], str, Any], None]] = {
    "set": _set,
    "append": _append,
    "remove": _remove,
    "update": _update,
}
_MISSING = object()


def _as_context(plain: dict[str, Any], version: int) -> Context:
    try:
        return msgspec.convert({**plain, "version": version}, Context)
    except msgspec.ValidationError as error:
        raise Problem(
            "schema_mismatch", f"The change would break the context: {error}.", at="$.contextDelta"
        ) from error


def _keep_constraints(before: Context, after: Context, delta: dict[str, Any]) -> None:
    """R27: every constraint stays, unless the delta names it under `remove` and adds a decision."""
    kept = {_identity(item) for item in after.constraints}
    gone = [item for item in before.constraints if _identity(item) not in kept]
    if not gone:
        return
    named = {_identity(item) for item in removed_constraints(delta)}
    silent = [item for item in gone if _identity(item) not in named]
    if silent:
        raise Problem(
            "state_conflict",
            "The change would silently drop an active constraint.",
            at="$.contextDelta",
            constraint=silent[0],
            fix="Keep the constraint, or name it under remove.constraints together with a decision.",
        )
    if len(after.decisions) <= len(before.decisions):
        raise Problem(
            "state_conflict",
            "A constraint is removed only together with the decision to remove it.",
            at="$.contextDelta.remove.constraints",
            constraint=gone[0],
            fix="Append the decision to `decisions` in the same change.",
        )


def _identity(item: Any) -> str:
    """Two items are the same when they share an id, else when they are equal; a string stands for an id."""
    if isinstance(item, dict) and "id" in item:
        return f"id:{item['id']}"
    return f"id:{item}" if isinstance(item, str) else repr(item)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _refuse(message: str, at: str) -> NoReturn:
    raise Problem("schema_mismatch", message, at=at, fix="Correct the part of the change that `at` names.")
