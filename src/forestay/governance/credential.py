"""What is known about a credential beside its value, and where it may go (OpenWOP RFC 0079). Pure.

The first rule that applies decides:

- C1  a credential that nobody knows, or whose value cannot be read, goes nowhere
- C2  nor does one that has expired
- C3  outside its audiences it goes nowhere: the request is refused, or sent without it where the credential says so
      and where a server's redirect led there
- C4  a workflow that it is not lent to does not get it
- C5  where a person must agree, it waits for that person

An audience is a host, or `*.domain` for every host below it, and means the scheme's own port unless it names one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from forestay.kernel import Place, Problem, iso, plain_host
from forestay.runs import EgressDecision

MAX_VALUE = 8192
MIN_VALUE = 8  # a shorter one could not be told from ordinary text in an answer
HOST = "host"
"""The issuer of a credential that a person put here."""
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_VALUE = re.compile(r"[!-~]+(?: [!-~]+)*")
_AUDIENCE = re.compile(
    r"(\*\.)?([A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?"
)
_OWN_HEADERS = frozenset({"host", "connection", "upgrade", "transfer-encoding", "content-length", "te", "trailer"})


class Credential(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A credential without its value. The host puts `prefix` and the value into the request's `header`."""

    credential_id: str
    issuer: str = HOST
    audiences: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    expires_ms: int | None = None
    header: str = "Authorization"
    prefix: str = "Bearer "
    outside: Literal["deny", "downgrade"] = "deny"
    approval: bool = False
    workflows: tuple[str, ...] = ()
    """Patterns over the workflows that may use it; none is every workflow of the tenant."""
    grant_id: str = ""
    """The sign-in that gave it."""

    @property
    def provenance(self) -> dict[str, object]:
        """In the contract's shape (`credential-provenance.schema.json`, closed)."""
        told: dict[str, object] = {
            "credentialId": self.credential_id,
            "issuer": self.issuer,
            "audiences": list(self.audiences),
            "redactionPolicy": "always",
        }
        if self.scopes:
            told["scopes"] = list(self.scopes)
        if self.expires_ms is not None:
            told["expiresAt"] = iso(self.expires_ms)
        return told


class Use(msgspec.Struct, frozen=True):
    """The request that a credential is wanted for."""

    credential_id: str
    place: Place
    workflow_id: str = ""
    approved: bool = False
    redirected: bool = False


def decide(credential: Credential | None, use: Use, now_ms: int) -> EgressDecision:
    """What becomes of a request with this credential, by the first of C1 to C5."""
    host, name = use.place.host, use.credential_id
    if credential is None:
        return EgressDecision("denied", host, name, "provenance-unevaluable")
    if credential.expires_ms is not None and now_ms >= credential.expires_ms:
        return EgressDecision("denied", host, name, "expired")
    if not within(credential.audiences, use.place):
        downgraded = use.redirected or credential.outside == "downgrade"
        return EgressDecision("downgraded" if downgraded else "denied", host, name, "out-of-audience")
    if credential.workflows and not any(fnmatchcase(use.workflow_id, item) for item in credential.workflows):
        return EgressDecision("denied", host, name, "scope-denied")
    if credential.approval and not use.approved:
        return EgressDecision("approval-required", host, name)
    return EgressDecision("allowed", host, name, "ok")


def within(audiences: Sequence[str], place: Place) -> bool:
    """Whether one of the audiences is, or covers, the place."""
    return any(_covers(audience, place) for audience in audiences)


def _covers(audience: str, place: Place) -> bool:
    found = _AUDIENCE.fullmatch(audience)
    if found is None:
        return False
    below, name, port = found.groups()
    if place.port != (int(port) if port else 443 if place.scheme == "https" else 80):
        return False
    host = plain_host(name.strip("[]"))
    return place.host.endswith(f".{host}") if below else place.host == host


def checked(credential: Credential, value: str) -> Credential:
    """The credential as it may be kept; a Problem that says what is wrong with it."""
    if not _ID.fullmatch(credential.credential_id):
        message = "A credential's id has up to 64 small letters, digits, dots, _ and -."
        raise Problem("schema_mismatch", message, at="$.credentialId")
    if not credential.audiences:
        raise Problem("schema_mismatch", "A credential is for at least one host.", at="$.audiences")
    for number, audience in enumerate(credential.audiences):
        found = _AUDIENCE.fullmatch(audience)
        wide = found is not None and found[1] is not None and "." not in found[2]
        if found is None or wide or (found[3] is not None and not 1 <= int(found[3]) <= 65535):
            message = "An audience is a host or *.domain.tld, with a port where it is not the usual one."
            raise Problem("schema_mismatch", message, at=f"$.audiences[{number}]")
    if not _HEADER.fullmatch(credential.header) or credential.header.lower() in _OWN_HEADERS:
        raise Problem("schema_mismatch", "This header cannot carry a credential.", at="$.header")
    if credential.prefix and not _VALUE.fullmatch(credential.prefix.rstrip(" ")):
        raise Problem("schema_mismatch", "A prefix is plain text.", at="$.prefix")
    if not MIN_VALUE <= len(value) <= MAX_VALUE or not _VALUE.fullmatch(value):
        message = f"A value has {MIN_VALUE} to {MAX_VALUE} visible characters."
        raise Problem("schema_mismatch", message, at="$.value")  # and never says which
    return credential
