"""Budgets: what was spent, what calls reserve, and the ceilings, as numbers and as bars."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from forestay.console.visit import Visit, page
from forestay.governance import BudgetScope, Standing
from forestay.runs import ceilings

_CEILINGS = {"tokens": "maxTokens", "cost": "maxCostUsd", "toolCalls": "maxToolCalls", "retries": "maxRetries"}
_SHARED: tuple[BudgetScope, ...] = ("project", "workflow", "agent")
_RUN, _NEWEST, _WIDTH = "run/", 50, 240


class Line(msgspec.Struct, frozen=True):
    """One dimension of one account. `spent_px` and `held_px` are its bar, which needs a ceiling."""

    account: str
    run_id: str | None
    of: str
    spent: float
    held: float
    ceiling: float | None

    @property
    def spent_px(self) -> int:
        return round(_WIDTH * min(1.0, self.spent / self.ceiling)) if self.ceiling else 0

    @property
    def held_px(self) -> int:
        """The reserved part of the bar; it never passes the bar's end."""
        return min(_WIDTH - self.spent_px, round(_WIDTH * self.held / self.ceiling)) if self.ceiling else 0

    @property
    def is_full(self) -> bool:
        return bool(self.ceiling) and self.spent + self.held >= (self.ceiling or 0)


@page("/budgets", "budgets", "runs:read")
async def show(visit: Visit) -> Response:
    """The accounts that are in use: what was spent, what calls hold, and the ceilings."""
    budgets, tenant = visit.host.budgets, visit.tenant
    shared = [
        line for scope in _SHARED for item in await budgets.standings(tenant, scope=scope) for line in _lines(item)
    ]
    runs = [
        line
        for item in await budgets.standings(tenant, scope="run", limit=_NEWEST, is_newest_first=True)
        for line in _lines(await _with_own(visit, item))
    ]
    return visit.page("budgets.html", shared=shared, runs=runs, enforce=visit.host.config.budgets.enforce, width=_WIDTH)


async def _with_own(visit: Visit, item: Standing) -> Standing:
    """Return the account of a run with the ceilings from the run's own log."""
    state = await visit.host.runs.find_state(item.account.removeprefix(_RUN))
    limits = ceilings(state.budget.limits) if state is not None and state.budget is not None else {}
    return msgspec.structs.replace(item, limits=limits)


def _lines(item: Standing) -> list[Line]:
    run_id = item.account.removeprefix(_RUN) if item.account.startswith(_RUN) else None
    return [
        Line(item.account, run_id, name, item.spent.get(name, 0), item.held.get(name, 0), item.limits.get(limit))
        for name, limit in _CEILINGS.items()
        if name in item.spent or name in item.held or limit in item.limits
    ]
