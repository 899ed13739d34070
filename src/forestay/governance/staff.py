"""`Staff`: the roster and the org chart of each tenant, and the runs that its members start.

Invariants:

- T1  A tenant sees only its own entries and its own chart.
- T2  A run that a trigger starts for a member is attributed to it: `roster.run.initiated` comes right after
      `run.started`, and later changes of the entry do not affect it.
- T3  A member starts only workflows of its portfolio, and none while it is disabled.
- T4  An entry that a chart names cannot be removed.
- T5  An entry names an agent of its tenant.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from forestay.governance.directory import AgentDirectory
from forestay.governance.journal import Journal
from forestay.governance.roster import (
    OrgChart,
    Owner,
    Responsibilities,
    RosterEntry,
    read_chart,
    read_entry,
    responsibilities,
)
from forestay.kernel import Draft, Ledger, Problem, Record
from forestay.runs import CreateRun, Fact, RunCreated, Runs

MEMBER = "host:"
"""The prefix of members' ids; no agent's id has it."""


class _Book(msgspec.Struct):
    """The roster of one tenant; `order` has the sorted ids of the entries."""

    entries: dict[str, RosterEntry] = {}
    order: list[str] = []
    chart: OrgChart | None = None


class Staff:
    """The rosters of one ledger."""

    def __init__(self, ledger: Ledger, directory: AgentDirectory, *, runs: Callable[[], Runs]) -> None:
        self._ledger = ledger
        self._directory = directory
        self._runs = runs
        self._books: dict[str, Journal[_Book]] = {}

    async def put(self, tenant: str, document: Any) -> RosterEntry:
        """Store or change an entry; the tenant must have its agent and the workflows of its portfolio."""
        entry = read_entry(document, tenant)
        ref = entry.agent_ref
        try:
            await self._directory.get(tenant, ref.agent_id, ref.version)  # T5
        except Problem as problem:
            raise Problem("schema_mismatch", problem.message, at="$.agentRef") from problem
        for index, workflow_id in enumerate(entry.workflows):
            try:
                await self._runs().get_workflow(workflow_id, tenant)
            except Problem as problem:
                if problem.key != "not_found":
                    raise
                message = f"There is no workflow {workflow_id!r}."
                raise Problem("schema_mismatch", message, at=f"$.workflows[{index}]") from problem
        draft = Draft("roster.entry", {"entry": msgspec.to_builtins(entry)})
        await self._book(tenant).change(lambda book: [draft] if book.entries.get(entry.roster_id) != entry else [])
        return entry

    async def remove(self, tenant: str, roster_id: str) -> None:
        def decide(book: _Book) -> list[Draft]:
            _entry(book, roster_id)
            if book.chart is not None and any(item.roster_id == roster_id for item in book.chart.members):
                raise Problem("state_conflict", "The org chart names this entry.", rosterId=roster_id)
            return [Draft("roster.removed", {"rosterId": roster_id})]

        await self._book(tenant).change(decide)

    async def get(self, tenant: str, roster_id: str) -> RosterEntry:
        return _entry(await self._book(tenant).value(), roster_id)

    async def listed(self, tenant: str, after: str = "", limit: int | None = None) -> list[RosterEntry]:
        """Return the entries after the id `after`, in order of id."""
        book = await self._book(tenant).value()
        begin = bisect.bisect_right(book.order, after)
        return [book.entries[name] for name in book.order[begin : None if limit is None else begin + limit]]

    async def put_chart(self, tenant: str, document: Any) -> OrgChart:
        made: list[OrgChart] = []

        def decide(book: _Book) -> list[Draft]:
            made[:] = [read_chart(document, tenant, book.entries)]
            return [Draft("roster.chart", {"chart": msgspec.to_builtins(made[0])})] if made[0] != book.chart else []

        await self._book(tenant).change(decide)
        return made[0]

    async def chart(self, tenant: str) -> OrgChart:
        """Return the tenant's chart, by default an empty one."""
        return (await self._book(tenant).value()).chart or OrgChart(Owner(tenant))

    async def department(self, tenant: str, department_id: str, *, recursive: bool = True) -> Responsibilities:
        book = await self._book(tenant).value()
        return responsibilities(await self.chart(tenant), book.entries, department_id, recursive=recursive)

    async def fire(
        self,
        tenant: str,
        roster_id: str,
        workflow_id: str,
        source: str,
        *,
        inputs: dict[str, Any] | None = None,
        subscription_id: str | None = None,
        run_id: str | None = None,
        causation_id: str | None = None,
        facts: Sequence[Fact] = (),
    ) -> RunCreated:
        """Start a workflow of a member's portfolio because a trigger fired (T2, T3)."""
        entry = await self.get(tenant, roster_id)
        if not entry.enabled:
            raise Problem("state_conflict", f"{entry.persona} is not enabled.", rosterId=roster_id)
        if workflow_id not in entry.workflows:
            message = f"{workflow_id!r} is not in the portfolio of {entry.persona}."
            raise Problem("permission_denied", message, rosterId=roster_id)
        attributed = _initiated(entry, workflow_id, source, subscription_id)
        return await self._runs().create_run(
            CreateRun(workflow_id=workflow_id, inputs=inputs or {}),
            tenant,
            roster_id,
            run_id=run_id,
            causation_id=causation_id,
            facts=[attributed, *facts],
        )

    async def fired(self, tenant: str, workflow_id: str, source: str) -> list[Fact] | None:
        """Return the attribution of a triggered run, if the workflow is in a portfolio (T2).

        None means that all its owners are disabled, so that the trigger starts nothing (T3).
        """
        owners = [entry for entry in await self.listed(tenant) if workflow_id in entry.workflows]
        if not owners:
            return []
        working = next((entry for entry in owners if entry.enabled), None)
        return None if working is None else [_initiated(working, workflow_id, source)]

    async def named(self, tenant: str, workflow_id: str, agents: Iterable[str]) -> list[Fact]:
        """Return the attribution of a run whose nodes name a member as their agent: the first one (RFC 0086 §A)."""
        member = next((name for name in agents if name.startswith(MEMBER)), None)
        return [] if member is None else [_initiated(await self.get(tenant, member), workflow_id, "run-api")]

    def _book(self, tenant: str) -> Journal[_Book]:
        if tenant not in self._books:
            stream = "roster/" + hashlib.sha256(tenant.encode()).hexdigest()[:32]
            self._books[tenant] = Journal(self._ledger, stream, _Book(), _take)
        return self._books[tenant]


