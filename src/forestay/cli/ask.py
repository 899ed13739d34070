"""`forestay ask`: one agent run on the current folder, streamed to the terminal."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.cli.command import answers
from forestay.cli.connection import Connection, Data, Key, Url, connected, lent
from forestay.cli.data_folder import announced
from forestay.cli.model_trust import with_trusted_keys
from forestay.cli.output import Answer, choice, note
from forestay.cli.run_outcome import failure
from forestay.cli.spoken_text import SpokenText
from forestay.cli.terminal import TerminalConsent, asked, attended, form, permission, told
from forestay.cli.up import model_line
from forestay.kernel import Problem, canonical, config, one_line, printable

if TYPE_CHECKING:
    from forestay.host import Host
    from forestay.runs import RunEvent


@answers("ask")
async def ask(
    question: Annotated[str | None, typer.Argument(help="What to ask; left out with --run-id.")] = None,
    run_id: Annotated[str | None, typer.Option("--run-id", help="Go on with this run instead.")] = None,
    agent: Annotated[str | None, typer.Option(help="The agent; default: the assistant.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="A model of the settings for this question; default: models.default.")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", help="Go on with this session: its id, or `last`; default: a new one.")
    ] = None,
    goes_on: Annotated[bool, typer.Option("--continue", help="Go on with the last session.")] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust the project's extensions and node files as they are now.")
    ] = False,
    url: Url = None,
    key: Key = None,
    data: Data = None,
) -> Answer:
    """Ask an agent about this folder: it quotes the folder's texts, and may use the project's extensions."""
    if (question is None) == (run_id is None) or (run_id is not None and (session or goes_on or model)):
        raise Problem("invalid_usage", "Give a question, or --run-id to go on with a run.", at="QUESTION")
    if goes_on and session is not None:
        raise Problem("invalid_usage", "Give --continue or --session, not both.", at="--continue")
    session = "last" if goes_on else session
    async with _reached(url, key, data, trust, model) as (connection, usual):
        name = model or usual
        note(f"model  {model_line(name)}")
        about, place = {"model": name}, None
        if run_id is None:
            wished = {"agentId": agent, "model": model}
            said = {"message": question, **{field: value for field, value in wished.items() if value}}
            place = await _session(connection, session)
            made = await connection.post(f"/host/v1/sessions/{place}/turns", said)
            run_id = str(made["runId"])
            about["sessionId"] = place
            note(f"in     session {place}")
        result: dict[str, Any] = {}
        while run_id is not None:
            note(f"run    {run_id}")
            following = Following(connection, run_id, live=choice().format == "human")
            result = await following.to_its_end()
            run_id = await _next_turn(connection, place, result) if place is not None else None
    return _answer({**result, **about})


async def _next_turn(connection: Connection, session: str, ended: dict[str, Any]) -> str | None:
    """Return the run of a turn that an extension requested, if one began after the turn that ended."""
    if "question" in ended:
        return None
    found = (await connection.get(f"/host/v1/sessions/{session}"))["runId"]
    return str(found) if found not in (None, ended["runId"]) else None


async def _session(connection: Connection, named: str | None) -> str:
    """Return the id of the named session, or of a new one."""
    from forestay.cli.session import found

    if named is not None:
        return await found(connection, named)
    return str((await connection.post("/host/v1/sessions"))["sessionId"])


class Following:
    """Shows a run to the person at the terminal, and passes its questions on."""

    def __init__(self, connection: Connection, run_id: str, *, live: bool) -> None:
        self._connection = connection
        self._run_id = run_id
        self._live = live
        self._tools: list[dict[str, Any]] = []
        self._spoken = SpokenText()

    async def to_its_end(self) -> dict[str, Any]:
        """Follow the run until it ends or asks something that nobody here can answer; return where it stands."""
        async for event in self._connection.events(self._run_id):
            self._show(event)
            if event.type == "interrupt.requested":
                self._spoken.end()
                if not await self._answered():
                    break
        self._spoken.end()
        return await self._standing()

    def _show(self, event: RunEvent) -> None:
        kind, payload = event.type, event.payload
        if kind == "output.chunk" and self._live:
            self._spoken.say(payload["chunk"])
        elif kind == "agent.toolCalled":
            self._spoken.end()
            self._tools.append({"tool": payload["toolName"], "status": "called"})
            note(f"tool   {payload['toolName']} …")
        elif kind == "agent.toolReturned" and self._tools:
            self._tools[-1]["status"] = payload["status"]
            note(f"tool   {payload['toolName']}: {payload['status']}")

    async def _open_question(self) -> dict[str, Any] | None:
        return next(iter(await self._connection.open_questions(self._run_id)), None)

    async def _answered(self) -> bool:
        """Put the run's open question to the person; whether it is answered now."""
        question = await self._open_question()
        if question is None:
            return True  # an older event: its question was answered before
        if not attended():
            return False
        await self._connection.resolve(self._run_id, question["nodeId"], await answer_to(question["data"]))
        return True

    async def _standing(self) -> dict[str, Any]:
        run = await self._connection.get(f"/v1/runs/{self._run_id}")
        outputs = run.get("outputs") or {}
        found = {"runId": self._run_id, "status": run["status"], "answer": outputs.get("output"), "tools": self._tools}
        if run.get("error"):
            found["error"] = run["error"]
        question = await self._open_question() if run["status"].startswith("waiting") else None
        if question is not None:
            found["question"] = {"nodeId": question["nodeId"], "data": question["data"]}
        return found


