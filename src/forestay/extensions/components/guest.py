"""A WASM component as an extension: loads it, calls it, and replaces its instance after a trap.

G1  Every method returns or raises a Problem; nothing that a component does raises anything else.
G2  A trap ends the instance, not the extension: the next call gets a new instance, until ten traps in a row.
G3  A failed load leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from forestay.extensions.components import messages
from forestay.extensions.components.driver import ComponentDriver
from forestay.extensions.components.instance import Instance
from forestay.extensions.components.linked import LinkedComponent
from forestay.extensions.components.traced import Traced
from forestay.extensions.components.values import Answer, Argument
from forestay.extensions.engine.limits import EngineTrap, Limits
from forestay.extensions.guests import Guest, Report
from forestay.extensions.isolate import RealInputs
from forestay.extensions.manifest import Manifest
from forestay.extensions.outcomes import HookOutcome, ToolOutcome
from forestay.extensions.problems import trap_problem
from forestay.extensions.protocol import HostCalls
from forestay.extensions.registry import Registrations
from forestay.extensions.trace import Recorder
from forestay.kernel import Clock, Problem, Randomness, SystemClock, outside_work

MAX_TRAPS = 10  # in a row, without an answer between them
SHUTDOWN_SECONDS = 1.0
_encode = msgspec.json.Encoder().encode
_T = TypeVar("_T")


class ComponentGuest(Guest):
    """`make` returns the component and compiles it if necessary; it runs on a thread."""

    runtime = "wasm"

    def __init__(
        self,
        manifest: Manifest,
        digest: str,
        make: Callable[[], LinkedComponent],
        dispatcher: HostCalls,
        *,
        report: Report | None = None,
        limits: Limits | None = None,
        deadline: float = 30.0,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        record: Callable[[bytes], None] | None = None,
    ) -> None:
        self.name = manifest.extension_id
        self.registrations = Registrations(self.name)
        self.stopped: Problem | None = None
        self.traps = 0
        self._manifest = manifest
        self._digest = digest
        self._make = make
        self._dispatcher = dispatcher
        self._report = report or (lambda _event, _data: None)
        self._limits = limits or Limits()
        self._deadline = deadline
        self._clock = clock or SystemClock()
        self._randomness = randomness
        self._record = record
        self._component: LinkedComponent | None = None
        self._driver: ComponentDriver | None = None
        self._drivers: list[ComponentDriver] = []  # the current one and the earlier ones
        self._loading: asyncio.Task[ComponentDriver] | None = None
        self._generation = 0
        self._row = 0
        self._waited = 0.0

    # Life

    async def load(self) -> Registrations:
        """Compile, instantiate and call `init`; return the registrations (G3)."""
        loop = asyncio.get_running_loop()
        if self._component is None:
            with outside_work(loop):
                self._component = await asyncio.to_thread(self._make)
        if refused := self._component.imports.refused:
            self._report("imports_refused", {"imports": refused[:100]})
        await self._ready()
        return self.registrations

    async def close(self) -> None:
        """Call the component's `shutdown`, then drop its instances."""
        if self._loading is not None:
            self._loading.cancel()
        driver, self._driver = self._driver, None
        if driver is not None and self.stopped is None:
            try:
                await self._called(driver, "shutdown", timeout=SHUTDOWN_SECONDS)
            except Problem as problem:
                self._report("shutdown_failed", {"message": problem.message, **problem.details})
        drivers, self._drivers = self._drivers, []
        for item in drivers:
            await item.close()

    async def restart(self) -> None:
        """Replace the instance with a new one of the same component."""
        if self.stopped is None:
            await self.close()
            await self.load()

    def stop(self, problem: Problem) -> None:
        """Refuse all further calls with this problem, and drop the instance."""
        self.stopped = problem
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.abandon()

    async def _ready(self) -> ComponentDriver:
        """Return a driver with a live instance; make a new one when there is none (G2)."""
        self._check()
        if self._driver is not None:
            return self._driver
        if self._row > MAX_TRAPS:
            told = f"{self.name} trapped {self.traps} times and stays off."
            raise Problem("extension_trapped", told, extension=self.name)
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._begin())
            self._loading.add_done_callback(self._begun)
        return await asyncio.shield(self._loading)

    def _check(self) -> None:
        if self.stopped is not None:
            raise Problem(self.stopped.key, self.stopped.message, **self.stopped.details)

    def _begun(self, task: asyncio.Task[ComponentDriver]) -> None:
        self._loading = None
        if not task.cancelled():
            task.exception()  # the waiting caller gets the exception

    async def _begin(self) -> ComponentDriver:
        """Make a new instance and run its `init`."""
        component = self._component
        if component is None:
            raise Problem("state_conflict", f"{self.name} is not loaded.", fix="Load it first.")
        self._generation += 1
        driver = ComponentDriver(self.name, self._dispatcher, self._generation)
        self._drivers.append(driver)
        inputs = RealInputs(driver.sync, clock=self._clock, randomness=self._randomness)
        traced = driver.traced = None if self._record is None else Traced(Recorder(inputs, self._record))
        make = partial(Instance, component, inputs if traced is None else traced.recorder, self._limits, self._refused)
        if traced is not None:
            make = partial(traced.begin, self._digest, self.name, self._limits, make)
        try:
            await self._guarded(driver, driver.begin(make, self._deadline))
            manifest = self._manifest.canonical_bytes()
            ok, answer = await self._called(driver, "init", manifest, timeout=self._deadline)
            if not ok:
                raise messages.failure(self.name, answer)
            self._register(answer)
        except BaseException:
            driver.abandon()
            raise
        self._driver = driver
        return driver

    def _register(self, answer: bytes) -> None:
        found = messages.registrations(self.name, answer)
        undeclared = messages.undeclared(answer, {need.capability for need in self._manifest.declared()})
        if undeclared:
            self._report("capability_drift", {"registered": undeclared})
        for event in messages.unknown_events(found):
            self._report("unknown_event", {"event": event})
        self.registrations = found

    # Calls

    async def _ask(self, export: str, *arguments: Argument, timeout: float | None) -> Answer:
        driver = self._driver or await self._ready()
        within = self._deadline if timeout is None else timeout
        try:
            answer = await driver.call(export, arguments, within)
        except (EngineTrap, Problem) as error:
            raise self._failure(driver, error) from error
        self._check()  # it may have exceeded a quota during the call: then its answer does not count
        self._row = 0
        return answer

    async def _called(self, driver: ComponentDriver, export: str, *arguments: Argument, timeout: float) -> Answer:
        return await self._guarded(driver, driver.call(export, arguments, timeout))

    async def _guarded(self, driver: ComponentDriver, work: Awaitable[_T]) -> _T:
        """Wait for `work`; turn a trap into a Problem and drop the instance (G2)."""
        try:
            return await work
        except (EngineTrap, Problem) as error:
            raise self._failure(driver, error) from error

    def _failure(self, driver: ComponentDriver, error: EngineTrap | Problem) -> Problem:
        """Return the Problem of an error; drop the instance if it trapped or was abandoned (G2)."""
        if isinstance(error, Problem):
            if driver.gone and self.stopped is None:
                self._lost()
            return error
        self._lost()
        self._report("trap", {"kind": error.kind, "message": str(error), "count": self.traps})
        problem = trap_problem(error, self.name)
        if driver.last_words:  # a panic's message
            problem.details["stderr"] = driver.last_words
        return problem

    def _lost(self) -> None:
        self.traps += 1
        self._row += 1
        driver, self._driver = self._driver, None
        if driver is not None:
            self._waited += driver.waited
            driver.abandon()

    def _refused(self, name: str) -> None:
        self._report("import_refused", {"import": name})

    # The methods of `Guest`

    async def call_tool(
        self,
        name: str,
        arguments: Any,
        *,
        call_id: str = "call",
        prepared: bool = False,
        on_update: Callable[[Any], None] | None = None,
        timeout: float | None = None,
    ) -> ToolOutcome:
        """Convert and validate the arguments, then execute. A tool's error is an outcome; a trap is a Problem."""
        arguments = self.registrations.fit(name, arguments)
        ok, answer = await self._ask("handle-tool", name.encode(), _encode(arguments), timeout=timeout)
        return messages.tool_result(self.name, ok, answer)

    async def run_command(self, name: str, arguments: str = "", *, timeout: float | None = None) -> Any:
        """Run a slash command and return its result."""
        if name not in self.registrations.commands:
            known = sorted(self.registrations.commands)
            raise Problem("not_found", f"{self.name} has no command {name}.", commands=known)
        texts = [word.encode("utf-8", "replace") for word in _split(arguments)]
        given = _encode({"text": arguments})
        ok, answer = await self._ask("handle-slash", name.encode(), texts, given, timeout=timeout)
        return messages.command_result(self.name, ok, answer)

    async def hook(
        self, event: dict[str, Any], index: int, *, timeout: float | None = None, signal: bool = False
    ) -> HookOutcome:
        """Deliver an event: the protocol's `event_hook` payload."""
        kind = str(event.get("type"))
        ok, answer = await self._ask("handle-event", _encode({"event": kind, "data": event}), timeout=timeout)
        return messages.event_result(self.name, kind, ok, answer)

    def hold(self, held: bool) -> None:
        """Stop the deadlines while a person is asked (True); start them again after the answer (False)."""
        if self._driver is not None:
            self._driver.hold(held)

    @property
    def waited(self) -> float:
        """Seconds that it has waited for persons so far."""
        return self._waited + (self._driver.waited if self._driver is not None else 0.0)


def _split(arguments: str) -> list[str]:
    """Split as a shell does; a text with an unclosed quote is split at its spaces."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()
