"""Reads an IMAP mailbox, blocking: fetches unread messages and marks those that were taken."""

from __future__ import annotations

import imaplib
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from forestay.kernel import Mailbox, Problem

MAX_BYTES = 10 * 1024 * 1024
_MOST = 50  # messages in one visit
_SECONDS = 30.0
_SIZE = re.compile(rb"RFC822\.SIZE (\d+)")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Letter(msgspec.Struct, frozen=True):
    """An unread message; of a message that is too large, only the headers."""

    uid: str
    place: str
    raw: bytes


def check_mailbox(name: str, settings: Mailbox) -> None:
    """Refuse settings that would send the password in the clear."""
    if settings.tls == "none" and settings.host not in _LOOPBACK:
        message = f"The mailbox {name} would get its password unencrypted."
        fix = 'Use tls = "implicit" or "starttls".'
        raise Problem("config_invalid", message, at=f"mailboxes.{name}.tls", fix=fix)


@contextmanager
def opened(settings: Mailbox, password: str) -> Iterator[imaplib.IMAP4]:
    """Connect and select the folder. A failure is a Problem that does not repeat the password."""
    try:
        connection = _connected(settings)
        try:
            connection.login(settings.user, password)
            _answer(connection.select(_quoted(settings.folder)))
            yield connection
        finally:
            connection.logout()
    except (imaplib.IMAP4.error, OSError, ValueError) as error:
        kind = type(error).__name__
        raise Problem("unavailable", "The mailbox cannot be read.", mailbox=settings.host, reason=kind) from None


def _connected(settings: Mailbox) -> imaplib.IMAP4:
    if settings.tls == "implicit":
        return imaplib.IMAP4_SSL(
            settings.host, settings.port, ssl_context=ssl.create_default_context(), timeout=_SECONDS
        )
    connection = imaplib.IMAP4(settings.host, settings.port, timeout=_SECONDS)
    if settings.tls == "starttls":
        connection.starttls(ssl.create_default_context())
    return connection


def unread(connection: imaplib.IMAP4) -> list[Letter]:
    """Return the first unread messages, oldest first. Reading does not mark them."""
    age = connection.response("UIDVALIDITY")[1][0]
    found = _answer(connection.uid("SEARCH", "UNSEEN"))[0] or b""
    return [_letter(connection, uid, age or b"") for uid in found.decode("ascii").split()[:_MOST]]


def _letter(connection: imaplib.IMAP4, uid: str, age: bytes) -> Letter:
    told = b" ".join(_bytes(_answer(connection.uid("FETCH", uid, "(RFC822.SIZE)"))))
    size = _SIZE.search(told)
    small = size is not None and int(size[1]) <= MAX_BYTES
    parts = _answer(connection.uid("FETCH", uid, "(BODY.PEEK[])" if small else "(BODY.PEEK[HEADER])"))
    raw = next((item[1] for item in parts if isinstance(item, tuple)), b"")
    return Letter(uid, f"{age.decode('ascii', 'replace')}:{uid}", raw)


def mark(connection: imaplib.IMAP4, uid: str, *, refused: bool) -> None:
    """Mark a taken message as read; flag a refused one too, so that a person looks at it."""
    _answer(connection.uid("STORE", uid, "+FLAGS", r"(\Seen \Flagged)" if refused else r"(\Seen)"))


def _answer(told: tuple[str, list[Any]]) -> list[Any]:
    if told[0] != "OK":
        raise imaplib.IMAP4.error("the server refuses")
    return told[1]


def _bytes(parts: list[Any]) -> Iterator[bytes]:
    for item in parts:
        yield item[0] if isinstance(item, tuple) else item or b""


def _quoted(folder: str) -> str:
    return '"' + folder.replace("\\", "\\\\").replace('"', '\\"') + '"'
