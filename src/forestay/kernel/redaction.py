"""Redaction: what may be written down about a value (Pi §3.1).

`redact` returns a new value; the original is never touched and never shared. Values under telling keys go
whole; bearer tokens, keys and passwords inside strings go in place; e-mail addresses and telephone numbers
become short hashes, so that two mentions of one person can still be matched.

The work grows with the length of the text and no faster, whatever the text: no pattern looks at one place from many
beginnings. `tests/kernel/test_redact_work.py` counts the steps. A caller whose text has no bound cuts it first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

REDACTED = "[REDACTED]"
MAX_DEPTH = 64

_SECRET_KEYS = (
    "apikey",
    "token",
    "authorization",
    "cookie",
    "password",
    "passwd",
    "secret",
    "privatekey",
    "credential",
    "bearer",
)
# Words that contain a telling one and tell nothing: counts and limits of model tokens, and our own field names.
_HARMLESS_KEYS = re.compile(
    r"\w*?tokens(?:perminute|used|left|total)?|\w*?token(?:count|limit|budget|estimate|type|usage)s?|"
    r"secretfingerprint|credential(?:id|ref)"
)
_KEY_SHAPES = (
    r"\b(?:sk|pk|rk)[-_](?:live|test|ant|proj)?[-_]?[A-Za-z0-9_-]{16,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bAIza[0-9A-Za-z_-]{30,}",
    r"\b(?:hf|npm|hfk|fsk|whsec|dop_v1)_[A-Za-z0-9]{16,}",
    r"\b(?:cred|github_pat|dckr_pat|lin_api|shp(?:at|ca|pa|ss))_[A-Za-z0-9_-]{12,}",
    r"\b(?:xapp|pypi|sq0atp|sq0csp|AGE-SECRET-KEY)-[A-Za-z0-9_-]{12,}",
    r"\bSG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}",
    r"\b(?:ya29|hvs|hvb)\.[A-Za-z0-9_-]{16,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
)
_SECRET_IN_TEXT = re.compile(
    r"(?P<scheme>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|(?P<name>\b(?:api[_-]?key|(?:access|auth)?[_-]?token|password|passwd|secret|private[_-]?key|credential)"
    r"[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,;}\]]{4,}"
    r"|(?P<userinfo>://[^\s/:@]+:)[^\s/@]+(?=@)"
    rf"|(?:{'|'.join(_KEY_SHAPES)})",
    re.IGNORECASE,
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+")
_PHONE = re.compile(
    r"(?<![\w+.:/-])(?:\+\d{1,3}[ .-]?(?:\(\d{1,4}\)|\d{1,4})(?:[ .-]?\d{2,4}){2,4}"
    r"|\(\d{3}\) ?\d{3}-\d{4}|\d{3}-\d{3}-\d{4})(?![\w-])"
)
# A web token has three parts. The first one is taken whole, whether or not the others follow, so that a run of such
# beginnings is read once and not once for each of them.
_WEB_TOKEN = re.compile(r"\b(?:eyJ)[A-Za-z0-9_-]{8,}+(?P<rest>\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+)?", re.IGNORECASE)
# Words without which a text holds no secret; most texts have none of them, and looking for them costs little.
_TELLING = tuple(
    "bearer basic key token pass secret credential :// sk- sk_ pk- pk_ rk- rk_ ghp_ gho_ ghu_ ghs_ ghr_ glpat xox akia "
    "asia aiza hf_ fsk_ npm_ ----- cred_ _pat_ whsec_ dop_v1_ lin_api_ shpat_ shpca_ shppa_ shpss_ xapp- pypi- sq0 sg. "
    "ya29. hvs. hvb.".split()
)
_NUMBERS = re.compile(r"[+(]|\d{3}-\d{3}")
_LONGEST_NAME = 128  # of a field whose name is harmless although it contains a telling word


def redact(value: Any, depth: int = 0) -> Any:
    """A copy of `value` that may be written down."""
    if isinstance(value, str):
        return redact_text(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= MAX_DEPTH:
        return "[TOO DEEP]"
    if isinstance(value, Mapping):
        return {
            str(key): REDACTED if is_secret_key(str(key)) and item is not None else redact(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item, depth + 1) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if isinstance(value, msgspec.Struct):
        return redact(msgspec.to_builtins(value), depth)
    return redact_text(str(value))


def redact_text(text: str) -> str:
    """`text` with secrets replaced and personal addresses hashed."""
    folded = text.casefold()
    if "eyj" in folded:
        text = _WEB_TOKEN.sub(lambda match: REDACTED if match["rest"] else match.group(), text)
    for word in _TELLING:
        if word in folded:
            text = _SECRET_IN_TEXT.sub(_replace_secret, text)
            break
    if "@" in text:
        text = _EMAIL.sub(lambda match: f"[email:{_short_hash(match.group().lower())}]", text)
    if _NUMBERS.search(text):
        text = _PHONE.sub(lambda match: f"[phone:{_short_hash(re.sub(r'[^0-9]', '', match.group()))}]", text)
    return text


def is_secret_key(key: str) -> bool:
    """Whether a value under this key is a secret by its name (Pi §3.1, any spelling)."""
    return _is_secret_name(key) if len(key) <= _LONGEST_NAME else _is_secret_name.__wrapped__(key)


@lru_cache(maxsize=4096)  # records have the same few names again and again
def _is_secret_name(key: str) -> bool:
    plain = re.sub(r"[^a-z0-9]", "", key.lower())
    if not any(word in plain for word in _SECRET_KEYS):
        return False
    return len(plain) > _LONGEST_NAME or not _HARMLESS_KEYS.fullmatch(plain)


def _replace_secret(match: re.Match[str]) -> str:
    return (match["scheme"] or match["name"] or match["userinfo"] or "") + REDACTED


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
