"""The seam for kinds of extensions: what the host needs of a guest, whatever runs it.

A guest is an extension that runs. JavaScript in QuickJS is one kind (`javascript_guest.py`). A new kind is a class with
the abstract methods of `Guest`; it goes to `Extensions.add` with its artifact and makes its host calls through the
dispatcher that it is given. Policy, evidence, quotas and problems are the same for every kind.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from forestay.extensions.compiler.artifact import Artifact
from forestay.extensions.connectors.contract import Call, Output
from forestay.extensions.outcomes import COLUMNS, HookOutcome, Surroundings, ToolOutcome
from forestay.extensions.protocol import HostCalls
from forestay.extensions.registry import Registrations
from forestay.extensions.rounds import Place
from forestay.extensions.themes import Theme
from forestay.kernel import Problem
from forestay.tools import EffectClass

Report = Callable[[str, dict[str, Any]], None]
"""Hears what happens to a guest (`trap`, `error`, …), for the evidence."""


class Guest(Protocol):
    """An extension that runs. A kind implements the abstract methods; the others say what a kind without them does.

    Every method answers or raises a Problem, whatever the extension does.
    """

    runtime: str
    """The kind, as evidence names it: `js`, `wasm`, `mcp`."""
    name: str
    registrations: Registrations
    stopped: Problem | None = None
    """Why the guest is off for good; None while it may be used."""
    changes: Sequence[object] = ()
    """What is no longer as a person saw it; tools that it concerns are `withdrawn`."""

    @abstractmethod
    async def load(self) -> Registrations:
        """Start the extension and learn what it registers. A load that fails leaves nothing behind."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
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
        """Call a tool that it registered. A tool that throws has an outcome, an extension that ends is a Problem."""

    @abstractmethod
    async def run_command(self, name: str, arguments: str = "", *, timeout: float | None = None) -> Any: ...

    @abstractmethod
    async def hook(
        self, event: dict[str, Any], index: int, *, timeout: float | None = None, signal: bool = False
    ) -> HookOutcome:
        """Run one handler of an event."""

    @abstractmethod
    def hold(self, held: bool) -> None:
        """A person is asked (True) or has answered (False). Meanwhile the guest's deadlines do not run."""

    @abstractmethod
    def stop(self, problem: Problem) -> None:
        """Take the guest out of use for this reason."""

    # Optional

    async def perform(self, call: Call, name: str, arguments: dict[str, Any]) -> Output:
        """Inside a host call that the guest makes about its own tool: what only the host can do for it."""
        raise Problem(
            "state_conflict",
            f"{self.name} waits for an answer of {self.name}, so {self.name} cannot call its tools now.",
            fix="Answer first, or call your own function without `pi.tool`.",
        )

    @property
    def waited(self) -> float:
        """Seconds that it waited for persons so far."""
        return 0.0

    @property
    def flag_values(self) -> dict[str, bool | str]:
        """The present values of its flags."""
        return self.registrations.flag_values

    def place(self, body: bytes, timeout: float) -> Place | None:
        """A place in a round (`rounds.py`) in which its only handler of an event is asked; None when it takes none."""
        return None

    async def placed(self, place: Place) -> HookOutcome:
        """What the handler did there."""
        raise Problem("internal", f"{self.name} takes no place in a round.")

    async def restart(self) -> None:
        """Load it again; its flags and the theme stay as they are set."""
        await self.close()
        await self.load()

    def withdrawn(self, name: str) -> Problem | None:
        """Why a tool is not offered any more that it once registered; None for a name that it never had."""
        return None

    def effect(self, name: str) -> EffectClass:
        """What a call of its tool may do at most, when a person said something about that."""
        return "unsafe"

    async def prepare_arguments(self, name: str, arguments: Any, *, timeout: float | None = None) -> Any:
        """The arguments as the tool's own preparation changes them."""
        return arguments

    async def complete(self, name: str, prefix: str) -> list[Any]:
        """Completions of an argument of its command: `{value, label}` each."""
        return []

    async def press(self, shortcut: str) -> None:
        """Perform a shortcut that it registered."""
        raise Problem("not_found", f"{self.name} has no shortcut {shortcut[:80]}.")

    async def run_shell(self, command: str, cwd: str, heard: Callable[[str], None]) -> dict[str, Any]:
        """Run a person's command by the operations that its answer to `user_bash` named: `{output, exitCode}`."""
        raise Problem("not_found", f"{self.name} runs no commands.")

    async def autocomplete(self, lines: list[str], line: int, column: int) -> Any:
        """Suggestions at a place in a text: `{items, prefix}`, or None."""
        return None

    async def route(self, provider: str, id: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Which model answers a request for its virtual model."""
        raise Problem("not_found", f"{self.name} routes no models.")

    async def typed(self, data: str) -> str | None:
        """What a person typed, after the extension's listeners; None when one of them kept it."""
        return data

    async def render(
        self, name: str, message: Any, *, expanded: bool = False, width: int = COLUMNS, timeout: float | None = None
    ) -> list[str]:
        """A custom message as lines of text."""
        return []

    async def render_entry(
        self, name: str, entry: Any, *, expanded: bool = False, width: int = COLUMNS, timeout: float | None = None
    ) -> list[str]:
        """A custom session entry as lines of text."""
        return []

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
        return []

    async def transform(self, text: str, context: Any, *, timeout: float | None = None) -> str | None:
        """A text of the conversation as the extension wants it shown; None: as it is."""
        return None

    def use_theme(self, theme: Theme, *, tell: bool = True) -> None:
        """Show things in this theme from now on; `tell` the extension unless it chose the theme itself."""
        return

    def attend(self, attended: bool) -> None:
        """A person is there from now on, or is not: `ctx.hasUI`."""
        return

    def widen(self, columns: int) -> None:
        """What it shows has so many columns from now on."""
        return

    def agent(self, state: str) -> None:
        """The agent starts (`start`), ends (`end`) or is aborted (`abort`)."""
        return

    def bus(self, channel: str, data: Any) -> None:
        """Another extension says something on the bus between extensions."""
        return

    async def settled(self, timeout: float = 1.0) -> None:
        """Wait until notices and messages that it sent without waiting have reached the host."""
        return


Make = Callable[[Surroundings, HostCalls, Report], Guest]
"""Makes a guest from what it is told about where it runs, its way out, and the listener of its evidence."""


class Member(msgspec.Struct, frozen=True):
    """One loaded extension: where it is, what it was compiled to, and the guest."""

    path: str
    artifact: Artifact
    extension: Guest


class Failure(msgspec.Struct, frozen=True):
    """An extension that could not be loaded, and why."""

    path: str
    problem: Problem
