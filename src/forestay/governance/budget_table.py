"""The tables of budgets: projections of the streams `budget/…`, one stream for each tenant."""

from __future__ import annotations

from collections.abc import Sequence

from forestay.kernel import Record, Transaction

PREFIX = "budget/"
_ADD = "ON CONFLICT (tenant, account, dimension) DO UPDATE SET amount = budget_spent.amount + excluded.amount"


class BudgetTable:
    """What each account spent, what running calls hold of it, and which calls were charged once (B6).

    Hosts of version 1 write no such charges, and those of version 2 have one more index: both keep the tables right
    beside this version. Holds have no index over their accounts: running calls are few, and the index would be written
    twice for each call.
    """

    name = "budgets"
    version = 3
    since = 1
    prefix = PREFIX
    schema = """
        CREATE TABLE budget_spent (
            tenant TEXT NOT NULL, account TEXT NOT NULL, dimension TEXT NOT NULL, amount BIGINT NOT NULL,
            PRIMARY KEY (tenant, account, dimension)
        );
        CREATE TABLE budget_held (
            tenant TEXT NOT NULL, hold TEXT NOT NULL, run_id TEXT NOT NULL, account TEXT NOT NULL,
            dimension TEXT NOT NULL, amount BIGINT NOT NULL, PRIMARY KEY (tenant, hold, account, dimension)
        );
        CREATE TABLE budget_charged (tenant TEXT NOT NULL, hold TEXT NOT NULL, PRIMARY KEY (tenant, hold))
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            self._take(tx, record)

    def _take(self, tx: Transaction, record: Record) -> None:
        said = record.payload
        tenant, hold = said["tenant"], said["hold"]
        if not said.get("once"):  # an amount that is charged once is never held
            tx.execute("DELETE FROM budget_held WHERE tenant = ? AND hold = ?", (tenant, hold))
        rows = [(account, *item) for account in said.get("accounts", ()) for item in said["amounts"].items()]
        if record.type == "budget.held":
            statement = "INSERT INTO budget_held VALUES (?, ?, ?, ?, ?, ?)"
            tx.executemany(statement, [(tenant, hold, said["runId"], *row) for row in rows])
        elif record.type == "budget.settled" and said.get("once"):
            unless = "WHERE NOT EXISTS (SELECT 1 FROM budget_charged WHERE tenant = ? AND hold = ?)"
            statement = f"INSERT INTO budget_spent SELECT ?, ?, ?, CAST(? AS BIGINT) {unless} {_ADD}"
            tx.executemany(statement, [(tenant, *row, tenant, hold) for row in rows])
            keep = "INSERT INTO budget_charged VALUES (?, ?) ON CONFLICT (tenant, hold) DO NOTHING"
            tx.execute(keep, (tenant, hold))
        elif record.type == "budget.settled":
            statement = f"INSERT INTO budget_spent VALUES (?, ?, ?, ?) {_ADD}"  # noqa: S608
            tx.executemany(statement, [(tenant, *row) for row in rows])
