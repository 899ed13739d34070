"""The chat's own commands: lines that begin with `/`, beside the commands of extensions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from forestay.cli.chat_keys import pressed
from forestay.cli.session_text import entry_line
from forestay.kernel import Problem, one_line
from forestay.sessions import role_of

if TYPE_CHECKING:
    from forestay.extensions import CommandLine, Extensions


class Said(NamedTuple):
    """A command's result: lines for the person, a draft for the next line. With `is_turn`, a turn performs it."""

    lines: tuple[str, ...] = ()
    draft: str = ""
    is_turn: bool = False


async def perform(suite: Extensions, line: CommandLine) -> Said:
    """Perform a command of the chat; a command of an extension, a prompt template or a skill is a turn."""
    own = OWN.get(line.name)
    if own is not None:
        return await own.run(suite, line.arguments.strip())
    if suite.commander(line.name) is None and suite.expanded(line) is None:
        raise Problem("not_found", f"There is no command {one_line(line.name)[:80]}.", fix="/help names them.")
    return Said(is_turn=True)


def names(suite: Extensions) -> list[str]:
    """Return every command as a person types it."""
    return sorted({*(f"/{name}" for name in OWN), *(f"/{item['name']}" for item in suite.commands())})


async def _help(suite: Extensions, _arguments: str) -> Said:
    own = [f"/{name:<18} {entry.about}" for name, entry in OWN.items()]
    theirs = [
        f"/{one_line(str(item['name'])):<18} {one_line(str(item.get('description') or ''))[:200]} ({item['source']})"
        for item in suite.commands()
        if item["name"] not in OWN
    ]
    keys = [f"{key:<19} {one_line(about)[:200]} (shortcut)" for key, about in suite.shortcuts().items()]
    return Said((*own, *theirs, *keys, *ALSO))


ALSO = (
    "!COMMAND            run a command in the project, confined; the model is shown it",
    "!!COMMAND           the same, not shown to the model",
    "@FILE               in a message: the model reads the file with it",
)


async def _session(suite: Extensions, _arguments: str) -> Said:
    tree = suite.session.tree
    shown = [entry_line(entry, tree.leaf) for entry in tree.branch()]
    return Said((f"session {tree.id}  {one_line(tree.name or '')}", *shown))


async def _name(suite: Extensions, arguments: str) -> Said:
    if not arguments:
        raise Problem("invalid_usage", "Say the name: /name The harbour.")
    await suite.control.request("setSessionName", {"args": [arguments]})
    return Said()


async def _new(suite: Extensions, _arguments: str) -> Said:
    return _placed(suite, await suite.control.request("newSession", {}))


async def _resume(suite: Extensions, arguments: str) -> Said:
    return _placed(suite, await suite.control.request("switchSession", {"args": [arguments]}))


async def _fork(suite: Extensions, arguments: str) -> Said:
    target = arguments or suite.session.leaf
    if target is None:
        raise Problem("invalid_usage", "There is nothing to fork yet.")
    is_users = role_of(suite.session.tree.entry(target)) == "user"
    position = "before" if arguments and is_users else "at"
    done = await suite.control.request("fork", {"args": [target, {"position": position}]})
    return _placed(suite, done, str(done.get("selectedText", "")))


async def _move(suite: Extensions, arguments: str) -> Said:
    done = await suite.control.request("navigateTree", {"args": [arguments]})
    return _placed(suite, done, str(done.get("editorText", "")))


async def _key(suite: Extensions, arguments: str) -> Said:
    await suite.press(pressed(arguments)[0])
    return Said()


async def _model(suite: Extensions, arguments: str) -> Said:
    """List the models, or let another one answer in this session from now on."""
    offered = await suite.catalogue.selectable()
    if not arguments:
        now = _shown(suite.session.model or {})
        return Said(tuple(f"{'*' if _shown(model) == now else ' '} {one_line(_shown(model))}" for model in offered))
    fitting = [model for model in offered if arguments in (_shown(model), model.get("id"))]
    if len(fitting) != 1:
        known = [_shown(model) for model in offered]
        raise Problem("model_unknown", f"No model, or more than one, is {one_line(arguments)[:80]}.", known=known)
    await suite.control.request("setModel", {"args": [fitting[0]]})
    return Said((f"model  {one_line(_shown(fitting[0]))}",))


def _shown(model: Mapping[str, Any]) -> str:
    return f"{model.get('provider')}/{model.get('id')}"


async def _compact(suite: Extensions, arguments: str) -> Said:
    wish = [{"customInstructions": arguments}] if arguments else []
    done = await suite.control.request("compact", {"args": wish})
    return Said((f"compacted: about {done['tokensBefore']} tokens are a summary now",))


def _placed(suite: Extensions, done: dict[str, Any], draft: str = "") -> Said:
    if done.get("cancelled"):
        raise Problem("cancelled", "An extension cancelled it.")
    return Said((f"session {suite.session.id}",), draft=draft)


class OwnCommand(NamedTuple):
    about: str
    run: Callable[[Extensions, str], Awaitable[Said]]


OWN: dict[str, OwnCommand] = {
    "help": OwnCommand("these lines", _help),
    "session": OwnCommand("the session that this is, and its entries", _session),
    "name": OwnCommand("TEXT: name the session", _name),
    "new": OwnCommand("begin a new session", _new),
    "resume": OwnCommand("ID: go on with another session", _resume),
    "model": OwnCommand("[PROVIDER/ID]: the models there are, or the one that answers in this session", _model),
    "compact": OwnCommand("[WISH]: put a summary in place of what was said long ago", _compact),
    "key": OwnCommand("KEY: what an extension bound to a key, as ctrl+g; the key itself does it too", _key),
    "move": OwnCommand("ENTRY: go on from an earlier entry", _move),
    "fork": OwnCommand("[ENTRY]: go on in a copy", _fork),
}
"""The chat's own commands; `/quit`, which ends it, is handled before."""
