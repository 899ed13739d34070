"""Authentication: API keys on the ledger, hashed, with tenant, scopes, expiry and revocation (OpenWOP §1.4).

A scope is a capability that the key was granted. The kernel's policy decides whether a caller may do something, and
gives its rule and reason.

Invariants:

- A1  Only its holder knows a key's text: the ledger has its SHA-256. (Keys are random, so a slow hash adds nothing; a
      key chosen by a person must have at least 16 characters.)
- A2  A key is compared in constant time.
- A3  Missing, malformed, unknown, expired and revoked keys are 401; a missing scope is 403.
- A4  A revoked key is refused as soon as its revocation is on disk, and its watchers are told then; other processes of
      the same ledger follow within a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import msgspec

from forestay.kernel import (
    OPERATOR,
    Clock,
    Decision,
    Draft,
    Ids,
    Ledger,
    Locks,
    Problem,
    Record,
    Transaction,
    canonical,
    scope_policy,
    scope_request,
)

CONTRACT_SCOPES = tuple(
    (
        "manifest:read runs:create runs:read runs:cancel artifacts:read webhooks:manage approvals:respond "
        "packs:publish packs:yank packs:yank-revert audit:read workspace:read workspace:write deploy:promote "
        "deploy:rollback deploy:pause"
    ).split()
)
# The contract has no scope for these, because it has no endpoint for them (W4).
OWN_SCOPES = tuple(
    "manifest:write runs:signal schedules:manage keys:manage grants:manage metrics:read approvals:delegate".split()
)
SCOPES = CONTRACT_SCOPES + OWN_SCOPES
HOST_SCOPE = "host:operate"  # exactly the keys of the operator's tenant have it

_BEARER = re.compile(r"bearer +([!-~]{1,512}) *", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}")
_LENT = "key_lent"
_LONGEST_WAIT = 24 * 3600.0
_AGAIN_SECONDS = 0.5  # the pause after a failed read
_CHOSEN_KEY = re.compile(r"[!-~]{16,256}")


class Caller(msgspec.Struct, frozen=True):
    """The holder of a request's key."""

    key_id: str
    tenant: str
    scopes: frozenset[str]
    principal: str | None = None
    workspace: str | None = None
    test: bool = False

    @property
    def name(self) -> str:
        """The name that a run records: the principal, else the key's id."""
        return self.principal or self.key_id

    @property
    def delegate(self) -> bool:
        """Whether this caller may answer for others (W18)."""
        return "approvals:delegate" in self.scopes

    def decide(self, scope: str, tenant: str | None = None) -> Decision:
        """Return policy's decision on this caller's use of `scope`, in its own tenant or in another."""
        return _decided(self.key_id, self.tenant, self.scopes, scope, self.tenant if tenant is None else tenant)

    def require(self, *scopes: str) -> None:
        refused = [decision for scope in scopes if not (decision := self.decide(scope)).allowed]
        if refused:
            missing = [str(decision.evidence["capability"]) for decision in refused]
            raise Problem(
                "permission_denied",
                f"This key lacks the scope {missing[0]}.",
                requiredScopes=list(scopes),
                missingScopes=missing,
                rule=refused[0].rule,
                fix="Use a key that has the scope.",
            )

    def reads_runs_of(self, tenant: str) -> bool:
        """Whether the caller may read the runs of `tenant`."""
        return self.decide("runs:read", tenant).allowed

    def require_operator(self) -> None:
        """Refuse everybody but the host's operator."""
        if not self.decide(HOST_SCOPE).allowed:
            raise Problem(
                "permission_denied", "Only the host's operator may do this.", fix="Use a key of the host's own tenant."
            )

    def require_tenant(self, tenant: str | None) -> None:
        """Refuse a request that names another tenant than the key's own."""
        if tenant is not None and tenant != self.tenant:
            raise Problem("permission_denied", "This key does not belong to the tenant that the request names.")


@lru_cache(maxsize=4096)
def _decided(key_id: str, tenant: str, scopes: frozenset[str], scope: str, on: str) -> Decision:
    """Decide by the policy of one key; keys of the operator's tenant may also operate the host."""
    granted = [*sorted(scopes), HOST_SCOPE] if tenant == OPERATOR else sorted(scopes)
    return scope_policy(key_id, granted, tenant).decide(scope_request(key_id, scope, on))


class ApiKey(msgspec.Struct, frozen=True):
    """One key as the ledger knows it."""

    key_id: str
    name: str
    tenant: str
    scopes: tuple[str, ...]
    hash: str
    created_ms: int
    principal: str | None = None
    workspace: str | None = None
    expires_ms: int | None = None
    revoked_ms: int | None = None
    test: bool = False


