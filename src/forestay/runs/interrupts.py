"""Interrupts: questions to people and systems, their signed tokens, and their answers (OpenWOP §1.8, W7).

- I1  A token is bound to one interrupt of one run and to a time; logs and snapshots never contain one.
- I2  An interrupt is answered once: of two answers exactly one wins, the other gets `interrupt_already_resolved`.
- I3  An answer is checked before it is accepted: the action was offered, and every question has its answer.
- I4  A vote belongs to a voter, and each voter votes once. The voter is the caller, a person whom the caller may speak
      for, or the approver that a token names (W18).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgspec

from forestay.kernel import Problem, base64url, canonical, iso, misfit
from forestay.runs.decider import correlates, resolve_events
from forestay.runs.state import Event, InterruptState, RunState

AUTH_PROFILE = "openwop-interrupt-auth-required"
NOBODY = "anonymous"  # the approver of a token that names none


class Voter(msgspec.Struct, frozen=True):
    """The person or system that answers; with `delegate` it may answer for another person whom it names."""

    name: str
    delegate: bool = False


class Claims(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The content of a token. `approver` answers with it: the caller who requested it, or one of the gate's
    approvers."""

    run_id: str
    node_id: str
    interrupt_id: str
    expires_at: int
    intent: str
    approver: str = NOBODY


class Answer(msgspec.Struct, frozen=True):
    """The events of an answer; `resumed` says whether the run continues."""

    events: list[Event]
    resumed: bool


def sign(claims: Claims, secret: bytes) -> str:
    body = base64url.encode(canonical.encode(claims))
    return f"{body}.{_seal(body, secret)}"


def read_token(token: str, secret: bytes) -> Claims:
    """Return the claims of a token that this host signed; any other is `not_found`."""
    body, _, seal = token.partition(".")
    if len(token) > 2048 or not token.isascii() or not hmac.compare_digest(seal, _seal(body, secret)):
        raise Problem("not_found", "There is no such interrupt.")
    return canonical.decode(base64url.decode(body), Claims)


def _seal(body: str, secret: bytes) -> str:
    digest = hmac.new(secret, b"openwop:interrupt\0" + body.encode(), hashlib.sha256).digest()
    return base64url.encode(digest)


def find_open(state: RunState, node_id: str, now: int) -> InterruptState:
    """Return the open interrupt of a node, or raise the Problem that says why there is none (W7)."""
    if node_id not in state.nodes:
        raise Problem("not_found", f"The run has no node {node_id[:128]!r}.", nodeId=node_id[:128])
    asked = [item for item in state.interrupts.values() if item.node == node_id]
    for item in asked:
        if item.status == "open":
            return item
    if not asked:
        raise Problem("not_found", f"The node {node_id!r} has no interrupt.", nodeId=node_id)
    check_open(asked[-1], now)
    raise AssertionError("unreachable")


def check_open(asked: InterruptState, now: int) -> None:
    """Refuse an interrupt that cannot be answered."""
    check_expired(asked, now)
    if asked.status == "resolved":
        raise Problem("interrupt_already_resolved", "This interrupt is already answered.", interruptId=asked.id)
    if asked.withdrawn:
        message = "The run that asked was cancelled together with its parent run."
        raise Problem("interrupt_expired", message, interruptId=asked.id)
    if asked.status == "cancelled":
        raise Problem("interrupt_cancelled", "The run has ended; there is nothing to answer.", interruptId=asked.id)


def check_expired(asked: InterruptState, now: int) -> None:
    """Refuse an interrupt whose timeout has passed, in every state of the run (W19).

    An interrupt that was answered in time stays answered (W7).
    """
    if asked.timeout_ms is None or (asked.status == "resolved" and not asked.timed_out):
        return
    until = asked.asked_ms + asked.timeout_ms
    if asked.timed_out or now >= until:
        raise Problem("interrupt_expired", "The time to answer is over.", expiredAt=iso(until), interruptId=asked.id)


def answer(asked: InterruptState, body: dict[str, Any], caller: Voter, now: int) -> Answer:
    """Answer an open interrupt with `body`; a Problem when it is not a valid answer."""
    check_open(asked, now)
    value = body.get("resumeValue", body)
    voter = _voter(asked, body, caller)
    if asked.resume_schema is not None:
        _fits(asked.resume_schema, value, "$.resumeValue")
    if asked.kind == "approval":
        return _approval(asked, value, voter, now)
    if asked.kind == "clarification":
        return _clarification(asked, value, voter)
    if asked.kind == "external-event" and not correlates(asked.data.get("correlation", {}), value):
        raise Problem(
            "correlation_mismatch",
            "The event does not match the correlation of this interrupt.",
            at="$.resumeValue",
            expected=sorted(asked.data.get("correlation", {})),
        )
    if asked.kind == "conversation.exchange" and (schema := asked.data.get("outcomeSchema")):
        _fits(schema, value, "$.resumeValue")
    return Answer(resolve_events(asked, value), True)


