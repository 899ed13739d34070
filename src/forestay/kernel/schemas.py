"""The JSON Schemas of the kernel's own documents."""

from __future__ import annotations

from typing import Any

import msgspec

from forestay.kernel.ledger.records import Record, Verification
from forestay.kernel.policy import Decision, Grant
from forestay.kernel.problem_table import Row
from forestay.kernel.settings import Config


def schemas() -> dict[str, dict[str, Any]]:
    return {
        "config": schema_of(Config),
        "decision": schema_of(Decision),
        "grant": schema_of(Grant),
        "problem-row": schema_of(Row),
        "record": schema_of(Record),
        "verification": schema_of(Verification),
    }


def schema_of(type: Any) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a type, with its parts under $defs."""
    (schema,), parts = msgspec.json.schema_components([type], ref_template="#/$defs/{name}")
    document: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    if parts:
        document["$defs"] = parts
    return document
