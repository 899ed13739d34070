"""A credential without its value, and the decision where it may be sent (OpenWOP RFC 0079). Pure.

The first rule that applies decides:

- C1  an unknown credential, or one whose value cannot be read, is not sent
- C2  an expired credential is not sent
- C3  a credential is not sent outside its audiences: the request is refused. It is sent without the credential if the
      credential allows that, or if a server's redirect led there
- C4  a workflow that may not use the credential does not get it
- C5  if a person must agree, the request waits for that person

An audience is a host, or `*.domain` for every host below it; it means the scheme's default port unless it names one.
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
MIN_VALUE = 8  # a shorter value could not be distinguished from ordinary text in an answer
HOST = "host"
"""The issuer of a credential that a person entered."""
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
    """Patterns over the workflows that may use it; without one, every workflow of the tenant may."""
    grant_id: str = ""
    """The sign-in that it comes from."""

    @property
    def provenance(self) -> dict[str, object]:
        """The contract's form (`credential-provenance.schema.json`, closed)."""
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
    """A request that needs a credential."""

    credential_id: str
    place: Place
    workflow_id: str = ""
    approved: bool = False
    redirected: bool = False


def decide(credential: Credential | None, use: Use, now_ms: int) -> EgressDecision:
    """Decide on a request with this credential, by the first of C1 to C5 that applies."""
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
    """Whether one of the audiences covers the place."""
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
    """Return the credential if it is valid; otherwise a Problem says what is wrong."""
    if not _ID.fullmatch(credential.credential_id):
        message = "A credential's id may have up to 64 lower-case letters, digits, dots, _ and -."
        raise Problem("schema_mismatch", message, at="$.credentialId")
    if not credential.audiences:
        raise Problem("schema_mismatch", "A credential needs at least one audience.", at="$.audiences")
    for number, audience in enumerate(credential.audiences):
        found = _AUDIENCE.fullmatch(audience)
        wide = found is not None and found[1] is not None and "." not in found[2]
        if found is None or wide or (found[3] is not None and not 1 <= int(found[3]) <= 65535):
            message = "An audience must be a host or *.domain.tld, with a port if it is not the default one."
            raise Problem("schema_mismatch", message, at=f"$.audiences[{number}]")
    if not _HEADER.fullmatch(credential.header) or credential.header.lower() in _OWN_HEADERS:
        raise Problem("schema_mismatch", "This header cannot carry a credential.", at="$.header")
    if credential.prefix and not _VALUE.fullmatch(credential.prefix.rstrip(" ")):
        raise Problem("schema_mismatch", "A prefix must be plain text.", at="$.prefix")
    if not MIN_VALUE <= len(value) <= MAX_VALUE or not _VALUE.fullmatch(value):
        message = f"A value must have {MIN_VALUE} to {MAX_VALUE} visible characters."
        raise Problem("schema_mismatch", message, at="$.value")  # without the value
    return credential
