"""`Credentials`: values that the host attaches to requests and never shows (OpenWOP RFC 0046, 0079).

Invariants:

- V1  A value is on disk only sealed, under its own key, for its tenant and id.
- V2  When `revoke` returns, the key is destroyed. A credential that is put again has a new key; the old one is
      destroyed.
- V3  The decision (`credential.decide`) is made again at the last moment, when the value is attached.
- V4  A value is not sent to a host outside its audiences, even if the request itself contains it.
- V5  A value in a server's answer is removed before any other code reads the answer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from forestay.governance.credential import Credential, Use, checked, decide, within
from forestay.governance.journal import Journal
from forestay.kernel import (
    KEY_BYTES,
    REDACTED,
    Clock,
    Draft,
    Ledger,
    Place,
    Problem,
    Randomness,
    Record,
    base64url,
    decrypt,
    encrypt,
    place_of,
)
from forestay.runs import EgressDecision, HttpRequest, HttpResponse, forbidden

PREFIX = "credentials/"
_KEYS = "cred_"
MAX_PER_TENANT = 1_000


class Secret(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value; an OAuth token may have a `refresh` token and end at `until_ms`."""

    value: str
    refresh: str | None = None
    until_ms: int | None = None


class Kept(msgspec.Struct, frozen=True):
    """A credential as its records store it."""

    about: Credential
    key: str
    sealed: str


class Store(msgspec.Struct, frozen=True):
    """The credentials of one tenant, and the keys that no credential uses any more."""

    kept: dict[str, Kept] = {}
    idle: frozenset[str] = frozenset()


class Attached(msgspec.Struct, frozen=True):
    """A request ready to be sent, the decision, and the values that no answer may show."""

    request: HttpRequest
    decided: EgressDecision | None
    values: tuple[str, ...] = ()

    def blotted(self, response: HttpResponse) -> HttpResponse:
        """Return the answer without the values (V5)."""
        headers, body = response.headers, response.body
        for value in self.values:
            headers = {name: text.replace(value, REDACTED) for name, text in headers.items()}
            body = body.replace(value.encode(), REDACTED.encode())
        return msgspec.structs.replace(response, headers=headers, body=body, decided=self.decided)


Renew = Callable[[str, Credential, Secret], Awaitable[Secret]]
"""Returns a newer secret for a tenant's credential, or the same one while it is valid."""


