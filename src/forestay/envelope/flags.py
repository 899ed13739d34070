"""Decides the format of an answer from the caller's flags and the settings (R3 to R11, D11).

The order is: two formats at once fail; then an explicit choice, the project's setting, the user's setting, and last
the protocol default: JSON, except on a terminal, where a person reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from forestay.envelope.types import Mvi, Warning
from forestay.kernel import Problem

Format = Literal["json", "human"]
Source = Literal["flag", "project", "user", "default"]

FORMATS: tuple[Format, ...] = ("json", "human")
REQUESTABLE_LEVELS: tuple[Mvi, ...] = ("minimal", "standard", "full")


class OutputChoice(msgspec.Struct, frozen=True, kw_only=True):
    """How to write the answer, and which setting decided it."""

    format: Format
    source: Source
    quiet: bool = False
    field: str | None = None
    fields: tuple[str, ...] = ()
    mvi: Mvi = "standard"
    mvi_source: Literal["flag", "default"] = "default"
    warnings: tuple[Warning, ...] = ()


def resolve(
    human: bool = False,
    json: bool = False,
    quiet: bool = False,
    field: str | None = None,
    fields: Sequence[str] = (),
    mvi: str | None = None,
    tty: bool = False,
    project_format: str | None = None,
    user_format: str | None = None,
    requested_format: str | None = None,
) -> OutputChoice:
    """Decide once, before anything is written; contradictory flags are a Problem."""
    if human and json:  # R6, also with --field: the format conflict is found first (R11)
        raise Problem("format_conflict", "--human and --json were both given.", flags=["--human", "--json"])
    if field is not None and fields:  # R11
        raise Problem("field_conflict", "--field and --fields were both given.", flags=["--field", "--fields"])
    format, source = _format(human, json, tty, project_format, user_format, requested_format)
    level, level_source = _level(mvi)
    return OutputChoice(
        format=format,
        source=source,
        quiet=quiet,
        field=field,
        fields=tuple(fields),
        mvi=level,
        mvi_source=level_source,
        warnings=_warnings(format, field, fields),
    )


def _format(
    human: bool, json: bool, tty: bool, project: str | None, user: str | None, requested: str | None
) -> tuple[Format, Source]:
    candidates: tuple[tuple[str | None, Source, str], ...] = (
        (requested, "flag", "the requested format"),
        ("human" if human else None, "flag", "--human"),
        ("json" if json else None, "flag", "--json"),
        (project, "project", "the project's setting"),
        (user, "user", "the user's setting"),
    )
    for value, source, where in candidates:
        if value is not None:
            return _known(value, source, where), source
    return ("human" if tty else "json"), "default"  # R3, D11


def _known(value: str, source: Source, where: str) -> Format:
    """R9: there are two formats; anything else is refused, wherever it was written."""
    if value not in FORMATS:
        raise Problem(
            "invalid_usage" if source == "flag" else "config_invalid",
            f"{where.capitalize()} is {value[:80]!r}; that is not an output format.",
            at=where,
            allowed=list(FORMATS),
            fix="Use json or human.",
        )
    return value


def _level(mvi: str | None) -> tuple[Mvi, Literal["flag", "default"]]:
    """An unknown level, and `custom` (which only a server sets, R32), mean the default."""
    if mvi in REQUESTABLE_LEVELS:
        return mvi, "flag"
    return "standard", "default"


def _warnings(format: Format, field: str | None, fields: Sequence[str]) -> tuple[Warning, ...]:
    if format == "human" and (field is not None or fields):
        flag = "--field" if field is not None else "--fields"
        return (
            Warning(
                code="W_FIELD_WITH_HUMAN",
                message=f"{flag} picks the data first; the human format is then applied to what it picked.",
            ),
        )
    return ()
