"""Sessions: the list, one conversation with its extensions' output and dialogs, and a person's messages.

The page works without a script: it shows everything, and every form works. With the script it follows the session: new
text and the extensions' output appear at once. To extensions, a person who follows counts as present.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response

from forestay.console.conversation_view import conversation_of
from forestay.console.inbox import questions_of
from forestay.console.render import SECURITY_HEADERS, go, segment
from forestay.console.visit import Visit, chosen_model, form, page
from forestay.host import SessionState
from forestay.kernel import Problem, canonical, printable
from forestay.runs import RunEvent
from forestay.sessions import SessionTree
from forestay.surface import KEEPALIVE, KEEPALIVE_SECONDS, Form, frame

_ANSWERS = ("runs:read", "approvals:respond")
_LISTED = 200
_BACKLOG = 100
_TOLD = ("agent.toolCalled", "agent.toolReturned", "interrupt.requested", "interrupt.resolved")


class Offers(msgspec.Struct, frozen=True):
    """The agents and models that a message may choose; `agent` and `model` are the current choice, or empty."""

    agents: list[str]
    models: list[str]
    agent: str
    model: str


@page("/sessions", "sessions", "runs:read")
async def listing(visit: Visit) -> Response:
    """The conversations of the tenant, the one that changed last first."""
    sessions = await visit.host.sessions.list(visit.tenant, _LISTED)
    return visit.page("conversations.html", sessions=sessions, offers=await _offers(visit))


@form("/sessions", "sessions.start", "runs:create")
async def start(visit: Visit) -> Response:
    """Begin a conversation, with the first message or without."""
    message = visit.form.get("message", "").strip()
    tree = await visit.host.sessions.create(visit.tenant)
    if message:
        await _said(visit, tree, message)
    return go(_address(tree))


@page("/sessions/{sessionId}", "sessions.show", "runs:read")
async def show(visit: Visit) -> Response:
    """One conversation: what was said, what extensions show and ask, and the next message. `only=interface` leaves out
    what was said: an extension that draws without end does not have a long conversation sent again and again."""
    tree = await _opened(visit)
    _see(visit, tree)
    state = await visit.host.fronts.state(tree, visit.tenant)
    is_whole = visit.asked("only") != "interface"
    return visit.page(
        "conversation.html",
        tree=tree,
        state=state,
        talk=conversation_of(tree, await visit.host.fronts.drawn(tree, visit.tenant)) if is_whole else None,
        questions=await questions_of(visit, state.run_id) if state.run_id is not None else [],
        commands=visit.host.fronts.commands(visit.tenant),
        answers=_may_answer(visit),
        offers=await _offers(visit, tree),
    )


@page("/sessions/{sessionId}/live", "sessions.live", *_ANSWERS, streams=True)
async def live(visit: Visit) -> Response:
    """What the page's script follows: `said` and `told` when the whole page is to be looked at again, `look` when only
    what extensions show and ask is, `chunk` for words of the answer that is under way."""
    return visit.call.stream(_frames(visit, await _opened(visit)), SECURITY_HEADERS)


async def _frames(visit: Visit, tree: SessionTree) -> AsyncGenerator[bytes, None]:
    queue: asyncio.Queue[SessionState | RunEvent] = asyncio.Queue(_BACKLOG)
    watching = [asyncio.ensure_future(_put_states(visit, tree, queue))]
    run_id, stood = None, None  # the page may be older than the stream: it reloads once, whole
    try:
        while True:
            try:
                async with asyncio.timeout(KEEPALIVE_SECONDS):
                    item = await queue.get()
            except TimeoutError:
                yield KEEPALIVE
                continue
            if isinstance(item, RunEvent):
                if item.type == "output.chunk" and item.run_id == run_id:  # the page has a finished turn
                    yield frame(canonical.encode(printable(str(item.payload["chunk"]))), "chunk")
                elif item.type in _TOLD:
                    yield frame(b"", "told")
                continue
            stands = (item.leaf, item.entries)
            yield frame(b"", "said" if stands != stood or item.run_id != run_id else "look")
            if item.run_id is not None and item.run_id != run_id:
                watching.append(asyncio.ensure_future(_put_events(visit, item.run_id, queue)))
            run_id, stood = item.run_id, stands
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


async def _put_states(visit: Visit, tree: SessionTree, queue: asyncio.Queue[SessionState | RunEvent]) -> None:
    async with aclosing(visit.host.fronts.states(tree, visit.tenant, _columns(visit))) as states:
        async for state in states:
            await queue.put(state)


def _columns(visit: Visit) -> int | None:
    """Return the page's width in columns if its script sends it, else None."""
    said = visit.asked("columns")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 5 else None


