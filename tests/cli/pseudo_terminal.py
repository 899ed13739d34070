"""A program at a real pseudo-terminal: what a person types, and what they see."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = "import sys; from forestay.cli.main import main; sys.exit(main())"
PATIENCE = 90.0


class PseudoTerminal:
    """`forestay …` in `folder`; `seen` is everything that the terminal showed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._terminal, side = pty.openpty()
        keep = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
        home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".none"), "TERM": "dumb", "NO_COLOR": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", COMMAND, *arguments],
            cwd=folder,
            env={**keep, **home, "PYTHONPATH": str(ROOT / "src")},
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            preexec_fn=_controlling,
        )
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


def _controlling() -> None:
    """The terminal sends Ctrl-C to the program that it controls."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
