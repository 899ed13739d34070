"""Records a run in a file, and replays it from the file (Pi §1A.4.6, §1A.4.7).

A trace is JSON Lines: the inputs (`arrive`, `now`, `clock`, `random`, `zone`, `sync`) and the results (`tick`, `out`,
`trap`), in the order in which they happened. A replay gives the inputs to a new VM and writes its own trace; the two
are compared byte for byte.

    T1  A replay reads only the trace and the artifact: no clock, no randomness, no host.
    T2  A replay stops at the first line that differs, with both lines in the Problem.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from forestay.extensions.engine.image import image_digest
from forestay.extensions.engine.limits import EngineTrap, Limits
from forestay.extensions.isolate import Isolate, Macrotask, Program, VmInputs
from forestay.kernel import Problem, canonical, former

FORMAT = "forestay.trace.v1"


class Header(msgspec.Struct, frozen=True):
    """What must be the same in a replay: format, image (engine and prelude), artifact, limits."""

    format: str
    image: str
    artifact: str
    extension: str
    limits: Limits


class Recorder:
    """A VmInputs that records every input, and an Observer that records every step."""

    def __init__(self, world: VmInputs, write: Callable[[bytes], None]) -> None:
        self._world = world
        self._write = write

    @property
    def touched(self) -> bool:
        return self._world.touched

    @touched.setter
    def touched(self, value: bool) -> None:
        self._world.touched = value

    def header(self, header: Header) -> None:
        self._line("trace", header)

    def trapped(self, trap: EngineTrap) -> None:
        self._line("trap", trap.kind, str(trap))

    # -- VmInputs ------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._world.now_ms()

    def tick_time(self) -> int:
        now = self._world.tick_time()
        self._line("now", now)
        return now

    def clock_ns(self, monotonic: bool) -> int:
        value = self._world.clock_ns(monotonic)
        self._line("clock", monotonic, value)
        return value

    def random(self, count: int) -> bytes:
        data = self._world.random(count)
        self._line("random", data.hex())
        return data

    def timezone_offset(self, seconds: int) -> int:
        offset = self._world.timezone_offset(seconds)
        self._line("zone", seconds, offset)
        return offset

    def sync(self, request: bytes) -> bytes:
        answer = self._world.sync(request)
        self._line("sync", _text(request), _text(answer))
        return answer

    # -- Observer ---------------------------------------------------------------------------------------------------

    def arrived(self, task: Macrotask) -> None:
        self._line("arrive", task.seq, task.kind, task.number, task.name, _text(task.body))

    def started(self, task: Macrotask) -> None:
        self._line("tick", task.seq, task.kind, task.number)

    def finished(self, jobs: int, outbox: bytes, unhandled: list[bytes]) -> None:
        self._line("out", jobs, _text(outbox), [_text(item) for item in unhandled])

    def _line(self, *parts: object) -> None:
        self._write(canonical.encode(parts))


class TraceFile:
    """A trace on disk, line by line; give it to an extension as `record`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._lock = threading.Lock()  # the event loop's thread writes the header, the VM's thread the rest

    def __call__(self, line: bytes) -> None:
        with self._lock:
            if not self._file.closed:
                self._file.write(line + b"\n")

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._file.close()


def header(lines: Iterable[bytes]) -> Header:
    """Return the header of a trace."""
    first = next((line for line in lines if line.strip()), b"")
    try:
        return msgspec.json.decode(first, type=tuple[str, Header])[1]
    except msgspec.DecodeError as error:
        raise Problem("invalid_json", "This is not a trace.", fix="Record one with `forestay ext trace`.") from error


