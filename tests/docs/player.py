"""Playing a page of documentation: what it shows is typed, in one new folder, by somebody with a new home.

- `sh` is typed as it stands; of `console` the lines after `$`, the rest is what they print. `# exit N` at the end of a
  line expects that exit code. `make …` is looked up in the Makefile (`make -n`). Standard output is a terminal, nobody
  sits at it.
- A block with a title is a file. `toml` without one is a configuration, `json` a document.
- `python` runs in one process per page, block after block.
- `text` is what the block before it printed: each line is found there, `…` stands for anything.
- A block without a language is a drawing, unless it holds a command. `<!-- figure -->` before a block says so of any:
  it is drawn, not typed. `<!-- background -->`: a host, which runs until the page is
  over; the next block begins when it is up. `<!-- another terminal -->`: a new shell in the same folder, which knows
  nothing of what was exported before. `<!-- help: why -->`: it cannot be typed here, so each command is asked for
  its help instead.
- Whatever else stands in a block is a fault of the page.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import msgspec

from forestay.kernel import Config
from tests.docs.pages import ROOT, Block
from tests.postgres import new_ledger

_FORESTAY = "import sys; from forestay.cli.main import main; sys.exit(main())"
# What the pages ask of curl, for a machine without it.
_CURL = """
import argparse, sys, urllib.request
parser = argparse.ArgumentParser()
parser.add_argument("-H", action="append", default=[])
parser.add_argument("-d")
parser.add_argument("-s", action="store_true")
parser.add_argument("-f", action="store_true")
parser.add_argument("url")
given = parser.parse_args()
headers = dict(line.split(": ", 1) for line in given.H)
request = urllib.request.Request(given.url, given.d and given.d.encode(), headers)
sys.stdout.write(urllib.request.urlopen(request).read().decode())
"""
_PATIENCE = 120.0
_COMMAND = re.compile(r"^\s*(\$ |[A-Z_]+=\S+ |(forestay|make|pip|python3?|curl|git|npm) )", re.MULTILINE)
_ADDRESS = "127.0.0.1:8787"  # on a page; here every page has a port of its own
_DATABASE = "=postgresql://forestay@localhost/forestay"  # and where it is set, a database


class Player:
    """Plays blocks in `folder`; `said` is what the last one printed.

    With `clone` the page begins in a clone and sets it up: the command is where `make setup` puts it, and on no path.
    `installed` is the folder of programs of an environment that has forestay; nothing of this clone is used then.
    """

    def __init__(self, folder: Path, *, clone: bool = False, installed: Path | None = None) -> None:
        self.said: str | None = None
        self.played = 0
        self._python: list[str] = []
        self._printed = 0
        self._background: list[Terminal] = []
        self._port = _free_port()
        self._work, self._state, self._where = folder / "work", folder / "state", folder / "where"
        for made in ("bin", "home", "work"):
            (folder / made).mkdir()
        self._where.write_text(str(self._work))
        place = self._work / ".venv" / "bin" if clone else folder / "bin"
        place.mkdir(parents=True, exist_ok=True)
        if installed is None:
            _command(place / "forestay", "-P", "-c", _FORESTAY)
            _command(folder / "bin" / "python3")
        if shutil.which("curl") is None:
            _command(folder / "bin" / "curl", "-c", _CURL)
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("FORESTAY_", "XDG_", "PYTEST_")) and key != "PWD"
        }
        self._env = kept | {
            "HOME": str(folder / "home"),
            "PATH": os.pathsep.join(
                [str(installed or folder / "bin"), str(folder / "bin"), *_paths_without("forestay")]
            ),
            "PYTHONPATH": str(ROOT / "src") if installed is None else "",
            "NO_COLOR": "1",
            "COLUMNS": "200",
            "LINES": "50",
            "TERM": "dumb",
            "FORESTAY_HTTP_PORT": str(self._port),
        }

    def play(self, block: Block) -> None:
        """Do what the block says, or raise AssertionError."""
        mark, language = block.mark or "", block.language
        if mark == "figure" or (not language and not _COMMAND.search(block.text)):
            return
        if mark.startswith("help: "):
            self._explain(block)
        elif block.title is not None:
            self._write(block)
        elif language in ("sh", "console"):
            self._type(block, background=mark == "background", anew=mark == "another terminal")
        elif language == "python":
            self._run(block)
        elif language == "toml":
            msgspec.convert(tomllib.loads(block.text), Config)
        elif language == "json":
            json.loads(block.text)
        elif language == "text" and self.said is not None:
            expect(block.text, self.said)
        else:
            raise AssertionError(f"line {block.line}: nobody plays this block; is it a <!-- figure -->?")
        if language != "text":
            self.played += 1

    def close(self) -> None:
        for terminal in self._background:
            terminal.end()

    def _write(self, block: Block) -> None:
        assert block.title is not None
        file = Path(self._where.read_text().strip()) / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, "utf-8")
        self.said = None

    def _type(self, block: Block, *, background: bool, anew: bool = False) -> None:
        typed, printed = _session(block)
        if anew:
            self._state.unlink(missing_ok=True)
        lines = "\n".join(_line(line) for line in typed).replace(_ADDRESS, f"127.0.0.1:{self._port}")
        if _DATABASE in lines:
            lines = lines.replace(_DATABASE, f"={shlex.quote(new_ledger())}")
        script = (
            f'set -euo pipefail; cd "$(cat {self._where})"; set -a; [ ! -f {self._state} ] || . {self._state}\n'
            f"{lines}\npwd > {self._where}; export -p > {self._state}\n"
        )
        terminal = Terminal(script, self._env)
        if background:
            self._background.append(terminal)
            terminal.wait_until_up()
        else:
            code = terminal.wait()
            assert code == 0, (block.line, code, terminal.said)
        self.said = terminal.said.replace(f"127.0.0.1:{self._port}", _ADDRESS)
        expect("\n".join(printed), self.said)

    def _run(self, block: Block) -> None:
        """All Python of the page so far; what this block printed comes last."""
        self._python.append(block.text)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", "\n".join(self._python).replace(_ADDRESS, f"127.0.0.1:{self._port}")],
            cwd=self._work,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
        assert done.returncode == 0, (block.line, done.stderr)
        self.said, self._printed = done.stdout[self._printed :], len(done.stdout)

    def _explain(self, block: Block) -> None:
        for line in _session(block)[0]:
            words = shlex.split(line, comments=True)
            if not words:
                continue
            assert words[0] == "forestay", (block.line, line)
            named = [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)]
            assert any(self._has_help(named[:depth]) for depth in (3, 2, 1)), (block.line, line)
        self.said = None

    def _has_help(self, command: list[str]) -> bool:
        done = subprocess.run(["forestay", *command, "--help"], env=self._env, capture_output=True)
        return done.returncode == 0


class Terminal:
    """Bash with a terminal for its output, and nobody at the keyboard."""

    def __init__(self, script: str, env: dict[str, str]) -> None:
        output, theirs = pty.openpty()
        errors, their_errors = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", script],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=their_errors,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(their_errors)
        self._parts: list[bytes] = []
        self._readers = [threading.Thread(target=self._read, args=(handle,)) for handle in (output, errors)]
        for reader in self._readers:
            reader.start()

    @property
    def said(self) -> str:
        return b"".join(self._parts).decode("utf-8", "replace").replace("\r\n", "\n")

    def wait(self) -> int:
        try:
            return self._process.wait(_PATIENCE)
        finally:
            self.end()

    def wait_until_up(self) -> None:
        until = time.monotonic() + _PATIENCE
        while "Ctrl-C." not in self.said and self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)  # another process's time, which no clock of ours can jump
        assert self._process.poll() is None, self.said

    def end(self) -> None:
        """End what still runs, as closing the terminal would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(30)
        for reader in self._readers:
            reader.join(30)

    def _read(self, handle: int) -> None:
        with contextlib.suppress(OSError), os.fdopen(handle, "rb", buffering=0) as file:
            while data := file.read(65536):  # a terminal whose other side is closed reads as an error
                self._parts.append(data)


