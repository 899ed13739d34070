"""What a session's caps leave for the next window (C10, C14)."""

from __future__ import annotations

from typing import Any

from forestay.kernel import Problem
from forestay.relay.warm import Warm


def within_caps(warm: Warm, fixed: int, reserve: int, room: int) -> tuple[int, int]:
    """`max_tokens` and the envelope's room as the caps allow, or 1001; `fixed` tokens are sent in any case."""
    windows, tokens_in, tokens_out = warm.left()
    config = warm.config
    if windows == 0:
        raise _exhausted("max_windows_per_session", warm.windows, config.max_windows_per_session or config.max_windows)
    if tokens_in is not None:
        if fixed > tokens_in:
            raise _exhausted("max_total_input_tokens", warm.input_tokens, config.max_total_input_tokens, needed=fixed)
        room = min(room, tokens_in - fixed)
    if tokens_out is not None:
        if tokens_out < 1:
            raise _exhausted("max_total_output_tokens", warm.output_tokens, config.max_total_output_tokens)
        reserve = min(reserve, tokens_out)
    return reserve, room


def _exhausted(cap: str, usage: int, limit: int | None, **more: Any) -> Problem:
    said = f"The session's {cap} of {limit} is used up."
    return Problem("budget_exhausted", said, cap=cap, dimension=cap, usage=usage, limit=limit, **more)