class KeyTable:
    """The projection `api_keys`: one row for each key."""

    name = "api_keys"
    version = 1
    prefix = "key/"
    schema = """
        CREATE TABLE api_keys (
            key_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, hash TEXT NOT NULL UNIQUE,
            revoked_ms BIGINT, doc TEXT NOT NULL
        );
    """

    def apply(self, tx: Transaction, records: Sequence[Record]) -> None:
        for record in records:
            key_id, payload = record.stream.removeprefix(self.prefix), record.payload
            if record.type == "key.created":
                tx.execute(
                    "INSERT INTO api_keys VALUES (?, ?, ?, NULL, ?)",
                    (key_id, payload["tenant"], payload["hash"], canonical.encode(payload).decode()),
                )
            elif record.type == "key.revoked":
                tx.execute("UPDATE api_keys SET revoked_ms = ? WHERE key_id = ?", (record.ts, key_id))


class KeyWatch:
    """Calls back once, when a key ends."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell: Callable[[], None] | None = tell
        self._timer: asyncio.TimerHandle | None = None

    def expire(self, seconds: float) -> None:
        """End after `seconds`, waited in steps that every event loop can handle."""
        loop = asyncio.get_running_loop()
        if seconds > _LONGEST_WAIT:
            self._timer = loop.call_later(_LONGEST_WAIT, self.expire, seconds - _LONGEST_WAIT)
        else:
            self._timer = loop.call_later(max(0.0, seconds), self.end)

    def end(self) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def cancel(self) -> None:
        self._tell = None
        if self._timer is not None:
            self._timer.cancel()


class Keys:
    """The keys of one ledger, in memory: they are few, and every request needs one."""

    def __init__(self, ledger: Ledger, clock: Clock, ids: Ids, locks: Locks | None = None) -> None:
        self._ledger = ledger
        self._locks = locks or Locks()
        self._clock = clock
        self._ids = ids
        self._by_hash: dict[str, ApiKey] = {}
        self._watches: dict[str, list[KeyWatch]] = {}

    async def load(self) -> None:
        rows = await self._ledger.query("SELECT doc, revoked_ms FROM api_keys")
        for doc, revoked in rows:
            self._know(msgspec.structs.replace(canonical.decode(doc, ApiKey), revoked_ms=revoked))

    async def follow(self) -> None:
        """Follow what other processes do with keys, until cancelled (A4)."""
        while True:
            with contextlib.suppress(Problem):  # the database is away
                position = await self._ledger.position()
                await self.load()
                async with contextlib.aclosing(self._ledger.follow_all("key/", position)) as records:
                    async for _, record in records:
                        self._learn(record)
            await asyncio.sleep(_AGAIN_SECONDS)

    def _learn(self, record: Record) -> None:
        if record.type == "key.created":
            made = msgspec.convert(record.payload, ApiKey)
            if made.hash not in self._by_hash:
                self._know(made)
        elif record.type == "key.revoked":
            key_id = record.stream.removeprefix(KeyTable.prefix)
            for key in [key for key in self._by_hash.values() if key.key_id == key_id and key.revoked_ms is None]:
                self._know(msgspec.structs.replace(key, revoked_ms=record.ts))

    def _know(self, key: ApiKey) -> None:
        """Keep the key's current state; tell the watchers of a revoked one."""
        self._by_hash[key.hash] = key
        if key.revoked_ms is not None:
            for watch in self._watches.get(key.key_id, ())[:]:
                watch.end()

    def __len__(self) -> int:
        return len(self.list())

    def list(self, tenant: str | None = None) -> list[ApiKey]:
        stored = [key for key in self._by_hash.values() if key.key_id != _LENT]
        found = [key for key in stored if tenant is None or key.tenant == tenant]
        return sorted(found, key=lambda key: key.key_id)

    async def create(
        self,
        name: str,
        *,
        tenant: str = OPERATOR,
        scopes: Collection[str] = SCOPES,
        principal: str | None = None,
        workspace: str | None = None,
        expires_ms: int | None = None,
        test: bool = False,
        text: str | None = None,
        key_id: str | None = None,
    ) -> tuple[ApiKey, str]:
        """Make a key; return it with its text, which is never shown again (A1).

        A caller that must not make two gives the id: an earlier key of that id, whose text nobody got, is revoked.
        """
        _check(name, tenant, scopes, principal, workspace, text)
        text = text or "fsk_" + self._ids.token(24)
        key = ApiKey(
            key_id=await self._unused(key_id, tenant) if key_id else self._ids.new("key"),
            name=name,
            tenant=tenant,
            scopes=tuple(sorted(set(scopes))),
            hash=_hash(text),
            created_ms=self._clock.now_ms(),
            principal=principal,
            workspace=workspace,
            expires_ms=expires_ms,
            test=test,
        )
        if key.hash in self._by_hash:
            raise Problem("already_exists", "This key exists already.", fix="Choose another text.")
        await self._ledger.append(f"key/{key.key_id}", [Draft("key.created", key)], expect=-1)
        self._know(key)
        return key, text

    async def _unused(self, key_id: str, tenant: str) -> str:
        """Return the first free id from `key_id` on; revoke the keys that have the earlier ones."""
        found, number = key_id, 1
        while any(key.key_id == found for key in self._by_hash.values()):
            await self.revoke(found, tenant, "its text was never given out")
            number += 1
            found = f"{key_id}_{number}"
        return found

    def lend(self, *, tenant: str = OPERATOR, principal: str | None = None) -> str:
        """Make a key that lives as long as this process, for a command that opens the data folder itself."""
        text = "fsk_" + self._ids.token(24)
        now = self._clock.now_ms()
        self._by_hash[_hash(text)] = ApiKey(_LENT, "lent", tenant, SCOPES, _hash(text), now, principal)
        return text

    async def ensure(self, text: str, name: str = "first") -> ApiKey:
        """Return the key with this text; make it if there is none. Every start does this for FORESTAY_API_KEY."""
        async with self._locks.at("key/first", self.load):
            known = self._by_hash.get(_hash(text))
            return known if known is not None else (await self.create(name, text=text))[0]

    async def revoke(self, key_id: str, tenant: str | None = None, reason: str = "") -> ApiKey:
        key = next((item for item in self.list(tenant) if item.key_id == key_id), None)
        if key is None:
            raise Problem("not_found", f"There is no key {key_id[:80]}.")
        if key.revoked_ms is not None:
            return key
        try:
            await self._ledger.append(f"key/{key_id}", [Draft("key.revoked", {"reason": reason})], expect=0)
        except Problem as problem:
            if problem.key != "ledger_conflict":  # a conflict means that another process was faster
                raise
        for record in await self._ledger.read(f"key/{key_id}", 1):
            self._learn(record)
        return self._by_hash[key.hash]

    def authenticate(self, authorization: str | None) -> Caller:
        """Return the caller behind an `Authorization` header (A2, A3)."""
        if not authorization:
            raise Problem(
                "unauthenticated", "The request carries no API key.", fix="Send `Authorization: Bearer <key>`."
            )
        match = _BEARER.fullmatch(authorization)
        if match is None:
            raise Problem(
                "unauthenticated", "The Authorization header is malformed.", fix="Send `Authorization: Bearer <key>`."
            )
        digest = _hash(match[1])
        key = self._by_hash.get(digest)
        if key is None or not hmac.compare_digest(key.hash, digest):
            raise Problem("unauthenticated", "This API key is not known.", fix="Use a key of this host.")
        return self._caller(key)

    def caller(self, key_id: str) -> Caller:
        """Return the caller of a key by its id: a console session names its key so (A3, A4)."""
        key = next((item for item in self._by_hash.values() if item.key_id == key_id), None)
        if key is None:
            raise Problem("unauthenticated", "This API key is not known.", fix="Use a key of this host.")
        return self._caller(key)

    @contextmanager
    def watched(self, key_id: str, tell: Callable[[], None]) -> Iterator[None]:
        """Call `tell` when the key is revoked or expires while the block runs (A4)."""
        key = next((item for item in self._by_hash.values() if item.key_id == key_id), None)
        watch = KeyWatch(tell)
        self._watches.setdefault(key_id, []).append(watch)
        if key is not None and key.expires_ms is not None:
            watch.expire((key.expires_ms - self._clock.now_ms()) / 1000)
        try:
            yield
        finally:
            watch.cancel()
            watches = self._watches[key_id]
            watches.remove(watch)
            if not watches:
                del self._watches[key_id]

    def _caller(self, key: ApiKey) -> Caller:
        if key.revoked_ms is not None:
            raise Problem("key_revoked", "This API key was revoked.", fix="Use another key.")
        if key.expires_ms is not None and key.expires_ms <= self._clock.now_ms():
            raise Problem("key_expired", "This API key has expired.", fix="Use a key that is still valid.")
        return Caller(key.key_id, key.tenant, frozenset(key.scopes), key.principal, key.workspace, key.test)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check(
    name: str, tenant: str, scopes: Collection[str], principal: str | None, workspace: str | None, text: str | None
) -> None:
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown:
        raise Problem("schema_mismatch", f"There is no scope {unknown[0][:80]!r}.", at="$.scopes", known=list(SCOPES))
    for at, value in (("name", name), ("tenant", tenant), ("principal", principal), ("workspace", workspace)):
        if value is not None and not _NAME.fullmatch(value):
            raise Problem("schema_mismatch", f"{value[:80]!r} is not a plain name.", at=f"$.{at}")
    if text is not None and not _CHOSEN_KEY.fullmatch(text):
        raise Problem(
            "schema_mismatch",
            "A key must be 16 to 256 visible ASCII characters.",
            fix="Choose a longer key, or leave FORESTAY_API_KEY unset to have one made.",
        )
