"""One ledger for everything: append-only, hash-chained, durable when it answers."""

from forestay.kernel.ledger.ledger import Ledger
from forestay.kernel.ledger.projections import Projection, Transaction
from forestay.kernel.ledger.records import Append, Draft, Fault, Head, Record, Verification

__all__ = ["Append", "Draft", "Fault", "Head", "Ledger", "Projection", "Record", "Transaction", "Verification"]
