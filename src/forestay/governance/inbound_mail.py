"""Turns a mail message into the inputs of a run, if its sender may start one. Pure.

- Z1  A message's content is foreign data (`contentTrust` is `untrusted`); only its sender affects a decision here.
- Z2  A message counts once: by its sender's message id, else by its place in the mailbox.
- Z3  If only some senders may start runs, the receiving server must have verified the sender, because anybody can
      write any `From`.
"""

from __future__ import annotations

import email
import email.policy
import fnmatch
import re
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import getaddresses
from typing import Any

import msgspec

from forestay.kernel import MarkupReader

MAX_TEXT = 200_000
_MOST_ADDRESSES = 100
_HIDDEN = ("script", "style", "head", "title")


class MailRules(msgspec.Struct, frozen=True):
    """The senders that may start runs: `senders` are patterns over addresses; without one, everybody may.

    `authenticated_by` is the name of the server that writes `Authentication-Results` into received mail.
    """

    senders: Sequence[str] = ()
    authenticated_by: str = ""


class MailEvent(msgspec.Struct, frozen=True):
    """A message as an event: the id under which it counts once, and the inputs of the run."""

    id: str
    inputs: dict[str, Any]


def mail_event(raw: bytes, place: str, rules: MailRules) -> MailEvent | None:
    """Return the event of a message; None when its sender may not start a run, or the message cannot be read.

    `place` is its place in the mailbox.
    """
    try:
        message = read_mail(raw)
        if not may_start(message, rules):
            return None
        return MailEvent(mail_id(message, place), mail_inputs(message))
    except Exception:  # noqa: BLE001 - the boundary: the standard library's parser raises many things for odd headers
        return None


def read_mail(raw: bytes) -> EmailMessage:
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


def may_start(message: EmailMessage, rules: MailRules) -> bool:
    """Whether a message's sender may start a run (Z3)."""
    if rules.authenticated_by and not _authenticated(message, rules.authenticated_by):
        return False
    senders = [address.lower() for address in _addresses(message, "from")]
    if not rules.senders:
        return True
    return len(senders) == 1 and any(fnmatch.fnmatchcase(senders[0], pattern.lower()) for pattern in rules.senders)


def _authenticated(message: EmailMessage, server: str) -> bool:
    """Whether the server verified the sender; only the first result counts, because a sender's own come below it."""
    results = [_clean(item) for item in message.get_all("Authentication-Results", [])]
    name, _, rest = results[0].partition(";") if results else ("", "", "")
    words = name.split()
    return bool(words) and words[0].lower() == server.lower() and bool(re.search(r"\bdmarc\s*=\s*pass\b", rest))


def mail_id(message: EmailMessage, place: str) -> str:
    """Return the id under which a message counts once (Z2); `place` is its place in the mailbox."""
    own = _clean(message.get("Message-ID", ""))
    return own[:250] if own else f"place:{place}"


def mail_inputs(message: EmailMessage) -> dict[str, Any]:
    """Return the inputs of the run: addresses, subject, text, and the names of attachments."""
    senders = _addresses(message, "from")
    return {
        "from": senders[0] if senders else "",
        "to": _addresses(message, "to"),
        "subject": _clean(message.get("Subject", ""))[:1000],
        "date": _clean(message.get("Date", ""))[:100],
        "messageId": _clean(message.get("Message-ID", ""))[:250],
        "text": _text(message)[:MAX_TEXT],
        "attachments": [_attachment(part) for part in message.iter_attachments()][:_MOST_ADDRESSES],
        "contentTrust": "untrusted",
    }


def _addresses(message: EmailMessage, header: str) -> list[str]:
    texts = [_clean(item) for item in message.get_all(header, [])]
    return [address for _, address in getaddresses(texts) if "@" in address][:_MOST_ADDRESSES]


def _attachment(part: Any) -> dict[str, Any]:
    content = part.get_payload(decode=True) or b""
    return {
        "name": _clean(part.get_filename() or "")[:200],
        "contentType": part.get_content_type(),
        "bytes": len(content),
    }


def _text(message: EmailMessage) -> str:
    try:
        body = message.get_body(("plain", "html"))
        content = body.get_content() if body is not None else ""
    except (LookupError, ValueError, AttributeError, KeyError):  # an unknown charset or structure
        return ""
    text = content if isinstance(content, str) else ""
    if body is not None and body.get_content_type() == "text/html":
        reader = _Words()
        reader.feed(text[: 4 * MAX_TEXT])
        text = " ".join("".join(reader.said).split())
    return _clean(text)


class _Words(MarkupReader):
    """Collects the visible text of an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden += tag in _HIDDEN
        self.said.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in _HIDDEN))
        self.said.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.said.append(data)


def _clean(text: object) -> str:
    """Return text that JSON can carry."""
    return str(text).encode("utf-8", "replace").decode("utf-8").replace("\x00", "").strip()