class Credentials:
    """The credentials of every tenant of one ledger."""

    def __init__(self, ledger: Ledger, *, clock: Clock, randomness: Randomness, shared: bool = False) -> None:
        """Use the ledger's vault; with `shared`, other processes keep credentials in the same ledger."""
        self._ledger = ledger
        self._vault = ledger.vault()
        self._clock = clock
        self._randomness = randomness
        self._shared = shared
        self._journals: dict[str, Journal[Store]] = {}
        self._open: dict[str, Secret] = {}
        self.renew: Renew | None = None

    async def start(self) -> None:
        """Finish what a crash left: destroy keys of credentials that were revoked or never stored (V2)."""
        if self._ledger.read_only:
            return
        names = set(await self._vault.names(_KEYS))
        if not names:
            return
        stores = [await self._store(tenant) for tenant in await self._tenants()]
        used = {item.key for store in stores for item in store.kept.values()}
        idle = frozenset[str]().union(*(store.idle for store in stores))
        if unused := sorted(names & idle if self._shared else names - used):
            await self._vault.destroy(unused)

    async def _tenants(self) -> list[str]:
        found: list[str] = []
        while page := await self._ledger.streams(PREFIX, found[-1] if found else ""):
            found += page
        return [stream.removeprefix(PREFIX) for stream in found]

    # For people

    async def put(self, tenant: str, about: Credential, secret: Secret, by: str | None = None) -> Credential:
        """Store a credential, replacing one with the same id; it is on disk when this returns."""
        checked(about, secret.value)
        kept = await self._seal(tenant, about.credential_id, secret)
        said = {"about": msgspec.to_builtins(about), **kept, **({"by": by} if by else {})}

        def change(store: Store) -> list[Draft]:
            if about.credential_id not in store.kept and len(store.kept) >= MAX_PER_TENANT:
                message = f"This tenant has {MAX_PER_TENANT} credentials already."
                raise Problem("state_conflict", message, limit=MAX_PER_TENANT, fix="Revoke some of them.")
            return [Draft("credential.kept", said)]

        await self._changed(tenant, change, kept["key"])
        return about

    async def listed(self, tenant: str) -> list[Credential]:
        """Return a tenant's credentials without their values, in order of id."""
        kept = (await self._store(tenant)).kept
        return [kept[name].about for name in sorted(kept)]

    async def get(self, tenant: str, credential_id: str) -> Credential | None:
        found = (await self._store(tenant)).kept.get(credential_id)
        return None if found is None else found.about

    async def revoke(self, tenant: str, credential_id: str, why: str = "requested", by: str | None = None) -> None:
        """Revoke a credential for good (V2)."""
        said = {"credentialId": credential_id, "reason": why, **({"by": by} if by else {})}

        def change(store: Store) -> list[Draft]:
            if credential_id not in store.kept:
                raise Problem("not_found", "There is no such credential.", credentialId=credential_id[:64])
            return [Draft("credential.revoked", said)]

        await self._changed(tenant, change)

    async def renewed(self, tenant: str, about: Credential, secret: Secret) -> None:
        """Store a newer value of a credential, unless it was revoked meanwhile."""
        kept = await self._seal(tenant, about.credential_id, secret)
        said = {"credentialId": about.credential_id, **kept}

        def change(store: Store) -> list[Draft]:
            return [Draft("credential.renewed", said)] if about.credential_id in store.kept else []

        await self._changed(tenant, change, kept["key"])

    async def expire(self, tenant: str, credential_id: str) -> None:
        """End a credential that its issuer no longer renews: it stays listed, without a value."""
        said = {"credentialId": credential_id, "at": self._clock.now_ms()}
        await self._changed(
            tenant, lambda store: [Draft("credential.expired", said)] if credential_id in store.kept else []
        )

    # For requests

    async def decide(self, tenant: str, use: Use) -> EgressDecision:
        """Decide on a request with a credential, by the present state."""
        return decide(await self.get(tenant, use.credential_id), use, self._clock.now_ms())

    async def attach(self, tenant: str, request: HttpRequest, workflow_id: str) -> Attached:
        """Return the request as it may be sent, with or without its credential, or refuse it (V3, V4)."""
        store, place = await self._store(tenant), place_of(request.url)
        if request.credential is None:
            await self._keep_inside(tenant, store, request, place)
            return Attached(request, None, await self._values(tenant, store))
        use = Use(request.credential, place, workflow_id, request.approved, request.redirected)
        kept = store.kept.get(request.credential)
        decision = decide(None if kept is None else kept.about, use, self._clock.now_ms())
        if decision.decision in ("denied", "approval-required"):
            raise forbidden(decision)
        await self._keep_inside(tenant, store, request, place)
        if kept is None or decision.decision == "downgraded":
            return Attached(request, decision, await self._values(tenant, store))
        secret = await self._fresh(tenant, kept)
        if secret is None:
            raise forbidden(EgressDecision("denied", place.host, request.credential, "provenance-unevaluable"))
        about = kept.about
        headers = {name: text for name, text in request.headers.items() if name.lower() != about.header.lower()}
        headers[about.header] = about.prefix + secret.value
        signed = msgspec.structs.replace(request, headers=headers)
        return Attached(signed, decision, (secret.value, *await self._values(tenant, store)))

    async def _keep_inside(self, tenant: str, store: Store, request: HttpRequest, place: Place) -> None:
        """Refuse a request that itself contains a value outside its audiences (V4)."""
        carried = "\n".join((request.url, *request.headers.values())).encode() + b"\n" + (request.body or b"")
        outside: dict[str, str] = {}
        inside: set[str] = set()
        for name, kept in store.kept.items():
            secret = await self._secret(tenant, kept)
            found = [text for text in _texts(secret) if text.encode() in carried]
            if within(kept.about.audiences, place):
                inside.update(found)
            else:
                outside.update(dict.fromkeys(found, name))
        if leaked := [name for text, name in outside.items() if text not in inside]:
            raise forbidden(EgressDecision("denied", place.host, leaked[0], "out-of-audience"))

    async def _values(self, tenant: str, store: Store) -> tuple[str, ...]:
        found = [await self._secret(tenant, kept) for kept in store.kept.values()]
        return tuple(text for secret in found for text in _texts(secret))

    async def _fresh(self, tenant: str, kept: Kept) -> Secret | None:
        """Return the value, renewed if it is due; None when it cannot be read (C1)."""
        secret = await self._secret(tenant, kept)
        return secret if secret is None or self.renew is None else await self.renew(tenant, kept.about, secret)

    async def secret(self, tenant: str, credential_id: str) -> Secret | None:
        """Return a secret, for the host itself."""
        kept = (await self._store(tenant)).kept.get(credential_id)
        return None if kept is None else await self._secret(tenant, kept)

    async def value(self, tenant: str, credential_id: str) -> str | None:
        """Return a credential's value; None when there is none."""
        found = await self.secret(tenant, credential_id)
        return None if found is None else found.value

    async def blotted(self, tenant: str, text: str) -> str:
        """Return the text with `[REDACTED:ID]` for each value of the tenant (OpenWOP RFC 0004, SR-1)."""
        kept = (await self._store(tenant)).kept
        values = {value: name for name, item in kept.items() for value in _texts(await self._secret(tenant, item))}
        for value in sorted(values, key=len, reverse=True):  # the longest first, so that no part of one remains
            text = text.replace(value, f"[REDACTED:{values[value]}]")
        return text

    # Storage

    async def _secret(self, tenant: str, kept: Kept) -> Secret | None:
        if not kept.key:
            return None
        if (known := self._open.get(kept.key)) is not None:
            return known
        key = (await self._vault.get([kept.key])).get(kept.key)
        sealed = base64url.decode(kept.sealed)
        plain = None if key is None else decrypt(key, sealed, _belonging(tenant, kept.about.credential_id))
        if plain is None:
            return None
        return self._open.setdefault(kept.key, msgspec.json.decode(plain, type=Secret))

    async def _seal(self, tenant: str, credential_id: str, secret: Secret) -> dict[str, str]:
        name = _KEYS + hashlib.sha256(self._randomness.bytes(32)).hexdigest()[:40]
        key = await self._vault.keep(name, self._randomness.bytes(KEY_BYTES))
        plain = msgspec.json.encode(secret)
        sealed = await asyncio.to_thread(encrypt, key, plain, _belonging(tenant, credential_id), self._randomness)
        return {"key": name, "sealed": base64url.encode(sealed)}

    async def _changed(self, tenant: str, change: Callable[[Store], Sequence[Draft]], made: str = "") -> None:
        """Change the tenant's credentials, and destroy the keys that none of them uses any more (V2).

        `made` is the key that was made for the change; it is destroyed too if the change did not use it.
        """
        before = await self._store(tenant)
        after = await self._journal(tenant).change(change)
        used = {item.key for item in after.kept.values()}
        idle = (after.idle - before.idle) | ({made} - used if made else set())
        for name in idle:
            self._open.pop(name, None)
        if idle:
            await self._vault.destroy(sorted(idle))

    async def _store(self, tenant: str) -> Store:
        return await self._journal(tenant).value()

    def _journal(self, tenant: str) -> Journal[Store]:
        if tenant not in self._journals:
            self._journals[tenant] = Journal(self._ledger, PREFIX + tenant, Store(), evolve, sole=not self._shared)
        return self._journals[tenant]


def evolve(store: Store, record: Record) -> Store:
    """Return the credentials after one more record."""
    said = record.payload
    name = said["about"]["credentialId"] if record.type == "credential.kept" else said["credentialId"]
    before = store.kept.get(name)
    idle = store.idle if before is None or not before.key else store.idle | {before.key}
    rest = {key: item for key, item in store.kept.items() if key != name}
    if record.type == "credential.kept":
        about = msgspec.convert(said["about"], Credential)
        return Store({**rest, name: Kept(about, said["key"], said["sealed"])}, idle)
    if record.type == "credential.renewed" and before is not None:
        return Store({**rest, name: Kept(before.about, said["key"], said["sealed"])}, idle)
    if record.type == "credential.expired" and before is not None:
        about = msgspec.structs.replace(before.about, expires_ms=said["at"])
        return Store({**rest, name: Kept(about, "", "")}, idle)
    return Store(rest, idle)


def _texts(secret: Secret | None) -> tuple[str, ...]:
    """Return the texts of a secret that must not be shown."""
    return () if secret is None else (secret.value,) if secret.refresh is None else (secret.value, secret.refresh)


def _belonging(tenant: str, credential_id: str) -> str:
    return f"credential\0{tenant}\0{credential_id}"
