"""The JavaScript guest: an extension in a QuickJS VM, which is replaced when it traps.

X1  Every method answers or raises a Problem, whatever the extension does.
X2  A trap ends the VM, never the extension: the next call finds it loaded again.
X3  A load that fails leaves nothing behind.
X4  An extension that was stopped stays off, and every caller learns why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forestay.extensions import effects as said
from forestay.extensions.engine.bytecode import KeptBytecode, compile_module
from forestay.extensions.engine.image import base_image, image_digest
from forestay.extensions.engine.limits import EngineTrap, GuestError, Limits
from forestay.extensions.engine.pool import Key, Loaded, Pool
from forestay.extensions.guests import Guest, Report
from forestay.extensions.isolate import Frozen, Isolate, Program, RealInputs, VmInputs
from forestay.extensions.outcomes import COLUMNS, HookOutcome, Surroundings, ToolOutcome
from forestay.extensions.problems import thrown_problem
from forestay.extensions.protocol import HostCalls
from forestay.extensions.registry import Registrations
from forestay.extensions.rounds import Place
from forestay.extensions.themes import Theme
from forestay.extensions.trace import FORMAT, Header, Recorder
from forestay.extensions.vm_driver import VmDriver
from forestay.kernel import Clock, Problem, Randomness, SystemClock

_encode = msgspec.json.Encoder().encode
MAX_UPDATES = 10_000  # of one call are kept, of MAX_UPDATED bytes together; the listener hears all
MAX_UPDATED = 16 * 1024 * 1024
SHELL_SECONDS = 3600.0  # a command that a person waits for
MAX_TRAPS = 10  # in a row, without one answer between them


class Saved(msgspec.Struct, frozen=True):
    """A live extension as data: its VM and loop, what it registered, and the host calls that were under way."""

    program: str
    frozen: Frozen
    registrations: list[tuple[str, dict[str, Any]]]
    calls: list[int]
    last_call: int


class JavaScriptGuest(Guest):
    """An extension in a QuickJS VM of its own."""

    runtime = "js"

    def __init__(
        self,
        program: Program,
        surroundings: Surroundings,
        dispatcher: HostCalls,
        *,
        limits: Limits | None = None,
        deadline: float = 30.0,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        pool: Pool | None = None,
        record: Callable[[bytes], None] | None = None,
        report: Report | None = None,
        bytecode_cache: KeptBytecode | None = None,
    ) -> None:
        self.name = surroundings.extension
        self.program = program
        self.surroundings = surroundings
        self.registrations = Registrations(self.name)
        self.traps = 0
        self._dispatcher = dispatcher
        self._limits = limits or Limits()
        self._deadline = deadline
        self._clock = clock or SystemClock()
        self._randomness = randomness
        self._pool = pool
        self._record = record
        self._report = report or (lambda _event, _data: None)
        self._bytecode_cache = bytecode_cache
        self._driver: VmDriver | None = None
        self._specs: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        self._loading: asyncio.Task[None] | None = None
        self._row = 0
        self._refused: Problem | None = None
        self._stopped: Problem | None = None
        self._flags: dict[str, bool | str] = {}
        self._theme: Theme | None = None  # chosen since it was loaded
        self._attended = surroundings.has_ui
        self._columns = COLUMNS
        self._up = False

    # -- life -------------------------------------------------------------------------------------------------------

    async def load(self) -> Registrations:
        """Run the artifact's factory; what it registered, or the Problem that stopped it (X3)."""
        self._driver = self._new_driver()
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        self._up = True
        return self.registrations

    def _new_driver(self) -> VmDriver:
        return VmDriver(
            self.name,
            self._dispatcher,
            now_ms=lambda: int(self._clock.monotonic() * 1000),
            on_registration=self._on_registration,
            on_failure=self._on_failure,
            on_trap=self._on_trap,
        )

    async def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.close()

    def stop(self, problem: Problem) -> None:
        """Take it out of use for this reason (X4)."""
        self.stopped = problem
        if self._loading is not None:
            self._loading.cancel()
        if self._driver is not None:
            self._driver.stop(problem)

    @property
    def stopped(self) -> Problem | None:
        """Why it is off for good; the VM that runs is told of it at once."""
        return self._stopped

    @stopped.setter
    def stopped(self, problem: Problem | None) -> None:
        self._stopped = problem
        if self._driver is not None:
            self._driver.stopped = problem

    async def restart(self) -> None:
        """Load it again into a new VM; its flags and the theme stay as they were set."""
        if self._stopped is not None:
            return
        await self.close()
        self.registrations, self._specs, self._loading = Registrations(self.name), {}, None
        await self.load()
        self._again()

    def _again(self) -> None:
        """Tell a fresh VM what was set since the first load, whether a person is there, and how wide their place is."""
        if self._attended != self.surroundings.has_ui:
            self._running_driver().tell("attended", _encode(self._attended))
        if self._columns != COLUMNS:
            self._running_driver().tell("columns", _encode(self._columns))
        for name, value in self._flags.items():
            self.set_flag(name, value)
        if self._theme is not None:
            self.use_theme(self._theme)

    async def _start(self) -> None:
        """Load into a new VM, or take one in which this very extension was loaded already."""
        driver = self._running_driver()
        first = image_digest.cache_info().currsize == 0  # the guest may have to be built
        key = await driver.on_thread(self._key) if first else self._key()
        pool = self._pool
        world, recorder = self._world()
        if pool is not None and recorder is None:
            warm = pool.ready(key) or await driver.on_thread(lambda: pool.take(key))
            if warm is not None:
                isolate, loaded = warm
                isolate.adopt(world, None)
                self._restore(loaded)
                driver.use(isolate)
                pool.fill()
                return
        self.program, isolate = await driver.on_thread(lambda: self._prepared(world, recorder))
        if recorder is not None:
            recorder.header(Header(FORMAT, image_digest(), self.program.digest, self.name, self._limits))
        self.registrations = Registrations(self.name)
        self._specs, self._refused = {}, None
        driver.use(isolate)
        reply = await driver.ask("load", _encode(self.surroundings), timeout=self._deadline)
        if not reply.ok:
            raise thrown_problem(_described(reply.value), self.name, self.program)
        if self._refused is not None:
            raise self._refused
        if not world.touched and driver.last_call == 0 and pool is not None:
            frozen: Frozen = await driver.run(lambda isolate: isolate.freeze(base_image(), share=True))
            pool.keep(key, Loaded(frozen, list(self._specs.values())))

    def _prepared(self, world: VmInputs, recorder: Recorder | None) -> tuple[Program, Isolate]:
        """A new VM with the compiled artifact at hand; slow the first time, so not on the event loop."""
        artifact, isolate = self._compiled(), Isolate.start(world, self._limits, recorder)
        isolate.prepare(artifact)
        return artifact, isolate

    def _restore(self, loaded: Loaded) -> None:
        self.registrations = Registrations(self.name)
        for kind, spec in loaded.registrations:
            self.registrations.add(kind, spec)
        self._specs = {self.registrations.key(kind, spec): (kind, spec) for kind, spec in loaded.registrations}

    def _compiled(self) -> Program:
        if self.program.bytecode:
            return self.program
        try:
            data = compile_module(self.program.text, self.program.name, self._bytecode_cache)
        except GuestError as error:
            raise thrown_problem(said.read_error(error.description), self.name, self.program) from error
        return msgspec.structs.replace(self.program, bytecode=data)

    def _key(self) -> Key:
        return Key(self.program.digest, _encode(self.surroundings), image_digest(), self._limits)

    def _world(self) -> tuple[VmInputs, Recorder | None]:
        driver = self._running_driver()
        real = RealInputs(driver.answer_sync, clock=self._clock, randomness=self._randomness)
        if self._record is None:
            return real, None
        recorder = Recorder(real, self._record)
        return recorder, recorder

    def _running_driver(self) -> VmDriver:
        if self._driver is None:
            raise Problem("state_conflict", f"{self.name} is not loaded.", fix="Load it first.")
        return self._driver

    async def _ready(self) -> VmDriver:
        """The driver, once the extension is loaded (again)."""
        driver = self._running_driver()
        if self._stopped is not None:
            raise Problem(self._stopped.key, self._stopped.message, **self._stopped.details)
        if driver.isolate is None and self._loading is None and self._row <= MAX_TRAPS:
            self._loading = asyncio.get_running_loop().create_task(self._reload())
        if self._loading is not None:
            await asyncio.shield(self._loading)
        if driver.isolate is None:
            count = self.traps
            raise Problem("extension_trapped", f"{self.name} trapped {count} times and stays off.", extension=self.name)
        return driver

    # -- what it says -----------------------------------------------------------------------------------------------

    def _on_registration(self, effect: said.Registration) -> None:
        try:
            self.registrations.add(effect.kind, effect.spec)
        except Problem as problem:
            self._refused = problem
            self._report("registration_refused", {"message": problem.message, **problem.details})
            return
        if effect.kind == "handler" and effect.spec.get("known") is False:
            self._report("unknown_event", {"event": str(effect.spec.get("event"))[:128]})
        if self._up and effect.kind in ("mcp_server", "unregister_mcp_server"):
            self._report("servers_changed", {})
        self._specs[self.registrations.key(effect.kind, effect.spec)] = (effect.kind, effect.spec)

    def _on_failure(self, effect: said.Failure) -> None:
        problem = thrown_problem(effect.error, self.name, self.program)
        self._report("error", {"where": effect.where, "message": problem.message, **problem.details})

    def _on_trap(self, trap: EngineTrap) -> None:
        """The VM is lost: record it, and load the extension again (X2)."""
        self.traps += 1
        self._row += 1
        self._report("trap", {"kind": trap.kind, "message": str(trap), "count": self.traps})
        if self._up and self._loading is None and self._row <= MAX_TRAPS:
            self._loading = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        before = self.registrations, self._specs
        try:
            await self._start()
            self._again()
        except Problem as problem:
            self.registrations, self._specs = before
            self._row += 1
            self._report("reload_failed", {"message": problem.message, **problem.details})
        finally:
            self._loading = None

    # -- what it is asked -------------------------------------------------------------------------------------------

    async def _ask(
        self, name: str, payload: Any, timeout: float | None = None, progress: Callable[[Any], None] | None = None
    ) -> said.Reply:
        driver = await self._ready()
        reply = await driver.ask(
            name, _encode(payload), timeout=self._deadline if timeout is None else timeout, progress=progress
        )
        self._row = 0
        return reply

    async def _value(
        self, name: str, payload: Any, timeout: float | None = None, progress: Callable[[Any], None] | None = None
    ) -> Any:
        return self._checked(await self._ask(name, payload, timeout, progress))

    def _checked(self, reply: said.Reply) -> Any:
        if not reply.ok:
            raise thrown_problem(_described(reply.value), self.name, self.program)
        return reply.value

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
        """Prepare unless they are `prepared`, convert, validate, execute (P15).

        A tool that throws has an outcome; a trap, a timeout, no memory is a Problem.
        """
        if self._loading is not None:  # until it is loaded again, it has registered nothing
            await self._ready()
        if not prepared and (tool := self.registrations.tools.get(name)) is not None and tool.prepares:
            arguments = await self.prepare_arguments(name, arguments, timeout=timeout)
        fit = self.registrations.fittings.get(name) or self.registrations.fitting(name)
        arguments = fit(arguments)
        updates: list[Any] = []
        room = MAX_UPDATED

        def update(value: Any) -> None:
            nonlocal room
            room -= len(_encode(value))
            if len(updates) < MAX_UPDATES and room >= 0:
                updates.append(value)
            if on_update is not None:
                on_update(value)

        reply = await self._ask("tool", {"name": name, "callId": call_id, "params": arguments}, timeout, update)
        if not reply.ok:
            return self._failed_tool(_described(reply.value), updates)
        return said.read_outcome(reply.value, updates)

    async def prepare_arguments(self, name: str, arguments: Any, *, timeout: float | None = None) -> Any:
        """What the tool's own `prepareArguments` makes of them; without one, the same."""
        if not self.registrations.tool(name).prepares:
            return arguments
        return await self._value("prepare", {"name": name, "params": arguments}, timeout)

    def _failed_tool(self, error: dict[str, Any], updates: list[Any]) -> ToolOutcome:
        problem = thrown_problem(error, self.name, self.program)
        if problem.key in ("extension_memory", "payload_too_large"):
            raise problem
        text = str(error.get("message") or error.get("name") or "The tool failed")
        hostcall = problem.details.get("hostcall")
        return ToolOutcome([{"type": "text", "text": text}], {}, True, updates, hostcall, problem.as_lafs())

    async def run_command(self, name: str, arguments: str = "", *, timeout: float | None = None) -> Any:
        """Run a command; what its handler returned."""
        if self._loading is not None:
            await self._ready()
        if name not in self.registrations.commands:
            known = sorted(self.registrations.commands)
            raise Problem(
                "not_found", f"{self.name} has no command {name}.", commands=known, fix="Use one of `commands`."
            )
        return await self._value("command", {"name": name, "args": arguments}, timeout)

    async def complete(self, name: str, prefix: str) -> list[Any]:
        """Completions of a command's argument."""
        command = self.registrations.commands.get(name)
        if command is None or not command.completes:
            return []
        found = await self._value("complete", {"name": name, "prefix": prefix})
        return found if isinstance(found, list) else []

    async def autocomplete(self, lines: list[str], line: int, column: int) -> Any:
        """What the extension's autocomplete providers suggest at a place in a text: `{items, prefix}`, or None."""
        return await self._value("autocomplete", {"lines": lines, "line": line, "column": column})

    async def route(self, provider: str, id: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Which model answers a request for the extension's virtual model: `{provider, id, thinkingLevel, state}`."""
        answer = await self._value("route", {"provider": provider, "id": id, "request": dict(request)})
        return answer if isinstance(answer, Mapping) else {}

    async def typed(self, data: str) -> str | None:
        """What a person typed, past the extension's listeners; None when one of them kept it."""
        kept = await self._value("typed", {"data": data})
        return kept if isinstance(kept, str) else None

    async def hook(
        self, event: dict[str, Any], index: int, *, timeout: float | None = None, signal: bool = False
    ) -> HookOutcome:
        """Run one handler of an event."""
        return self._outcome(await self._ask("hook", {"event": event, "index": index, "signal": signal}, timeout))

    def place(self, body: bytes, timeout: float) -> Place | None:
        """A place in a round of an event; None when it has to be asked by itself."""
        if self._driver is None or self._stopped is not None or self._loading is not None:
            return None
        return self._driver.place("hook", body, timeout)

    async def placed(self, place: Place) -> HookOutcome:
        """What its handler did in a round."""
        reply = await place.reply()
        self._row = 0
        return self._outcome(reply)

    def _outcome(self, reply: said.Reply) -> HookOutcome:
        value = self._checked(reply)
        if not isinstance(value, list) or len(value) != 3:
            raise Problem(
                "extension_failed", f"{self.name} answered an event with something else.", extension=self.name
            )
        return HookOutcome(value[0], value[1], bool(value[2]))

    async def press(self, shortcut: str) -> None:
        if shortcut not in self.registrations.shortcuts:
            raise Problem("not_found", f"{self.name} has no shortcut {shortcut}.")
        await self._value("shortcut", {"shortcut": shortcut})

    async def run_shell(self, command: str, cwd: str, heard: Callable[[str], None]) -> dict[str, Any]:
        """A person's command, by the operations of the handler that answered `user_bash` last."""
        value = await self._value(
            "shell", {"command": command, "cwd": cwd}, SHELL_SECONDS, lambda part: heard(str(part))
        )
        return value if isinstance(value, dict) else {}

    async def render(
        self, name: str, message: Any, *, expanded: bool = False, width: int = COLUMNS, timeout: float | None = None
    ) -> list[str]:
        """A custom message as lines of text."""
        body = {"name": name, "message": message, "expanded": expanded, "width": width}
        return _lines(await self._value("render", body, timeout))

    async def render_entry(
        self, name: str, entry: Any, *, expanded: bool = False, width: int = COLUMNS, timeout: float | None = None
    ) -> list[str]:
        """A custom session entry as lines of text."""
        body = {"name": name, "entry": entry, "expanded": expanded, "width": width}
        return _lines(await self._value("render_entry", body, timeout))

    async def render_tool(
        self,
        name: str,
        arguments: Any,
        result: Any = None,
        *,
        expanded: bool = False,
        width: int = COLUMNS,
        timeout: float | None = None,
    ) -> list[str]:
        """A tool call, or its result, as lines of text."""
        shown = {"args": arguments, "result": result, "callId": "call"}
        body = {"name": name, **shown, "expanded": expanded, "width": width}
        return _lines(await self._value("render_tool", body, timeout))

    async def transform(self, text: str, context: Any, *, timeout: float | None = None) -> str | None:
        """A text of the conversation as the extension wants it shown."""
        made = await self._value("markdown", {"text": text, "context": context}, timeout)
        return made if isinstance(made, str) else None

    async def stream(
        self,
        provider: str,
        model: Any,
        context: Any,
        options: Any,
        on_event: Callable[[Any], None],
        *,
        timeout: float | None = None,
    ) -> Any:
        """Let a provider that the extension registered answer; each of its events, then its result."""
        body = {"name": provider, "model": model, "context": context, "options": options}
        return await self._value("provider", body, timeout, on_event)

    def hold(self, held: bool) -> None:
        """A person is asked (True), or has answered (False): meanwhile the extension's deadlines do not run."""
        if self._driver is not None:
            self._driver.hold(held)

    @property
    def waited(self) -> float:
        """Seconds that it waited for persons so far."""
        return self._driver.waited if self._driver is not None else 0.0

    @property
    def flag_values(self) -> dict[str, bool | str]:
        """What the extension's flags stand at."""
        return {**self.registrations.flag_values, **self._flags}

    def set_flag(self, name: str, value: bool | str) -> None:
        """What `pi.getFlag` answers from now on."""
        flag = self.registrations.flags.get(name)
        if flag is None:
            raise Problem("not_found", f"{self.name} has no flag {name}.", flags=sorted(self.registrations.flags))
        if isinstance(value, bool) != (flag.type == "boolean"):
            raise Problem("schema_mismatch", f"The flag {name} is of type {flag.type}.", at=name)
        self._flags[name] = value
        self._running_driver().tell("flag", _encode({"name": name, "value": value}))

    def use_theme(self, theme: Theme, *, tell: bool = True) -> None:
        """What `ctx.ui.theme` is from now on; `tell` it unless it knows."""
        self._theme = theme
        if tell and self._driver is not None:
            self._driver.tell("theme", _encode(theme))

    def attend(self, attended: bool) -> None:
        """What `ctx.hasUI` is from now on."""
        if attended != self._attended:
            self._attended = attended
            if self._driver is not None:
                self._driver.tell("attended", _encode(attended))

    def widen(self, columns: int) -> None:
        """How many columns it draws for from now on."""
        if columns != self._columns:
            self._columns = columns
            if self._driver is not None:
                self._driver.tell("columns", _encode(columns))

    def agent(self, state: str) -> None:
        """The agent's operation begins (`start`), ends (`end`) or is aborted (`abort`): `ctx.signal`."""
        self._running_driver().tell("agent", _encode({"state": state}))

    def bus(self, channel: str, data: Any) -> None:
        """Another extension said something on the bus between extensions (`pi.events`)."""
        self._running_driver().tell("bus", _encode({"channel": channel, "data": data}))

    async def save(self) -> Saved:
        """The extension as it is now, pending promises and timers included, as data; it goes on."""
        driver = await self._ready()
        frozen: Frozen = await driver.run(lambda isolate: isolate.freeze())
        return Saved(self.program.digest, frozen, list(self._specs.values()), driver.calls, driver.last_call)

    async def resume(self, saved: Saved) -> Registrations:
        """Go on where `saved` was, in this process; host calls that were under way fail with `io` (§3.2)."""
        if saved.program != self.program.digest:
            raise Problem("state_conflict", f"The saved state is of another version of {self.name}.")
        driver = self._driver = self._new_driver()
        world, recorder = self._world()
        isolate = Isolate.thaw(saved.frozen, world, self._limits, recorder)
        self._restore(Loaded(saved.frozen, saved.registrations))
        driver.resume(isolate, saved.calls, saved.last_call)
        self._up = True
        return self.registrations

    async def settled(self, timeout: float = 1.0) -> None:
        """Until what the extension set off without waiting for it (a notice, a message) has reached the host."""
        await self._running_driver().settled(timeout)

    async def memory_bytes(self) -> int:
        size: int = await (await self._ready()).run(lambda isolate: isolate.memory_bytes)
        return size


def _described(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"name": "Error", "message": str(value)}


def _lines(value: Any) -> list[str]:
    return [str(line) for line in value] if isinstance(value, list) else []
