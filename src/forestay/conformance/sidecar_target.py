"""The sidecar that is tried, over HTTP: nothing is known of it but its address and a key."""

from __future__ import annotations

import hashlib
import hmac
import json
from contextlib import suppress
from typing import Any, Self

import httpx

from forestay.conformance.scenario import Failed, NotApplicable
from forestay.conformance.target import HttpTarget, answered
from forestay.kernel import Problem

APP = "conformance-kit"
TEXT = "# Port\n\nThe north basin holds 12 boats. It is 9 m deep.\n\nAnna Keller repaired the pump in March.\n"
ASK = {"system_prompt": "Be brief.", "task_input": "How many boats does the north basin hold?"}
Signer = tuple[str, dict[str, Any]]
"""The secret that a session is bound to, and its handle."""
_PROVIDER = (1020, 1021)  # numbers of what a model did, or that there is none


class SidecarTarget(HttpTarget):
    """One sidecar."""

    def __init__(self, url: str, key: str | None, *, transport: httpx.BaseTransport | None = None) -> None:
        super().__init__(url, transport)
        self._key = key
        self._opened: list[str] = []

    def __enter__(self) -> Self:
        try:
            self.get("/health")
        except Failed as failed:
            message = f"The sidecar at {self._base} does not answer."
            fix = "Give the address under which its /sessions are; at a forestay it ends with /crp."
            raise Problem("unavailable", message, reason=str(failed), fix=fix) from failed
        return self

    def tidy(self) -> None:
        """Close what a scenario left open: an app has only so many sessions."""
        with suppress(Failed):  # it is gone
            while self._opened:
                self.post(f"/sessions/{self._opened.pop()}/close")

    def ask(
        self, method: str, path: str, *, signed: Signer | None = None, known: bool = True, **options: Any
    ) -> httpx.Response:
        """The sidecar's answer; `known` is false for a caller without a key."""
        request = self.asked(method, path, self._key if known else None, **options)
        if signed is not None:
            request.headers["X-CRP-Signature"] = _signature(signed, request)
        return self.sent(request)

    def open(self, **body: Any) -> dict[str, Any]:
        """The handle of a new session."""
        handle: dict[str, Any] = answered(self.post("/sessions", {"app_id": APP, **body}), 201)
        if "binding_secret" not in body:
            self._opened.append(str(handle["session_id"]))
        return handle

    def session(self, **body: Any) -> str:
        """The path of a new session."""
        return f"/sessions/{self.open(**body)['session_id']}"

    def taught(self, **body: Any) -> str:
        """As `session`, with a text that has been taken in."""
        path = self.session(**body)
        answered(self.post(f"{path}/ingest", {"text": TEXT, "source_label": "port"}), 200)
        return path

    def rpc(self, method: str, id: int | None = 1, **params: Any) -> httpx.Response:
        call = {"jsonrpc": "2.0", "method": method, "params": params}
        return self.post("/rpc", call if id is None else {**call, "id": id})


def with_model(answer: httpx.Response) -> httpx.Response:
    """The answer of a dispatch; a sidecar without a model cannot be asked for one."""
    if answer.status_code >= 400 and refusal(answer)["code"] in _PROVIDER:
        raise NotApplicable(f"the sidecar has no model that answers: {answer.text[:200]}")
    return answer


def refusal(answer: httpx.Response) -> dict[str, Any]:
    """The body of a refusal, which is a number of the contract, a message and details."""
    body = answered(answer, answer.status_code)
    if not isinstance(body, dict) or body.keys() != {"code", "message", "details"} or not 1001 <= body["code"] <= 1031:
        raise Failed(f"a refusal ({answer.status_code}) is not the contract's: {answer.text[:200]}")
    return body


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, in order."""
    if answer.status_code != 200 or not answer.headers.get("content-type", "").startswith("text/event-stream"):
        raise Failed(f"the stream answers {answer.status_code} {answer.headers.get('content-type')}")
    found = []
    for block in answer.text.replace("\r\n", "\n").strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and line[0] != ":")
        if "data" in fields:
            found.append({"named": fields.get("event"), **json.loads(fields["data"])})
    return found


def _signature(signer: Signer, request: httpx.Request) -> str:
    secret, handle = signer
    key = hmac.new(secret.encode(), bytes.fromhex(handle["nonce"]), hashlib.sha256).digest()
    said = f"{request.method}\n{request.url.raw_path.decode()}\n".encode() + request.content
    return hmac.new(key, hashlib.sha256(said).digest(), hashlib.sha256).hexdigest()
