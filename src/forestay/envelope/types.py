"""The envelope as data: every answer of every transport is one of these (LAFS R12 to R17).

The types carry the contract's constraints, so decoding validates and the JSON Schemas are generated from here.
What JSON Schema calls "absent" is `UNSET`; it is not `None`, which is JSON's null.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from forestay.kernel import AgentAction, Category

SCHEMA_URL: Final = "https://lafs.dev/schemas/v1/envelope.schema.json"
SPEC_VERSION: Final = "1.8.0"
SCHEMA_VERSION: Final = "1.0.0"
MEDIA_TYPE: Final = "application/vnd.lafs.envelope+json"

Transport = Literal["cli", "http", "grpc", "sdk"]
Mvi = Literal["minimal", "standard", "full", "custom"]
PageMode = Literal["offset", "cursor", "none"]
Result: TypeAlias = dict[str, Any] | list[Any] | None

# Patterns and formats are written into the schema from here and checked by `validate.check`: there the usual values
# need no regular expression. `$` alone would let Python's engine accept a trailing newline, which ECMA 262
# (JSON Schema's dialect) does not.
SEMVER: Final = r"^[0-9]+\.[0-9]+\.[0-9]+$(?!\n)"
CODE: Final = r"^E_[A-Z0-9]+_[A-Z0-9_]+$(?!\n)"

SemVer = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": SEMVER})]
Timestamp = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
Uri = Annotated[str, msgspec.Meta(extra_json_schema={"format": "uri"})]
Count = Annotated[int, msgspec.Meta(ge=0)]
Code = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": CODE})]


class Warning(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Something the caller should know although the operation went on; deprecations say what replaces them (R44)."""

    code: str
    message: str
    deprecated: str | UnsetType = UNSET
    replacement: str | UnsetType = UNSET
    remove_by: str | UnsetType = UNSET


class Meta(msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """`_meta`: closed, so that an agent can rely on every member (R12, D3)."""

    spec_version: SemVer
    schema_version: SemVer
    timestamp: Timestamp
    operation: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    request_id: Annotated[str, msgspec.Meta(min_length=3, max_length=128)]
    transport: Transport
    strict: bool
    mvi: Mvi
    context_version: Count
    session_id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | UnsetType = UNSET
    warnings: list[Warning] | UnsetType = UNSET


class Error(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """`error`: what went wrong and what an agent should do about it (R18 to R24)."""

    code: Code
    message: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    category: Category
    retryable: bool
    retry_after_ms: Count | None
    details: dict[str, Any]
    agent_action: AgentAction | UnsetType = UNSET
    escalation_required: bool | UnsetType = UNSET
    suggested_action: Annotated[str, msgspec.Meta(max_length=512)] | UnsetType = UNSET
    doc_url: Uri | UnsetType = UNSET


class Page(msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """`page`: which part of a list this is (R38); `pages.py` builds the three modes."""

    mode: PageMode
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] | UnsetType = UNSET
    offset: Count | UnsetType = UNSET
    next_cursor: Annotated[str, msgspec.Meta(max_length=2048)] | UnsetType | None = UNSET
    has_more: bool | UnsetType = UNSET
    total: Count | UnsetType | None = UNSET


class Envelope(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One discrete, synchronous answer (R1); what happened, and what an agent may do next."""

    schema: Literal["https://lafs.dev/schemas/v1/envelope.schema.json"] = msgspec.field(name="$schema")
    meta: Meta = msgspec.field(name="_meta")
    success: bool
    result: Result
    page: Page | UnsetType | None = UNSET
    error: Error | UnsetType | None = UNSET
    extensions: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_extensions")
