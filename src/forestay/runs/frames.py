"""Tells where a node's code failed: file, line and function of each foreign frame, bounded.

Every reader of a run sees its events, so they name places and contain no source. The log of the process, which only
the operator sees, has the source too.
"""

from __future__ import annotations

import linecache
import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from forestay.kernel import redact_text

_OURS = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_FIRST, _LAST = 4, 12
_CHAIN = 4
_MAX_TEXT = 200

Place = tuple[str, int, str]


def frames_of(error: BaseException) -> list[str]:
    """Return `FILE:LINE in FUNCTION` for each frame of the node's code, the failure last; then the causing errors.

    The list is empty when only our own code took part.
    """
    lines = _named(_places(error))
    for cause in _causes(error):
        below = _named(_places(cause))
        if below:
            lines += [f"after {_headline(cause)}", *below]
    return lines


def logged(error: BaseException) -> str:
    """Return the same frames with their source, for the operator's log; our own frames if there are no others."""
    places = _places(error) or [_place(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    lines = [f"{_headline(error)}"]
    for file, line, function in places[-_LAST:]:
        lines.append(f"  {_shown(file)}:{line} in {function}")
        if source := linecache.getline(file, line).strip():
            lines.append(f"    {redact_text(source)[:_MAX_TEXT]}")
    return "\n".join(lines)


def _places(error: BaseException) -> list[Place]:
    """Return the frames outside of this package. Of library frames only the last one counts, if it failed."""
    others = [
        _place(frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(_OURS)
    ]
    own = [place for place in others if not _of_library(place)]
    if own and others[-1] is not own[-1]:
        own.append(others[-1])
    return own


def _of_library(place: Place) -> bool:
    return place[0].startswith((*_LIBRARIES, "<frozen"))


def _place(frame: FrameType, line: int) -> Place:
    return frame.f_code.co_filename, line, frame.f_code.co_qualname


def _named(places: list[Place]) -> list[str]:
    left_out = len(places) - _FIRST - _LAST
    lines = [redact_text(f"{_shown(file)}:{line} in {function}")[:_MAX_TEXT] for file, line, function in _ends(places)]
    if left_out > 0:
        lines.insert(_FIRST, f"… {left_out} more")
    return lines


def _ends(places: list[Place]) -> list[Place]:
    return places if len(places) <= _FIRST + _LAST else places[:_FIRST] + places[-_LAST:]


def _shown(file: str) -> str:
    """Return a path below the working folder unchanged, and of any other only the name."""
    path = Path(file)
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return path.name


def _causes(error: BaseException) -> Iterator[BaseException]:
    for _ in range(_CHAIN):
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None:
            return
        yield cause
        error = cause


def _headline(error: BaseException) -> str:
    text = redact_text(str(error))[:_MAX_TEXT]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
