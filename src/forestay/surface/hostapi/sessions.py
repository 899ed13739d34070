"""`/host/v1/sessions`: conversations. A turn is a run; its text is in the session as soon as the run has it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from forestay.host import Host
from forestay.kernel import iso
from forestay.sessions import MAX_BYTES, SessionLine, SessionTree, write_file
from forestay.surface.operations import Body, Call, Operations, Query, View

Name = Annotated[str, Meta(min_length=1, max_length=200)]
EntryId = Annotated[str, Meta(min_length=1, max_length=64)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
_FOUND = ("not_found",)
api = Operations[Host](contract="lafs", tag="sessions")


class SessionsQuery(Query, frozen=True):
    limit: Limit = 100


class NewSession(Body, frozen=True):
    name: Name | None = None


class SessionChange(Body, frozen=True):
    """A new name, and the entry that the session goes on from. One that is a message of the user is left out, and its
    text is the `draft` of the answer."""

    name: Name | None = None
    entry_id: EntryId | None = None


class NewFork(Body, frozen=True):
    """The branch to `entry_id`, or to the leaf; `before` leaves out that message of the user."""

    entry_id: EntryId | None = None
    before: bool = False


class NewTurn(Body, frozen=True):
    message: Annotated[str, Meta(min_length=1, max_length=1_000_000)]
    agent_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    model: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class SessionFile(Body, frozen=True):
    """The text of a session file of pi."""

    file: Annotated[str, Meta(max_length=MAX_BYTES)]


class SessionRow(View, frozen=True):
    session_id: str
    name: str
    first: str
    cwd: str
    parent: str
    entries: int
    created: str
    changed: str


class SessionList(View, frozen=True):
    sessions: list[SessionRow]


class SessionView(View, frozen=True):
    session_id: str
    name: str | None
    leaf: str | None
    parent: str | None
    run_id: str | None
    """The run of the turn that is under way."""
    entries: list[dict[str, Any]]


class SessionChanged(View, frozen=True):
    session_id: str
    leaf: str | None
    draft: str | None = None


class TurnView(View, frozen=True):
    session_id: str
    run_id: str


class SessionText(View, frozen=True):
    session_id: str
    file: str


@api.get("/host/v1/sessions", "sessions.list", SessionList, scopes=("runs:read",))
async def list_sessions(host: Host, call: Call, query: SessionsQuery) -> SessionList:
    """The sessions of the caller's tenant, the one that changed last first."""
    return SessionList(sessions=[_row(line) for line in await host.sessions.list(call.tenant, query.limit)])


@api.post("/host/v1/sessions", "sessions.create", {201: SessionView}, scopes=("runs:create",))
async def create(host: Host, call: Call, body: NewSession | None) -> SessionView:
    """Begin a session."""
    name = body.name if body is not None else None
    return await _view(host, call, await host.sessions.create(call.tenant, name or "", id=call.uuid()))


@api.post(
    "/host/v1/sessions/import",
    "sessions.import",
    {201: SessionChanged},
    scopes=("runs:create",),
    body_limit=MAX_BYTES,
    problems=("schema_mismatch", "payload_too_large"),
)
async def take(host: Host, call: Call, body: SessionFile) -> SessionChanged:
    """Take in a session file of pi; under a new id when this host has one of its id."""
    return _changed(await host.sessions.take(body.file.encode(), call.tenant))


@api.get("/host/v1/sessions/{sessionId}", "sessions.show", SessionView, scopes=("runs:read",), problems=_FOUND)
async def show(host: Host, call: Call) -> SessionView:
    """A session with all its entries."""
    return await _view(host, call, await _opened(host, call))


@api.post(
    "/host/v1/sessions/{sessionId}",
    "sessions.change",
    SessionChanged,
    scopes=("runs:create",),
    problems=(*_FOUND, "state_conflict", "invalid_request"),
)
async def change(host: Host, call: Call, body: SessionChange) -> SessionChanged:
    """Name a session, or go on from another of its entries."""
    tree = await _opened(host, call)
    draft = await host.turns.move(tree, body.entry_id, call.tenant) if body.entry_id is not None else None
    if body.name is not None:
        tree.rename(body.name)
        await host.sessions.save(tree)
    return _changed(tree, draft)


@api.post(
    "/host/v1/sessions/{sessionId}/fork",
    "sessions.fork",
    {201: SessionChanged},
    scopes=("runs:create",),
    problems=(*_FOUND, "invalid_request"),
)
async def fork(host: Host, call: Call, body: NewFork | None) -> SessionChanged:
    """Begin a session with the entries of a branch of another one."""
    wish = body or NewFork()
    made, draft = await host.sessions.fork(
        call.path["sessionId"], wish.entry_id, before=wish.before, tenant=call.tenant, fork_id=call.uuid()
    )
    return _changed(made, draft)


@api.post(
    "/host/v1/sessions/{sessionId}/turns",
    "sessions.turn",
    {201: TurnView},
    scopes=("runs:create",),
    problems=(*_FOUND, "state_conflict"),
)
async def turn(host: Host, call: Call, body: NewTurn) -> TurnView:
    """Say something: starts a run that goes on with the session."""
    tree = await _opened(host, call)
    run_id = await host.fronts.say(
        tree,
        body.message,
        tenant=call.tenant,
        principal=call.caller.principal,
        agent=body.agent_id,
        model=body.model,
        run_id=call.id_for("run"),
    )
    return TurnView(session_id=tree.id, run_id=run_id)


@api.get("/host/v1/sessions/{sessionId}/file", "sessions.export", SessionText, scopes=("runs:read",), problems=_FOUND)
async def file(host: Host, call: Call) -> SessionText:
    """The session as a file of pi."""
    tree = await _opened(host, call)
    return SessionText(session_id=tree.id, file=b"".join(write_file(tree)).decode())


def _row(line: SessionLine) -> SessionRow:
    return SessionRow(
        session_id=line.session_id,
        name=line.name,
        first=line.first,
        cwd=line.cwd,
        parent=line.parent,
        entries=line.entries,
        created=iso(line.created_ms),
        changed=iso(line.changed_ms),
    )


async def _opened(host: Host, call: Call) -> SessionTree:
    return await host.sessions.open(call.path["sessionId"], call.tenant)


async def _view(host: Host, call: Call, tree: SessionTree) -> SessionView:
    return SessionView(
        session_id=tree.id,
        name=tree.name,
        leaf=tree.leaf,
        parent=tree.header.get("parentSession"),
        run_id=await host.turns.under_way(tree, call.tenant),
        entries=tree.entries,
    )


def _changed(tree: SessionTree, draft: str | None = None) -> SessionChanged:
    return SessionChanged(session_id=tree.id, leaf=tree.leaf, draft=draft)
