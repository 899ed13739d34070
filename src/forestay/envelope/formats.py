"""The two string formats of the contract: `date-time` (RFC 3339) and `uri` (RFC 3986)."""

from __future__ import annotations

import functools
import re

_DATE_TIME = re.compile(
    r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"[Tt]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:\.[0-9]+)?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

# The fast path: accepts most timestamps without a calendar, and never a wrong one.
plain_date_time = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?Z"
).fullmatch


def is_date_time(text: str) -> bool:
    """Whether `text` is a moment: the day exists, and a leap second stands where one can (23:59:60 UTC)."""
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return False
    day, second = match[3], match[6]
    if day > "28" and not _day_exists(int(match[1]), int(match[2]), int(day)):
        return False
    return second != "60" or _ends_a_day(match)


def is_uri(text: str) -> bool:
    """Whether `text` is an absolute URI."""
    return _uri().fullmatch(text) is not None


@functools.cache
def _uri() -> re.Pattern[str]:
    """The grammar of RFC 3986, compiled when the first address needs it."""
    unreserved = r"A-Za-z0-9._~!$&'()*+,;="
    escaped = "%[0-9A-Fa-f]{2}"
    pchar = rf"(?:[{unreserved}:@-]|{escaped})"
    path = rf"(?:/{pchar}*)*"
    host = rf"(?:\[[0-9A-Fa-f:.]+\]|\[v[0-9A-Fa-f]+\.[{unreserved}:-]+\]|(?:[{unreserved}-]|{escaped})*)"
    return re.compile(
        r"[A-Za-z][A-Za-z0-9+.-]*:"
        rf"(?://(?:(?:[{unreserved}:-]|{escaped})*@)?{host}(?::[0-9]*)?{path}"
        rf"|/(?:{pchar}+{path})?|{pchar}+{path}|)"
        rf"(?:\?(?:{pchar}|[/?])*)?(?:#(?:{pchar}|[/?])*)?"
    )


def _day_exists(year: int, month: int, day: int) -> bool:
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return day <= _DAYS[month - 1] + leap


def _ends_a_day(match: re.Match[str]) -> bool:
    minutes = int(match[4]) * 60 + int(match[5])
    if match[7]:
        away = int(match[8]) * 60 + int(match[9])
        minutes += -away if match[7] == "+" else away
    return minutes % 1440 == 1439
