"""The sidecar on trial, over HTTP: the kit knows only its address and a key."""

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
_PROVIDER = (1020, 1021)  # CRP's error numbers for a model that fails or is missing


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
        """Close the sessions that a scenario left open: their number per app is limited."""
        with suppress(Failed):  # the sidecar is gone
            while self._opened:
                self.post(f"/sessions/{self._opened.pop()}/close")

    def ask(
        self, method: str, path: str, *, signed: Signer | None = None, known: bool = True, **options: Any
    ) -> httpx.Response:
        """Return the sidecar's answer; `known` is false for a caller without a key."""
        request = self.asked(method, path, self._key if known else None, **options)
        if signed is not None:
            request.headers["X-CRP-Signature"] = _signature(signed, request)
        return self.sent(request)

    def open(self, **body: Any) -> dict[str, Any]:
        """Open a session and return its handle."""
        handle: dict[str, Any] = answered(self.post("/sessions", {"app_id": APP, **body}), 201)
        if "binding_secret" not in body:
            self._opened.append(str(handle["session_id"]))
        return handle

    def session(self, **body: Any) -> str:
        """Open a session and return its path."""
        return f"/sessions/{self.open(**body)['session_id']}"

    def taught(self, **body: Any) -> str:
        """Open a session, ingest a text and return the session's path."""
        path = self.session(**body)
        answered(self.post(f"{path}/ingest", {"text": TEXT, "source_label": "port"}), 200)
        return path

    def rpc(self, method: str, id: int | None = 1, **params: Any) -> httpx.Response:
        call = {"jsonrpc": "2.0", "method": method, "params": params}
        return self.post("/rpc", call if id is None else {**call, "id": id})


def with_model(answer: httpx.Response) -> httpx.Response:
    """Return the answer of a dispatch; not applicable when the sidecar has no model."""
    if answer.status_code >= 400 and refusal(answer)["code"] in _PROVIDER:
        raise NotApplicable(f"the sidecar has no model that answers: {answer.text[:200]}")
    return answer


def refusal(answer: httpx.Response) -> dict[str, Any]:
    """Return the body of a refusal: it must be a number of the contract, a message and details."""
    body = answered(answer, answer.status_code)
    if not isinstance(body, dict) or body.keys() != {"code", "message", "details"} or not 1001 <= body["code"] <= 1031:
        raise Failed(f"a refusal ({answer.status_code}) is not the contract's: {answer.text[:200]}")
    return body


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """Return the events of a stream, in order."""
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
