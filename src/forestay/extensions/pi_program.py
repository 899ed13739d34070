"""The `pi` program for extensions that start it: print, JSON and RPC modes, answered by this host (`pi_agent.py`).

It is not a program on the machine: the `exec` connector runs the command `pi` itself, and puts a script of that name
on the PATH of the programs that it starts (`connectors/doorway.py`). So it works in every sandbox, without network.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from forestay.extensions.pi_agent import Door, PiAgent, Terms
from forestay.kernel import Problem
from forestay.tools import BUILT_IN

VERSION = "1.5.0"
_VALUES = frozenset(
    "--mode --provider --model --models --thinking --tools --exclude-tools --system-prompt --append-system-prompt "
    "--session-dir --theme --extension -e --skill --prompt-template --name".split()
)
_IGNORED = frozenset(
    "-p --print --no-session --no-extensions -ne --no-skills -ns --no-prompt-templates -np --no-themes --offline "
    "--no-context-files -nc --verbose --approve --no-approve".split()
)
_UNKEPT = frozenset("--session -c --continue -r --resume --fork --export --session-id".split())
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Arguments(NamedTuple):
    """A parsed command line of pi; `refused` tells why it cannot run."""

    options: Mapping[str, str]
    words: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    refused: str = ""

    @property
    def mode(self) -> str:
        return self.options.get("--mode", "text")


def parsed(argv: Sequence[str]) -> Arguments:
    """Parse pi's options; an unknown one is an error, because it is unclear whether it takes a value."""
    options: dict[str, str] = {}
    words: list[str] = []
    flags: set[str] = set()
    left = list(argv)
    while left:
        word = left.pop(0)
        name, is_joined, value = word.partition("=")
        if word == "--":
            words += left
            break
        if word in _IGNORED or word in ("--no-tools", "-nt", "--no-builtin-tools", "-nbt", "--version", "-v", "--help"):
            flags.add(word)
        elif name in _UNKEPT:
            return Arguments({}, refused=f"{name}: this pi keeps no sessions")
        elif name in _VALUES:
            options[name] = value if is_joined else left.pop(0) if left else ""
        elif word.startswith("-") and word != "-":
            return Arguments({}, refused=f"unknown option {word[:80]}")
        else:
            words.append(word)
    if options.get("--mode", "text") not in ("text", "json", "rpc"):
        return Arguments({}, refused=f"unknown mode {options['--mode'][:80]}")
    return Arguments(options, tuple(words), frozenset(flags))


class Streams(NamedTuple):
    """The program's output, error and input lines; the line None is the end of the input."""

    out: Callable[[str], None]
    error: Callable[[str], None]
    lines: Callable[[], Any]


async def serve(argv: Sequence[str], cwd: str, door: Door, streams: Streams, now_ms: Callable[[], int]) -> int:
    """Run `pi` once; return its exit code."""
    arguments = parsed(argv)
    if arguments.refused:
        streams.error(f"pi: {arguments.refused}\n")
        return 1
    if arguments.flags & {"--version", "-v"}:
        streams.out(f"{VERSION}\n")
        return 0

    def tell(event: dict[str, Any]) -> None:
        if arguments.mode != "text":
            streams.out(_encode(event).decode() + "\n")

    agent = PiAgent(door, Terms(cwd), tell, now_ms)
    try:
        agent.terms = await _terms(agent, arguments, cwd)
        if arguments.mode == "rpc":
            return await Rpc(agent, streams).served()
        return await _printed(agent, arguments, streams, now_ms)
    except Problem as problem:
        streams.error(f"pi: {problem.message}\n")
        return 1


async def _printed(agent: PiAgent, arguments: Arguments, streams: Streams, now_ms: Callable[[], int]) -> int:
    text = await _message(agent, arguments, streams)
    if not text:
        streams.error("pi: there is no message\n")
        return 1
    if arguments.mode == "json":
        header = {"type": "session", "version": 3, "id": "", "timestamp": now_ms(), "cwd": agent.terms.cwd}
        streams.out(_encode(header).decode() + "\n")
    last = await agent.prompt(text)
    failed = last.get("stopReason") in ("error", "aborted")
    if failed:
        streams.error(f"{last.get('errorMessage') or 'The request failed'}\n")
    elif arguments.mode == "text":
        streams.out(f"{agent.last_text}\n")
    return 1 if failed else 0


async def _message(agent: PiAgent, arguments: Arguments, streams: Streams) -> str:
    """Build the message from files named with `@`, the words, and the standard input."""
    parts: list[str] = []
    for word in arguments.words:
        if word.startswith("@") and len(word) > 1:
            parts.append(f'<file name="{word[1:]}">\n{await _read(agent, word[1:])}\n</file>')
        else:
            parts.append(word)
    while (line := await streams.lines()) is not None:
        parts.append(line)
    return "\n".join(parts).strip()


async def _terms(agent: PiAgent, arguments: Arguments, cwd: str) -> Terms:
    options = arguments.options
    tools: Sequence[str] = tuple(BUILT_IN)
    if "--tools" in options:
        tools = [name.strip() for name in options["--tools"].split(",") if name.strip() in BUILT_IN]
    if "--exclude-tools" in options:
        left_out = {name.strip() for name in options["--exclude-tools"].split(",")}
        tools = [name for name in tools if name not in left_out]
    if arguments.flags & {"--no-tools", "-nt", "--no-builtin-tools", "-nbt"}:
        tools = []
    named = [options[name] for name in ("--system-prompt", "--append-system-prompt") if options.get(name)]
    told = [await _text(agent, given) for given in named]
    return Terms(cwd, await _model(agent, options), "\n\n".join(told), tools)


