"""Questions that a run asks when an extension's work begins again: its dialogs, and whether to repeat an effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from forestay.extensions import HostCall
from forestay.host.form_inquiry import FormInquiry
from forestay.host.inquiry import Inquiry
from forestay.host.session_room import DRAFT, OPTIONS, cut
from forestay.kernel import redact, redact_text

_FIELDS: dict[str, dict[str, Any]] = {
    "confirm": {"type": "boolean", "default": True},
    "select": {"type": "string"},
    "input": {"type": "string"},
    "editor": {"type": "string"},
}


def is_plain(call: HostCall) -> bool:
    """Whether a call is a dialog that a single value answers."""
    return call.method == "ui" and call.params.get("op") in _FIELDS


class Said(msgspec.Struct, frozen=True):
    """A person's answer to a dialog; None when they cancelled it."""

    value: Any


class DialogInquiry(Inquiry[Said]):
    """A dialog as a form with one field, `answer`; accepting a `confirm` unchanged means yes."""

    def __init__(self, extension: str, name: str, params: Mapping[str, Any]) -> None:
        """`name` stays the same when a restarted process begins the work again."""
        self.extension, self.name = extension, f"dialog:{name}"
        field = dict(_FIELDS[params["op"]])
        self._options = [str(option) for option in params.get("options") or []][:OPTIONS]
        self._shown = cut(self._options, OPTIONS)
        if params["op"] == "select":
            field["enum"] = self._shown
        if params["op"] == "editor":
            field["default"] = str(params.get("text") or "")[:DRAFT]
        (title,) = cut([params.get("title") or ""])
        message = "\n".join(cut(str(params.get("message") or params.get("placeholder") or "").split("\n")))
        schema = {"type": "object", "required": ["answer"], "properties": {"answer": field}}
        self._form = FormInquiry(extension, "form", {"title": title, "message": message, "schema": schema})

    @property
    def schema(self) -> dict[str, Any]:
        return self._form.schema

    def shown(self, key: str, about: dict[str, Any]) -> dict[str, Any]:
        return self._form.shown(key, about)

    def read(self, value: Any, now_ms: int) -> Said:
        said = self._form.read(value, now_ms)
        answer = said["content"].get("answer") if said["action"] == "accept" else None
        return Said(self._options[self._shown.index(answer)] if answer in self._shown and self._shown else answer)


class UncertainInquiry(Inquiry[bool]):
    """Asks whether to repeat an effect that had begun when the process died."""

    schema: dict[str, Any] = {  # noqa: RUF012
        "type": "object",
        "required": ["action"],
        "properties": {"action": {"enum": ["accept", "reject"]}, "comment": {"type": "string", "maxLength": 2000}},
    }

    def __init__(self, extension: str, name: str, call: HostCall, mark: Mapping[str, str]) -> None:
        self.extension, self.name = extension, f"uncertain:{name}:{mark['life']}"
        self._call, self._begun = call, mark["at"]

    def shown(self, key: str, about: dict[str, Any]) -> dict[str, Any]:
        method = self._call.method
        known = {**about, "extension": self.extension, "tool": method, "arguments": self._call.params}
        return {
            "artifactId": key[-200:],
            "artifactType": "uncertain-effect",
            "title": redact_text(f"Was {method} of {self.extension} done? The process died while it ran."),
            "description": "Accept to do it again; reject to tell the extension that it will not be done again.",
            "actions": ["accept", "reject"],
            "artifactData": redact({**known, "begun_at": self._begun}),
        }

    def read(self, value: Any, now_ms: int) -> bool:
        return isinstance(value, dict) and value.get("action") == "accept"
