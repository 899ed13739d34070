"""A program at a real pseudo-terminal: what a person types, and what they see."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import time
from pathlib import Path

from tests.forked import Forked

PATIENCE = 90.0
PROMPTS = 100
"""So many lines may be typed in vain."""


class PseudoTerminal:
    """`forestay …` in `folder`; `seen` is everything that the terminal showed."""

    def __init__(self, folder: Path, *arguments: str, **environ: str) -> None:
        self._terminal, side = pty.openpty()
        keep = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
        home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".none"), "TERM": "dumb", "NO_COLOR": "1"}
        self._process = Forked(folder, *arguments, environ={**keep, **home, **environ}, terminal=side)
        os.close(side)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end inside a character
        self._shown = self.seen = ""
        self._read = 0

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until something like `pattern` is shown after what was expected before."""
        until = time.monotonic() + PATIENCE
        while (found := re.compile(pattern, re.DOTALL).search(self.seen, self._read)) is None:
            assert time.monotonic() < until and self._more(until - time.monotonic()), (pattern, self.seen)
        self._read = found.end()
        return found

    def ready(self, prompt: str) -> None:
        """Wait until the terminal ends with a prompt, and take what was shown so far as read."""
        until = time.monotonic() + PATIENCE
        while not self.seen.endswith(prompt):
            assert time.monotonic() < until and self._more(until - time.monotonic()), (prompt, self.seen)
        self._read = len(self.seen)

    def shows(self, text: str) -> None:
        """Wait until `text` is shown anywhere after what was read."""
        until = time.monotonic() + PATIENCE
        while text not in self.seen[self._read :]:
            assert time.monotonic() < until and self._more(until - time.monotonic()), (text, self.seen)

    def stands(self, text: str, prompt: str, *, ever: bool = False) -> None:
        """Wait until `text` is shown before a prompt, which is left unread; an empty line brings the next prompt.

        What stands beside a conversation is shown with the first prompt after it has changed. `ever` takes one that was
        read already.
        """
        for _ in range(PROMPTS):
            self.shows(prompt)
            if text in self.seen[0 if ever else self._read :]:
                return
            self.expect(re.escape(prompt))
            self.type("")
        raise AssertionError((text, self.seen))

    def type(self, line: str) -> None:
        os.write(self._terminal, f"{line}\n".encode())

    def press(self, key: str) -> None:
        os.write(self._terminal, key.encode())

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def end(self) -> int:
        """The exit code, when the program has ended."""
        while self._more(PATIENCE):
            pass
        return self._process.wait(30)

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        os.close(self._terminal)

    def _more(self, seconds: float) -> bool:
        if not select.select([self._terminal], [], [], seconds)[0]:
            return False
        try:
            part = os.read(self._terminal, 65536)
        except OSError:  # the program has closed its side
            return False
        self._shown += self._decoder.decode(part)
        self.seen = self._shown.replace("\r\n", "\n")
        return bool(part)
