"""Interrupts for callers: listed with a fresh token, inspected by token, answered once (W7)."""

from __future__ import annotations

from typing import Any

from forestay.kernel import Problem, iso
from forestay.runs import interrupts
from forestay.runs.commands import Resolve
from forestay.runs.engine import Engine
from forestay.runs.interrupts import Claims, Voter
from forestay.runs.secrets import cover
from forestay.runs.state import InterruptState, RunState
from forestay.runs.types import Interrupt, InterruptView, Resolved


class Answering:
    """The open interrupts of an engine's runs; `secret` signs their tokens."""

    def __init__(self, engine: Engine, secret: bytes) -> None:
        self._engine = engine
        self._secret = secret

    def open(self, state: RunState, caller: Voter) -> list[Interrupt]:
        """Return the open interrupts of a run, each with a fresh token for the caller."""
        return [self._shown(state, asked, caller) for asked in state.interrupts.values() if asked.status == "open"]

    async def inspect(self, token: str) -> InterruptView:
        """Return a token's interrupt; `not_found` for a foreign token, `interrupt_expired` when its time is over."""
        claims, state, asked = await self._by_token(token)
        return InterruptView(
            run_id=state.run_id,
            interrupt_id=asked.id,
            node_id=asked.node,
            kind=asked.kind,  # type: ignore[arg-type]
            status=asked.status,  # type: ignore[arg-type]
            expires_at=iso(claims.expires_at),
            data=cover(state, asked.data),
            resume_schema=asked.resume_schema,
        )

    async def resolve_by_token(self, token: str, body: dict[str, Any]) -> Resolved:
        claims, state, asked = await self._by_token(token)
        if isinstance(asked.data, dict) and asked.data.get("profile") == interrupts.AUTH_PROFILE:
            raise Problem(
                "unauthenticated", "This gate takes no token.", fix="Answer with a key that has approvals:respond."
            )
        return await self._resolve(state.run_id, body, Voter(claims.approver), interrupt_id=claims.interrupt_id)

    async def resolve_by_node(self, run_id: str, node_id: str, body: dict[str, Any], caller: Voter) -> Resolved:
        return await self._resolve(run_id, body, caller, node_id=node_id)

    async def _by_token(self, token: str) -> tuple[Claims, RunState, InterruptState]:
        claims = interrupts.read_token(token, self._secret)
        state = await self._engine.state(claims.run_id)
        asked = state.interrupts.get(claims.interrupt_id)
        if asked is None:
            raise Problem("not_found", "There is no such interrupt.")
        now = self._engine.clock.now_ms()
        if now >= claims.expires_at and asked.status == "open":
            raise Problem("interrupt_expired", "The time to answer is over.", expiredAt=iso(claims.expires_at))
        interrupts.check_expired(asked, now)
        return claims, state, asked

    async def _resolve(self, run_id: str, body: dict[str, Any], caller: Voter, **which: str) -> Resolved:
        if not isinstance(body, dict):
            raise Problem("schema_mismatch", "The body must be an object with `resumeValue`.", at="$")
        node, id, resumed = await self._engine.inbox.ask(run_id, Resolve(body, caller, **which))
        state = await self._engine.state(run_id)
        return Resolved(
            run_id=run_id,
            node_id=node,
            interrupt_id=id,
            status=state.status,
            resumed=resumed,
            votes=interrupts.votes_of(state.interrupts[id]),
        )

    def _shown(self, state: RunState, asked: InterruptState, caller: Voter) -> Interrupt:
        expires = self._engine.clock.now_ms() + self._engine.limits.interrupt_token_ms
        due = asked.asked_ms + asked.timeout_ms if asked.timeout_ms is not None else None
        if due is not None:
            expires = min(expires, due)

        def token(approver: str) -> str:
            return interrupts.sign(
                Claims(state.run_id, asked.node, asked.id, expires, "resolve", approver), self._secret
            )

        listed = asked.data.get("approversList") if isinstance(asked.data, dict) else None
        return Interrupt(
            interrupt_id=asked.id,
            node_id=asked.node,
            kind=asked.kind,  # type: ignore[arg-type]
            token=token(caller.name),
            approver_tokens={name: token(name) for name in listed} if listed and caller.delegate else None,
            expires_at=iso(expires),
            data=cover(state, asked.data),
            key=asked.key,
            resume_schema=asked.resume_schema,
            votes=interrupts.votes_of(asked),
            due_at=iso(due) if due is not None else None,
        )