async def _put_events(visit: Visit, run_id: str, queue: asyncio.Queue[SessionState | RunEvent]) -> None:
    """Queue the events of a turn from its last answer on: the page already shows the earlier text."""
    seen = await visit.host.runs.events(run_id, visit.tenant, 0)
    start = max((event.sequence + 1 for event in seen if event.type == "agent.toolCalled"), default=0)
    async for event in visit.host.runs.follow(run_id, visit.tenant, start):
        await queue.put(event)


@form("/sessions/{sessionId}/say", "sessions.say", "runs:create")
async def say(visit: Visit) -> Response:
    """Say something: a turn begins, or a command of an extension is performed."""
    tree = await _opened(visit)
    message = visit.form.get("message", "").strip()
    if not message:
        raise Problem("schema_mismatch", "Say something.", at="message")
    await _said(visit, tree, message)
    return go(_address(tree))


@form("/sessions/{sessionId}/ui/{requestId}", "sessions.answer", *_ANSWERS)
async def answer(visit: Visit) -> Response:
    """Answer a dialog of an extension."""
    tree = await _opened(visit)
    await visit.host.fronts.answer(tree, visit.path["requestId"], _answer(visit.form))
    return go(_address(tree))


@form("/sessions/{sessionId}/cancel", "sessions.cancel", "runs:cancel")
async def cancel(visit: Visit) -> Response:
    """End the turn that is under way."""
    tree = await _opened(visit)
    await visit.host.fronts.cancel(tree, visit.host.models.default.name, visit.tenant)
    return go(_address(tree))


@form("/sessions/{sessionId}/change", "sessions.change", "runs:create")
async def change(visit: Visit) -> Response:
    """Name the conversation, go on from another of its entries, or go on in a copy."""
    tree, fields = await _opened(visit), visit.form
    entry = fields.get("entry", "")
    match fields.get("do"):
        case "name":
            tree.rename(fields.get("name", "")[:200])
            await visit.host.sessions.save(tree)
        case "move":
            draft = await visit.host.turns.move(tree, entry, visit.tenant)
            visit.host.fronts.room(tree).draft = draft or ""
        case "fork":
            tree, draft = await visit.host.sessions.fork(tree.id, entry or None, tenant=visit.tenant)
            visit.host.fronts.room(tree).draft = draft or ""
        case _:
            raise Problem("schema_mismatch", "A conversation is named, moved or forked.", at="do")
    return go(_address(tree))


def _answer(fields: Form) -> Any:
    """Return the answer in the fields of a dialog; None when the person cancelled it."""
    if fields.get("do") != "answer":
        return None
    text = fields.get("value", "").replace("\r\n", "\n")
    match fields.get("operation"):
        case "confirm":
            return text == "yes"
        case "select":
            return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else text
        case "custom":
            return {"keys": text.split() or ["enter"]}
        case "form":
            return {"action": "accept", "content": canonical.decode(text or "{}")}
        case _:
            return text


async def _said(visit: Visit, tree: SessionTree, message: str) -> None:
    text = message.replace("\r\n", "\n")
    _see(visit, tree)
    agent, model = visit.form.get("agent", "").strip() or None, chosen_model(visit)
    if agent is not None:
        await visit.host.directory.get(visit.tenant, agent)  # raises a Problem when there is no such agent
    await visit.host.fronts.say(
        tree, text, tenant=visit.tenant, principal=visit.caller.principal, agent=agent, model=model
    )


async def _offers(visit: Visit, tree: SessionTree | None = None) -> Offers:
    """Return the agents and models that a message may choose, and what the last turn chose."""
    turn = tree.turn if tree is not None else None
    agents = [item.agent_id for item in await visit.host.directory.listed(visit.tenant)]
    agent = str((turn.inputs.get("agentId") if turn is not None else None) or "")
    return Offers(agents, visit.host.models.names, agent, (turn.model if turn is not None else None) or "")


async def _opened(visit: Visit) -> SessionTree:
    return await visit.host.sessions.open(visit.path["sessionId"], visit.tenant)


def _see(visit: Visit, tree: SessionTree) -> None:
    """Count a person who opens the page or sends a form as present for a while, even without a script."""
    if _may_answer(visit):
        visit.host.fronts.room(tree).seen()


def _may_answer(visit: Visit) -> bool:
    return set(_ANSWERS) <= set(visit.caller.scopes)


def _address(tree: SessionTree) -> str:
    return f"/sessions/{segment(tree.id)}"
