"""A form of an extension as an interrupt of a run.

U1  The interrupt is an approval of type `elicitation`. Its `arguments` hold a field for each requested value;
    `edit-accept` sends the values that the person wrote, `reject` declines.
U2  An answer that does not fit the schema is refused at once, and the run keeps waiting.
U3  The host's own questions about an extension (`HOST_ASKS`) use the same form, each with its own type. `subject`
    tells two questions of one type apart, so that an answer counts for its own question only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.host.inquiry import Inquiry
from forestay.kernel import redact_text
from forestay.tools import checker

TYPES = {"form": "elicitation", "sign_in": "mcp-sign-in", "pin_tool": "mcp-tool-changed"}
_EMPTY: dict[str, Any] = {"string": "", "number": 0, "integer": 0, "boolean": False, "array": []}


class FormInquiry(Inquiry[dict[str, Any]]):
    """Values that an extension asks a person for, or that the host asks for about an extension (U3)."""

    def __init__(self, extension: str, operation: str, params: Mapping[str, Any]) -> None:
        self.extension = extension
        self._type = TYPES[operation]
        self._own = operation != "form"
        self._facts = dict(params.get("facts", {})) if self._own else {}
        subject = f":{params['subject']}" if self._own and "subject" in params else ""
        self.name = f"{self._type}:{extension}{subject}"
        self._title = str(params.get("title", ""))
        self._message = str(params.get("message", ""))
        self._schema: dict[str, Any] = dict(params.get("schema") or {"type": "object"})
        fields = self._schema.get("properties", {})
        self._blank = {name: _first(field) for name, field in fields.items()}
        self._ready = all("default" in field for field in fields.values()) and checker(self._schema).is_valid(
            self._blank
        )

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of an answer (U2)."""
        edited = {
            "type": "object",
            "required": ["editedArtifactData"],
            "properties": {
                "editedArtifactData": {
                    "type": "object",
                    "required": ["arguments"],
                    "properties": {"arguments": self._schema},
                }
            },
        }
        return {
            "type": "object",
            "required": ["action"],
            "properties": {"action": {"enum": self._actions}},
            "if": {"properties": {"action": {"const": "edit-accept"}}},
            "then": edited,
        }

    @property
    def _actions(self) -> list[str]:
        """The possible answers; a plain yes sends the defaults, so it exists only when every field has one."""
        return ["accept", "edit-accept", "reject"] if self._ready else ["edit-accept", "reject"]

    def shown(self, key: str, about: dict[str, Any]) -> dict[str, Any]:
        title = self._title if self._own else f"{self._title}: {self._message}"
        told = "" if self._own else f"\n\nThe answer goes to {self.extension}. Give it no secret."
        asks = {"extension": self.extension, "arguments": self._blank, "schema": self._schema}
        return {
            "artifactId": key[-200:],
            "artifactType": self._type,
            "title": redact_text(title[:500]),
            "description": redact_text(self._message + told),
            "actions": self._actions,
            "artifactData": {**about, **self._facts, **asks},
        }

    def read(self, value: Any, now_ms: int) -> dict[str, Any]:
        """Return the person's answer; everything but a clear yes declines."""
        given = value if isinstance(value, dict) else {}
        if given.get("action") == "accept" and self._ready:
            return {"action": "accept", "content": self._blank}
        edited = given.get("editedArtifactData")
        if given.get("action") == "edit-accept" and isinstance(edited, dict):
            return {"action": "accept", "content": edited.get("arguments", {})}
        return {"action": "decline"}


def _first(field: Any) -> Any:
    """Return a field's value before a person edits it."""
    given = field if isinstance(field, dict) else {}
    if "default" in given:
        return given["default"]
    choices = given.get("enum")
    return choices[0] if isinstance(choices, list) and choices else _EMPTY.get(str(given.get("type", "string")), "")
