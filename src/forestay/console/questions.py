"""A run's open question as a form: what it asks and why, and the answer that the form's fields mean.

H1  The form offers only what the question takes; typed values are checked before they are sent.
H2  A capability prompt shows policy's decision and the expected cost of each answer (Pi §5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from forestay.extensions import EXPIRIES
from forestay.kernel import SCOPED, Problem, Scope, canonical
from forestay.runs import Prompt, title_of

T = TypeVar("T")
PROMPT = "capability-prompt"
MOST_TOGETHER = 40  # a form has at most fifty fields
SIGN_IN = "mcp-sign-in"
_ACTIONS = {"accept": "Approve", "reject": "Reject", "refine": "Ask for changes"}
_PROMPT_LINES = {
    "capability": "capability",
    "method": "method",
    "resource": "on",
    "tool": "for the tool",
    "allows": "saying yes means",
    "sandbox": "sandbox",
}
_TEXTUAL = ("string", None)


class Asked(msgspec.Struct, frozen=True):
    """One question of a clarification; it takes only `choices`, when there are any."""

    id: str
    text: str
    kind: str
    choices: list[str]


class Loss(msgspec.Struct, frozen=True, rename="camel"):
    """The expected cost of each answer, with the arithmetic."""

    advice: Literal["grant", "deny"]
    probability: float
    loss_grant: float
    loss_deny: float
    arithmetic: list[str] = []
    words: str = ""


class Ruled(msgspec.Struct, frozen=True):
    """The policy rule that made the prompt."""

    rule: str = ""


class Remember(msgspec.Struct, frozen=True):
    """One choice of how long an answer holds."""

    value: str = ""
    means: str = ""


class Limit(msgspec.Struct, frozen=True):
    """A scope that an answer may be limited to."""

    scope: tuple[str, ...] = ()


class Question(Prompt, frozen=True):
    """An open interrupt and its run, for the form; `inputs` only if the visitor may read them."""

    inputs: dict[str, Any] | None = None

    @property
    def title(self) -> str:
        """The title of the run that asks."""
        return title_of(self.inputs or {})

    @property
    def data(self) -> dict[str, Any]:
        return self.interrupt.data if isinstance(self.interrupt.data, dict) else {}

    @property
    def about(self) -> dict[str, Any]:
        found = self.data.get("artifactData")
        return found if isinstance(found, dict) else {}

    @property
    def form(self) -> str:
        """The form that answers it: `prompt`, `gate`, `clarification` or `free`."""
        if self.data.get("artifactType") == PROMPT:
            return "prompt"
        if self.interrupt.kind in ("approval", "low-confidence"):
            return "gate"
        return "clarification" if self.interrupt.kind == "clarification" and self.asked else "free"

    @property
    def label(self) -> str:
        return "capability" if self.form == "prompt" else self.interrupt.kind

    @property
    def reason(self) -> str:
        """The reason for the question, if it says more than the title."""
        said = self.data.get("description")
        return said if isinstance(said, str) and said != self.text else ""

    @property
    def details(self) -> list[tuple[str, Any]]:
        """The subject of the question, as labelled lines."""
        if self.form == "prompt":
            rule = (_read(self.about.get("decision"), Ruled) or Ruled()).rule
            lines = [(label, self.about.get(name)) for name, label in _PROMPT_LINES.items()]
            return [(label, value) for label, value in [*lines, ("rule", rule)] if value]
        first = [name for name in ("tool", "arguments", "agentId", "effect") if name in self.about]
        rest = [name for name in self.about if name not in first]
        return [("agent" if name == "agentId" else name, self.about[name]) for name in (*first, *rest)]

    @property
    def actions(self) -> list[tuple[str, str]]:
        """The buttons of a gate; by default accept and reject."""
        return [(name, label) for name, label in _ACTIONS.items() if name in (self._offered or ("accept", "reject"))]

    @property
    def editable(self) -> Any:
        """The arguments that a person may change before approving, or None."""
        return self.about.get("arguments") if "edit-accept" in self._offered else None

    @property
    def _offered(self) -> list[str]:
        return _read(self.data.get("actions"), list[str]) or []

    def waits_for(self, state: str) -> bool:
        """Whether it asks for the sign-in at a server that has this `state`."""
        asked = urlsplit(str(self.about.get("open", ""))).query if self.data.get("artifactType") == SIGN_IN else ""
        return state in parse_qs(asked).get("state", [])

    @property
    def loss(self) -> Loss | None:
        return _read(self.about.get("loss"), Loss)

    @property
    def remembers(self) -> list[Remember]:
        return _read(_choices(self.about).get("remember"), list[Remember]) or []

    @property
    def remembered(self) -> str:
        """The preselected choice: the shortest."""
        return "once" if any(item.value == "once" for item in self.remembers) else ""

    @property
    def scope(self) -> str | None:
        """The narrowest scope that covers the request; None when the capability has no scope."""
        if self.about.get("capability") not in SCOPED:
            return None
        offered = _read(_choices(self.about).get("scopes"), list[Limit]) or []
        narrowest = max((list(item.scope) for item in offered), key=lambda scope: len(scope), default=[])
        return ", ".join(narrowest)

    @property
    def everything(self) -> str:
        """What a yes to the whole capability allows; empty when a yes cannot be narrower."""
        return (_read(_choices(self.about).get("everything"), Remember) or Remember()).means

    @property
    def asked(self) -> list[Asked]:
        found = self.data.get("questions")
        return [_asked(item) for item in found if isinstance(item, dict)] if isinstance(found, list) else []


class Group(msgspec.Struct, frozen=True):
    """Approvals of one workflow with the same text, so that one answer may fit them all."""

    text: str
    workflow_id: str
    items: list[Question]

    @property
    def actions(self) -> list[tuple[str, str]]:
        """The actions that all of them take without typed text."""
        return [item for item in self.items[0].actions if item[0] in ("accept", "reject")]


def groups(questions: list[Question]) -> list[Group]:
    """Return the groups of at least two gates. A capability prompt is in none: a person decides each by itself."""
    found: dict[tuple[str, str, str], list[Question]] = {}
    for item in questions:
        if item.form == "gate":
            names = ",".join(name for name, _ in item.actions)
            found.setdefault((item.workflow_id, item.text, names), []).append(item)
    return [Group(key[1], key[0], items[:MOST_TOGETHER]) for key, items in found.items() if len(items) > 1]


def answer_of(form: Mapping[str, str], question: Question | None) -> Any:
    """Return the resume value of a form (H1)."""
    if question is not None and question.form == "prompt":
        return _prompt(form, question)
    if question is not None and question.form == "clarification":
        return {"answers": {item.id: _typed(form, place, item) for place, item in enumerate(question.asked)}}
    action, text = form.get("action"), form.get("value", "").strip()
    if action == "edit-accept":
        return {"action": action, "editedArtifactData": {"arguments": _edited(form)}, **_comment(text)}
    if action == "refine":
        return {"action": action, "feedback": text}
    if action:
        return {"action": action, **_comment(text)}
    if not text:
        raise Problem("schema_mismatch", "The answer is empty.", at="value")
    return canonical.decode(text) if text[0] in '{["' or text in ("true", "false", "null") else text


def _prompt(form: Mapping[str, str], question: Question) -> dict[str, Any]:
    answer: dict[str, Any] = {"action": "accept" if form.get("action") == "accept" else "reject"}
    answer |= _comment(form.get("value", "").strip())
    remember, expiry = form.get("remember", ""), form.get("expiry", "")
    if remember:
        answer["remember"] = remember
    if remember == "always" and expiry:
        if expiry not in EXPIRIES:
            raise Problem("schema_mismatch", "The answer holds for an hour, a day, a week or until it is taken back.")
        answer["expiresInSeconds"] = EXPIRIES[expiry]
    scope = tuple(part.strip() for part in form.get("scope", "").split(",") if part.strip())
    if form.get("everything") == "yes":
        answer["everything"] = True
    elif scope and remember != "once":
        Scope.of(str(question.about.get("capability", "")), scope)  # raises a Problem when it is no scope
        answer["scope"] = list(scope)
    return answer


def _typed(form: Mapping[str, str], place: int, item: Asked) -> Any:
    text = form.get(f"answer-{place}", "").strip()
    if not text:
        raise Problem("schema_mismatch", f"The question {item.id!r} has no answer.", at=item.id)
    return text if item.kind in _TEXTUAL else canonical.decode(text)


def _edited(form: Mapping[str, str]) -> Any:
    edited = canonical.decode(form.get("edited", "").strip() or "null")
    if not isinstance(edited, dict):
        raise Problem("schema_mismatch", "The changed arguments are a JSON object.", at="edited")
    return edited


def _comment(text: str) -> dict[str, str]:
    return {"comment": text} if text else {}


def _choices(about: dict[str, Any]) -> dict[str, Any]:
    found = about.get("choices")
    return found if isinstance(found, dict) else {}


def _read(value: Any, kind: type[T]) -> T | None:
    """Read a part of a question, which a workflow's author may have written; None when it does not fit `kind`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _asked(item: dict[str, Any]) -> Asked:
    schema: dict[str, Any] = item["schema"] if isinstance(item.get("schema"), dict) else {}
    kind, listed = schema.get("type", "string"), schema.get("enum")
    choices = [str(value) for value in listed] if isinstance(listed, list) else []
    if kind == "boolean":
        choices = ["true", "false"]
    text = next((str(item[name]) for name in ("question", "text", "prompt", "label") if item.get(name)), "")
    id = str(item.get("id", ""))
    return Asked(id, text or id, kind if isinstance(kind, str) else "any", choices)
