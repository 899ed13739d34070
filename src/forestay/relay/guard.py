"""What comes in is checked, always: validation, injection markers, roles, signatures, rates (CRP §1.10, C7, C11, C15).

Invariants:

- G1  Validation cannot be switched off; it runs before anything is stored or sent.
- G2  Injection markers are advice: they are counted and located in code points of the raw input. Only an ingested fact
      that holds an instruction to the model is kept back, and can be restored (C16).
- G3  A signature is checked in constant time against what the caller signed; the relay never signs for a caller.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import unicodedata
from collections import deque
from functools import cache, lru_cache, reduce
from typing import Any, Literal, TypeVar

import msgspec

from forestay.kernel import Clock, Decision, Draft, Grant, Policy, Problem, Request, SubjectRules, canonical
from forestay.relay.types import InjectionMarker, SecurityFlags, SessionConfig, TaskIntent

T = TypeVar("T")

MAX_INPUT_BYTES = 50_000_000
_MARKERS_REPORTED = 1000
_MARKERS_KEPT = 100

Role = Literal["OBSERVER", "OPERATOR", "ADMIN"]
ROLES: tuple[Role, ...] = ("OBSERVER", "OPERATOR", "ADMIN")

# Every operation with the least role that may do it; the capabilities of a handle are what its role may do.
OPERATIONS: dict[str, Role] = {
    "session_status": "OBSERVER",
    "estimate_session": "OBSERVER",
    "close": "OBSERVER",
    "dispatch": "OPERATOR",
    "dispatch_intent": "OPERATOR",
    "dispatch_stream": "OPERATOR",
    "dispatch_tools": "OPERATOR",
    "dispatch_reflexive": "OPERATOR",
    "dispatch_progressive": "OPERATOR",
    "dispatch_stream_augmented": "OPERATOR",
    "dispatch_agentic": "OPERATOR",
    "ingest": "OPERATOR",
    "preview_envelope": "OPERATOR",
    "facts": "OPERATOR",
    "share_facts": "OPERATOR",
    "fact_feedback": "OPERATOR",
    "restore_facts": "OPERATOR",
    "register_provider": "OPERATOR",
    "configure": "ADMIN",
    "reset_session": "ADMIN",
    "export_state": "ADMIN",
    "import_state": "ADMIN",
}

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

# RE2: linear in the input whatever it holds, and fifty times faster than the standard library on text without a match.
_MARKERS: tuple[tuple[str, str], ...] = tuple(
    (name, "(?im)" + pattern)
    for name, pattern in (
        (
            "tag_injection",
            r"</?(?:system|assistant|user|human|instructions?|prompt)\s*>|<\|im_(?:start|end)\|>|\[/?INST\]|<</?SYS>>",
        ),
        (
            "override_attempt",
            r"\b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|the\s+|your\s+|of\s+){0,3}(?:previous|prior|above|earlier|preceding)\s+"
            r"(?:instructions?|prompts?|rules?|context|messages?|directives?)",
        ),
        (
            "override_attempt",
            r"\b(?:do\s+not|don't|stop)\s+(?:follow(?:ing)?|obey(?:ing)?|comply(?:ing)?\s+with)\s+(?:the\s+|your\s+|any\s+){0,2}"
            r"(?:previous\s+|prior\s+|above\s+|system\s+)?(?:instructions?|prompts?|rules?)",
        ),
        (
            "role_reassignment",
            r"\b(?:you\s+are\s+now|act\s+as|pretend\s+(?:to\s+be|you\s+are)|from\s+now\s+on\s+you\s+are)\s+(?:an?\s+|the\s+)?\w+",
        ),
        (
            "instruction_injection",
            r"\b(?:new|updated|revised|real|actual)\s+(?:system\s+)?(?:instructions?|prompt|directives?)\s*:"
            r"|^[ \t]*(?:system|assistant)[ \t]*:\s",
        ),
        (
            "encoded_payload",
            r"\b(?:base64|b64decode|atob|rot13|fromCharCode)\b\s*[:(]|(?:\\x[0-9a-f]{2}){8,}|(?:\\u[0-9a-f]{4}){6,}|[A-Za-z0-9+/]{200,}={1,2}",
        ),
        (
            "control_char_injection",
            r"[\x{200b}-\x{200f}\x{202a}-\x{202e}\x{2060}-\x{2064}\x{2066}-\x{2069}\x{feff}\x00-\x08\x0b\x0c\x0e-\x1f\x7f]",
        ),
        (
            "tool_invocation_attempt",
            r"<(?:tool_call|function_call|invoke|tool_use)\b|\"(?:tool_calls|function_call)\"\s*:|\b(?:call|invoke|execute|run)\s+(?:the\s+)?(?:tool|function)\s+[\"'`]?\w+",
        ),
    )
)
# What tells a model to act against its caller, in any text: facts with these are kept back (C16). The other markers are
# advice, because ordinary texts hold them too: a chat has lines that begin with `Assistant:`, a manual has `<user>`.
_INJECTED: tuple[tuple[str, str], ...] = (
    *(item for item in _MARKERS if item[0] == "override_attempt"),
    ("tag_injection", r"(?i)<\|im_(?:start|end)\|>|\[/?INST\]|<</?SYS>>"),
    (
        "instruction_injection",
        r"(?i)\b(?:new|updated|revised|real|actual)\s+system\s+(?:instructions?|prompt|directives?)\s*:",
    ),
)
# All eight at once: most texts hold none of them, and are read once to know it.
_ANY = "|".join(f"(?:{pattern})" for _, pattern in _MARKERS)


@cache
def _compiled(pattern: str) -> Any:
    """Compiled when the first text comes in: a host that only carries runs has no use for the library."""
    import re2

    return re2.compile(pattern)


def clean(text: str) -> tuple[str, bool]:
    """`text` in NFC without control characters, and whether that changed it."""
    if text.isascii() and text.isprintable():
        return text, False
    result = text
    if _CONTROLS.search(result):
        result = _CONTROLS.sub("", result)
    if not result.isascii() and not unicodedata.is_normalized("NFC", result):
        result = unicodedata.normalize("NFC", result)
    return result, result != text


def check_text(text: str, at: str, limit: int = MAX_INPUT_BYTES) -> int:
    """The size of `text` in UTF-8; a Problem when it is no text or larger than `limit` bytes."""
    if not isinstance(text, str):
        raise Problem("invalid_text", f"{at} is not a string.", at=at, fix="Send text.")
    if len(text) > limit:
        size = len(text)
    else:
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError as error:
            raise Problem(
                "invalid_text", f"{at} holds a lone surrogate.", at=at, offset=error.start, fix="Send valid Unicode."
            ) from None
    if size > limit:
        raise Problem(
            "payload_too_large",
            f"{at} is larger than {limit} bytes.",
            at=at,
            limit=limit,
            observed=size,
            fix="Split the input.",
        )
    return size


_NOTHING = SecurityFlags()


def validate(text: str, at: str) -> tuple[str, SecurityFlags]:
    """Structural validation of one input (G1): the clean text and what was found in the raw one."""
    if not text:
        return "", _NOTHING
    check_text(text, at)
    return clean(text)[0], flags_of(text)


def validate_all(**texts: str) -> tuple[list[str], SecurityFlags]:
    """As `validate`, for the inputs of one call by their names."""
    found = [validate(text, at) for at, text in texts.items()]
    return [text for text, _ in found], reduce(both, (flags for _, flags in found))


def flags_of(text: str) -> SecurityFlags:
    """What was found in a raw input."""
    controls = 0 if text.isascii() and text.isprintable() else len(_CONTROLS.findall(text))
    markers = injection_markers(text)
    normalised = not text.isascii() and not unicodedata.is_normalized("NFC", text)
    return SecurityFlags(len(markers), tuple(markers[:_MARKERS_REPORTED]), normalised, controls)


def injection_markers(text: str) -> list[InjectionMarker]:
    """G2: every match of the eight patterns, by offset."""
    if _compiled(_ANY).search(text) is None:
        return []
    found = [
        InjectionMarker(match.start(), name, match.group()[:200])
        for name, pattern in _MARKERS
        for match in _compiled(pattern).finditer(text)
    ]
    found.sort(key=lambda marker: (marker.offset, marker.pattern_name))
    return found


def injected(text: str) -> list[tuple[int, int, str]]:
    """Where `text` holds an injected instruction: from and to which code point, and the pattern's name."""
    if _compiled(_ANY).search(text) is None:
        return []
    return sorted(
        (match.start(), match.end(), name) for name, pattern in _INJECTED for match in _compiled(pattern).finditer(text)
    )


