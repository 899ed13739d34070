"""Commands to runs that other processes own.

- I1  The process that owns a run executes its commands, and answers in the transaction that writes their events: no
      answer means that nothing happened.
- I2  When an owner ends before it answers, the next owner is asked, with the places of the earlier questions. Once it
      has the run, it looks for an answer there: from then on no earlier owner can give one (K5).
- I3  An owner that comes back under its name answers recent questions, unless another process has answered.
- I4  A caller may see another owner for a moment, and ask the same process again while it works on the first question.
      Both are one command: in the run's turn, the second task finds what the first one did.

The owner's inbox is a stream: any process writes `command.asked`, and `command.answered` has the place of the question.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.kernel import Append, Clock, Draft, Problem, Record
from forestay.runs.actor import RunActor
from forestay.runs.commands import Command
from forestay.runs.outcome import Outcome, along
from forestay.runs.state import RunState

if TYPE_CHECKING:
    from forestay.runs.engine import Engine

INBOX = "inbox/"
_ATTEMPTS = 4
_LOOK_SECONDS = 0.5  # how often a caller checks that the owner is still the same
_PATIENCE_SECONDS = 30.0
_STALE_MS = 60_000  # the callers of older questions are gone
_BACK = 1_000  # so many records of its inbox an owner reads when it comes back


class Place(msgspec.Struct, frozen=True):
    """The place of a question in an inbox."""

    stream: str
    seq: int


class Asked(msgspec.Struct, frozen=True, rename="camel"):
    """A command in an inbox. `earlier` are the places where it was asked before."""

    run_id: str
    command: Command
    earlier: list[Place] = []


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a command: its result or its problem. With `moved`, another process owns the run: ask that one."""

    result: Any = None
    problem: dict[str, Any] | None = None
    moved: bool = False

    def unpack(self) -> Any:
        if self.problem is not None:
            said = self.problem
            raise Problem(said["key"], said["message"], retry_after_ms=said["retryAfterMs"], **said["details"])
        return self.result


class Deed:
    """A command while tasks of this process execute it; `tasks` counts them (I4).

    It counts as done while the actor that did it lives. When that actor is lost, the log tells what was done (I2).
    """

    __slots__ = ("answer", "by", "tasks")

    def __init__(self) -> None:
        self.by: RunActor | RunState | None = None
        self.answer = Answer()
        self.tasks = 0

    def do(self, asked: Asked, run: RunActor | RunState, state: RunState, clock: Clock) -> Outcome:
        """Execute the command in the run's turn, unless it is done; answer at every place where it was asked."""
        if self.by is run:
            outcome = Outcome([], self.answer.unpack())
        else:
            outcome = self._first(asked.command, run, state, clock)
        outcome.appends.extend(_answers(Answer(outcome.result), asked.earlier))
        return outcome

    def _first(self, command: Command, run: RunActor | RunState, state: RunState, clock: Clock) -> Outcome:
        try:
            outcome = command.make(state, clock)
        except Problem as problem:
            self.by, self.answer = run, Answer(problem=_packed(problem))
            raise
        self.by, self.answer = run, Answer(outcome.result)
        return outcome


