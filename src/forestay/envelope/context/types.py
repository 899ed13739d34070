"""The data of a context ledger (R25, R26): what a multi-step operation must not forget."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from forestay.envelope.types import Timestamp

Mode = Literal["full", "delta", "summary"]
LISTS = ("constraints", "references", "decisions", "openIssues")


class Context(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Where an operation stands: the fold of every accepted entry."""

    objective: str | None = None
    constraints: list[Any] = []
    references: list[Any] = []
    decisions: list[Any] = []
    open_issues: list[Any] = []
    state: dict[str, Any] = {}
    version: int = 0


class Entry(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One step. A failed step carries its error and keeps the version; an accepted one adds exactly 1 (R26, D9)."""

    entry_id: str
    timestamp: Timestamp
    operation: str
    context_delta: dict[str, Any]
    version: int
    request_id: str | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET


class LedgerDocument(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A context ledger as one document, closed as the contract's schema is."""

    ledger_id: str
    version: Annotated[int, msgspec.Meta(ge=0)]
    created_at: Timestamp
    updated_at: Timestamp
    entries: list[Entry]
    checksum: str
    max_entries: Annotated[int, msgspec.Meta(ge=1)]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What `GET /_lafs/context/{ledgerId}` asks for (R30)."""

    mode: Mode = "full"
    since_version: int | None = None
    operations: tuple[str, ...] = ()
    limit: int = 100
    offset: int = 0
    cursor: str | None = None
    include_checksum: bool = True
