"""Everything that a host shows to anybody, as pairs of a place and what stands there.

A place has a name that is the same for every run: the type of an event or a record, the route of an answer or a page.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import quote, urlsplit

from forestay.console import PAGES
from tests.forked import forestay
from tests.security.page import Page
from tests.security.planting import AGENT, KEY, Planted

Shown = tuple[str, str | bytes]
_MODES = ("debug", "updates", "messages", "values")
_MOST_PAGES = 400


def runs(there: Planted) -> list[str]:
    """Every run, the children of runs too."""
    listed = [item["runId"] for item in there.ask("GET", "/v1/runs", params={"limit": 200})["runs"]]
    children = [child["runId"] for run in listed for child in there.ask("GET", f"/v1/runs/{run}").get("childRuns", ())]
    return list(dict.fromkeys([*listed, *children]))


def polled(there: Planted, run_id: str) -> list[dict[str, Any]]:
    page = there.ask("GET", f"/v1/runs/{run_id}/events/poll", params={"lastSequence": -1, "timeout": 1})
    found: list[dict[str, Any]] = page["events"]
    return found


def events(there: Planted) -> Iterator[Shown]:
    """By poll, by each mode of the stream, and by webhook."""
    for run_id in runs(there):
        for event in polled(there, run_id):
            yield f"event {event['type']}", json.dumps(event)
        for mode in _MODES:
            answer = there.http.get(f"/v1/runs/{run_id}/events", params={"streamMode": mode})
            assert answer.status_code == 200, answer.text
            for block in answer.text.split("\n\n"):
                if told := re.search(r"^event: (.+)$", block, re.MULTILINE):
                    kind = json.loads(block.partition("data: ")[2] or "{}")
                    name = kind.get("type", told[1]) if isinstance(kind, dict) else told[1]
                    yield f"event {name}" if mode in ("debug", "updates") else f"stream {mode}", block
    for got in there.outside.came["hook"]:
        head, _, body = got.partition(b"\n\n")
        yield "webhook head", head
        yield f"event {json.loads(body)['event']['type']}", body


def answers(there: Planted) -> Iterator[Shown]:
    """Each GET operation, with whatever ids there are."""
    known = _ids(there)
    for path in _paths(there):
        if path.endswith(("/events", "/ui/stream", "/events/poll")) or path.startswith("/host/v1/ledger"):
            continue  # these are looked at as events and records; the state of a session never ends
        for address in _filled(path, known):
            answer = there.http.get(address)
            if answer.status_code < 400:
                yield f"GET {path}", f"{answer.headers}\n{answer.text}"


def _paths(there: Planted) -> list[str]:
    documents = [there.ask("GET", path) for path in ("/v1/openapi.json", "/host/v1/openapi.json", "/crp/openapi.json")]
    found = {path for document in documents for path, item in document["paths"].items() if "get" in item}
    return sorted(found)


def _ids(there: Planted) -> dict[str, list[str]]:
    def listed(path: str, name: str, key: str, **query: Any) -> list[str]:
        found = there.ask("GET", path, params=query)
        items = found.get("result", found)[name] if isinstance(found, dict) else found
        return [item[key] for item in items]

    ran = runs(there)
    artifacts = [item for run in ran for item in listed(f"/v1/runs/{run}/artifacts", "artifacts", "artifactId")]
    return {
        "runId": ran,
        "artifactId": artifacts,
        "workflowId": listed("/v1/workflows", "workflows", "workflowId"),
        "agentId": [AGENT],
        "rosterId": ["host:heron"],
        "departmentId": ["growth"],
        "toolId": ["http:fetch", "forestay:read"],
        "templateId": ["t.heron"],
        "subscriptionId": listed("/host/v1/trigger-subscriptions", "subscriptions", "subscriptionId"),
        "deliveryId": listed("/host/v1/trigger-deliveries", "deliveries", "deliveryId", limit=200),
        "memoryId": listed("/host/v1/memory", "memories", "memoryId"),
        "webhookId": listed("/v1/webhooks", "webhooks", "webhookId"),
        "name": ["heron.evals.tide@1.0.0"],
        "sessionId": listed("/crp/sessions", "sessions", "session_id"),
    }


def _filled(path: str, known: dict[str, list[str]]) -> Iterator[str]:
    names = re.findall(r"\{(\w+)\}", path)
    if not names:
        yield path
        return
    for value in known.get(names[0], ["none"]):
        yield from _filled(path.replace(f"{{{names[0]}}}", quote(value, safe=":@"), 1), known)


def records(there: Planted) -> Iterator[Shown]:
    """The ledger as a key sees it that may audit and nothing else, over HTTP."""
    body = {"name": "auditor", "scopes": ["audit:read"]}
    with there.client(there.ask("POST", "/host/v1/keys", body)["result"]["apiKey"]) as auditor:
        after: str | None = ""
        while after is not None:
            page = auditor.get("/host/v1/ledger/streams", params={"after": after, "limit": 1000}).json()["result"]
            yield "streams", json.dumps(page)
            for item in page["streams"]:
                query = {"stream": item["stream"], "limit": 1000}
                for record in auditor.get("/host/v1/ledger/records", params=query).json()["result"]["records"]:
                    yield f"record {record['type']}", json.dumps(record)
            after = page["moreAfter"]


def ledger_commands(there: Planted) -> Iterator[Shown]:
    """What `forestay ledger` prints to whoever has the data folder."""
    data = ("--data", str(there.folder / "data"))
    for words in (("show",), ("verify",), ("checkpoints",)):
        done = forestay(there.folder, "ledger", *words, *data, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        yield f"command ledger {words[0]}", done.stdout + done.stderr
    done = forestay(there.folder, "ledger", "tail", "-n", "10000", *data, "--json")
    for record in json.loads(done.stdout)["result"]["records"]:
        yield f"line {record['record']['type'] if 'record' in record else record['type']}", json.dumps(record)


def pages(there: Planted) -> Iterator[Shown]:
    """Every page of the console that links lead to."""
    with there.client() as browser:
        assert browser.post("/login", data={"key": KEY}).status_code == 303
        waiting, seen = deque(["/"]), set[str]()
        while waiting and len(seen) < _MOST_PAGES:
            path = waiting.popleft()
            if path in seen or path.startswith(("/ledger/", "/logout", "/runs?", "/schedules?")):
                continue  # the records themselves are looked at one by one, and a list shows nothing else when sorted
            seen.add(path)
            answer = browser.get(path)
            assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
            if answer.headers.get("content-type", "").startswith("text/html"):
                yield f"page {_page(path)}", answer.text
                waiting.extend(sorted(Page(answer.text).links - seen))


def _page(path: str) -> str:
    bare = urlsplit(path).path
    return next((page for pattern, page in _patterns() if pattern.fullmatch(bare)), bare)


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    shown = sorted({path for method, path, _ in PAGES if method == "GET"}, key=lambda path: path.count("{"))
    return [(re.compile(re.sub(r"\\\{[^}]+\\\}", "[^/]+", re.escape(path))), path) for path in shown]


def machinery(there: Planted) -> Iterator[Shown]:
    """Logs, metrics and traces, when the host has ended."""
    for path in ("/metrics", "/crp/metrics", "/healthz", "/readyz", "/.well-known/openwop"):
        yield path, there.http.get(path).text
    there.process.terminate()
    there.process.wait(60)
    assert there.process.stdout is not None
    yield "standard output", there.process.stdout.read()
    yield "standard error", (there.folder / "stderr").read_bytes()
    for file in sorted(path for path in (there.folder / "logs").rglob("*") if path.is_file()):
        yield "log files", file.read_bytes()
    yield "traces", there.outside.all("traces")


def everything(there: Planted) -> Iterator[Shown]:
    """All of it; the host has ended after that."""
    yield from events(there)
    yield from answers(there)
    yield from records(there)
    yield from pages(there)
    for place, text in there.refusals:
        yield f"refusal {re.sub(r'(run|sub|mem|wh|dlv|key)_[a-z0-9]+', 'ID', place)}", text
    yield from ledger_commands(there)
    yield from machinery(there)
