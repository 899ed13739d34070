"""One ledger for everything: append-only, hash-chained, and durable when an append returns."""

from forestay.kernel.ledger.archives import RETENTION, Removal
from forestay.kernel.ledger.ledger import Ledger
from forestay.kernel.ledger.locks import Locks
from forestay.kernel.ledger.projections import Projection, Transaction
from forestay.kernel.ledger.records import Append, Draft, Fault, Head, Record, Verification
from forestay.kernel.ledger.vault import Vault
from forestay.kernel.ledger.workers import Beat, Queue, Worker, Workers

__all__ = [
    "RETENTION",
    "Append",
    "Beat",
    "Draft",
    "Fault",
    "Head",
    "Ledger",
    "Locks",
    "Projection",
    "Queue",
    "Record",
    "Removal",
    "Transaction",
    "Vault",
    "Verification",
    "Worker",
    "Workers",
]