def both(one: SecurityFlags, other: SecurityFlags) -> SecurityFlags:
    """What two inputs of one call amount to."""
    return SecurityFlags(
        one.injection_markers_detected + other.injection_markers_detected,
        one.injection_marker_details + other.injection_marker_details,
        one.unicode_normalized or other.unicode_normalized,
        one.control_chars_stripped + other.control_chars_stripped,
        False,
        one.integrity_violations + other.integrity_violations,
    )


class Task(msgspec.Struct, frozen=True):
    """A task whose texts have been validated."""

    intent: TaskIntent
    system_prompt: str
    task_input: str
    goal: str
    flags: SecurityFlags


def checked(intent: TaskIntent) -> Task:
    """The task with its texts validated (G1)."""
    (system_prompt, task_input, goal), flags = validate_all(
        system_prompt=intent.system_prompt or "", task_input=intent.task_input or "", description=intent.description
    )
    return Task(intent, system_prompt, task_input, goal, flags)


def read(values: dict[str, Any], type: type[T], what: str, root: str = "$") -> T:
    """`values` as `type`, or a Problem that says where `what` has a mistake."""
    try:
        return msgspec.convert(values, type)
    except msgspec.ValidationError as error:
        message, where = canonical.located(error, root)
        raise Problem("schema_mismatch", f"The {what} has a mistake: {message}", at=where) from error


