"""`Authorizations`: a person signs in at an authorization server, and the host keeps the token (OpenWOP RFC 0047).

Invariants:

- O1  A state is valid once and for ten minutes; an unknown, used or expired one is refused.
- O2  State, code and verifier are in no event and no answer. On disk they are hashed or sealed.
- O3  A run of `forestay-authorize` exchanges the code; its log records `connector.authorized` and no secret.
- O4  One task at a time renews a token, also across processes. A renewed token is on disk before its first use. After a
      crash in between, the token on disk is used to ask again.
- O5  A server that finally refuses to renew ends the credential: it is `expired`, and the run records that.
"""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forestay.governance.credential import Credential
from forestay.governance.credentials import Credentials, Secret
from forestay.governance.journal import Journal
from forestay.governance.oauth_client import (
    Provider,
    Returned,
    authorization_url,
    code_request,
    is_due,
    refresh_request,
    tokens,
)
from forestay.kernel import (
    Clock,
    Draft,
    Ids,
    Ledger,
    Locks,
    Problem,
    Randomness,
    Record,
    base64url,
    decrypt,
    encrypt,
    place_of,
)
from forestay.runs import (
    Caller,
    CreateRun,
    EgressDecision,
    Execution,
    HttpSender,
    NodeType,
    RunCreated,
    Runs,
    forbidden,
)

STREAM = "oauth"
TYPE = "core.forestay.authorize"
_LIFE_MS = 600_000
WORKFLOW: dict[str, Any] = {
    "id": "forestay-authorize",
    "name": "Keep a token that a person agreed to",
    "version": "1.0.0",
    "description": "Gives an authorization server's code for a token, and keeps it as a credential.",
    "nodes": [
        {
            "id": "exchange",
            "typeId": TYPE,
            "name": "Exchange",
            "position": {"x": 0, "y": 0},
            "config": {},
            "inputs": {"authorizationId": {"type": "variable", "variableName": "authorizationId"}},
            "outputRole": "primary",
        }
    ],
    "edges": [],
    "triggers": [{"id": "manual", "type": "manual"}],
    "variables": [{"name": "authorizationId", "type": "string", "required": True}],
    "metadata": {},
    "settings": {},
}


