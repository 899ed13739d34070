"""Cron expressions in a time zone: pure functions that compute the next moments."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from forestay.kernel import Problem

MAX_TEXT = 256


def check(expression: str, timezone: str) -> None:
    """Refuse an invalid cron expression, an unknown time zone, and an expression without any moment."""
    if len(expression) > MAX_TEXT:
        raise Problem("schema_mismatch", f"A cron expression has at most {MAX_TEXT} characters.", at="$.cron")
    next_ms(expression, timezone, 0)


def ticks(expression: str, timezone: str, after_ms: int) -> Iterator[int]:
    """Yield the moments strictly after `after_ms`, in order; an hour that a zone skips or repeats counts once."""
    zone = _zone(timezone)
    start = datetime.fromtimestamp(after_ms // 1000, UTC).astimezone(zone)
    try:
        for moment in CronSim(expression, start):
            ms = int(moment.timestamp() * 1000)
            if ms > after_ms:
                yield ms
    except CronSimError as error:
        raise Problem("schema_mismatch", f"The cron expression is not valid: {error}.", at="$.cron") from error


def next_ms(expression: str, timezone: str, after_ms: int) -> int:
    for moment in islice(ticks(expression, timezone, after_ms), 1):
        return moment
    raise Problem("schema_mismatch", "The cron expression matches no moment.", at="$.cron")


def between(expression: str, timezone: str, after_ms: int, until_ms: int, most: int) -> list[int]:
    """Return the first moments in (after_ms, until_ms], at most `most`."""
    found: list[int] = []
    for moment in ticks(expression, timezone, after_ms):
        if moment > until_ms or len(found) >= most:
            break
        found.append(moment)
    return found


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, RecursionError) as error:  # e.g. a name with a thousand folders
        raise Problem(
            "schema_mismatch",
            f"There is no time zone {name[:80]!r}.",
            at="$.timezone",
            fix="Use a name like Europe/Berlin.",
        ) from error
