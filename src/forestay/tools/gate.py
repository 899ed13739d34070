"""What stands before a tool call: policy, the person that policy asks, and the guard of what happens once.

Policy is the kernel's evaluator, asked about a tool by its effect class.

K1  A tool that only computes or reads is allowed unless the settings deny it; every other goes by the mode.
K2  A denial wins over an allowance.
K3  Every decision is a record of the stream `audit`, written before the call.
K4  The name of a built-in tool allows that one only: what an extension puts in its place is allowed by its own id.

A tool's effect happens once: what began is marked, and what nobody knows about is put to a person.

G1  A recorded value is given back; the function is not called.
G2  What may not be repeated (`recover`) leaves a mark before it begins. A mark of an earlier life without a recorded
    value is Problem `effect_uncertain`, with everything that is known.
G3  What may be repeated leaves no mark: it costs one record, not two.
G4  A mark is for `later`: it is in the log before the effect begins, because an effect is not for later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from forestay.kernel import AUDIT, Agents, Append, Clock, Decision, Draft, Grant, Policy, Problem, Request, iso
from forestay.tools.builtin import BUILT_IN
from forestay.tools.tool import EffectClass, Tool


class Gate(Protocol):
    """Policy, asked before every tool call."""

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision: ...


Write = Callable[[Append], Awaitable[object]]
"""Writes an append to disk, alone or together with the caller's own records, and then returns."""


class ToolGate:
    """The gate of one subject, an agent or a workflow; `about` says in the record where the call comes from."""

    def __init__(
        self, settings: Agents, write: Write, clock: Clock, subject: str, about: dict[str, Any] | None = None
    ) -> None:
        self._settings = settings
        self._write = write
        self._clock = clock
        self._subject = subject
        self._about = about or {}

    async def decide(self, tool: Tool, arguments: dict[str, Any]) -> Decision:
        decision = gated(self._settings, self._clock, self._subject, tool)
        said = {"tool": tool.id or tool.name, "effect": decision.effect, "rule": decision.rule}
        payload = {**self._about, **decision.evidence, **said, "reason": decision.reason}
        await self._write(Append(AUDIT, [Draft("policy.decision", payload)]))
        return decision


def gated(settings: Agents, clock: Clock, subject: str, tool: Tool) -> Decision:
    """What the settings say about a tool and a subject (K1, K2)."""
    grant = Grant(f"tool.{tool.effect}", methods=(tool.name,))
    policy = Policy(settings.mode, defaults=[Grant("tool.pure"), Grant("tool.read")], clock=clock)
    if any(_fits(name, settings.allow) for name in (tool.id, "" if _is_replacement(tool) else tool.name)):
        policy = policy.allowing(subject, grant)
    if any(_fits(name, settings.deny) for name in (tool.id, tool.name)):
        policy = policy.denying(subject, grant)
    return policy.decide(Request(subject, grant.capability, tool.name))


def _is_replacement(tool: Tool) -> bool:
    """K4."""
    return tool.name in BUILT_IN and tool.id != BUILT_IN[tool.name].tool.id


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns if name)


class ApprovalRequest(msgspec.Struct, frozen=True):
    """A question for a person. `actions` are the answers that mean something here."""

    kind: Literal["approval", "uncertain-effect", "low-confidence"]
    title: str
    reason: str
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    known: dict[str, Any] = {}
    actions: tuple[str, ...] = ("accept", "reject")


class ApprovalAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the person said; `edit-accept` carries other arguments."""

    action: Literal["accept", "reject", "edit-accept"]
    arguments: dict[str, Any] | None = None
    note: str = ""


class Approvals(Protocol):
    """Interrupts of a run. A key is asked at most once in the life of the run (OpenWOP §1.8)."""

    async def ask(self, key: str, request: ApprovalRequest) -> ApprovalAnswer:
        """The answer; while there is none this waits, or leaves by an exception that suspends the node."""


async def approved(
    approvals: Approvals, key: str, caller: str, tool: Tool, arguments: dict[str, Any], reason: str, **known: Any
) -> ApprovalAnswer:
    """What a person says of the call. Edited arguments are validated; arguments that do not fit are a rejection."""
    request = ApprovalRequest(
        "approval",
        f"May the {caller} call {tool.name}?",
        reason,
        tool=tool.name,
        arguments=arguments,
        known={**known, "effect": tool.effect},
        actions=("accept", "reject", "edit-accept"),
    )
    answer = await approvals.ask(key, request)
    if answer.action != "edit-accept":
        return ApprovalAnswer(answer.action, note=answer.note)
    try:
        return ApprovalAnswer("edit-accept", tool.fit(answer.arguments or {}), answer.note)
    except Problem as problem:
        return ApprovalAnswer("reject", note=f"The edited arguments do not fit: {problem.message}")


T = TypeVar("T")


class Effects(Protocol):
    """The durable invocation log of a run's node (OpenWOP §1.5, layer 2)."""

    async def perform(
        self,
        key: str,
        fn: Callable[[], Awaitable[Any]],
        cls: EffectClass = "unsafe",
        idempotency_key: str | None = None,
        later: bool = False,
    ) -> Any:
        """The recorded value of `key`; when there is none, that of `fn()`, recorded before it is returned.

        With `later` (for what may run again) it is recorded before the next effect begins that is not for later.

        A `key` that began and was not recorded is decided by `recover`: run again, or Problem `effect_uncertain`.
        Values are JSON.
        """


class Once(Protocol):
    """A log's promise: the value recorded under `key`, else that of `fn()`, on disk before it is returned; with `later`
    on disk before the next `fn` is called that is not for later."""

    async def __call__(self, key: str, fn: Callable[[], Awaitable[Any]], /, *, later: bool = False) -> Any: ...


class Guarded:
    """`Effects` over `once`; `life` names this execution and no other."""

    def __init__(self, once: Once, life: str, clock: Clock) -> None:
        self._once = once
        self._life = life
        self._clock = clock

    async def perform(
        self,
        key: str,
        fn: Callable[[], Awaitable[Any]],
        cls: EffectClass = "unsafe",
        idempotency_key: str | None = None,
        later: bool = False,
    ) -> Any:
        if recover(cls, idempotency_key) == "again":
            return await self._once(key, fn, later=later)
        mark = await self._once(f"{key}#begun", self._mark, later=True)

        async def body() -> Any:
            if mark["life"] != self._life:
                raise Problem(
                    "effect_uncertain",
                    "This began before the process died, and nobody knows whether it was done.",
                    effect_key=key,
                    effect_class=cls,
                    begun_at=mark["at"],
                )
            return await fn()

        return await self._once(key, body)

    async def _mark(self) -> dict[str, str]:
        return {"life": self._life, "at": iso(self._clock.now_ms())}


def recover(cls: EffectClass, idempotency_key: str | None) -> Literal["again", "ask"]:
    """What to do with an effect that began and was not recorded when the process died: its class decides.

    `pure` and `read` run again, `write` with a key runs again under that key, everything else asks a person.
    """
    if cls in ("pure", "read"):
        return "again"
    return "again" if cls == "write" and idempotency_key is not None else "ask"


async def once_or_ask(
    key: str,
    perform: Callable[[str], Awaitable[T]],
    approvals: Approvals,
    tool: Tool,
    arguments: dict[str, Any],
    *,
    otherwise: str,
    rejected: Callable[[ApprovalAnswer, Problem], T],
    **known: Any,
) -> T:
    """`perform(key)`. Where nobody knows whether it was done, a person is asked: it runs again under another key, or
    `rejected` gives the value to go on with. `otherwise` tells the person what a rejection does."""
    while True:
        try:
            return await perform(key)
        except Problem as problem:
            if problem.key != "effect_uncertain":
                raise
            request = ApprovalRequest(
                "uncertain-effect",
                f"Was {tool.name} done? The process died while it ran.",
                f"Accept to run it again; reject to {otherwise}",
                tool=tool.name,
                arguments=arguments,
                known={**known, "effect": tool.effect, **problem.details},
            )
            answer = await approvals.ask(f"{key}/uncertain", request)
            if answer.action == "reject":
                return rejected(answer, problem)
            key += "/again"