async def _text(agent: PiAgent, given: str) -> str:
    """Return a text, or the content of the file that it names; pi's options take both."""
    if "\n" in given or len(given) > 1000:
        return given
    try:
        return await _read(agent, given)
    except Problem:
        return given


async def _read(agent: PiAgent, path: str) -> str:
    place = posixpath.join(agent.terms.cwd, path)
    return str((await agent.ask("fs", {"op": "read", "path": place, "encoding": "utf8"}))["text"])


async def _model(agent: PiAgent, options: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return the model named by its id, `provider/id`, or a part of it; None for the host's own choice."""
    wanted, provider = options.get("--model", "").partition(":")[0], options.get("--provider")
    if not wanted and not provider:
        return None
    known = (await agent.ask("model", {"op": "list"}))["models"]
    offered = {f"{model['provider']}/{model['id']}": model for model in known}
    fitting = [name for name in offered if provider in (None, offered[name]["provider"])]
    for name in (*(n for n in fitting if wanted in (n, n.partition("/")[2])), *(n for n in fitting if wanted in n)):
        return {"provider": offered[name]["provider"], "id": offered[name]["id"]}
    raise Problem("not_found", f"No model is {wanted or provider}; there are {', '.join(sorted(offered)) or 'none'}.")


class Rpc:
    """`pi --mode rpc`: commands as JSON lines, answers and events as JSON lines."""

    def __init__(self, agent: PiAgent, streams: Streams) -> None:
        self._agent = agent
        self._streams = streams
        self._working: asyncio.Task[Any] | None = None
        self._waiting: list[str] = []

    async def served(self) -> int:
        while (line := await self._streams.lines()) is not None:
            if line.strip():
                await self._heard(line)
        while self._working is not None:
            await asyncio.wait({self._working})
        return 0

    async def _heard(self, line: str) -> None:
        try:
            command = _decode(line)
            kind = str(command["type"])
        except (msgspec.DecodeError, KeyError, TypeError):
            return self._answer({}, "parse", error="A command must be a JSON object with a `type`.")
        match kind:
            case "prompt" | "steer" | "follow_up":
                self._prompted(str(command.get("message", "")), "steer" in (kind, command.get("streamingBehavior")))
                self._answer(command, kind)
            case "abort":
                if self._working is not None:
                    self._cleared()
                    self._working.cancel()
                self._answer(command, kind)
            case "clear_queue":
                self._answer(command, kind, data=self._cleared())
            case "new_session":
                self._agent.messages = []
                self._answer(command, kind, data={"cancelled": False})
            case "get_state":
                self._answer(command, kind, data=self._state())
            case "get_messages":
                self._answer(command, kind, data={"messages": self._agent.messages})
            case "get_last_assistant_text":
                self._answer(command, kind, data={"text": self._agent.last_text or None})
            case "get_available_models":
                self._answer(command, kind, data=await self._agent.ask("model", {"op": "list"}))
            case "set_model":
                chosen = {"provider": str(command.get("provider")), "id": str(command.get("modelId"))}
                self._agent.terms = self._agent.terms._replace(model=chosen)
                self._answer(command, kind, data=chosen)
            case _:
                self._answer(command, kind, error=f"This pi has no command {kind[:80]}.")
        return None

    def _cleared(self) -> dict[str, list[str]]:
        """Clear the waiting messages and return them."""
        cleared = {"steering": list(self._agent.steering), "followUp": list(self._waiting)}
        self._agent.steering.clear()
        self._waiting.clear()
        return cleared

    def _prompted(self, text: str, steers: bool) -> None:
        if self._working is not None:
            (self._agent.steering if steers else self._waiting).append(text)
        else:
            self._working = asyncio.ensure_future(self._work(text))
            self._working.add_done_callback(self._ended)

    async def _work(self, first: str) -> None:
        await self._agent.prompt(first)
        while self._waiting or self._agent.steering:
            await self._agent.prompt((self._agent.steering or self._waiting).pop(0))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._working = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._streams.error(f"pi: {error}\n")
        if late := self._agent.steering or self._waiting:  # it arrived when the work had just ended
            self._prompted(late.pop(0), steers=False)

    def _state(self) -> dict[str, Any]:
        is_busy = self._working is not None
        return {
            "model": self._agent.terms.model,
            "thinkingLevel": "off",
            "isStreaming": is_busy,
            "isCompacting": False,
            "messageCount": len(self._agent.messages),
            "pendingMessageCount": len(self._waiting) + len(self._agent.steering),
        }

    def _answer(self, command: Mapping[str, Any], kind: str, *, data: Any = None, error: str = "") -> None:
        id = {"id": command["id"]} if "id" in command else {}
        said = {"error": error} if error else {} if data is None else {"data": data}
        answer = {**id, "type": "response", "command": kind, "success": not error, **said}
        self._streams.out(_encode(answer).decode() + "\n")
