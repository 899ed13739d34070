"""`Problem`: the one exception, and its projection into every contract.

A Problem says what was wrong (`message`), where and with which values (`details`), and what to do (`details.fix`,
or the table's remedy). Everything that leaves the process passes `_public`, which removes secrets, absolute paths and
stack traces.
"""

from __future__ import annotations

import re
from typing import Any

from forestay.kernel.problem_table import LAFS_CODES, TABLE, Row
from forestay.kernel.redaction import redact, redact_text
from forestay.kernel.text_bound import Bounds, bounded, cut

_MAX_MESSAGE = 1024
_MAX_TEXT = 65_536  # a message or a detail is cut to this before the search for secrets and paths
_TYPE_URI = "https://lafs.dev/errors/v1/"
_DOC_URI = "https://lafs.dev/docs/errors/"

# A file path of this machine. URL paths ("/v1/runs") do not match: they do not begin with a folder of a file system.
_PATH = re.compile(
    r"(?<![\w./~-])(?:file://)?(?:~|/(?:home|root|Users|private|tmp|var|usr|etc|opt|mnt|srv|proc|sys|dev|run|work|lib|"
    r"workspace|workspaces|data|app|builds?|nix|snap|media|boot|Library|Applications|System|Volumes))(?:/[^\s'\"`:;,)\]}>]+)+"
    r"|(?<![\w])[A-Za-z]:\\[^\s'\"`;,)\]}>]+"
)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):.*", re.DOTALL)
_FRAME = re.compile(r'(?<!\s)\s*+File "[^"]*", line \d+(?:, in \S+)?')


class Problem(Exception):
    """An error of the kind `key`, which is a row of the problem table."""

    def __init__(self, key: str, message: str, *, retry_after_ms: int | None = None, **details: Any) -> None:
        if key not in TABLE:
            raise LookupError(f"{key!r} is not in the problem table")
        super().__init__(message)
        self.key = key
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.details = details

    @property
    def row(self) -> Row:
        return TABLE[self.key]

    @property
    def exit_code(self) -> int:
        return self.row.exit

    @classmethod
    def unexpected(cls, error: BaseException, reference: str | None = None) -> Problem:
        """Turn an unexpected exception into a Problem without the exception's text."""
        if isinstance(error, Problem):
            return error
        problem = cls("internal", "forestay met an unexpected error.", kind=type(error).__name__)
        if reference:
            problem.details["reference"] = reference
        problem.__cause__ = error
        return problem

    def as_lafs(self) -> dict[str, Any]:
        """Return the `error` member of a LAFS envelope (R18 to R24)."""
        row = self.row
        slug = _slug(row.lafs)
        return {
            "code": row.lafs,
            "message": self._public_message(),
            "category": row.category,
            "retryable": row.retryable,
            "retryAfterMs": self.retry_after_ms,
            "details": {"problem": self.key, **self._public_details()},
            "agentAction": row.action,
            "escalationRequired": row.action == "escalate",
            "suggestedAction": self._remedy(),
            "docUrl": _DOC_URI + slug,
        }

    def as_openwop(self) -> dict[str, Any]:
        """Return `{error, message, details?}` and nothing else (OpenWOP §1.2)."""
        details = self._public_details()
        if self.retry_after_ms is not None:
            details.setdefault("retryAfterMs", self.retry_after_ms)
        body: dict[str, Any] = {"error": self.row.openwop, "message": self._public_message()}
        if details:
            body["details"] = details
        return body

    def as_pi(self) -> dict[str, Any]:
        """Return the `error` member of a host_result (Pi §3.2)."""
        row = self.row
        return {
            "code": row.pi,
            "message": self._public_message(),
            "retryable": row.retryable,
            "details": self._public_details(),
        }

    def as_crp(self) -> dict[str, Any]:
        """Return `{code, message, details}` (CRP §1.11)."""
        details = self._public_details()
        if self.retry_after_ms is not None:
            details.setdefault("retry_after_ms", self.retry_after_ms)
        return {"code": self.row.crp, "message": self._public_message(), "details": details}

    def as_problem_json(self, instance: str | None = None) -> dict[str, Any]:
        """Return the problem as RFC 9457, in the form of LAFS §1.10; details never overwrite a member."""
        error = self.as_lafs()
        body: dict[str, Any] = {
            "type": _TYPE_URI + _slug(self.row.lafs),
            "title": self.row.lafs,
            "status": self.row.http,
            "detail": error["message"],
            "retryable": error["retryable"],
            "agentAction": error["agentAction"],
            "escalationRequired": error["escalationRequired"],
            "suggestedAction": error["suggestedAction"],
            "docUrl": error["docUrl"],
        }
        if instance is not None:
            body["instance"] = instance
        if self.retry_after_ms is not None:
            body["retryAfterMs"] = self.retry_after_ms
        return {**error["details"], **body}

    def as_grpc(self) -> dict[str, Any]:
        """Return status name, message and ErrorInfo metadata; the transport makes a google.rpc.Status of them."""
        return {
            "code": self.row.grpc,
            "message": self._public_message(),
            "reason": self.row.lafs,
            "domain": "forestay",
            "metadata": {"problem": self.key, "agentAction": self.row.action},
            "retryAfterMs": self.retry_after_ms,
            "details": self._public_details(),
        }

    def as_jsonrpc(self) -> dict[str, Any]:
        """Return the `error` member of a JSON-RPC answer, with the CRP number (CRP §1.2)."""
        return {
            "code": self.row.jsonrpc,
            "message": self._public_message(),
            "data": {"crp_code": self.row.crp, "problem": self.key, **self._public_details()},
        }

    def _remedy(self) -> str:
        fix = self.details.get("fix")
        return _public_text(fix if isinstance(fix, str) else self.row.remedy)[:512]

    def _public_message(self) -> str:
        text = _public_text(self.message) or self.row.title
        return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"

    def _public_details(self) -> dict[str, Any]:
        public: dict[str, Any] = _public(redact(bounded(self.details, Bounds(text=_MAX_TEXT, items=10_000))))
        return public


def lafs_registry() -> list[dict[str, Any]]:
    """Return the LAFS error registry, as a view of the table (LAFS §1.4)."""
    return [
        {
            "code": code.code,
            "category": code.category,
            "retryable": code.retryable,
            "httpStatus": code.http,
            "grpcStatus": code.grpc,
            "cliExit": code.exit,
            "agentAction": code.action,
            "typeUri": _TYPE_URI + _slug(code.code),
            "docUrl": _DOC_URI + _slug(code.code),
        }
        for code in LAFS_CODES.values()
    ]


def _slug(code: str) -> str:
    return code.removeprefix("E_").lower().replace("_", "-")


def _public(value: Any) -> Any:
    if isinstance(value, str):
        return _public_text(value)
    if isinstance(value, dict):
        return {str(key): _public(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_public(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _public_text(str(value))


def _public_text(text: str) -> str:
    """Return `text` without stack traces, absolute paths, secrets and characters that JSON cannot carry."""
    text = _TRACEBACK.sub("", cut(text, _MAX_TEXT))
    text = _FRAME.sub("", text)
    text = _PATH.sub(_shorten, text)
    return redact_text(text).encode("utf-8", "replace").decode().strip()


def _shorten(match: re.Match[str]) -> str:
    return "…/" + re.split(r"[/\\]", match.group().rstrip("/\\"))[-1]
