"""Dialogs of extensions in a host: a form becomes an interrupt of the run that waits for it.

U1  The interrupt is an approval of type `elicitation`. Its `arguments` hold a field for each value that is asked for;
    `edit-accept` sends them as the person wrote them, `reject` declines.
U2  An answer that does not fit what was asked is refused where it is given, and the run goes on waiting.
U3  Where no run waits for the extension, the person at the terminal is asked; without one the dialog is cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.extensions import NoUi, Ui
from forestay.host.inquiry import Inquiry
from forestay.host.prompts import Prompts
from forestay.kernel import redact_text
from forestay.tools import checker

TYPE = "elicitation"
_EMPTY: dict[str, Any] = {"string": "", "number": 0, "integer": 0, "boolean": False, "array": []}


class RunUi:
    """Forms are asked by runs; `ui` shows everything else, and without one nobody is there to answer."""

    def __init__(self, prompts: Prompts, ui: Ui | None = None) -> None:
        self._prompts = prompts
        self._ui = ui or NoUi()
        self.interactive = self._ui.interactive
        self.colour, self.color_mode = self._ui.colour, self._ui.color_mode

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        if operation != "form":
            return await self._ui.request(extension, operation, params)
        answer = await self._prompts.inquire(FormInquiry(extension, params))
        return await self._ui.request(extension, operation, params) if answer is None and self.interactive else answer


class FormInquiry(Inquiry[dict[str, Any]]):
    """Values that an extension asks a person for."""

    def __init__(self, extension: str, params: Mapping[str, Any]) -> None:
        self.extension = extension
        self.name = f"{TYPE}:{extension}"
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
        """U2."""
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
        """A plain yes sends the defaults, where every field has one."""
        return ["accept", "edit-accept", "reject"] if self._ready else ["edit-accept", "reject"]

    def shown(self, key: str, about: dict[str, Any]) -> dict[str, Any]:
        return {
            "artifactId": key[-200:],
            "artifactType": TYPE,
            "title": redact_text(f"{self._title}: {self._message}"[:500]),
            "description": redact_text(f"{self._message}\n\nThe answer goes to {self.extension}. Give it no secret."),
            "actions": self._actions,
            "artifactData": {**about, "extension": self.extension, "arguments": self._blank, "schema": self._schema},
        }

    def read(self, value: Any, now_ms: int) -> dict[str, Any]:
        """What was said; anything that is not plainly a yes declines."""
        given = value if isinstance(value, dict) else {}
        if given.get("action") == "accept" and self._ready:
            return {"action": "accept", "content": self._blank}
        edited = given.get("editedArtifactData")
        if given.get("action") == "edit-accept" and isinstance(edited, dict):
            return {"action": "accept", "content": edited.get("arguments", {})}
        return {"action": "decline"}


def _first(field: Any) -> Any:
    """What a field holds before a person writes in it."""
    given = field if isinstance(field, dict) else {}
    if "default" in given:
        return given["default"]
    choices = given.get("enum")
    return choices[0] if isinstance(choices, list) and choices else _EMPTY.get(str(given.get("type", "string")), "")
