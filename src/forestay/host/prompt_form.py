"""A capability prompt as an interrupt: its data, and how its answer is read.

The interrupt has the kind `approval` and the `artifactType` `capability-prompt`. Its `artifactData` holds everything
that a person needs to decide; `docs/reference/capabilities.md` describes each field.
"""

from __future__ import annotations

from typing import Any

from forestay.extensions import CHANGING, EXPIRIES, REMEMBER, Answer, Question
from forestay.host.inquiry import Inquiry
from forestay.kernel import Problem, Scope, redact, redact_text

TYPE = "capability-prompt"
DEFAULT = "session"
MAX_SECONDS = 10 * 365 * 86_400
_HELD = ", in every run, as long as the grant holds"
_OPENS = {
    "read": "every file and folder of the project",
    "write": "every file and folder of the project",
    "http": "every public host",
    "env": "every variable that does not look like a secret",
    "tool": "every tool of every extension",
}

ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"enum": ["accept", "reject"]},
        "remember": {"enum": list(REMEMBER)},
        "scope": {"type": "array", "items": {"type": "string", "maxLength": 1024}, "maxItems": 32},
        "everything": {"type": "boolean"},
        "expiresInSeconds": {"type": "integer", "minimum": 1, "maximum": MAX_SECONDS},
        "comment": {"type": "string", "maxLength": 2000},
    },
    "required": ["action"],
}


class CapabilityInquiry(Inquiry[Answer]):
    """May an extension use a capability?"""

    schema = ANSWER

    def __init__(self, question: Question) -> None:
        self.extension = question.extension
        self.name = f"capability:{question.extension}:{question.capability}"
        self._question = question

    def shown(self, key: str, about: dict[str, Any]) -> dict[str, Any]:
        return shown(self._question, key, about)

    def read(self, value: Any, now_ms: int) -> Answer:
        return answer_of(value, self._question, now_ms)

    def lets_change(self, answer: Answer) -> bool:
        return answer.allow and self._question.capability in CHANGING


def shown(question: Question, key: str, about: dict[str, Any]) -> dict[str, Any]:
    """Return the interrupt's data."""
    on = f" ({question.resource})" if question.resource else ""
    details: dict[str, Any] = {
        **about,
        "extension": question.extension,
        "capability": question.capability,
        "method": question.method,
        "resource": question.resource,
        "allows": _allows(question),
        "decision": {
            "effect": "prompt",
            "rule": question.rule,
            "reason": question.reason,
            "evidence": question.evidence,
        },
        "loss": _loss(question),
        "sandbox": question.note or None,
        "choices": {
            "remember": [{"value": name, "means": means} for name, means in REMEMBER.items()],
            "default": DEFAULT,
            "scopes": _scopes(question),
            "everything": everything(question),
            "expiry": "always",
            "expiries": [{"seconds": seconds, "means": f"a {name}"} for name, seconds in EXPIRIES.items()],
        },
    }
    return {
        "artifactId": key[-200:],
        "artifactType": TYPE,
        "title": redact_text(f"May {question.extension} {question.meaning}?{on}"),
        "description": redact_text(question.reason),
        "actions": ["accept", "reject"],
        "artifactData": redact({name: value for name, value in details.items() if value is not None}),
    }


def answer_of(value: Any, question: Question, now_ms: int) -> Answer:
    """Return the person's answer. Everything but a clear yes is a no, and so is a yes with an invalid scope."""
    value = value if isinstance(value, dict) else {}
    comment = str(value.get("comment") or value.get("feedback") or "")
    remember = value.get("remember") if value.get("remember") in REMEMBER else DEFAULT
    seconds = value.get("expiresInSeconds")
    expires = now_ms + seconds * 1000 if isinstance(seconds, int) and not isinstance(seconds, bool) else None
    scope = tuple(item for item in value.get("scope") or () if isinstance(item, str) and item)
    wide = value.get("everything") is True
    if value.get("action") != "accept":
        return Answer(False, remember, scope if _valid(question, scope) else (), expires, comment)  # type: ignore[arg-type]
    if not _valid(question, scope):
        told = f"{', '.join(scope)[:200]} is no scope of {question.capability}. {comment}".strip()
        return Answer(False, "once", comment=told)
    if wide and scope:
        return Answer(False, "once", comment=f"`everything` and `scope` were both given. {comment}".strip())
    return Answer(True, remember, scope, expires, comment, wide)  # type: ignore[arg-type]


def _valid(question: Question, scope: tuple[str, ...]) -> bool:
    if not scope:
        return True
    try:
        Scope.of(question.capability, scope)
    except Problem:
        return False
    return True


def _allows(question: Question) -> str:
    where = " in the sandbox described below" if question.note else ""
    what = f" ({', '.join(question.scope)} only)" if question.limitable and question.scope else ""
    held = ", for this call only" if question.limitable and not question.scope else _HELD
    return f"{question.extension} could {question.meaning}{what}{where}{held}."


def everything(question: Question) -> dict[str, str] | None:
    """Say what a yes without a limit opens; None for a capability that has no limits (P16)."""
    if not question.limitable:
        return None
    opens = _OPENS.get(question.capability, f"{question.capability}, without a limit")
    return {"means": f"{question.extension} could {question.meaning}: {opens}{_HELD}."}


def _scopes(question: Question) -> list[dict[str, Any]]:
    """Return the scopes to choose from: what was asked about, as patterns, or the whole capability."""
    if not question.limitable:
        return [{"scope": [], "means": f"{question.capability}, without a limit: it cannot be narrower"}]
    scope = question.scope
    if not scope or list(scope) != [redact_text(item) for item in scope]:
        return []
    return [{"scope": list(scope), "means": f"{question.capability} of {', '.join(scope)} only"}]


def _loss(question: Question) -> dict[str, Any] | None:
    found = question.weighed
    if found is None:
        return None
    return {
        "advice": found.effect,
        "words": found.words,
        "probability": found.probability,
        "lossGrant": found.loss_grant,
        "lossDeny": found.loss_deny,
        "arithmetic": found.arithmetic,
    }
