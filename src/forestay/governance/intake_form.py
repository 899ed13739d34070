"""A public form: its fields, the run's inputs from their values, and the token of a page. Pure.

- Y1  A page can be submitted once, within a day: its token names the page, and a second submission is the same event.
- Y2  A run gets only the fields that its workflow declares, in their types.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from forestay.kernel import Problem, base64url

LIFETIME_MS = 24 * 3600 * 1000
MAX_TEXT = 20_000
_TOKEN = re.compile(r"(\d{1,15})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})")
_KINDS: dict[str, Literal["text", "number", "checkbox"]] = {
    "string": "text",
    "number": "number",
    "boolean": "checkbox",
}


class FormField(msgspec.Struct, frozen=True):
    """One field; `name` is the workflow's variable."""

    name: str
    kind: Literal["text", "number", "checkbox", "password"]
    label: str
    required: bool
    default: str = ""


def form_fields(document: Mapping[str, Any]) -> list[FormField]:
    """Return a field for each variable that a person can type; a workflow that requires another kind has no form."""
    found = []
    for item in document["variables"]:
        kind = _KINDS.get(item["type"])
        needed = item.get("required", False) and item.get("defaultValue") is None
        if kind is not None:
            default = item.get("defaultValue")
            text = "" if default is None or item.get("sensitive") else str(default)
            shown = "password" if item.get("sensitive") and kind == "text" else kind
            found.append(FormField(item["name"], shown, item.get("description") or item["name"], needed, text))
        elif needed:
            message = f"A form has no field for the {item['type']} {item['name']!r}."
            raise Problem("schema_mismatch", message, at="$.workflowId", fix="Give the variable a default value.")
    return found


def form_inputs(fields: Sequence[FormField], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the submitted values as the workflow's inputs (Y2)."""
    found: dict[str, Any] = {}
    for field in fields:
        text = given.get(field.name, "")
        if field.kind == "checkbox":
            found[field.name] = text != ""
        elif text != "":
            found[field.name] = _number(field, text) if field.kind == "number" else _text(field, text)
        elif field.required:
            raise Problem("schema_mismatch", f"{field.label}: please fill this in.", at=field.name)
    return found


def _text(field: FormField, text: str) -> str:
    if len(text) > MAX_TEXT:
        raise Problem("schema_mismatch", f"{field.label}: at most {MAX_TEXT} characters.", at=field.name)
    return text.replace("\x00", "")


def _number(field: FormField, text: str) -> int | float:
    try:
        found = float(text[:64])
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise Problem("schema_mismatch", f"{field.label}: this is not a number.", at=field.name)
    return int(found) if found.is_integer() and abs(found) < 2**53 else found


def form_token(key: bytes, subscription_id: str, now_ms: int, chance: bytes) -> str:
    """Return the token of one page; `chance` are 16 random bytes."""
    page = f"{now_ms}.{base64url.encode(chance)}"
    return f"{page}.{_mark(key, subscription_id, page)}"


def form_page(key: bytes, subscription_id: str, token: str, now_ms: int) -> str:
    """Return the page of a token, as the id of its event (Y1)."""
    read = _TOKEN.fullmatch(token)
    page = f"{read[1]}.{read[2]}" if read else ""
    if read is None or not hmac.compare_digest(read[3], _mark(key, subscription_id, page)):
        raise Problem("permission_denied", "This form was not sent from its page.", reason="token")
    if not 0 <= now_ms - int(read[1]) < LIFETIME_MS:
        raise Problem("permission_denied", "This page is more than a day old. Load it again.", reason="expired")
    return f"form:{read[2]}"


def _mark(key: bytes, subscription_id: str, page: str) -> str:
    digest = hmac.new(key, f"form\0{subscription_id}\0{page}".encode(), hashlib.sha256).digest()
    return base64url.encode(digest)