def _fits(schema: dict[str, Any], value: Any, at: str) -> None:
    found = misfit(schema, value)
    if found is not None:
        raise Problem("schema_mismatch", f"The answer does not fit: {found[1]}", at=at + found[0])


def _approval(asked: InterruptState, value: Any, voter: str, now: int) -> Answer:
    offered = asked.data.get("actions", [])
    action = value.get("action") if isinstance(value, dict) else None
    if not isinstance(action, str) or action not in offered:
        raise Problem(
            "invalid_request", f"{action!r} is not an action of this gate.", at="$.resumeValue.action", actions=offered
        )
    if (listed := asked.data.get("approversList")) and voter not in listed:
        raise Problem("permission_denied", f"{voter} is not one of this gate's approvers.", interruptId=asked.id)
    if action == "ask":
        question = {"nodeId": asked.node, "interruptId": asked.id, "question": value.get("question"), "askedBy": voter}
        return Answer([Event("forestay.approval.asked", question, asked.node)], False)
    needed = asked.data.get("requiredApprovals", 1)
    if voter in asked.votes:
        raise Problem("interrupt_already_resolved", f"{voter} has voted already.", interruptId=asked.id)
    events = _votes(asked, action, value, voter, needed)
    if needed > 1 and not _decided(asked, action, needed):
        return Answer(events, False)
    received: dict[str, Any] = {"nodeId": asked.node, "action": action, "decidedBy": voter, "decidedAt": iso(now)}
    for key in ("comment", "feedback", "refineFeedback", "editedArtifactData"):
        if value.get(key) is not None:
            received[key] = value[key]
    events.append(Event("approval.received", received, asked.node))
    return Answer([*events, *resolve_events(asked, {**value, "decidedBy": voter})], True)


_NAMES = ("voter", "approverId", "voterId")


def _voter(asked: InterruptState, body: dict[str, Any], caller: Voter) -> str:
    """Return the voter: the caller, or a person whom the caller names and may speak for (I4)."""
    value = body.get("resumeValue")
    given = [part[key] for part in (body, value) if isinstance(part, dict) for key in _NAMES if key in part]
    if asked.kind != "approval" or not given:
        return caller.name
    if not all(isinstance(name, str) and name == given[0] and 0 < len(name) <= 256 for name in given):
        raise Problem("invalid_request", "`voter` must be one name.", at="$.voter")
    if given[0] != caller.name and not caller.delegate:
        raise Problem(
            "permission_denied",
            f"{caller.name} cannot vote for {given[0]}.",
            at="$.voter",
            requiredScopes=["approvals:delegate"],
            fix="Vote with a key or a token of that voter, or with a key that has the scope approvals:delegate.",
        )
    return str(given[0])


def _votes(asked: InterruptState, action: str, value: dict[str, Any], voter: str, needed: int) -> list[Event]:
    private = {"interrupt": asked.id, "voter": voter}
    if action in ("accept", "edit-accept"):
        granted = sum(vote == "accept" for vote in asked.votes.values()) + 1
        progress = {"granted": granted, "required": needed}
        payload: dict[str, Any] = {"gateId": asked.node, "principal": voter, "quorumProgress": progress}
        return [Event("approval.granted", payload, asked.node, private)]
    if action == "reject":
        payload = {"gateId": asked.node, "principal": voter}
        if isinstance(value.get("comment"), str):
            payload["reason"] = value["comment"]
        return [Event("approval.rejected", payload, asked.node, private)]
    return []


def _decided(asked: InterruptState, action: str, needed: int) -> bool:
    """Whether this vote completes the quorum, or makes it impossible."""
    votes = list(asked.votes.values())
    if action in ("accept", "edit-accept"):
        return votes.count("accept") + 1 >= needed
    if action == "reject" and asked.data.get("rejectionPolicy", "single-veto") == "majority":
        return (votes.count("reject") + 1) * 2 > needed
    return True


def _clarification(asked: InterruptState, value: Any, voter: str) -> Answer:
    """Check the answers, an object by question id (W7)."""
    answers = value.get("answers", value) if isinstance(value, dict) else None
    if not isinstance(answers, dict):
        raise Problem("invalid_request", "The answers must be an object by question id.", at="$.resumeValue")
    for question in asked.data["questions"]:
        id = question["id"]
        if id not in answers:
            raise Problem("invalid_request", f"The question {id!r} has no answer.", at=f"$.resumeValue.answers.{id}")
        if "schema" in question:
            _fits(question["schema"], answers[id], f"$.resumeValue.answers.{id}")
    payload: dict[str, Any] = {"nodeId": asked.node, "answers": answers, "answeredBy": voter}
    told = Event("clarification.resolved", payload, asked.node)
    return Answer([told, *resolve_events(asked, {"answers": answers})], True)


def votes_of(asked: InterruptState) -> dict[str, Any] | None:
    if asked.kind != "approval" or asked.data.get("requiredApprovals", 1) <= 1:
        return None
    votes = list(asked.votes.values())
    return {
        "granted": votes.count("accept"),
        "rejected": votes.count("reject"),
        "required": asked.data["requiredApprovals"],
    }
