"""`forestay chat`: a conversation at the terminal, with the project's extensions in it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.cli import ask as asking
from forestay.cli import chat_commands
from forestay.cli.command import answers
from forestay.cli.connection import Data
from forestay.cli.data_folder import announced
from forestay.cli.keyboard import Keyboard, edited_lines
from forestay.cli.output import note
from forestay.cli.terminal import TerminalConsent, answered_by, attended
from forestay.cli.up import model_line
from forestay.kernel import OPERATOR, Problem, config, one_line, printable
from forestay.sessions import text_of

if TYPE_CHECKING:
    from forestay.cli.chat_ui import ChatUi
    from forestay.extensions import Extensions
    from forestay.host import Host
    from forestay.runs import RunEvent
    from forestay.sessions import SessionTree

PROMPT, MORE = "> ", "… "


@answers("chat")
async def chat(
    session: Annotated[
        str | None, typer.Option("--session", help="Go on with this session: its id, or `last`; default: a new one.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The agent; default: the assistant.")] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust the project's extensions and node files as they are now.")
    ] = False,
    data: Data = None,
) -> None:
    """Talk with an agent about this folder; commands and dialogs of its extensions work. /help says what there is."""
    from forestay.cli.chat_ui import ChatUi
    from forestay.host import Options, open_host

    if not (attended() and sys.stdout.isatty()):
        fix = "Use `forestay ask` in a script."
        raise Problem("invalid_usage", "A chat needs a terminal.", fix=fix)
    keyboard = Keyboard()
    ui = ChatUi(keyboard)
    options = Options(config=config.load().config, data=data, consent=TerminalConsent(), ui=ui, trust_nodes=trust)
    _check_free(options.folder)
    with edited_lines(keyboard), answered_by(_answers(keyboard)):
        async with open_host(options) as host:
            await asking.make_trusted(host, trust)
            tree = await _session(host, session)
            suite = await host.extensions.suite(None, tree)
            note(f"model  {model_line(host.models.default.name)}")
            await Chat(host, suite, keyboard, ui, agent).to_its_end()


def _check_free(folder: Path) -> None:
    if (running := announced(folder)) is not None:
        fix = "Stop it, use its console, or give --data."
        raise Problem("state_conflict", f"A host has this folder open: {running}", fix=fix)


def _answers(keyboard: Keyboard) -> Any:
    async def answer(question: str) -> str:
        return await keyboard.line(question) or ""

    return answer


async def _session(host: Host, named: str | None) -> SessionTree:
    """The session that is meant, or a new one."""
    if named is None:
        return host.sessions.new()
    lines = await host.sessions.list(limit=1000)
    fitting = [line.session_id for line in lines if named == "last" or line.session_id.startswith(named)]
    if not fitting or (len(fitting) > 1 and named != "last"):
        raise Problem("not_found", f"No session, or more than one, is {one_line(named)[:80]}.", sessions=fitting[:20])
    return await host.sessions.open(fitting[0])


class Chat:
    """One conversation: lines in, turns out."""

    def __init__(self, host: Host, suite: Extensions, keyboard: Keyboard, ui: ChatUi, agent: str | None) -> None:
        self._host = host
        self._suite = suite
        self._keyboard = keyboard
        self._ui = ui
        self._agent = agent
        self._work: asyncio.Task[None] | None = None
        self._shown = suite.session.id, len(suite.session.entries)  # until where messages of extensions were shown

    @property
    def _tree(self) -> SessionTree:
        return self._suite.session.tree

    async def to_its_end(self) -> None:
        """Until the person leaves, or an extension asks for the end."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupted)
        self._say(f"session {self._tree.id}, {len(self._tree.entries)} entries; /help says more, /quit ends it.")
        if (run_id := await self._host.turns.under_way(self._tree)) is not None:
            self._say("The turn that was under way goes on.")
            await self._do(self._follow(run_id))
        while not self._is_over():
            if (run_id := await self._host.turns.requested(self._agent)) is not None:
                await self._do(self._follow(run_id))
                continue
            line = await self._line()
            if line is None:
                continue
            if line.strip() in ("/quit", "/exit"):
                break
            await self._do(self._heard(line))

    def _is_over(self) -> bool:
        return self._took("shutdown")

    def _took(self, kind: str) -> bool:
        """Whether an extension asked for this; it is done with then."""
        live = self._suite.session
        asked = [item for item in live.requests if item["kind"] == kind]
        live.requests = [item for item in live.requests if item not in asked]
        return bool(asked)

    async def _line(self) -> str | None:
        """What the person says next; None when an extension asks for something meanwhile."""
        self._show_messages()
        self._ui.before_prompt()
        self._keyboard.words = chat_commands.names(self._suite)
        draft, self._ui.draft = one_line(self._ui.draft), ""
        live = self._suite.session
        live.asked.clear()
        typed = asyncio.ensure_future(self._typed(draft))
        stirred = asyncio.ensure_future(live.asked.wait())
        await asyncio.wait({typed, stirred}, return_when=asyncio.FIRST_COMPLETED)
        stirred.cancel()
        if not typed.done():
            typed.cancel()
            self._say("")
            return None
        line = typed.result()
        return "/quit" if line is None else line

    async def _typed(self, draft: str) -> str | None:
        """A line, or several of which each but the last ends with a backslash; None at the end of input."""
        line = await self._keyboard.line(PROMPT, draft=draft)
        while line is not None and line.endswith("\\"):
            more = await self._keyboard.line(MORE)
            line = line[:-1] + "\n" + (more or "")
        return line

    async def _heard(self, line: str) -> None:
        text = line.strip()
        if (command := chat_commands.parsed(text)) is not None:
            said = await chat_commands.perform(self._suite, *command)
            for shown in said.lines:
                self._say(shown)
            if said.draft:
                self._ui.draft = said.draft
            text = said.prompt
        if text:
            await self._follow(await self._host.turns.start(self._tree, text, agent=self._agent))

    async def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Work until it is done, or until the person or an extension ends it; the conversation goes on."""
        self._took("abort")  # of something that has ended
        self._work, live = asyncio.ensure_future(work), self._suite.session
        while not self._work.done():
            live.asked.clear()
            stirred = asyncio.ensure_future(live.asked.wait())
            await asyncio.wait({self._work, stirred}, return_when=asyncio.FIRST_COMPLETED)
            stirred.cancel()
            if self._took("abort"):
                self._interrupted()
        done, self._work = self._work, None
        if done.cancelled():
            self._ui.give_up()
            await self._host.turns.cancel(self._tree, self._host.models.default.name)
            self._say("\nCancelled.")
        elif (problem := done.exception()) is not None:
            if not isinstance(problem, Problem):
                raise problem
            self._say(f"{problem.key}: {one_line(problem.message)} {one_line(str(problem.details.get('fix', '')))}")

    # A turn

    async def _follow(self, run_id: str) -> None:
        """Show a turn until its end; what it asks is asked here."""
        runs, is_open = self._host.runs, False
        async for event in runs.follow(run_id, OPERATOR):
            is_open = self._show(event, is_open)
            if event.type == "interrupt.requested":
                for item in await runs.interrupts(run_id, OPERATOR):
                    value = await asking.answer_to(item.data)
                    await runs.resolve_by_node(run_id, item.node_id, OPERATOR, {"resumeValue": value}, "chat")
        if is_open:
            self._say("")
        ended = await runs.get_run(run_id, OPERATOR)
        if ended.error is not None:
            self._say(f"{ended.status}: {one_line(ended.error.message)}")

    def _show(self, event: RunEvent, is_open: bool) -> bool:
        """Show what a run says; whether its last line is still open."""
        kind, payload = event.type, event.payload
        if kind == "output.chunk":
            sys.stdout.write(printable(payload["chunk"]))
            sys.stdout.flush()
            return not str(payload["chunk"]).endswith("\n")
        if kind in ("agent.toolCalled", "agent.toolReturned"):
            state = "…" if kind == "agent.toolCalled" else f"· {payload['status']}"
            self._say(("\n" if is_open else "") + f"tool   {one_line(payload['toolName'])} {state}")
            return False
        return is_open

    def _show_messages(self) -> None:
        """Messages that extensions put into the conversation for the person to see."""
        entries, (session, count) = self._tree.entries, self._shown
        for entry in entries[count:] if session == self._tree.id else ():
            if entry["type"] == "custom_message" and entry.get("display"):
                for line in text_of(entry.get("content")).split("\n")[:20]:
                    self._say(f"[{one_line(str(entry.get('customType')))}] {one_line(line)[:400]}")
        self._shown = self._tree.id, len(entries)

    def _interrupted(self) -> None:
        """Ctrl-C: ends what is under way; when nothing is, it says how to leave."""
        if self._work is not None:
            self._work.cancel()
        else:
            self._say("\n/quit or Ctrl-D ends the chat.")
            sys.stdout.write(PROMPT)
            sys.stdout.flush()

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
