"""The deprecated features, their versions and dates, and the warnings about them (R44)."""

from __future__ import annotations

from typing import Final

import msgspec

from forestay.envelope.types import Mvi, Warning
from forestay.kernel import Problem

MIN_DAYS = 90
MIN_MINORS = 2


class Deprecation(msgspec.Struct, frozen=True, kw_only=True):
    """One deprecated feature: it stays at least 90 days or two minor versions, and leaves only with a major one."""

    code: str
    feature: str
    replacement: str
    deprecated_in: str
    remove_by: str
    deprecated_on: str | None = None

    def warning(self) -> Warning:
        return Warning(
            code=self.code,
            message=f"{self.feature} is deprecated since {self.deprecated_in}"
            + (f" ({self.deprecated_on})" if self.deprecated_on else "")
            + f" and goes with {self.remove_by}. Use {self.replacement}.",
            deprecated=self.feature,
            replacement=self.replacement,
            remove_by=self.remove_by,
        )


META_MVI_BOOLEAN: Final = Deprecation(
    code="W_DEPRECATED_META_MVI_BOOLEAN",
    feature="_meta.mvi as a boolean",
    replacement="minimal or standard",
    deprecated_in="1.0.0",
    remove_by="2.0.0",
)
DEPRECATIONS: Final = (META_MVI_BOOLEAN,)


def check(deprecation: Deprecation) -> None:
    """Refuse a deprecation whose removal is not a later major version."""
    since = _numbers(deprecation.deprecated_in)
    until = _numbers(deprecation.remove_by)
    if until <= since or until[1:] != (0, 0):
        raise Problem(
            "schema_mismatch",
            f"{deprecation.feature} cannot be removed in {deprecation.remove_by}.",
            at="remove_by",
            fix="Remove a feature only in a later major version: N.0.0.",
        )


def may_be_removed(deprecation: Deprecation, *, version: str, days: int, minors: int) -> bool:
    """Whether `version`, released `days` and `minors` minor versions later, may drop the feature."""
    return _numbers(version) >= _numbers(deprecation.remove_by) and (days >= MIN_DAYS or minors >= MIN_MINORS)


def level_of(mvi: Mvi | bool) -> tuple[Mvi, list[Warning]]:
    """Return the level of `mvi` and its warnings; the deprecated true means minimal, false standard."""
    if isinstance(mvi, bool):
        return ("minimal" if mvi else "standard"), [META_MVI_BOOLEAN.warning()]
    return mvi, []


def _numbers(version: str) -> tuple[int, int, int]:
    major, minor, patch = version.split(".")
    return int(major), int(minor), int(patch)