def intent_of(**values: Any) -> TaskIntent:
    """A task from what a caller says."""
    return read(values, TaskIntent, "task")


def config_of(values: dict[str, Any]) -> SessionConfig:
    """A session's configuration from what a caller says."""
    return read(values, SessionConfig, "configuration", "$.config")


# Roles


def capabilities(role: Role) -> tuple[str, ...]:
    rank = ROLES.index(role)
    return tuple(name for name, least in OPERATIONS.items() if ROLES.index(least) <= rank)


_ROLE_POLICY = Policy(
    "strict",
    subjects={
        role: SubjectRules(tuple(Grant(f"relay.{name}", source="role") for name in capabilities(role)))
        for role in ROLES
    },
)


@lru_cache(maxsize=256)
def role_decision(role: str, operation: str) -> Decision:
    """What policy says of an operation on a session of this role: the operation is the capability `relay.NAME`."""
    return _ROLE_POLICY.decide(Request(role, f"relay.{operation}", "relay"))


def allow(role: Role, operation: str) -> None:
    """1013 unless `role` may do `operation`."""
    least = OPERATIONS[operation]
    told = f"{operation} needs the role {least}; this session has {role}."
    decision = role_decision(role, operation)
    if decision.effect != "allow":
        decision.require("role_denied", told, operation=operation, role=role, required=least)


# Signatures (C7, C11)


def session_key(binding_secret: bytes, nonce: bytes) -> bytes:
    return hmac.digest(binding_secret, nonce, "sha256")


def key_proof(key: bytes) -> str:
    """What is stored of a key: enough to tell it from another, not enough to make it.

    The label is part of what sessions stored since 0.1, so it keeps the name of that time.
    """
    return hmac.digest(key, b"holdfast relay session", "sha256").hex()


def signature(key: bytes, method: str, path: str, body: bytes) -> str:
    """What a caller sends: hex(HMAC-SHA256(session_key, sha256(METHOD "\\n" path "\\n" body)))."""
    signed = hashlib.sha256(method.upper().encode() + b"\n" + path.encode() + b"\n" + body).digest()
    return hmac.new(key, signed, "sha256").hexdigest()


def check_signature(key: bytes, method: str, path: str, body: bytes, given: str | None) -> None:
    """1012 unless `given` is the signature of this request (G3)."""
    if not given:
        raise Problem(
            "signature_invalid",
            "This session was opened with a binding secret: sign every request.",
            at="X-CRP-Signature",
        )
    if not hmac.compare_digest(
        signature(key, method, path, body).encode(), given.strip().lower().encode("utf-8", "replace")
    ):
        raise Problem("signature_invalid", "The signature is not that of this request.", at="X-CRP-Signature")


# Rates


class Rate(msgspec.Struct):
    """At most `limit` units in any `seconds`."""

    limit: int
    what: str
    seconds: float = 60.0
    _taken: deque[tuple[float, int]] = msgspec.field(default_factory=deque)
    _used: int = 0  # what `_taken` amounts to

    def take(self, clock: Clock, amount: int = 1) -> None:
        """1002 with a hint when this would be too much (CRP §1.10)."""
        now = clock.monotonic()
        while self._taken and self._taken[0][0] <= now - self.seconds:
            self._used -= self._taken.popleft()[1]
        used = self._used
        if used + amount > self.limit and self._taken:
            wait = self._taken[0][0] + self.seconds - now
            raise Problem(
                "rate_limited",
                f"At most {self.limit} {self.what} are allowed in {self.seconds:g} seconds.",
                retry_after_ms=max(1, round(wait * 1000)),
                limit=self.limit,
                used=used,
                what=self.what,
            )
        self._taken.append((now, amount))
        self._used += amount


def injection_records(flags: SecurityFlags, **more: str) -> list[Draft]:
    """The record of what looks like an instruction in the input, when something does."""
    if not flags.injection_markers_detected:
        return []
    markers = [[item.offset, item.pattern_name] for item in flags.injection_marker_details[:_MARKERS_KEPT]]
    found = {"count": flags.injection_markers_detected, "markers": markers, **more}
    return [Draft("crp.security.injection_detected", found)]
