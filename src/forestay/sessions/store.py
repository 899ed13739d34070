"""The sessions of a host, each a stream of its ledger.

- T1  A session that has no entry is not in the ledger: a caller that only reads leaves no trace.
- T2  While a session is open there is one object for it in the process, and its records are written in their order.
      `open` reads what other processes wrote; an entry that was made without knowing them is refused.
- T3  A session belongs to a tenant; to others it does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary, WeakValueDictionary

from forestay.kernel import OPERATOR, Append, Clock, Draft, Ids, Ledger, Problem
from forestay.sessions.pi_file import read_file
from forestay.sessions.table import COLUMNS, SessionLine
from forestay.sessions.tree import Entry, SessionTree

MOST = 1000


class Sessions:
    """Makes, opens, saves, lists and copies sessions. `SessionKeeper` for the operator's extensions."""

    def __init__(self, ledger: Ledger, clock: Clock, ids: Ids, *, cwd: str = "") -> None:
        self._ledger, self._clock, self._ids, self._cwd = ledger, clock, ids, cwd
        self.heard: Callable[[str], None] = lambda _id: None
        """Hears the id of a session that was written."""
        self._open: WeakValueDictionary[str, SessionTree] = WeakValueDictionary()
        self._tenants: WeakKeyDictionary[SessionTree, str] = WeakKeyDictionary()
        self._saving: WeakKeyDictionary[SessionTree, asyncio.Lock] = WeakKeyDictionary()

    def new(self, *, path: Sequence[Entry] = (), parent: str | None = None, tenant: str = OPERATOR) -> SessionTree:
        """A session that nobody has saved yet (T1)."""
        return self._held(self._made(tenant, None, path, parent), tenant)

    def _made(self, tenant: str, id: str | None, path: Sequence[Entry] = (), parent: str | None = None) -> SessionTree:
        return SessionTree.new(
            self._cwd, clock=self._clock, ids=self._ids, tenant=tenant, path=path, parent=parent, id=id
        )

    async def open(self, id: str, tenant: str = OPERATOR) -> SessionTree:
        """The session of that id; the same object while it is open (T2, T3)."""
        if id not in self._open:
            records = await self._ledger.read(stream_of(id)) if is_id(id) else []
            if records and id not in self._open:
                tree = SessionTree.fold(records, clock=self._clock, ids=self._ids)
                return self._owned(self._held(tree, str(records[0].attrs["tenant"])), tenant)
        tree = self._owned(self._open.get(id), tenant, id)
        await self._catch_up(tree)
        return tree

    async def _catch_up(self, tree: SessionTree) -> None:
        async with self._writing(tree):
            if not tree.unsaved:
                tree.take_in(await self._ledger.read(stream_of(tree.id), tree.saved + 1))

    def _writing(self, tree: SessionTree) -> asyncio.Lock:
        return self._saving.setdefault(tree, asyncio.Lock())

    def _held(self, tree: SessionTree, tenant: str) -> SessionTree:
        self._open[tree.id], self._tenants[tree] = tree, tenant
        return tree

    def _owned(self, tree: SessionTree | None, tenant: str, id: str = "") -> SessionTree:
        if tree is None or self._tenants[tree] != tenant:
            named = tree.id if tree is not None else str(id)[:80]
            raise Problem("not_found", f"There is no session {named}.", fix="`forestay session list` names them.")
        return tree

    async def save(self, tree: SessionTree) -> None:
        """Write what the ledger does not have; on disk when this returns. An empty session stays unwritten (T1)."""
        if tree.unsaved and (tree.entries or tree.turn or tree.wishes):
            # A caller that is cancelled does not stop the ledger: what it wrote must be known here too.
            await asyncio.shield(asyncio.ensure_future(self._saved(tree)))

    async def _saved(self, tree: SessionTree) -> None:
        async with self._writing(tree):
            drafts = tuple(tree.unsaved)
            if drafts:
                try:
                    await self._ledger.commit(Append(stream_of(tree.id), drafts, expect=tree.saved))
                except Problem as problem:
                    if problem.key == "ledger_conflict":
                        tree.begin_again()
                        tree.take_in(await self._ledger.read(stream_of(tree.id)))
                    raise
                tree.saved += len(drafts)
                del tree.unsaved[: len(drafts)]
                self.heard(tree.id)

    async def create(self, tenant: str = OPERATOR, name: str = "", *, id: str | None = None) -> SessionTree:
        """A session that is in the ledger from its beginning, with or without entries. A caller that must not make two
        gives the id, and gets the one that is there."""
        if id is not None and await self._is_there(id):
            return await self.open(id, tenant)
        tree = self._made(tenant, id)
        if name:
            tree.rename(name)
        await self._write(tree)
        return self._held(tree, tenant)

    async def fork(
        self,
        id: str,
        entry: str | None = None,
        *,
        before: bool = False,
        tenant: str = OPERATOR,
        fork_id: str | None = None,
    ) -> tuple[SessionTree, str | None]:
        """A new session with the branch to `entry`, or to the leaf; `before` a message of the user leaves that out,
        and its text is the second thing that this returns. `fork_id`: see `create`."""
        tree = await self.open(id, tenant)
        target = entry or tree.leaf
        path, draft = tree.fork_point(target, "before" if before else "at") if target else ([], None)
        if fork_id is not None and await self._is_there(fork_id):
            return await self.open(fork_id, tenant), draft
        made = self._made(tenant, fork_id, path, tree.id)
        await self._write(made)
        return self._held(made, tenant), draft

    async def take(self, data: bytes, tenant: str = OPERATOR) -> SessionTree:
        """Take in a session file of pi, under a new id when this host has one of its id."""
        header, entries = read_file(data, self._ids)
        taken = is_id(header["id"]) and (await self._ledger.head(stream_of(header["id"]))).seq < 0
        named = header if taken else {**header, "id": self._ids.uuid4()}
        tree = self._held(SessionTree(named, entries, clock=self._clock, ids=self._ids), tenant)
        tree.unsaved = tree.drafts(tenant)
        await self._write(tree)
        return tree

    async def _is_there(self, id: str) -> bool:
        return (await self._ledger.head(stream_of(id))).seq >= 0

    async def _write(self, tree: SessionTree) -> None:
        drafts: list[Draft] = tree.unsaved
        await self._ledger.commit(Append(stream_of(tree.id), drafts, expect=-1))
        tree.saved, tree.unsaved = len(drafts) - 1, []

    async def list(self, tenant: str = OPERATOR, limit: int = 100) -> Sequence[SessionLine]:
        """The sessions, the one that changed last first."""
        sql = f"SELECT {COLUMNS} FROM sessions WHERE tenant = ? ORDER BY changed_ms DESC, session_id DESC LIMIT ?"  # noqa: S608
        rows = await self._ledger.query(sql, (tenant, min(limit, MOST)))
        return [SessionLine(*row) for row in rows]

    async def named(self, name: str, tenant: str = OPERATOR) -> SessionTree | None:
        """The session of that name that changed last."""
        sql = (
            "SELECT session_id FROM sessions WHERE tenant = ? AND name = ? ORDER BY changed_ms DESC, session_id LIMIT 1"
        )
        rows = await self._ledger.query(sql, (tenant, name))
        return await self.open(str(rows[0][0]), tenant) if rows else None


def stream_of(id: str) -> str:
    return f"session/{id}"


def is_id(id: str) -> bool:
    """Whether a text can be a session's id: what a name of a stream may hold."""
    return isinstance(id, str) and 0 < len(id) <= 128 and all(c.isascii() and (c.isalnum() or c in "._-") for c in id)