def replay(lines: Iterable[bytes], program: Program) -> list[bytes]:
    """Replay a trace; return the lines of the new run, or raise a Problem where they differ (T2)."""
    script = [line.rstrip(b"\n") for line in lines if line.strip()]
    player = Player(script)
    recorder = Recorder(player, player.compare)
    isolate: Isolate | None = None
    try:
        player.read_header(program.digest, image_digest())
        while (kind := player.next_kind()) is not None:
            if kind == "trace":  # at the beginning and after each trap
                if isolate is not None:
                    isolate.close()
                header = player.read_header(program.digest, image_digest())
                isolate = Isolate.start(recorder, header.limits, recorder)
                recorder.header(header)
            elif isolate is not None and kind == "arrive":
                _arrive(isolate, program, player.peek())
            elif isolate is not None and kind == "now":
                _tick(isolate, recorder)
            else:
                player.diverged("a line of this kind is not allowed here")
    finally:
        if isolate is not None:
            isolate.close()
    return player.written


def _arrive(isolate: Isolate, program: Program, line: list[Any]) -> None:
    _, _, what, number, name, body = line
    if name == "load":
        isolate.load(program, number, body.encode())
    else:
        isolate.arrive(what, number, name, body.encode())


def _tick(isolate: Isolate, recorder: Recorder) -> None:
    try:
        isolate.tick()
    except EngineTrap as trap:
        recorder.trapped(trap)


class Player:
    """A VmInputs that reads the lines of a trace; it also compares them with the lines of the replay (T1, T2)."""

    def __init__(self, script: list[bytes]) -> None:
        self.touched = False
        self.written: list[bytes] = []
        self._script = script

    def read_header(self, artifact: str, image: str) -> Header:
        """Read the header at this place of the trace; require the same program and engine."""
        at = len(self.written)
        try:
            parts = msgspec.json.decode(self._script[at], type=tuple[str, Header]) if self._script else ("", None)
        except msgspec.MsgspecError as error:
            raise Problem(
                "schema_mismatch", "This line is not the header of a trace.", reason=str(error)[:200]
            ) from error
        header = parts[1]
        if parts[0] != "trace" or header is None or former.renamed(header.format) != FORMAT:
            raise Problem(
                "schema_mismatch", "This is not a trace.", fix=f"The first line must name the format {FORMAT}."
            )
        for name, expected, observed in (
            ("artifact", header.artifact, artifact),
            ("image", header.image, image),
        ):
            if expected != observed:
                raise Problem(
                    "replay_diverged",
                    f"The trace was recorded with another {name}.",
                    expected=expected,
                    observed=observed,
                    fix="Replay with the version and the artifact that recorded it.",
                )
        return header

    def next_kind(self) -> str | None:
        if len(self.written) >= len(self._script):
            return None
        return str(self.peek()[0])

    def peek(self) -> list[Any]:
        if len(self.written) >= len(self._script):
            self.diverged("the replay continues")
        try:
            parts: list[Any] = msgspec.json.decode(self._script[len(self.written)], type=list[Any])
        except msgspec.MsgspecError:
            self.diverged("this line is damaged")
        return parts

    def compare(self, line: bytes) -> None:
        at = len(self.written)
        if at >= len(self._script) or self._script[at] != line:
            self.diverged(line.decode("utf-8", "replace")[:400])
        self.written.append(line)

    def diverged(self, observed: str) -> NoReturn:
        at = len(self.written)
        recorded = (
            self._script[at].decode("utf-8", "replace")[:400] if at < len(self._script) else "the end of the trace"
        )
        raise Problem(
            "replay_diverged",
            "The replay differs from the trace.",
            line=at + 1,
            recorded=recorded,
            observed=observed,
        )

    def _expect(self, kind: str) -> list[Any]:
        parts = self.peek()
        if parts[0] != kind:
            self.diverged(f"a line of the kind {kind}")
        return parts

    def now_ms(self) -> int:
        return int(self._expect("now")[1])

    def tick_time(self) -> int:
        return self.now_ms()

    def clock_ns(self, monotonic: bool) -> int:
        return int(self._expect("clock")[2])

    def random(self, count: int) -> bytes:
        return bytes.fromhex(self._expect("random")[1])

    def timezone_offset(self, seconds: int) -> int:
        return int(self._expect("zone")[2])

    def sync(self, request: bytes) -> bytes:
        return str(self._expect("sync")[2]).encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    """Return text that JSON can carry; the guest's bytes are UTF-8, except for half a surrogate pair."""
    return data.decode("utf-8", "replace")
