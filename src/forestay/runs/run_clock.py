"""A run's own clock: what happens in a run happens at the time it would have happened without a break.

- T1  Every event has two times: `ts`, when it was written, and `at`, when it happened by the run's own clock. Deadlines
      are computed from `at` and compared with the run's clock. It never goes back and never passes the wall clock.
- T2  While something takes real time (work under way, the pause before another attempt, a question that people can
      see), the run's clock keeps the pace of the wall clock, as far behind it as when that began. A run that only waits
      for time is not behind: its clock jumps from deadline to deadline up to the wall clock.
- T3  Deadlines are taken one by one, in the order of their due times, each with all that follows from it before the
      next. What callers do comes after everything that fell due before it.
- T4  Time in which no host was there, or that a clock jumped over, is not time that work had: a node that was under way
      begins again when the run is taken up, with its full time. A run's clock is behind by at most the host's longest
      run duration, so a run that kills its host each time still ends.
- T5  Runs of one family (parents, children, not detached ones) catch up together: none takes a deadline that fell due
      after what another has still to do. A child's end reaches its parent, and a parent's end its children, at the time
      of that end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forestay.kernel import Clock
from forestay.runs.state import RunState

if TYPE_CHECKING:
    from forestay.runs.actor import RunActor

JUMP_MS = 1_000
"""The wall clock went this much further than the machine's own: it was set, or the machine slept."""


def kin_of(state: RunState) -> str:
    """The family that a run catches up with, by the run that it began with; a detached child begins its own."""
    link = state.parent
    if link is None or link.get("detached"):
        return state.run_id
    return str(link.get("kin") or link.get("root") or link["runId"])


class Kin:
    """The runs in memory that have relatives, by family."""

    def __init__(self) -> None:
        self._members: dict[str, dict[str, RunActor]] = {}
        self.held: dict[str, set[RunActor]] = {}  # those that wait for a relative, by family

    def join(self, actor: RunActor) -> None:
        self._members.setdefault(kin_of(actor.state), {})[actor.state.run_id] = actor

    def part(self, actor: RunActor) -> None:
        """Forget a run, and let those go on that waited for it."""
        kin = kin_of(actor.state)
        members = self._members.get(kin, {})
        if members.get(actor.state.run_id) is actor:
            del members[actor.state.run_id]
            if not members:
                del self._members[kin]
        self.moved(actor)

    def horizon(self, actor: RunActor, now: int) -> int:
        """How far a run with a deadline to take may go: up to what a relative has still to do (T5)."""
        kin = kin_of(actor.state)
        members = self._members.get(kin, {})
        first = min((other.next_move(now) for other in members.values() if other is not actor), default=now)
        if first < now:
            self.held.setdefault(kin, set()).add(actor)
        return first

    def moved(self, actor: RunActor) -> None:
        """A run has done something: those that it held back look again."""
        for other in self.held.pop(kin_of(actor.state), ()):
            if other is not actor:
                other.poke()


class Watch:
    """Sees the wall clock jump ahead of the machine's own: `missed_ms` is the sum of all jumps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms, self._monotonic = clock.now_ms(), clock.monotonic()
        self.missed_ms = 0

    def look(self, wall_ms: int) -> int:
        """What the clock has jumped over up to now, where it says `wall_ms`."""
        monotonic = self._clock.monotonic()
        jump = round(wall_ms - self._wall_ms - (monotonic - self._monotonic) * 1000)
        self._wall_ms, self._monotonic = wall_ms, monotonic
        if jump > JUMP_MS:
            self.missed_ms += jump
        return self.missed_ms
