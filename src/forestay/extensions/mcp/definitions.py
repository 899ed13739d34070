"""The definition of a server's tool or prompt, its hash, and its changes since a person pinned it.

P1  The hash covers everything that a model or a person sees of a tool: name, title, description, both schemas,
    annotations. A server can change nothing about a tool without changing the hash.
P2  A definition without a pin is not offered; one that differs from its pin is withdrawn until a person pins it.
P3  A definition with hidden characters, an invalid schema or too many bytes is never pinned.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from forestay.extensions.mcp.hidden_text import hidden_in, spelled
from forestay.kernel import Problem, canonical
from forestay.tools import checker

MAX_TOOLS = 256
MAX_DEFINITION = 64 * 1024
_MAX_DIFF = 200


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server's definition of one tool."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}
    title: str = ""
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None
    kind: Literal["tool", "resources", "resource", "prompt"] = "tool"
    """Which request a call of it makes."""

    @property
    def digest(self) -> str:
        """The hash of the definition (P1)."""
        return "sha256:" + hashlib.sha256(canonical.encode(msgspec.to_builtins(self))).hexdigest()

    def faults(self) -> list[str]:
        """Return why it cannot be pinned (P3); empty when it can."""
        plain = msgspec.to_builtins(self)
        size = len(msgspec.json.encode(plain))
        if size > MAX_DEFINITION:
            return [f"The definition has {size} bytes; the limit is {MAX_DEFINITION}."]
        found = [f"Hidden characters at {line}" for line in hidden_in(plain)]
        if not self.name or len(self.name) > 128 or any(letter.isspace() for letter in self.name):
            found.append("The name is empty, too long, or has spaces.")
        for schema in (self.input_schema, self.output_schema or {}):
            try:
                checker(schema)
            except Problem as problem:
                found.append(spelled(f"The schema cannot be used: {problem.message}")[:500])
        return found


Kind = Literal["new", "changed", "removed", "refused"]


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool that differs from its pin."""

    tool: str
    kind: Kind
    diff: str
    faults: tuple[str, ...] = ()


def compare(pinned: Mapping[str, Definition], offered: Iterable[Definition]) -> list[Change]:
    """Return the differences between the pins and the server's current offer (P2), sorted by name."""
    now: dict[str, Definition] = {}
    changes: list[Change] = []
    for item in offered:
        if item.name in now:
            changes.append(Change(spelled(item.name), "refused", "", ("The server defines the name twice.",)))
            continue
        now[item.name] = item
        before = pinned.get(item.name)
        if before is not None and before.digest == item.digest:
            continue
        faults = tuple(item.faults())
        kind: Kind = "refused" if faults else "new" if before is None else "changed"
        changes.append(Change(spelled(item.name), kind, difference(before, item), faults))
    gone = [Change(spelled(name), "removed", difference(pinned[name], None)) for name in pinned if name not in now]
    return sorted([*changes, *gone], key=lambda change: change.tool)


def offer_digest(offered: Iterable[Definition]) -> str:
    """Return the hash of a server's whole offer, which a person reviewed before accepting it."""
    return "sha256:" + hashlib.sha256("".join(item.digest for item in offered).encode()).hexdigest()


def pinnable(changes: Iterable[Change], offered: Iterable[Definition]) -> list[Definition]:
    """Return the part of the offer that a person can pin: everything that `compare` did not refuse."""
    refused = {item.tool for item in changes if item.kind == "refused"}
    return [item for item in offered if spelled(item.name) not in refused]


def difference(before: Definition | None, after: Definition | None) -> str:
    """Return a unified diff of two definitions for a person: nothing hidden, at most `_MAX_DIFF` lines."""
    old, new = _lines(before), _lines(after)
    lines = list(difflib.unified_diff(old, new, "pinned", "offered", lineterm="", n=2))
    more = [f"… and {len(lines) - _MAX_DIFF} more lines"] if len(lines) > _MAX_DIFF else []
    return "\n".join([*lines[:_MAX_DIFF], *more])


def _lines(definition: Definition | None) -> list[str]:
    if definition is None:
        return []
    encoded = msgspec.json.encode(msgspec.to_builtins(definition), order="deterministic")
    shown = msgspec.json.format(encoded, indent=2)[:MAX_DEFINITION].decode("utf-8", "replace")
    # A line break inside a text becomes a line break of the diff, so that a long description is readable.
    return [spelled(part)[:400] for line in shown.split("\n") for part in line.split("\\n")]
