"""The texts of one build read by two processes: a copy of this one takes half of them and hands back what they tell.

A1  Reading is pure: what the copy tells is what this process would have found, so it is only taken into what is kept.
    A copy that fails, or says nothing, costs time and nothing else: this process reads the text then.
A2  The copy ends when it has answered; when this process is interrupted, at once.
A3  A process is only copied where no other thread of Python can hold a lock that the copy would wait for, or where the
    caller knows that none does (`may_copy`). The parser holds the interpreter, so a thread would not do instead.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence

import msgspec

from forestay.extensions.compiler.scan.reading import Reading, Text, is_kept, keep, read

_WORTH = 100_000  # bytes to read, below which a copy costs more than it saves
_MOST = 8_000_000  # and beyond which the trees of two processes take more memory than a build may


def read_ahead(
    texts: Sequence[Text], program: Callable[[], object], size: int, *, may_copy: bool = False, worth: int = _WORTH
) -> None:
    """Read a program, of this many bytes, and the texts that it is made of, when two processes are faster than one."""
    unread = [text for text in texts if not is_kept(text)]
    mine, others = _halves(unread, size)
    whole = size + sum(len(text.contents) for text in unread)
    if not others or not worth <= whole <= _MOST or not _can_copy(may_copy):
        return
    pipe, into = os.pipe()
    child = _copied()
    if child == 0:
        _answer(others, into)
    os.close(into)
    try:
        program()
        for text in mine:
            read(text.name, text.contents, text.dialect)
        told = _heard(pipe)
    finally:
        os.close(pipe)
        os.kill(child, signal.SIGKILL)  # it has ended, or nobody waits for it any more (A2)
        os.waitpid(child, 0)
    for text, reading in zip(others, told, strict=False):
        keep(text, reading)


def _halves(texts: Sequence[Text], size: int) -> tuple[list[Text], list[Text]]:
    """The largest first, each to the half with less to do; the program is in the first one."""
    halves: tuple[list[Text], list[Text]] = ([], [])
    sizes = [size, 0]
    for text in sorted(texts, key=lambda text: -len(text.contents)):
        at = 0 if sizes[0] <= sizes[1] else 1
        halves[at].append(text)
        sizes[at] += len(text.contents)
    return halves


def _can_copy(may_copy: bool) -> bool:
    return sys.platform == "linux" and (os.cpu_count() or 1) > 1 and (may_copy or threading.active_count() == 1)


def _copied() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 on, where there are threads: see A3
        return os.fork()


def _answer(texts: Sequence[Text], into: int) -> None:
    """What the copy does: read, tell, end. Nothing of this process is tidied up by it."""
    try:
        data = msgspec.msgpack.encode([read(text.name, text.contents, text.dialect) for text in texts])
        while data:
            data = data[os.write(into, data) :]
    finally:
        os._exit(0)


def _heard(pipe: int) -> list[Reading]:
    parts = []
    while part := os.read(pipe, 1 << 20):
        parts.append(part)
    try:
        return msgspec.msgpack.decode(b"".join(parts), type=list[Reading])
    except msgspec.MsgspecError:
        return []  # it did not finish (A1)
