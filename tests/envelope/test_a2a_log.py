"""What the A2A library logs of a request that it refuses."""

from __future__ import annotations

import logging
import sys

from forestay.envelope.transports.a2a_agent import Brief


def test_what_a_stranger_sends_is_one_short_line_of_the_log() -> None:
    try:
        raise ValueError("x" * 5000)
    except ValueError:
        record = logging.LogRecord("a2a", logging.ERROR, "", 1, "bad \x1b[2J %s\n", ("y" * 5000,), sys.exc_info())
    assert Brief().filter(record)
    text = logging.Formatter().format(record)
    assert len(text) <= Brief.most
    assert "\n" not in text and "\x1b" not in text
