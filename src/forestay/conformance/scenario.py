"""A scenario: one requirement of the contract on a host, tried from outside.

    @scenario("runs-lifecycle", "runs", "core")
    def lifecycle(target: Target) -> None:
        "A run is made, ends, and its log says so."

The function returns when the host meets the requirement, raises `Failed` through `expect` when it does not, and
`NotApplicable` when the host does not claim it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from forestay.kernel import Problem

Check = Callable[[Any], None]
"""Tries a host (`Target`) or a sidecar (`SidecarTarget`)."""


class Failed(Exception):
    """The host does not do what the contract says."""


class NotApplicable(Exception):
    """The host does not claim this, or nobody can try it from outside."""


class Scenario(msgspec.Struct, frozen=True):
    """One scenario: not applicable without the discovery flag `needs`, and part of each of `profiles`."""

    name: str
    family: str
    summary: str
    check: Check
    profiles: tuple[str, ...] = ()
    needs: str | None = None


declared: dict[str, Scenario] = {}
"""Every scenario by its name, in the order in which they are tried."""


def scenario(
    name: str, family: str, *profiles: str, needs: str | None = None, among: dict[str, Scenario] = declared
) -> Callable[[Check], Check]:
    """Declare the scenario that the decorated function tries."""

    def declare(check: Check) -> Check:
        summary = " ".join((check.__doc__ or "").split())
        among[name] = Scenario(name, family, summary, check, profiles, needs)
        return check

    return declare


def named(names: Collection[str], among: dict[str, Scenario]) -> list[Scenario]:
    """Return the scenarios with these names; all when no name is given."""
    if unknown := sorted(set(names) - among.keys()):
        raise Problem("invalid_usage", f"There is no scenario {unknown[0][:80]!r}.", at="--only", known=list(among))
    return [item for item in among.values() if not names or item.name in names]


def expect(held: object, otherwise: str) -> None:
    """Fail with `otherwise` unless `held` is true."""
    if not held:
        raise Failed(otherwise)


def same(found: object, wanted: object, what: str) -> None:
    """Fail unless both are equal."""
    if found != wanted:
        raise Failed(f"{what} is {_short(found)}, and {_short(wanted)} was expected")


def has(found: object, names: set[str], what: str, *, closed: bool = False) -> None:
    """Fail unless `found` is an object with these members, and with `closed` no others."""
    if not isinstance(found, dict):
        raise Failed(f"{what} is no object: {_short(found)}")
    if missing := names - found.keys():
        raise Failed(f"{what} has no {', '.join(sorted(missing))}")
    if closed and (more := found.keys() - names):
        raise Failed(f"{what} has {', '.join(sorted(more))}, which the contract does not know")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:199] + "…"
