"""Redaction is linear: the work for a text twice as long is twice as much, whatever the text (threat model, floods)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from forestay.kernel import problems, redaction
from tests.kernel.regex_steps import Steps, match_steps, steps

# Each is repeated: texts in which a pattern begins again and again and never, or nearly never, comes to its end.
PUMPS = [
    "E", "a@", "a@a-", "a.", "@", "+1 ", "+1 (2) 33", "555-", "555-555-", "(555) ", "token=", "token ",
    "token = ' ", "password:", "bearer ", "bearer     ", "basic a", "://a:", "://", "://a:b", "a:b", "sk-",
    "sk_live_", "ghp_", "xoxb-", "AKIA", "AIza-", "hf_", "eyJ-", "eyJaaaaaaaa-", "eyJaaaaaaaa.",
    "SG.", "SG.aaaa-", "cred_", "cred_-", "ya29.", "xapp-",
    "eyJaaaaaaaa.bbbbbbbb", "-----BEGIN ", "-----BEGIN A", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n-----END ", "-", "-----", " ", "\n", "'", "\"", "api_key", "/tmp/", "/tmp/a:",
    "~/", "file://", "file:///tmp/", "C:\\", " File \"", " File \"a\", line 1", "Traceback (most recent",
]  # fmt: skip
SIZE = 144


def _patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for module in (redaction, problems):
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                yield f"{module.__name__.rpartition('.')[2]}.{name}", value


@pytest.fixture(autouse=True)
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    yield
    sys.setrecursionlimit(before)


def _growth(pattern: re.Pattern[str], pump: str, size: int = SIZE) -> float:
    """How the work grows when the text is four times as long; 4 is linear, 16 quadratic."""
    times = max(2, size // len(pump))
    short, long = (pump * count + "!" for count in (times, 4 * times))
    count = match_steps if pattern is redaction._HARMLESS_KEYS else steps  # that one is asked at the beginning only
    return count(pattern, long) / count(pattern, short)


def test_every_pattern_is_found() -> None:
    assert len(list(_patterns())) >= 6


@pytest.mark.parametrize("pump", PUMPS)
@pytest.mark.parametrize(
    ("name", "pattern"), list(_patterns()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_work_of_every_pattern_grows_with_the_text(name: str, pattern: re.Pattern[str], pump: str) -> None:
    assert _growth(pattern, pump) < 5, f"{name} on {pump!r}"


@pytest.mark.parametrize(
    ("pattern", "pump", "size"),
    [(r"\beyJ[A-Za-z0-9_-]{8,}\.", "eyJ-", SIZE), (r"(?:a|a)*b", "a", 3), (r"\s+$", " ", SIZE), (r"x*x*y", "x", 30)],
)
def test_the_counter_knows_a_pattern_that_is_not_linear(pattern: str, pump: str, size: int) -> None:
    assert _growth(re.compile(pattern), pump, size) > 8


@pytest.mark.parametrize(
    "text", ["a token=abcd x", "eyJaaaaaaaa.bbbbbbbb.cc", "mail a.b@c.de now", "sk-live-0123456789abcdef", ""]
)
def test_the_counter_finds_what_the_engine_finds(text: str) -> None:
    for _, pattern in _patterns():
        for at in range(len(text) + 1):
            found = pattern.match(text, at)
            end = Steps(pattern, text).match(at)
            assert end == (found.end() if found else None), (pattern.pattern, at)
