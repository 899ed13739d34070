"""`forestay chat`: a conversation at the terminal, with the project's extensions in it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.cli import ask as asking
from forestay.cli import chat_commands
from forestay.cli.chat_keys import bindings, pressed
from forestay.cli.chat_ui import marked
from forestay.cli.command import answers
from forestay.cli.connection import Data
from forestay.cli.data_folder import announced
from forestay.cli.file_words import file_words
from forestay.cli.keyboard import HOST, Keyboard, edited_lines
from forestay.cli.model_trust import with_trusted_keys
from forestay.cli.output import note
from forestay.cli.spoken_text import SpokenText
from forestay.cli.terminal import TerminalConsent, answered_by, attended
from forestay.cli.up import model_line
from forestay.extensions import PersonShell, command_line, shell_line
from forestay.kernel import OPERATOR, Problem, config, one_line, printable
from forestay.sessions import text_of

if TYPE_CHECKING:
    from forestay.cli.chat_ui import ChatUi
    from forestay.extensions import Extensions
    from forestay.host import Host
    from forestay.runs import RunEvent
    from forestay.sessions import SessionTree

PROMPT, MORE = "> ", "… "
_OUTPUT = 1024 * 1024
_SUGGEST_SECONDS = 2.0
_OFFERED = 50


@answers("chat")
async def chat(
    session: Annotated[
        str | None, typer.Option("--session", help="Go on with this session: its id, or `last`; default: a new one.")
    ] = None,
    goes_on: Annotated[bool, typer.Option("--continue", help="Go on with the last session.")] = False,
    agent: Annotated[str | None, typer.Option(help="The agent; default: the assistant.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="A model of the settings for what you say; default: models.default.")
    ] = None,
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
    if goes_on and session is not None:
        raise Problem("invalid_usage", "Give --continue or --session, not both.", at="--continue")
    keyboard = Keyboard()
    ui = ChatUi(keyboard)
    settings = await with_trusted_keys(config.load().config, also=model)
    options = Options(config=settings, data=data, consent=TerminalConsent(), ui=ui, trust_nodes=trust)
    _check_free(options.folder)
    with edited_lines(keyboard), answered_by(_answers(keyboard)):
        async with open_host(options) as host:
            await asking.make_trusted(host, trust)
            tree = await _session(host, "last" if goes_on else session)
            suite = await host.extensions.suite(None, tree)
            note(f"model  {model_line(model or host.models.default.name)}")
            await Chat(host, suite, keyboard, ui, agent, model).to_its_end()


def _check_free(folder: Path) -> None:
    if (running := announced(folder)) is not None:
        fix = "Stop it, use its console, or give --data."
        raise Problem("state_conflict", f"A host has this folder open: {running}", fix=fix)


def _answers(keyboard: Keyboard) -> Any:
    async def answer(question: str) -> str:
        return await keyboard.line(question, asker=HOST) or ""

    return answer


async def _session(host: Host, named: str | None) -> SessionTree:
    """Open the named session, or begin a new one."""
    if named is None:
        return host.sessions.new()
    lines = await host.sessions.list(limit=1000)
    fitting = [line.session_id for line in lines if named == "last" or line.session_id.startswith(named)]
    if not fitting or (len(fitting) > 1 and named != "last"):
        raise Problem("not_found", f"No session, or more than one, is {one_line(named)[:80]}.", sessions=fitting[:20])
    return await host.sessions.open(fitting[0])


class Chat:
    """One conversation: takes the person's lines and starts a turn for each message."""

    def __init__(
        self, host: Host, suite: Extensions, keyboard: Keyboard, ui: ChatUi, agent: str | None, model: str | None
    ) -> None:
        self._host = host
        self._suite = suite
        self._keyboard = keyboard
        self._ui = ui
        self._agent = agent
        self._model = model
        self._work: asyncio.Task[None] | None = None
        self._offered = ""  # the draft that an extension put into the next line
        self._loop = asyncio.get_running_loop()
        keyboard.suggest = self._suggested
        self._shown = suite.session.id, len(suite.session.entries)  # the session, and its entries shown so far

    @property
    def _tree(self) -> SessionTree:
        return self._suite.session.tree

    async def to_its_end(self) -> None:
        """Talk until the person leaves, or an extension asks for the end."""
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
        return self._suite.session.took("shutdown")

    async def _line(self) -> str | None:
        """Return the person's next line; None when an extension asks for something meanwhile."""
        await self._show_entries()
        self._suite.attend()  # the terminal may have another width by now
        self._keyboard.words = chat_commands.names(self._suite)
        self._keyboard.bind(bindings(self._suite.shortcuts()))
        draft, self._ui.draft = one_line(self._ui.draft), ""
        self._offered = draft if self._ui.drafted else ""
        self._ui.drafted = False
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

    def _suggested(self, line: str, word: str) -> Sequence[str]:
        """Complete the last word: files after `@`, or what an extension suggests. Runs outside the event loop."""
        if word.startswith("@"):
            return file_words(self._host.root, word)
        if not line.startswith("/") or " " not in line:
            return self._offers(line, word)
        name, _, prefix = line[1:].partition(" ")
        found = self._awaited(self._suite.complete(name, prefix)) or ()
        start = len(prefix) - len(word)  # only the word is completed; the text before it stays
        return [one_line(value)[start:] for value in found if value.startswith(prefix)]

    def _offers(self, line: str, word: str) -> Sequence[str]:
        """Return what extensions' providers suggest at the end of a line (`addAutocompleteProvider`)."""
        found = self._awaited(self._suite.autocomplete([line], 0, len(line)))
        prefix = str(found.get("prefix", "")) if isinstance(found, dict) else None
        if not prefix or not word.endswith(prefix):
            return ()
        values = [str(item.get("value", "")) for item in found.get("items", ())[:_OFFERED]]
        return [word[: len(word) - len(prefix)] + one_line(value) for value in values]

    def _awaited(self, asking: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop from the keyboard's thread; None when it fails or takes too long."""
        try:
            return asyncio.run_coroutine_threadsafe(asking, self._loop).result(_SUGGEST_SECONDS)
        except (Problem, TimeoutError):
            return None

    async def _typed(self, draft: str) -> str | None:
        """Return a line; after a backslash at its end the next line belongs to it. None at the end of input."""
        line = await self._keyboard.line(PROMPT, self._ui.before_prompt, draft=draft)
        while line is not None and line.endswith("\\"):
            more = await self._keyboard.line(MORE)
            line = line[:-1] + "\n" + (more or "")
        return line

    async def _heard(self, line: str) -> None:
        text = line.strip()
        is_persons = not text or text != self._offered.strip()  # a draft sent unchanged is the extension's
        if is_persons and (shell := shell_line(text)) is not None:
            await self._run(PersonShell(self._suite, shell, away=False), shell.command)
            return
        if (command := command_line(text)) is not None:
            if command.name == "key":
                self._ui.draft = pressed(command.arguments)[1]  # for `ctx.ui.getEditorText()`
            said = await chat_commands.perform(self._suite, command)
            if command.name == "model" and command.arguments.strip():
                self._model = None  # from here the session's choice counts
            for shown in said.lines:
                self._say(shown)
            if said.draft:
                self._ui.draft = said.draft
            text = text if said.is_turn else ""
        if text:
            source = "interactive" if is_persons else "extension"
            begin = self._host.turns.start(self._tree, text, source=source, agent=self._agent, model=self._model)
            await self._follow(await begin)

    async def _run(self, shell: PersonShell, command: str) -> None:
        """Run a shell command and keep it in the session, even when the person interrupts it."""
        tree, output = self._tree, ""

        def heard(text: str) -> None:
            nonlocal output
            output += text[: _OUTPUT - len(output)]
            sys.stdout.write(printable(text))
            sys.stdout.flush()

        try:
            message = await shell.run(f"{tree.id}:{len(tree.entries)}", heard)
        except asyncio.CancelledError:
            await self._kept(shell.message(command, {"output": output, "cancelled": True}))
            raise
        code = message.get("exitCode")
        if output and not output.endswith("\n"):
            self._say("")
        if code:
            self._say(f"exit code {code}")
        await self._kept(message)

    async def _kept(self, message: dict[str, Any]) -> None:
        self._tree.append("message", message={**message, "timestamp": self._host.clock.now_ms()})
        await self._host.sessions.save(self._tree)

    async def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until it ends, or the person or an extension aborts it; the conversation continues."""
        self._suite.session.took("abort")  # drop an abort that belonged to earlier work
        self._suite.attend()
        self._ui.begin()
        self._work, live = asyncio.ensure_future(work), self._suite.session
        while not self._work.done():
            live.asked.clear()
            stirred = asyncio.ensure_future(live.asked.wait())
            await asyncio.wait({self._work, stirred}, return_when=asyncio.FIRST_COMPLETED)
            stirred.cancel()
            if live.took("abort"):
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
        """Show a turn until it ends, and put its questions to the person."""
        runs, spoken = self._host.runs, SpokenText(before=self._ui.moved)
        self._ui.end_line = spoken.end
        self._ui.work()
        try:
            async for event in runs.follow(run_id, OPERATOR):
                self._show(event, spoken)
                if event.type == "agent.toolReturned":
                    await self._show_entries()
                if event.type == "interrupt.requested":
                    spoken.end()
                    for item in await runs.interrupts(run_id, OPERATOR):
                        value = await asking.answer_to(item.data)
                        await runs.resolve_by_node(run_id, item.node_id, OPERATOR, {"resumeValue": value}, "chat")
        finally:
            self._ui.rest()
        spoken.end()
        ended = await runs.get_run(run_id, OPERATOR)
        if ended.error is not None:
            self._say(f"{ended.status}: {one_line(ended.error.message)}")

    def _show(self, event: RunEvent, spoken: SpokenText) -> None:
        """Show what a run says and does."""
        kind, payload = event.type, event.payload
        if kind == "output.chunk":
            spoken.say(payload["chunk"])
        elif kind in ("agent.toolCalled", "agent.toolReturned"):
            spoken.end()
            state = "…" if kind == "agent.toolCalled" else f"· {payload['status']}"
            self._say(f"tool   {one_line(payload['toolName'])} {state}")

    async def _show_entries(self) -> None:
        """Show the new entries that extensions made for the person, drawn as the extension wants."""
        tree, (session, count) = self._tree, self._shown
        self._shown = tree.id, len(tree.entries)
        fresh = tree.entries[count:] if session == tree.id else []
        drawn = await self._host.fronts.drawn(tree) if fresh else {}
        for entry in fresh:
            if (drawing := drawn.get(entry["id"])) is not None:
                for line in drawing.lines:
                    self._say(marked(drawing.extension, line))
            elif entry["type"] == "custom_message" and entry.get("display"):
                for line in text_of(entry.get("content")).split("\n")[:20]:
                    self._say(f"[{one_line(str(entry.get('customType')))}] {one_line(line)[:400]}")

    def _interrupted(self) -> None:
        """Handle Ctrl-C: cancel the current work; without any, say how to leave."""
        if self._work is not None:
            self._work.cancel()
        else:
            self._say("\n/quit or Ctrl-D ends the chat.")
            sys.stdout.write(PROMPT)
            sys.stdout.flush()

    def _say(self, text: str) -> None:
        self._ui.moved()
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
