"""Which events each stream mode carries (OpenWOP §1.9)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.kernel.problems import Problem
from holdfast.runs.types import TERMINAL_EVENTS

MODES = ("updates", "values", "messages", "debug")
MAX_BUFFER_MS = 5000
# `updates` leaves out what only a debugger wants.
_QUIET = ("node.started", "node.retried", "variable.changed", "lease.", "log.appended", "holdfast.")
_MESSAGES = ("output.chunk", "agent.reasoned", "agent.reasoning.", "conversation.")
_FLUSHING = TERMINAL_EVENTS | {"node.suspended", "interrupt.requested"}


def parse_modes(text: str | None) -> tuple[str, ...]:
    """The modes of `?streamMode=`; a comma list is their union, `values` stands alone."""
    modes = tuple(dict.fromkeys(part.strip() for part in (text or "updates").split(",")))
    for mode in modes:
        if mode not in MODES:
            raise Problem(
                "unsupported_stream_mode", f"{mode[:40]!r} is not a stream mode.", supported=list(MODES), mode=mode[:40]
            )
    if "values" in modes and len(modes) > 1:
        raise Problem("unsupported_stream_mode", "`values` cannot be combined.", supported=list(MODES))
    return modes


def carries(modes: Sequence[str], event_type: str) -> bool:
    """Whether a stream of these modes carries the event. Terminal events go to every mode."""
    if event_type in TERMINAL_EVENTS or "debug" in modes or "values" in modes:
        return True
    if "updates" in modes and not event_type.startswith(_QUIET):
        return True
    return "messages" in modes and event_type.startswith(_MESSAGES)


def flushes(event_type: str) -> bool:
    """Whether a buffering stream must send what it holds now: the run ended or waits for somebody."""
    return event_type in _FLUSHING
