"""The relay: sessions over one ledger, and the shortest way to use one of them.

async with Relay.open("work.db", model=model) as relay:
    reply = await relay.dispatch("You are brief.", "What changed in the last release?")
    print(reply.output, reply.report.quality_tier)
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.kernel import (
    Clock,
    Draft,
    Ids,
    Ledger,
    Locks,
    Problem,
    Projection,
    Randomness,
    SystemClock,
    SystemRandomness,
    kept_secret,
)
from forestay.models import Embedder, Model
from forestay.relay import guard, snapshot
from forestay.relay.facts import verify
from forestay.relay.guard import config_of
from forestay.relay.journal import Meters, SessionsTable
from forestay.relay.report import Turned, recorded
from forestay.relay.session import Session
from forestay.relay.types import Reply, SessionConfig, StreamEvent
from forestay.relay.warm import Warm

if TYPE_CHECKING:
    from forestay.relay.vectors import Vectors

MAX_SESSIONS_PER_APP = 4
DEFAULT_APP = "default"
_SPOT_CHECK = 10
_BAD_SHARE = 0.05
_WORTH_KEEPING = 1000  # facts, or records, that are in no snapshot

_log = logging.getLogger(__name__)


class Relay:
    """Opens, finds and resumes sessions. `secret` keys sessions that bring no binding secret of their own."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        secret: bytes,
        model: Model | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        randomness: Randomness | None = None,
        max_sessions_per_app: int = MAX_SESSIONS_PER_APP,
        embedder: Embedder | None = None,
        vectors: Path | None = None,
        snapshots: Path | None = None,
        locks: Locks | None = None,
    ) -> None:
        """`locks`: where other processes use sessions of the same ledger. `snapshots`: a folder in which the state of
        large sessions is kept, so that they are resumed at once."""
        if len(secret) < 16:
            raise Problem("config_invalid", "The relay's secret has fewer than 16 bytes.", at="secret")
        self.ledger = ledger
        self.locks = locks or Locks()
        self.model = model
        self.clock = clock or SystemClock()
        self.randomness = randomness or SystemRandomness()
        self.ids = ids or Ids(self.clock, self.randomness)
        self.max_sessions_per_app = max_sessions_per_app
        self.embedder = embedder
        self._vectors = vectors
        self._snapshots = snapshots
        self.meters = Meters(self._loaded)
        self._secret = secret
        self._sessions: dict[str, Session] = {}
        self._bindings: dict[str, bytes] = {}
        self._opening: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._default: Session | None = None

    @staticmethod
    def projections() -> Sequence[Projection]:
        """What the ledger must keep for the relay; give them to `Ledger.open`."""
        return (SessionsTable(),)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: Path | str,
        *,
        model: Model | None = None,
        secret: bytes | None = None,
        clock: Clock | None = None,
        embedder: Embedder | None = None,
        **options: Any,
    ) -> AsyncIterator[Relay]:
        """A relay over the ledger at `path`; its secret is kept beside it, readable by its owner only.

        With an `embedder`, facts are found by their meaning too; their vectors are kept beside the ledger. Nothing is
        kept beside a ledger that is no file: give `secret`, and with an embedder `vectors`.
        """
        beside = Path(path)
        if beside.parent.is_dir():
            options = {"snapshots": beside.with_name(beside.name + ".sessions"), **options}
        if embedder is not None:
            options = {"embedder": embedder, "vectors": beside.with_name(beside.name + ".vectors"), **options}
        async with Ledger.open(path, projections=cls.projections(), clock=clock) as ledger:
            relay = cls(
                ledger,
                secret=secret or kept_secret(beside.with_name(beside.name + ".relay-secret")),
                model=model,
                clock=clock,
                **options,
            )
            try:
                yield relay
            finally:
                await relay.aclose()

    async def aclose(self) -> None:
        """Let the providers go that sessions registered; the sessions themselves stay open in the ledger."""
        for session in self._sessions.values():
            await session.keep(_WORTH_KEEPING)
            await session.models.aclose()

    # Sessions

    async def init(
        self,
        app_id: str,
        *,
        role: guard.Role = "OPERATOR",
        binding_secret: bytes | str | None = None,
        config: SessionConfig | dict[str, Any] | None = None,
        later: bool = False,
        session_id: str | None = None,
    ) -> Session:
        """A new session (CRP §1.2); with `later` it is written together with the first thing that happens in it. A
        caller that must not make two gives the id, and gets the one that is there."""
        app_id, _ = guard.validate(app_id, "app_id")
        if not app_id.strip() or len(app_id) > 200:
            raise Problem("invalid_request", "app_id has 1 to 200 characters.", at="$.app_id")
        if role not in guard.ROLES:
            raise Problem("invalid_request", f"{str(role)[:40]!r} is not a role.", at="$.role", known=list(guard.ROLES))
        secret = binding_secret.encode() if isinstance(binding_secret, str) else binding_secret
        if secret is not None and not secret:
            raise Problem("invalid_request", "The binding secret is empty.", at="$.binding_secret")
        settings = config if isinstance(config, SessionConfig) else config_of(config or {})
        if not settings.structural_validation:
            raise Problem(
                "security_invariant",
                "Structural validation cannot be switched off.",
                at="$.config.structural_validation",
            )
        async with self._alone(f"app {app_id}"), self._counting(app_id, later=later):
            if session_id is not None and await self._is_there(session_id):
                return await self.session(session_id, binding_secret=secret)
            await self._check_limit(app_id)
            await self._let_go()
            session_id = session_id or self.ids.uuid4()
            nonce, now = self.randomness.bytes(32), self.clock.now_ms()
            if secret is not None:
                self._bindings[session_id] = secret
            key = guard.session_key(self.binding(session_id), nonce)
            opening = Draft(
                "crp.session.init",
                {
                    "app_id": app_id,
                    "role": role,
                    "bound": secret is not None,
                    "nonce": nonce.hex(),
                    "proof": guard.key_proof(key),
                    "created_ms": now,
                    "expires_ms": now + 1000 * settings.session_timeout,
                    "config": msgspec.to_builtins(settings),
                    **self._kept(session_id, secret),
                },
            )
            warm = Warm()
            warm.apply(opening.type, opening.payload)  # a session is made with its configuration
            session = Session(self, session_id, warm, -1, key)
            session.stage(opening)
            if not later:
                await session.flush()
            self._sessions[session_id] = session
        return session

    def _counting(self, app_id: str, *, later: bool) -> AbstractAsyncContextManager[object]:
        """No other process opens a session of the app between our count and our record. What is written later is
        counted later."""
        return nullcontext() if later else self.locks.at(f"relay-app/{_digest(app_id)}")

    async def _is_there(self, session_id: str) -> bool:
        return (await self.ledger.head(f"relay/{session_id}")).seq >= 0

    def _kept(self, session_id: str, secret: bytes | None) -> dict[str, str]:
        """The caller's binding secret for the other processes of this ledger, sealed with the relay's own. One process
        alone keeps it in memory."""
        if secret is None or not self.locks.shared:
            return {}
        from forestay.relay import state

        return {"sealed": state.seal(self._secret, secret, session_id.encode())}

    def _unseals(self, session_id: str, warm: Warm) -> bool:
        """Whether another process of this ledger left the binding secret for us."""
        if warm.sealed is None or not self.locks.shared:
            return False
        from forestay.relay import state

        try:
            self._bindings[session_id] = state.unseal(self._secret, warm.sealed, session_id.encode())
        except Problem:  # it was sealed for a relay with another secret, and the session came here as an export
            return False
        return True

    async def _let_go(self) -> None:
        """Sessions that are over need neither memory nor snapshots: the ledger still says that they are."""
        now = self.clock.now_ms()
        ended = [name for name, item in self._sessions.items() if item.warm.closed or item.warm.expires_ms <= now]
        over = filter(self._sessions.__contains__, ended)  # asked one by one: another opening may have come first
        for name in over:
            session = self._sessions.pop(name)
            if session.vectors is not None:
                session.vectors.forget()
            await session.models.aclose()
        if self._snapshots is not None and self._snapshots.is_dir():
            going_on = {row["session_id"] for row in await self.sessions()}
            for path in self._snapshots.iterdir():
                if path.name not in going_on:
                    path.unlink(missing_ok=True)

    async def _check_limit(self, app_id: str) -> None:
        rows = await self.ledger.look_up(
            "SELECT count(*) FROM relay_sessions WHERE app = ? AND closed = 0 AND expires_ms > ?",
            (app_id, self.clock.now_ms()),
        )
        if rows[0][0] >= self.max_sessions_per_app:
            raise Problem(
                "session_limit",
                f"The app has {rows[0][0]} open sessions; {self.max_sessions_per_app} are allowed.",
                count=rows[0][0],
                limit=self.max_sessions_per_app,
            )

    async def session(self, session_id: str, *, binding_secret: bytes | str | None = None) -> Session:
        """The session with this id: the one in memory, or folded from the ledger, where it goes on as it stopped."""
        secret = binding_secret.encode() if isinstance(binding_secret, str) else binding_secret
        if (known := self._known(session_id, secret)) is not None:
            return await self._current(known)
        async with self._alone(f"session {session_id}"):
            if (known := self._known(session_id, secret)) is not None:
                return await self._current(known)
            warm, head = await self.fold(session_id)
            is_locked = warm.bound and secret is None and not self._unseals(session_id, warm)
            if secret is not None and warm.bound:
                self._bindings[session_id] = secret
            elif warm.binding is not None:
                from forestay.relay import state

                self._bindings[session_id] = state.unseal(self._secret, warm.binding, session_id.encode())
            key = b"" if warm.closed or is_locked else guard.session_key(self.binding(session_id), warm.nonce)
            session = Session(self, session_id, warm, head, key)
            if key:
                _check_key(session)
                self._spot_check(session)
                if not warm.expired and not self.locks.shared:  # who only looks leaves no trace where others write
                    await session.record(
                        Draft("crp.session.resume", {"facts": len(warm.facts), "windows": warm.windows})
                    )
            self._sessions[session_id] = session
            return session

    async def _current(self, known: Session) -> Session:
        """The session as it stands, also where other processes write it (O5)."""
        if self.locks.shared and not self.locks.has(known.stream_name):
            await known.catch_up()
        return known

    def loaded(self, session_id: str) -> Session | None:
        """The session, where this process has it in memory."""
        return self._sessions.get(session_id)

    def _known(self, session_id: str, secret: bytes | None) -> Session | None:
        """The session in memory, unless the secret that was given opens what it could not."""
        known = self._sessions.get(session_id)
        return known if known is not None and (known.key or secret is None or known.warm.closed) else None

    def _alone(self, name: str) -> asyncio.Lock:
        """One at a time for each app that opens and each session that is folded; others do not wait for them."""
        return self._opening.setdefault(name, asyncio.Lock())

    async def turns(self, session_id: str) -> dict[str, Turned]:
        """The turns that a session's stream holds, by their keys; a closed session's too."""
        return recorded(await self.ledger.read(f"relay/{session_id}") if _is_plain(session_id) else [])

    async def fold(self, session_id: str) -> tuple[Warm, int]:
        """The warm state of a session out of its records, and where its stream stands."""
        if (opened := await self._opened(session_id)) is not None:
            return opened
        records = await self.ledger.read(f"relay/{session_id}") if _is_plain(session_id) else []
        if not records:
            raise Problem("not_found", "There is no such session.", session_id=session_id[:80], fix="Open a session.")
        warm = Warm()
        for record in records:
            warm.apply(record.type, record.payload)
        return warm, records[-1].seq

    async def _opened(self, session_id: str) -> tuple[Warm, int] | None:
        """The state out of the session's snapshot and the records behind it; None where there is no right one."""
        path = self.snapshot_of(session_id)
        if path is None or not path.exists():
            return None
        kept = await asyncio.to_thread(snapshot.read, path, session_id, self._secret)
        if kept is not None:
            warm, head = kept
            records = await self.ledger.read(f"relay/{session_id}", head.seq)
            if records and (records[0].seq, records[0].hash) == (head.seq, head.hash):
                for record in records[1:]:
                    warm.apply(record.type, record.payload)
                return warm, records[-1].seq
        _log.warning("The snapshot of session %s is not one of its state; it is made again.", session_id)
        path.unlink(missing_ok=True)
        return None

    def snapshot_of(self, session_id: str) -> Path | None:
        return self._snapshots / session_id if self._snapshots is not None and _is_plain(session_id) else None

    async def keep(self, session: Session, still: Callable[[], bool]) -> None:
        """Writes the session's snapshot, unless the session changes meanwhile."""
        path = self.snapshot_of(session.id)
        head = await self.ledger.head(session.stream_name)
        if path is not None and head.seq == session.head and still():
            warm, secret = session.warm, self._secret
            warm.read_all()  # the thread only looks
            try:
                if await asyncio.to_thread(snapshot.write, path, warm, session.id, head, secret, still):
                    warm.kept, warm.kept_to = len(warm.facts), head.seq
            except OSError as error:  # the ledger has everything: the next resume takes longer, and that is all
                _log.warning("The snapshot of session %s cannot be written: %s.", session.id, error)

    def _spot_check(self, session: Session) -> None:
        """Every tenth signature; more than a twentieth of them wrong rejects the state (CRP §1.10).

        Facts of a snapshot are covered by its own hash, under this relay's key.
        """
        facts = session.warm.facts
        checked = range(session.warm.kept, len(facts), _SPOT_CHECK)
        bad = sum(1 for number in checked if not verify(facts, number, session.key))
        if bad > _BAD_SHARE * len(checked):
            raise Problem(
                "signature_invalid" if session.warm.bound and bad == len(checked) else "chain_verification_failed",
                "The facts of this session are not signed with this key.",
                session_id=session.id,
                checked=len(checked),
                wrong=bad,
            )

    async def sessions(self, app_id: str | None = None) -> list[dict[str, Any]]:
        """The open sessions, oldest first."""
        rows = await self.ledger.query(
            "SELECT id, app, role, windows, facts, created_ms, expires_ms FROM relay_sessions "
            "WHERE closed = 0 AND expires_ms > ? AND (CAST(? AS TEXT) IS NULL OR app = ?) ORDER BY created_ms, id",
            (self.clock.now_ms(), app_id, app_id),
        )
        names = ("session_id", "app_id", "role", "windows_completed", "facts_in_warm_state", "created_ms", "expires_ms")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def binding(self, session_id: str) -> bytes:
        """What the session's key is derived from: the caller's binding secret, or one derived from the relay's own."""
        return self._bindings.get(session_id) or guard.session_key(self._secret, session_id.encode())

    def _loaded(self) -> tuple[int, int]:
        return len(self._sessions), sum(len(item.warm.facts) for item in self._sessions.values())

    def vectors_of(self, session_id: str) -> Vectors | None:
        """Where the vectors of a session's facts are kept; nothing is embedded unless an embedder was given."""
        if self.embedder is None:
            return None
        from forestay.relay.vectors import Vectors

        return Vectors(self.embedder, self._vectors / session_id if self._vectors is not None else None)

    def forget(self, session_id: str) -> None:
        self._bindings.pop(session_id, None)
        self.forget_snapshot(session_id)

    def forget_snapshot(self, session_id: str) -> None:
        if (path := self.snapshot_of(session_id)) is not None:
            path.unlink(missing_ok=True)

    def drop(self, session_id: str) -> None:
        """Removes a session from memory; the next caller gets it from the ledger."""
        self._sessions.pop(session_id, None)

    async def import_state(
        self,
        data: bytes,
        passphrase: bytes | str,
        *,
        binding_secret: bytes | str | None = None,
        admits: Callable[[str], None] = lambda _app_id: None,
    ) -> Session:
        """A session out of an export (CRP §1.13); `admits` raises where its app is not the caller's."""
        from forestay.relay import state

        def check(session_id: str, warm: Warm) -> None:
            if not _is_plain(session_id) or not warm.app_id:
                raise Problem("state_corrupted", "The file names no session.", session_id=session_id[:80])
            admits(warm.app_id)

        session_id, binding = await state.take_in(self.ledger, data, passphrase, check)
        if binding is not None:
            wrapped = state.seal(self._secret, binding, session_id.encode())
            await self.ledger.append(f"relay/{session_id}", [Draft("crp.session.import", {"binding": wrapped})])
        return await self.session(session_id, binding_secret=binding_secret)

    # The shortest way

    async def default(self) -> Session:
        """The session that `relay.dispatch` and `relay.ingest` use: opened when first needed."""
        if self._default is None or self._default.warm.closed or self.clock.now_ms() >= self._default.warm.expires_ms:
            self._default = await self.init(DEFAULT_APP)
        return self._default

    async def dispatch(self, system_prompt: str, task_input: str, **options: Any) -> Reply:
        return await (await self.default()).dispatch(system_prompt, task_input, **options)

    async def stream(self, system_prompt: str, task_input: str, **options: Any) -> AsyncIterator[StreamEvent]:
        async for event in (await self.default()).stream(system_prompt, task_input, **options):
            yield event

    async def ingest(self, text: str, source_label: str | None = None) -> Any:
        return await (await self.default()).ingest(text, source_label)


def _check_key(session: Session) -> None:
    """Refuses a wrong secret before anything is signed with it."""
    if not hmac.compare_digest(guard.key_proof(session.key), session.warm.proof):
        key = "signature_invalid" if session.warm.bound else "chain_verification_failed"
        raise Problem(key, "This is not the key of the session.", session_id=session.id)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _is_plain(session_id: str) -> bool:
    return len(session_id) == 36 and all(character in "0123456789abcdef-" for character in session_id)
