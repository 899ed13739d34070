"""The list of runs: searched, filtered and sorted."""

from __future__ import annotations

from datetime import date, timedelta

import msgspec
from starlette.responses import Response

from forestay.console.render import segment
from forestay.console.visit import Visit, page
from forestay.kernel import Problem
from forestay.runs import SORTS, RunFilter, Sort

_RUNS_SHOWN = 50


class Search(msgspec.Struct, frozen=True):
    """A search in the list of runs, as the form and the links carry it."""

    text: str = ""
    status: str = ""
    workflow: str = ""
    tag: str = ""
    since: str = ""
    until: str = ""
    sort: Sort = "newest"

    @classmethod
    def of(cls, visit: Visit) -> Search:
        sort: Sort = next((name for name in SORTS if name == visit.asked("sort")), "newest")
        names = ("status", "workflow", "tag", "since", "until")
        return cls(text=visit.asked("q"), sort=sort, **{name: visit.asked(name) for name in names})

    @property
    def filters(self) -> RunFilter:
        """The search as a filter of the runs table; a day counts from its first to its last moment."""
        return RunFilter(
            status=[self.status] if self.status else [],
            workflow_id=self.workflow or None,
            tag=self.tag or None,
            created_after=_midnight(self.since, "since"),
            created_before=_midnight(self.until, "until", 1),
        )

    @property
    def asks(self) -> bool:
        """Whether the search narrows the list."""
        return any((self.text.strip(), self.status, self.workflow, self.tag, self.since, self.until))

    @property
    def query(self) -> str:
        """The query string that a link adds to keep the search."""
        given = {"q": self.text, **msgspec.to_builtins(self)}
        del given["text"]
        return "".join(f"&{name}={segment(value)}" for name, value in given.items() if value)


def _midnight(day: str, name: str, later: int = 0) -> str | None:
    """Return the first moment of a day, or of the day `later` days after it."""
    if not day:
        return None
    try:
        return f"{date.fromisoformat(day) + timedelta(days=later)}T00:00:00Z"
    except (ValueError, OverflowError) as error:
        raise Problem("schema_mismatch", "A day is written as 2026-01-31.", at=name) from error


@page("/runs", "runs", "runs:read")
async def listing(visit: Visit) -> Response:
    """The tenant's runs: the newest first, or as they are searched and sorted."""
    wanted, start, runs = Search.of(visit), visit.number("start"), visit.host.runs
    found = await runs.search(
        visit.tenant, wanted.filters, wanted.text, sort=wanted.sort, start=start, limit=_RUNS_SHOWN
    )
    return visit.page(
        "runs.html",
        found=found,
        wanted=wanted,
        start=start,
        size=_RUNS_SHOWN,
        sorts=SORTS,
        workflows=await runs.list_workflows(visit.tenant),
    )