_LABELS = {"agentId": "agent", "begun_at": "begun at"}
_INNER = {"callId", "effect_key", "effect_class"}  # only programs use these


def _plain(value: Any) -> str:
    return canonical.encode(value).decode()


async def answer_to(asks: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of the person at the terminal to a question."""
    from forestay.host import FORM_TYPES

    if asks.get("artifactType") == "capability-prompt":
        return await permission(asks)
    if asks.get("artifactType") in FORM_TYPES.values():
        return await form(asks)
    sys.stderr.write(f"\n{one_line(str(asks['title']))}\n  {printable(str(asks.get('description', '')))}\n")
    known = {name: value for name, value in (asks.get("artifactData") or {}).items() if name not in _INNER}
    for name, value in known.items():
        text = value if isinstance(value, str) else _plain(value)
        sys.stderr.write(f"  {one_line(_LABELS.get(name, name)):<10} {printable(text)}\n")
    if await asked("Accept? [y/N] ") == "y":
        return {"action": "accept"}
    if asks.get("artifactType") != "uncertain-effect":
        return {"action": "reject"}
    return {"action": "reject", "comment": await told("What did you find? The model reads it: ")}


def _answer(result: dict[str, Any]) -> Answer:
    if "question" in result:
        again = f"forestay run approve {result['runId']}, then forestay ask --run-id {result['runId']}"
        note(f"waits  {result['question']['data'].get('title')}  ({again})")
    return Answer(result, human=lambda console: None, problem=failure(result))


@asynccontextmanager
async def _reached(
    url: str | None, key: str | None, data: Path | None, trust: bool, model: str | None
) -> AsyncIterator[tuple[Connection, str]]:
    """Connect to the running host, or open one for this question; yield its default model too."""
    from forestay.host import Options
    from forestay.surface import serve_here

    settings = await with_trusted_keys(config.load().config, also=model)
    consent = TerminalConsent() if attended() else None
    options = Options(config=settings, data=data, consent=consent, trust_nodes=trust)
    if url or announced(options.folder):
        if trust:
            raise Problem(
                "invalid_usage", "--trust needs a host of its own.", fix="Start that one with `forestay up --trust`."
            )
        async with connected(url, key, data) as connection:
            found = await connection.get("/.well-known/openwop")
            yield connection, str(found["extensions"]["forestay"]["model"])
        return
    async with serve_here(options) as serving:
        await make_trusted(serving.host, trust)
        async with lent(serving) as connection:
            yield connection, serving.host.models.default.name


async def make_trusted(host: Host, all_of_them: bool) -> None:
    """Ask about extensions that nobody trusts yet, and name those that cannot be loaded."""
    await _trusted(host, all_of_them)
    await _tell_unloadable(host)


async def _tell_unloadable(host: Host) -> None:
    """Name the trusted extensions that this machine cannot load yet."""
    if (found := await host.extensions.unloadable()) is not None:
        named, problem = found
        note(f"skip   {', '.join(named)}: {problem.message} {problem.details['fix']}")


async def _trusted(host: Host, all_of_them: bool) -> None:
    """Ask about extensions that nobody trusts yet; name those that are not loaded for that reason."""
    if named := ", ".join(await host.extensions.untrusted()):
        question = f"This folder brings extensions: {named}. Load them? [y/N] "
        if all_of_them or (attended() and await asked(question) == "y"):
            await host.extensions.trust.give(host.root)
        else:
            note(f"skip   {named}: nobody trusts it yet (--trust)")
    if named := ", ".join(await host.extensions.untrusted_of_user()):
        if attended() and await asked(f"Your own folder holds extensions: {named}. Load them? [y/N] ") == "y":
            await host.extensions.own.give(Path.home())
        else:
            note(f"skip   {named}: nobody trusts it yet (forestay ext trust --user)")
