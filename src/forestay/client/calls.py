"""Every call that a client makes: its request and the type of its answer. Data only.

`name` is the operation of the server. A test compares method, path and answer with that operation.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

import msgspec

from forestay.runs import Interrupt, Resolved, RunCreated, RunForked, RunPage, RunSnapshot, RunStanding, WorkflowVersion

T = TypeVar("T")


class Call(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request of the operation `name`; `answer` is the type of its result."""

    name: str
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    answer: type[T]
    body: Any = None
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}


class Interrupts(msgspec.Struct, frozen=True):
    interrupts: list[Interrupt]


class AgentLine(msgspec.Struct, frozen=True, rename="camel"):
    agent_id: str
    persona: str
    description: str
    model_class: str


class AgentList(msgspec.Struct, frozen=True):
    agents: list[AgentLine]


class Session(msgspec.Struct, frozen=True):
    """The handle of a relay session, as far as a client needs it."""

    session_id: str


class Dispatched(msgspec.Struct, frozen=True):
    """The model's output, its quality report and its token counts."""

    output: str
    quality_report: dict[str, Any]
    continuation_windows: int
    total_input_tokens: int
    total_output_tokens: int


class Ingested(msgspec.Struct, frozen=True):
    facts_extracted: int
    source_label: str
    fact_ids: list[str]


class Fact(msgspec.Struct, frozen=True):
    id: str
    text: str


class Facts(msgspec.Struct, frozen=True):
    facts: list[Fact]
    count: int


class Closed(msgspec.Struct, frozen=True):
    session_id: str


def start(
    workflow: str,
    inputs: dict[str, Any] | None = None,
    *,
    tags: list[str] | None = None,
    configurable: dict[str, Any] | None = None,
    idempotency_key: str | None = None,
) -> Call[RunCreated]:
    body: dict[str, Any] = {"workflowId": workflow, "inputs": inputs or {}}
    if tags:
        body["tags"] = tags
    if configurable:
        body["configurable"] = configurable
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    return Call(name="runs.create", method="POST", path="/v1/runs", answer=RunCreated, body=body, headers=headers)


def get(run_id: str) -> Call[RunSnapshot]:
    return Call(name="runs.get", method="GET", path=_run(run_id), answer=RunSnapshot)


def page(
    *,
    status: list[str] | None = None,
    workflow: str | None = None,
    tag: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Call[RunPage]:
    query = {"status": status, "workflowId": workflow, "tag": tag, "limit": limit, "cursor": cursor}
    return Call(name="runs.list", method="GET", path="/v1/runs", answer=RunPage, query=query)


def cancel(run_id: str, reason: str | None = None) -> Call[RunStanding]:
    return Call(name="runs.cancel", method="POST", path=_run(run_id, "/cancel"), answer=RunStanding, body=_why(reason))


def pause(run_id: str, reason: str | None = None) -> Call[RunStanding]:
    return Call(name="runs.pause", method="POST", path=_run(run_id, ":pause"), answer=RunStanding, body=_why(reason))


def resume(run_id: str, reason: str | None = None) -> Call[RunStanding]:
    return Call(name="runs.resume", method="POST", path=_run(run_id, ":resume"), answer=RunStanding, body=_why(reason))


def fork(
    run_id: str,
    mode: Literal["replay", "branch"] = "replay",
    from_seq: int = 0,
    options: dict[str, Any] | None = None,
) -> Call[RunForked]:
    body: dict[str, Any] = {"mode": mode, "fromSeq": from_seq}
    if options:
        body["runOptionsOverlay"] = options
    return Call(name="runs.fork", method="POST", path=_run(run_id, ":fork"), answer=RunForked, body=body)


def questions(run_id: str) -> Call[Interrupts]:
    return Call(name="interrupts.list", method="GET", path=_run(run_id, "/interrupts"), answer=Interrupts)


def answer(run_id: str, node_id: str, value: Any) -> Call[Resolved]:
    """Answer the question of a node; an approval takes `{"action": "accept"}`."""
    path = _run(run_id, f"/interrupts/{quote(node_id, safe='')}")
    return Call(
        name="interrupts.resolve-by-node", method="POST", path=path, answer=Resolved, body={"resumeValue": value}
    )


def put(document: dict[str, Any]) -> Call[WorkflowVersion]:
    path = f"/v1/workflows/{quote(str(document.get('id', '')), safe='')}"
    return Call(name="workflows.put", method="PUT", path=path, answer=WorkflowVersion, body=document)


def agents() -> Call[AgentList]:
    return Call(name="agents.list", method="GET", path="/host/v1/agents", answer=AgentList)


def open_session(app_id: str, config: dict[str, Any] | None = None) -> Call[Session]:
    body = {"app_id": app_id, "config": config or {}}
    return Call(name="crp.createSession", method="POST", path="/crp/sessions", answer=Session, body=body)


def ingest(session_id: str, text: str, source: str = "text") -> Call[Ingested]:
    body = {"text": text, "source_label": source}
    return Call(name="crp.ingest", method="POST", path=_session(session_id, "/ingest"), answer=Ingested, body=body)


def dispatch(session_id: str, system_prompt: str, task: str) -> Call[Dispatched]:
    body = {"system_prompt": system_prompt, "task_input": task}
    return Call(
        name="crp.dispatch", method="POST", path=_session(session_id, "/dispatch"), answer=Dispatched, body=body
    )


def facts(session_id: str, query: str | None = None, top: int = 10) -> Call[Facts]:
    asked = {"query": query, "top_k": top}
    return Call(name="crp.getFacts", method="GET", path=_session(session_id, "/facts"), answer=Facts, query=asked)


def close_session(session_id: str) -> Call[Closed]:
    return Call(name="crp.closeSession", method="POST", path=_session(session_id, "/close"), answer=Closed)


def _run(run_id: str, rest: str = "") -> str:
    return f"/v1/runs/{quote(run_id, safe='')}{rest}"


def _session(session_id: str, rest: str) -> str:
    return f"/crp/sessions/{quote(session_id, safe='')}{rest}"


def _why(reason: str | None) -> dict[str, str]:
    return {"reason": reason} if reason else {}
