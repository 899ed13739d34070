"""Records a component's run as a trace, and replays it: its calls, its inputs and its answers.

The lines are those of every trace (`trace.py`): `arrive` is a call, `clock`, `random` and `sync` are its inputs, `out`
is its answer, and `trap` its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from forestay.extensions.compiler.artifact import Artifact, component_engine
from forestay.extensions.components.compile import compiled
from forestay.extensions.components.instance import Instance
from forestay.extensions.components.linked import LinkedComponent
from forestay.extensions.components.values import Answer, Argument
from forestay.extensions.engine.limits import EngineTrap, Limits
from forestay.extensions.isolate import Macrotask
from forestay.extensions.trace import FORMAT, Header, Player, Recorder

_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode


class Traced:
    """Records the calls of one guest; a call that traps ends with a `trap` line."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._sequence = 0

    def begin(self, digest: str, name: str, limits: Limits, make: Callable[[], Instance]) -> Instance:
        self.recorder.header(Header(FORMAT, component_engine(), digest, name, limits))
        return self._ended(make)

    def call(self, enter: Callable[..., Answer], export: str, arguments: tuple[Argument, ...]) -> Answer:
        self._sequence += 1
        body = _encode([_plain(argument) for argument in arguments])
        self.recorder.arrived(Macrotask(self._sequence, "inbound", 0, export, body))
        ok, answer = self._ended(lambda: enter(export, *arguments))
        self.recorder.finished(int(ok), answer, [])
        return ok, answer

    def _ended(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except EngineTrap as trap:
            self.recorder.trapped(trap)
            raise


def replay(lines: Iterable[bytes], artifact: Artifact) -> list[bytes]:
    """Replay the trace of a component; return the lines of the new run, or raise a Problem where they differ."""
    player = Player([line.rstrip(b"\n") for line in lines if line.strip()])
    recorder = Recorder(player, player.compare)
    player.read_header(artifact.meta.hash, component_engine())
    linked = LinkedComponent(compiled(artifact.code))
    instance: Instance | None = None
    traced = Traced(recorder)
    while (kind := player.next_kind()) is not None:
        try:
            if kind == "trace":
                header = player.read_header(artifact.meta.hash, component_engine())
                _close(instance)
                traced = Traced(recorder)
                make = _instance(linked, recorder, header.limits)
                instance = traced.begin(header.artifact, header.extension, header.limits, make)
            elif kind == "arrive" and instance is not None:
                _, _, _, _, export, body = player.peek()
                traced.call(instance.call, export, tuple(_raw(item) for item in msgspec.json.decode(body)))
            else:
                player.diverged("a line of this kind is not allowed here")
        except EngineTrap:
            continue  # the trace has the same trap, else the player reports a difference
    _close(instance)
    return player.written


def _instance(linked: LinkedComponent, recorder: Recorder, limits: Limits) -> Callable[[], Instance]:
    return lambda: Instance(linked, recorder, limits, lambda _name: None)


def _close(instance: Instance | None) -> None:
    if instance is not None:
        instance.close()


def _plain(argument: Argument) -> Any:
    return argument.decode() if isinstance(argument, bytes) else [item.decode() for item in argument]


def _raw(item: Any) -> Argument:
    return item.encode() if isinstance(item, str) else [part.encode() for part in item]
