"""`/host/v1/sessions/{sessionId}/ui`: the extensions' output and dialogs in a session, for a front end.

A reader that holds the stream open counts as present: `ctx.hasUI` is true for the extensions of that session, and their
dialogs wait for an answer. Each event of the stream is the whole state, so a front end needs only the last one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from forestay.host import Command, Host, SessionState
from forestay.sessions import SessionTree
from forestay.surface.operations import Body, Call, Operations, Query, View
from forestay.surface.sse import KEEPALIVE, KEEPALIVE_SECONDS, Awaited, frame

_encode = msgspec.json.Encoder().encode
_ANSWERS = ("runs:read", "approvals:respond")
api = Operations[Host](contract="lafs", tag="sessions")


class UiAnswer(Body, frozen=True, omit_defaults=False):
    """The person's answer; null cancels. select: the number of the option, from 0, or its text. confirm: true or false.
    input, editor: a text. custom: `{"keys": [...]}`. form: `{"action": "accept", "content": {...}}` or `decline`."""

    value: Any


class UiQuery(Query, frozen=True):
    """`columns`: how many characters the reader shows beside each other; extensions draw for that."""

    columns: Annotated[int, Meta(ge=20, le=400)] = 80


class UiAnswered(View, frozen=True):
    request_id: str


class CommandList(View, frozen=True):
    """`loaded` is false before the first turn: it loads the extensions."""

    loaded: bool
    commands: list[Command]


class TurnEnded(View, frozen=True):
    session_id: str


@api.get(
    "/host/v1/sessions/{sessionId}/ui", "sessions.ui", SessionState, scopes=("runs:read",), problems=("not_found",)
)
async def show(host: Host, call: Call) -> SessionState:
    """What extensions show and ask in the session now. Who only looks is not there for them."""
    return await host.fronts.state(await _opened(host, call), call.tenant)


@api.get(
    "/host/v1/sessions/{sessionId}/ui/stream",
    "sessions.ui.stream",
    SessionState,
    scopes=_ANSWERS,
    problems=("not_found",),
    streams=True,
)
async def stream(host: Host, call: Call, query: UiQuery) -> Response:
    """The same as server-sent events `ui`, each the whole state; the reader is there for the extensions."""
    return call.stream(_states(host, await _opened(host, call), call.tenant, query.columns))


async def _states(host: Host, tree: SessionTree, tenant: str, columns: int) -> AsyncGenerator[bytes, None]:
    async with aclosing(host.fronts.states(tree, tenant, columns)) as source:
        states = Awaited(source)
        try:
            while True:
                if not await states.ready(KEEPALIVE_SECONDS):
                    yield KEEPALIVE
                    continue
                state = states.take()
                if state is None:
                    return
                yield frame(_encode(state), "ui", state.ui.version)
        finally:
            await states.close()


@api.post(
    "/host/v1/sessions/{sessionId}/ui/{requestId}",
    "sessions.ui.answer",
    UiAnswered,
    scopes=_ANSWERS,
    problems=("not_found", "schema_mismatch"),
)
async def answer(host: Host, call: Call, body: UiAnswer) -> UiAnswered:
    """Answer a dialog. An answer that does not fit is refused, and the dialog stands."""
    await host.fronts.answer(await _opened(host, call), call.path["requestId"], body.value)
    return UiAnswered(request_id=call.path["requestId"])


@api.get(
    "/host/v1/sessions/{sessionId}/commands",
    "sessions.commands",
    CommandList,
    scopes=("runs:read",),
    problems=("not_found",),
)
async def commands(host: Host, call: Call) -> CommandList:
    """The commands that a message may call, as `/name arguments`: those of extensions, prompt templates, skills."""
    await _opened(host, call)
    found = host.fronts.commands(call.tenant)
    return CommandList(loaded=found is not None, commands=found or [])


@api.post(
    "/host/v1/sessions/{sessionId}/cancel",
    "sessions.cancel",
    TurnEnded,
    scopes=("runs:cancel",),
    problems=("not_found",),
)
async def cancel(host: Host, call: Call) -> TurnEnded:
    """End the turn that is under way, and what extensions ask in it."""
    tree = await _opened(host, call)
    await host.fronts.cancel(tree, host.models.default.name, call.tenant)
    return TurnEnded(session_id=tree.id)


async def _opened(host: Host, call: Call) -> SessionTree:
    return await host.sessions.open(call.path["sessionId"], call.tenant)
