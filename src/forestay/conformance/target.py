"""The host on trial, over HTTP: the kit knows only its address and a key."""

from __future__ import annotations

import json
from typing import Any, Self
from uuid import uuid4

import httpx

from forestay.conformance.documents import STAND_INS
from forestay.conformance.profile import flag
from forestay.conformance.scenario import Failed, NotApplicable
from forestay.kernel import Clock, Problem, SystemClock

ENDED = ("completed", "failed", "cancelled")
_PATIENCE_SECONDS = 60
_SEAMS = "/v1/host/sample"


class HttpTarget:
    """A server on trial, over HTTP: a request without an answer fails the scenario."""

    def __init__(self, base: str, transport: httpx.BaseTransport | None) -> None:
        self._base = base.rstrip("/")
        self._http = httpx.Client(timeout=70, trust_env=False, transport=transport)

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        raise NotImplementedError

    def asked(self, method: str, path: str, key: str | None, **options: Any) -> httpx.Request:
        """Build the request of a caller with this key."""
        headers = dict(options.pop("headers", {}))
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        return self._http.build_request(method, self._base + path, headers=headers, **options)

    def sent(self, request: httpx.Request) -> httpx.Response:
        try:
            return self._http.send(request)
        except httpx.HTTPError as error:
            raise Failed(f"{request.method} {request.url.path} has no answer: {type(error).__name__}") from error

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.ask("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.ask("POST", path, json={} if body is None else body, **options)


class Target(HttpTarget):
    """One host. `other_key` is a key of another tenant; without it, the kit makes one by forestay's own API."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        other_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._keys: dict[str, str | None] = {"": None, "full": key, "other": other_key}
        self._clock = clock or SystemClock()
        super().__init__(url, transport)
        self._stored: dict[str, str] = {}
        self.document: dict[str, Any] = {}

    def __enter__(self) -> Self:
        try:
            answer = self.get("/.well-known/openwop", key="")
        except Failed as failed:
            message = f"The host at {self._base} does not answer."
            fix = "Give the address of an OpenWOP host that runs."
            raise Problem("unavailable", message, reason=str(failed), fix=fix) from failed
        try:
            self.document = answer.json()
        except ValueError:
            self.document = {}
        if answer.status_code != 200 or not isinstance(self.document, dict):
            message = "There is no discovery document at this address."
            raise Problem("not_found", message, path="/.well-known/openwop", status=answer.status_code)
        return self

    def flag(self, path: str) -> Any:
        """Return the value at a dotted path of the discovery document."""
        return flag(self.document, path)

    # Asking

    def ask(self, method: str, path: str, *, key: str = "full", **options: Any) -> httpx.Response:
        """Return the host's answer; `key` names the caller: `full`, `other`, or empty for none."""
        return self.sent(self.asked(method, path, self._keys.get(key), **options))

    def read(self, path: str, **options: Any) -> Any:
        """Return the JSON at a path that must exist."""
        return answered(self.get(path, **options), 200)

    def seam(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a test seam; not applicable when the host does not open it."""
        answer = self.post(f"{_SEAMS}/{path}", body)
        if answer.status_code in (404, 405):
            raise NotApplicable(f"the host does not open the test seam {_SEAMS}/{path}")
        found = answered(answer, 200)
        if not isinstance(found, dict):
            raise Failed(f"the seam {path} answers no object")
        return found

    def seam_open(self, path: str) -> None:
        """Raise `NotApplicable` unless the host opens the test seam at `path`."""
        if self.get(path).status_code in (404, 405):
            raise NotApplicable(f"the host does not open the test seam {path}")

    def other(self) -> str:
        """Return the name of a caller of another tenant; make its key when there is none."""
        if self._keys["other"] is None:
            wanted = {"name": f"kit-{uuid4().hex[:12]}", "tenant": "conformance-kit-other"}
            made = self.post("/host/v1/keys", wanted)
            if made.status_code != 201:
                raise NotApplicable("needs a key of another tenant (--other-key)")
            self._keys["other"] = str(made.json()["result"]["apiKey"])
        return "other"

    # Runs

    def workflow(self, name: str) -> str:
        """Return the id of a workflow that does what the contract's `name` does."""
        if name not in self._stored:
            self._stored[name] = name if name in (self.flag("fixtures") or ()) else self._stand_in(name)
        return self._stored[name]

    def _stand_in(self, name: str) -> str:
        document = STAND_INS.get(name)
        if document is not None:
            path = f"/v1/workflows/{document['id']}"
            if self.ask("PUT", path, json=document).status_code in (200, 201):
                return str(document["id"])
        raise NotApplicable(f"the host has no {name}, and takes no workflow in its place")

    def start(self, name: str, inputs: dict[str, Any] | None = None, **body: Any) -> str:
        return self.start_with({"workflowId": self.workflow(name), "inputs": inputs or {}, **body})

    def start_with(self, body: dict[str, Any], **options: Any) -> str:
        made = answered(self.post("/v1/runs", body, **options), 201)
        return str(made["runId"])

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.read(f"/v1/runs/{run_id}")
        return found

    def events(self, run_id: str, after: int = -1, timeout: int = 1) -> list[dict[str, Any]]:
        """Return the events after a sequence, by long poll."""
        page = self.read(f"/v1/runs/{run_id}/events/poll", params={"lastSequence": after, "timeout": timeout})
        found: list[dict[str, Any]] = page["events"]
        return found

    def told(self, run_id: str, *prefixes: str) -> list[dict[str, Any]]:
        return [event for event in self.events(run_id) if event["type"].startswith(prefixes)]

    def wait(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """Wait, by long poll, until a run has one of these statuses; without any, until it ends."""
        wanted, after = statuses or ENDED, -1
        until = self._clock.monotonic() + _PATIENCE_SECONDS
        while True:
            run = self.run(run_id)
            if run["status"] in wanted:
                return run
            if run["status"] in ENDED or self._clock.monotonic() > until:
                raise Failed(f"the run is {run['status']}, and {' or '.join(wanted)} was expected")
            after = max([after, *(event["sequence"] for event in self.events(run_id, after, timeout=2))])

    def stream(self, run_id: str, **options: Any) -> list[tuple[str, str, Any]]:
        """Read a stream of server-sent events to its end; return (id, event, data) for each."""
        answer = self.get(f"/v1/runs/{run_id}/events", **options)
        if answer.status_code != 200 or not answer.headers["content-type"].startswith("text/event-stream"):
            raise Failed(f"the event stream answers {answer.status_code} {answer.headers.get('content-type')}")
        found: list[tuple[str, str, Any]] = []
        for block in answer.text.replace("\r\n", "\n").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and line[0] != ":")
            if "data" in fields:
                found.append((fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"])))
        return found


def answered(answer: httpx.Response, status: int) -> Any:
    """Return the JSON of an answer that must have this status."""
    if answer.status_code != status:
        request = answer.request
        told = f"{request.method} {request.url.path} answers {answer.status_code}: {answer.text[:200]}"
        raise Failed(f"{told} ({status} was expected)")
    try:
        return answer.json()
    except ValueError as error:
        raise Failed(f"{answer.request.url.path} answers no JSON") from error


def refused(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    """Return the body of a refusal, which must be exactly the contract's envelope (§1.2)."""
    if answer.status_code not in statuses:
        wanted = " or ".join(map(str, statuses))
        path = answer.request.url.path
        raise Failed(f"{answer.request.method} {path} answers {answer.status_code} ({wanted} was expected)")
    body = answered(answer, answer.status_code)
    known = isinstance(body, dict) and set(body) <= {"error", "message", "details"}
    if not known or not all(isinstance(body.get(name), str) and body[name] for name in ("error", "message")):
        raise Failed(f"a refusal is not the contract's envelope: {answer.text[:200]}")
    found: dict[str, Any] = body
    return found