def _command(path: Path, *python: str) -> None:
    """A command that is this Python with these arguments."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *python])} "$@"\n')
    path.chmod(0o755)


def _paths_without(command: str) -> list[str]:
    """The machine's paths, but for those that hold the command itself: what a page finds is what the page put there."""
    return [path for path in os.environ["PATH"].split(os.pathsep) if not (Path(path) / command).exists()]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def expect(shown: str, said: str) -> None:
    """Each line that is shown was said; `…` stands for anything."""
    for line in filter(None, map(str.strip, shown.splitlines())):
        pattern = ".*".join(map(re.escape, line.split("…")))
        assert re.search(pattern, said), (line, said)


def _session(block: Block) -> tuple[list[str], list[str]]:
    """What is typed and what is printed."""
    lines = block.text.splitlines()
    if block.language == "sh":
        return lines, []
    typed = [line[2:] for line in lines if line.startswith("$ ")]
    return typed, [line for line in lines if not line.startswith("$ ")]


def _line(line: str) -> str:
    """A line as bash takes it: with its exit code expected, and `make` asked what it would do."""
    expected = re.search(r"# exit (\d+)\s*$", line)
    if expected is None:
        return re.sub(r"^make ", f"make -n -C {shlex.quote(str(ROOT))} ", line)
    return f"code=0; {{ {line[: expected.start()]}; }} || code=$?; [ $code = {expected[1]} ]"