class Inbox:
    """The commands of one engine's callers, and those that other processes send to it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._under_way: set[int] = set()  # questions in progress
        self._deeds: dict[Place, Deed] = {}  # by the first place where each was asked

    # Asking

    async def ask(self, run_id: str, command: Command) -> Any:
        """Execute a command in the process that owns its run; return its result, or raise its Problem."""
        earlier: list[Place] = []
        for attempt in range(_ATTEMPTS):
            found = await self._engine.find(run_id)
            if isinstance(found, RunActor) and self._is_elsewhere(found):
                answer = await self._forward(found.owner, Asked(run_id, command, list(earlier)), earlier)
                if answer is not None:
                    return answer.unpack()
                continue
            with self._deed(earlier) as deed:
                if (known := await self._known(earlier)) is not None:
                    return known.unpack()
                try:
                    return (await self._carry_out(found, Asked(run_id, command, earlier), deed)).unpack()
                except Problem as problem:
                    if problem.key != "ledger_conflict" or attempt == _ATTEMPTS - 1:
                        raise
        raise Problem("unavailable", "The run's owner keeps changing.", retry_after_ms=1000, runId=run_id)

    def _is_elsewhere(self, found: RunActor) -> bool:
        return self._engine.leases.shared and not found.owned and bool(found.owner)

    async def _forward(self, owner: str, asked: Asked, earlier: list[Place]) -> Answer | None:
        """Ask the owner; return None when it lost the run and has not answered."""
        stream = INBOX + owner
        told = {"runId": asked.run_id, "do": type(asked.command).__struct_config__.tag}
        attrs = {"asked": msgspec.to_builtins(asked)}
        (record,) = await self._engine.ledger.append(stream, [Draft("command.asked", told, attrs)])
        place = Place(stream, record.seq)
        earlier.append(place)
        answer = asyncio.ensure_future(self._answer_to(place))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while not answer.done() and await self._carries(owner, asked.run_id):
                    await asyncio.wait([answer], timeout=_LOOK_SECONDS)
        except TimeoutError:
            message = f"{owner}, which owns the run, does not answer; it may still execute the command."
            raise Problem("unavailable", message, retry_after_ms=1000, runId=asked.run_id) from None
        finally:
            if not answer.done():
                answer.cancel()
                await asyncio.wait([answer])
        if answer.cancelled():
            return None
        return None if answer.result().moved else answer.result()

    async def _carries(self, owner: str, run_id: str) -> bool:
        return (await self._engine.leases.carrier(run_id, take=False)).name == owner

    async def _answer_to(self, place: Place) -> Answer:
        async with contextlib.aclosing(self._engine.ledger.follow(place.stream, place.seq + 1)) as records:
            async for record in records:
                if record.type == "command.answered" and record.payload["to"] == place.seq:
                    return msgspec.convert(record.attrs["answer"], Answer)
        raise AssertionError("unreachable")

    # Executing

    @contextlib.contextmanager
    def _deed(self, places: Sequence[Place]) -> Iterator[Deed]:
        """Share one deed among the tasks of a command, which have the same first place (I4)."""
        deed = self._deeds.setdefault(places[0], Deed()) if places else Deed()
        deed.tasks += 1
        try:
            yield deed
        finally:
            deed.tasks -= 1
            if places and not deed.tasks:
                del self._deeds[places[0]]

    async def _carry_out(self, found: RunActor | RunState, asked: Asked, deed: Deed) -> Answer:
        """Execute the command, and answer it at every place where it was asked, in one transaction (I1)."""

        def make(state: RunState) -> Outcome:
            return deed.do(asked, found, state, self._engine.clock)

        try:
            if isinstance(found, RunActor):
                return Answer(await found.post(make, asked=True))
            outcome = make(found)
            if outcome.appends:
                await self._engine.ledger.commit(*outcome.appends)
            return Answer(outcome.result)
        except Problem as problem:
            if problem.key == "ledger_conflict" or not asked.earlier:
                raise
            refused = Answer(problem=_packed(problem))
            await self._engine.ledger.commit(*_answers(refused, asked.earlier))
            return refused

    async def _known(self, places: Sequence[Place]) -> Answer | None:
        """Return the answer at one of these places; call it once this process owns the run (I2)."""
        for place in places:
            for record in await self._engine.ledger.read(place.stream, place.seq + 1):
                if record.type == "command.answered" and record.payload["to"] == place.seq:
                    answer = msgspec.convert(record.attrs["answer"], Answer)
                    if not answer.moved:
                        return answer
        return None

    # Listening

    async def listen(self) -> None:
        """Execute the commands of other processes, each in its own task, so that a slow one delays no other."""
        stream = INBOX + self._engine.instance
        while True:
            with contextlib.suppress(Problem):  # the database is away
                async for record in self._questions(stream):
                    if record.seq not in self._under_way:
                        self._under_way.add(record.seq)
                        self._engine.spawn(self._take(Place(stream, record.seq), record))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _questions(self, stream: str) -> AsyncIterator[Record]:
        """Yield the recent questions without an answer (I3), and then each new one."""
        before = await self._engine.ledger.read(stream, 0, _BACK, reverse=True)
        answered = {record.payload["to"] for record in before if record.type == "command.answered"}
        fresh = self._engine.clock.now_ms() - _STALE_MS
        for record in reversed(before):
            if record.type == "command.asked" and record.seq not in answered and record.ts >= fresh:
                yield record
        start = before[0].seq + 1 if before else 0
        async with contextlib.aclosing(self._engine.ledger.follow(stream, start)) as records:
            async for record in records:
                if record.type == "command.asked":
                    yield record

    async def _take(self, place: Place, record: Record) -> None:
        asked = msgspec.convert(record.attrs["asked"], Asked)
        asked = msgspec.structs.replace(asked, earlier=[*asked.earlier, place])
        try:
            with self._deed(asked.earlier) as deed:
                answer = await self._own_answer(asked, deed)
            if answer is not None:
                await self._engine.ledger.commit(*_answers(answer, [place]))
        finally:
            self._under_way.discard(record.seq)

    async def _own_answer(self, asked: Asked, deed: Deed) -> Answer | None:
        """Return the answer that is still to be written; None when it is written."""
        for _ in range(_ATTEMPTS):
            found = await self._engine.find(asked.run_id)
            if isinstance(found, RunActor) and not found.owned:
                break
            if (known := await self._known(asked.earlier)) is not None:
                return known
            try:
                await self._carry_out(found, asked, deed)
                return None
            except Problem as problem:
                if problem.key != "ledger_conflict":
                    raise
        return Answer(moved=True)


def _answers(answer: Answer, places: Sequence[Place]) -> list[Append]:
    said = {"answer": msgspec.to_builtins(answer)}
    appends: list[Append] = []
    for place in places:
        along(appends, Append(place.stream, [Draft("command.answered", {"to": place.seq}, said)]))
    return appends


def _packed(problem: Problem) -> dict[str, Any]:
    return {
        "key": problem.key,
        "message": problem.message,
        "retryAfterMs": problem.retry_after_ms,
        "details": problem.as_pi()["details"],
    }