def _initiated(entry: RosterEntry, workflow_id: str, source: str, subscription_id: str | None = None) -> Fact:
    told = {
        "rosterId": entry.roster_id,
        "persona": entry.persona,
        "agentId": entry.agent_ref.agent_id,
        "workflowId": workflow_id,
        "triggerSource": source,
    }
    if subscription_id is not None:
        told["triggerSubscriptionId"] = subscription_id
    return Fact("roster.run.initiated", told)


def _entry(book: _Book, roster_id: str) -> RosterEntry:
    found = book.entries.get(roster_id)
    if found is None:
        raise Problem("not_found", "There is no such roster entry.", rosterId=roster_id[:128])
    return found


def _take(book: _Book, record: Record) -> _Book:
    """Apply a record to a tenant's roster in place, without a copy of all entries."""
    if record.type == "roster.entry":
        entry = msgspec.convert(record.payload["entry"], RosterEntry)
        if entry.roster_id not in book.entries:
            bisect.insort(book.order, entry.roster_id)
        book.entries[entry.roster_id] = entry
    elif record.type == "roster.removed":
        del book.entries[record.payload["rosterId"]]
        book.order.remove(record.payload["rosterId"])
    elif record.type == "roster.chart":
        book.chart = msgspec.convert(record.payload["chart"], OrgChart)
    return book
