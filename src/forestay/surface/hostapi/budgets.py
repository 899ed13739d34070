"""`/host/v1/budgets`: what a tenant's accounts spent and reserved (OpenWOP RFC 0084). No price is ever shown."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from forestay.governance import BudgetScope, Standing
from forestay.host import Host
from forestay.surface.operations import Call, Operations, Query, View

api = Operations[Host](scopes=("runs:read",), contract="lafs", tag="budgets")


class BudgetQuery(Query, frozen=True):
    """`after` is the last account of the page before."""

    scope: BudgetScope | None = None
    after: Annotated[str, Meta(max_length=512)] = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class BudgetList(View, frozen=True):
    enforce: Literal["hard", "advisory"]
    accounts: list[Standing]


@api.get("/host/v1/budgets", "budgets.list", BudgetList)
async def list_budgets(host: Host, call: Call, query: BudgetQuery) -> BudgetList:
    """The accounts of the caller's tenant that are in use: spent, held by calls under way, and their ceilings."""
    found = await host.budgets.standings(call.tenant, scope=query.scope, after=query.after, limit=query.limit)
    return BudgetList(enforce=host.config.budgets.enforce, accounts=found)