class Authorization(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One sign-in as stored in its records: `mark` is the state's hash, `sealed` the verifier, `returned` the code."""

    authorization_id: str
    tenant: str
    provider: str
    about: Credential
    redirect: str
    expires_ms: int
    mark: str
    sealed: str
    principal: str | None = None
    returned: str | None = None


class Begun(msgspec.Struct, frozen=True):
    """A sign-in that waits for a person, with the address to open."""

    authorization_id: str
    open: str
    expires_ms: int


Pending = dict[str, Authorization]


class Authorizations:
    """The sign-ins of every tenant of one ledger. `runs` is a function because the two objects need each other."""

    def __init__(
        self,
        ledger: Ledger,
        credentials: Credentials,
        sender: HttpSender,
        providers: Mapping[str, Provider],
        *,
        runs: Callable[[], Runs],
        key: bytes,
        clock: Clock,
        ids: Ids,
        randomness: Randomness,
        locks: Locks | None = None,
    ) -> None:
        self.providers = dict(providers)
        self._credentials = credentials
        self._sender = sender
        self._runs = runs
        self._key = key
        self._clock = clock
        self._ids = ids
        self._randomness = randomness
        self._locks = locks or Locks()
        self._journal = Journal[Pending](ledger, STREAM, {}, _evolve)
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        credentials.renew = self.renew

    @property
    def type(self) -> NodeType:
        return NodeType(type_id=TYPE, execute=self._execute, summary="Keeps a token that a person agreed to.")

    def capability(self) -> dict[str, Any]:
        """Return the capability for discovery (RFC 0047)."""
        known = [
            {"id": item.id, "authUrl": item.auth_url, "tokenUrl": item.token_url, "scopesSupported": list(item.scopes)}
            for item in self.providers.values()
        ]
        return {"supported": True, "grants": ["authorization_code", "refresh_token"], "providers": known}

    # For people

    async def begin(
        self,
        tenant: str,
        about: Credential,
        redirect: str,
        *,
        principal: str | None = None,
        state: str | None = None,
        verifier: str | None = None,
    ) -> Begun:
        """Begin a sign-in for the credential that `about` describes; its issuer names the provider."""
        provider = self._provider(about.issuer)
        state = state or base64url.encode(self._randomness.bytes(32))
        verifier = verifier or base64url.encode(self._randomness.bytes(48))
        name = self._ids.new("auth")
        made = Authorization(
            authorization_id=name,
            tenant=tenant,
            provider=provider.id,
            about=msgspec.structs.replace(about, grant_id=name),
            redirect=redirect,
            expires_ms=self._clock.now_ms() + _LIFE_MS,
            mark=_mark(state),
            sealed=self._seal(name, verifier),
            principal=principal,
        )
        await self._journal.change(lambda _: [Draft("oauth.begun", msgspec.to_builtins(made))])
        url = authorization_url(provider, redirect, state, verifier, about.scopes)
        return Begun(name, url, made.expires_ms)

    async def finish(self, returned: Returned, tenant: str | None = None) -> tuple[Authorization, RunCreated]:
        """Accept the browser's return once (O1), and start the run that keeps the token (O3).

        `tenant` is that of an authenticated caller; a browser has none.
        """
        mark = _mark(returned.state)
        taken: list[Authorization] = []

        def take(pending: Pending) -> list[Draft]:
            found = next((item for item in pending.values() if item.mark == mark and item.returned is None), None)
            over = found is None or self._clock.now_ms() >= found.expires_ms
            if found is None or over or tenant not in (None, found.tenant):
                message = "There is no such sign-in, or it has expired."
                raise Problem("not_found", message, fix="Begin again: forestay credential authorize PROVIDER.")
            taken[:] = [found]
            name = {"authorizationId": found.authorization_id}
            if returned.error or not returned.code:
                return [Draft("oauth.ended", {**name, "outcome": "refused"})]
            return [Draft("oauth.returned", {**name, "sealed": self._seal(found.authorization_id, returned.code)})]

        await self._journal.change(take)
        (found,) = taken
        if returned.error or not returned.code:
            message = f"{found.provider} refused the sign-in."
            raise Problem("credential_forbidden", message, provider=found.provider, reason="refused")
        request = CreateRun(workflow_id=WORKFLOW["id"], inputs={"authorizationId": found.authorization_id})
        run_id = "run_" + hashlib.sha256(found.authorization_id.encode()).hexdigest()[:26]
        return found, await self._runs().create_run(request, found.tenant, found.principal, run_id=run_id)

    # The run

    async def _execute(self, ctx: Execution) -> dict[str, Any]:
        name = str(ctx.inputs["authorizationId"])
        kept: dict[str, Any] = await ctx.effect("exchange", lambda: self._exchanged(ctx, name), provider="oauth")
        told = {"provider": kept["provider"], "credentialRef": kept["credentialId"], "scopes": kept["scopes"]}
        ctx.emit("connector.authorized", told)
        return kept

    async def _exchanged(self, ctx: Execution, name: str) -> dict[str, Any]:
        """Exchange the code and store the token as a credential, unless an earlier execution did so."""
        before = {item.grant_id: item for item in await self._credentials.listed(ctx.tenant)}
        if (done := before.get(name)) is not None:
            return _kept(done)
        found = (await self._journal.value()).get(name)
        if found is None or found.tenant != ctx.tenant or found.returned is None:
            raise Problem("not_found", "There is no such sign-in, or it has expired.", authorizationId=name[:64])
        provider = self._provider(found.provider)
        request = code_request(
            provider, self._opened(name, found.returned), self._opened(name, found.sealed), found.redirect
        )
        response = await self._sender.send(request, ctx.caller("exchange", "oauth"))
        secret, granted = tokens(provider, response, self._clock.now_ms())
        about = found.about if granted is None else msgspec.structs.replace(found.about, scopes=granted)
        if secret.refresh is None:
            about = msgspec.structs.replace(about, expires_ms=secret.until_ms)
        await self._credentials.put(ctx.tenant, about, secret, found.principal)
        ended = {"authorizationId": name, "outcome": "authorized"}
        await self._journal.change(lambda pending: [Draft("oauth.ended", ended)] if name in pending else [])
        return _kept(about)

    # For requests

    async def renew(self, tenant: str, about: Credential, secret: Secret) -> Secret:
        """Return a valid token, renewed if it is due (O4); it implements `credentials.Renew`."""
        if about.issuer not in self.providers or secret.refresh is None or not is_due(secret, self._clock.now_ms()):
            return secret
        name = f"{tenant}/{about.credential_id}"
        turn = self._turns.setdefault(name, asyncio.Lock())
        async with turn, self._locks.at(f"oauth/{name}"):
            now = await self._credentials.secret(tenant, about.credential_id)
            if now is None:
                raise forbidden(_ended(about, "provenance-unevaluable"))
            if now.refresh is None or not is_due(now, self._clock.now_ms()):
                return now  # another task renewed it meanwhile
            return await self._renewed(tenant, about, now.refresh)

    async def _renewed(self, tenant: str, about: Credential, refresh: str) -> Secret:
        provider = self._provider(about.issuer)
        caller = Caller(tenant, "", "", about.credential_id)
        try:
            response = await self._sender.send(refresh_request(provider, refresh), caller)
            secret, _ = tokens(provider, response, self._clock.now_ms(), refresh)
        except Problem as problem:
            if problem.key == "credential_forbidden":
                await self._credentials.expire(tenant, about.credential_id)  # O5
                raise forbidden(_ended(about, "expired"), provider=provider.id) from problem
            message = f"{provider.id} did not renew {about.credential_id}."
            raise Problem("credential_unavailable", message, provider=provider.id) from problem
        await self._credentials.renewed(tenant, about, secret)
        return secret

    def _provider(self, name: str) -> Provider:
        found = self.providers.get(name)
        if found is None:
            message = f"No provider {name[:64]} is configured."
            raise Problem("not_found", message, known=sorted(self.providers), fix="Add [oauth.providers.NAME].")
        return found

    def _seal(self, name: str, text: str) -> str:
        return base64url.encode(encrypt(self._key, text.encode(), f"oauth\0{name}", self._randomness))

    def _opened(self, name: str, sealed: str) -> str:
        plain = decrypt(self._key, base64url.decode(sealed), f"oauth\0{name}")
        if plain is None:
            raise Problem("state_corrupted", "A sign-in cannot be opened with the host's secret.", authorizationId=name)
        return plain.decode()


def _evolve(pending: Pending, record: Record) -> Pending:
    said = record.payload
    rest = {name: item for name, item in pending.items() if name != said["authorizationId"]}
    if record.type == "oauth.begun":
        made = msgspec.convert(said, Authorization)
        return {name: item for name, item in rest.items() if item.mark != made.mark or item.returned} | {
            made.authorization_id: made
        }
    if record.type == "oauth.returned" and (found := pending.get(said["authorizationId"])) is not None:
        return {**rest, found.authorization_id: msgspec.structs.replace(found, returned=said["sealed"])}
    return rest


def _mark(state: str) -> str:
    return hashlib.sha256(b"oauth state\0" + state.encode()).hexdigest()


def _kept(about: Credential) -> dict[str, Any]:
    return {"provider": about.issuer, "credentialId": about.credential_id, "scopes": list(about.scopes)}


def _ended(about: Credential, reason: Any) -> EgressDecision:
    host = about.audiences[0].removeprefix("*.")
    return EgressDecision("denied", place_of(f"https://{host}").host, about.credential_id, reason)
