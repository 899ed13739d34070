"""An A2A 1.0 agent whose skills are operations and whose answers are envelopes (D7, §1.10).

A message names the operation in a data part: `{"operation": …, "parameters": {…}}`. The task goes through the states
of `a2a_tasks`; its artifact holds the envelope as a data part when the client activated the LAFS extension, and the
plain result when it did not. Where the agent says what plain text means (`Spoken`), a message may be text as well, and
its answer is text.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final

import msgspec
from a2a.extensions.common import HTTP_EXTENSION_HEADER, get_requested_extensions
from a2a.helpers.proto_helpers import (
    get_data_parts,
    get_text_parts,
    new_data_part,
    new_task_from_user_message,
    new_text_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext, SimpleRequestContextBuilder
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.server.tasks.task_updater import TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Task,
    TaskState,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from forestay.envelope.transports.a2a_tasks import NEXT, State, advance, check_references, is_terminal
from forestay.envelope.transports.discovery import CARD_PATH, document_route
from forestay.envelope.transports.operations import Operations, Said
from forestay.envelope.transports.protobuf import whole_numbers
from forestay.envelope.types import MEDIA_TYPE, SCHEMA_URL, Envelope
from forestay.envelope.validate import decode
from forestay.kernel import Problem, one_line

EXTENSION: Final = "https://lafs.dev/extensions/envelope/v1"
EXTENSION_REQUIRED: Final = -32008
_STATES: Final[dict[State, TaskState]] = {state: getattr(TaskState, f"TASK_STATE_{state}") for state in NEXT}


class Negotiation(msgspec.Struct, frozen=True):
    """The outcome of negotiating a client's extensions; unsupported ones are ignored."""

    requested: list[str]
    activated: list[str]
    unsupported: list[str]
    missing_required: list[str]


class Spoken(msgspec.Struct, frozen=True):
    """What plain text means: a call of `operation` with the text as `parameter`; `text` words its result.

    `heard` streams the answer to a text in a context, for a client that wants text and no envelope.
    """

    operation: str
    parameter: str
    text: Callable[[Any], str]
    heard: Callable[[str, str], AsyncGenerator[str, None]] | None = None


def negotiate(requested: Iterable[str], offered: Iterable[AgentExtension]) -> Negotiation:
    wanted = sorted(set(requested))
    extensions = list(offered)
    known = {extension.uri for extension in extensions}
    return Negotiation(
        requested=wanted,
        activated=[uri for uri in wanted if uri in known],
        unsupported=[uri for uri in wanted if uri not in known],
        missing_required=sorted(item.uri for item in extensions if item.required and item.uri not in wanted),
    )


def agent_card(
    operations: Operations,
    *,
    name: str,
    description: str,
    version: str,
    url: str,
    required: bool = False,
    context_ledger: bool = False,
    spoken: bool = False,
) -> AgentCard:
    """Return the card: one skill per operation, and the LAFS extension; `spoken` agents also take text."""
    extension = AgentExtension(
        uri=EXTENSION,
        description="Answers are LAFS envelopes.",
        required=required,
        params={
            "supportsContextLedger": context_ledger,
            "supportsTokenBudgets": True,
            "envelopeSchema": SCHEMA_URL,
            "kind": "profile",
        },
    )
    skills = [
        AgentSkill(id=item.name, name=item.name, description=item.description, tags=list(item.tags) or ["operation"])
        for item in operations
    ]
    return AgentCard(
        name=name,
        description=description,
        version=version,
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False, extensions=[extension]),
        default_input_modes=["application/json", *(["text/plain"] if spoken else [])],
        default_output_modes=[MEDIA_TYPE, "application/json", *(["text/plain"] if spoken else [])],
        skills=skills,
    )


class Brief(logging.Filter):
    """Shortens the library's log record of a refused request to one line of bounded length.

    The library logs a trace and what the caller sent, which could fill a disk or command a terminal.
    """

    most = 300

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.exc_info and (error := record.exc_info[1]) is not None:
            frame = next(reversed(traceback.extract_tb(error.__traceback__)), None)
            text += f": {type(error).__name__}" + (f" at {frame.name}, line {frame.lineno}" if frame else "")
        record.msg, record.args, record.exc_info, record.exc_text = one_line(text)[: self.most], (), None, None
        return True


logging.getLogger("a2a.server.routes.jsonrpc_dispatcher").addFilter(Brief())


def agent_routes(
    operations: Operations, card: AgentCard, *, rpc_url: str = "/a2a", spoken: Spoken | None = None
) -> list[Route]:
    """Serve the card at its well-known path and the JSON-RPC endpoint with streaming; `spoken` says what text means."""
    store = InMemoryTaskStore()
    handler = DefaultRequestHandler(
        agent_executor=OperationExecutor(operations, card, spoken),
        task_store=store,
        agent_card=card,
        request_context_builder=SimpleRequestContextBuilder(should_populate_referred_tasks=True, task_store=store),
    )
    rpc = create_jsonrpc_routes(handler, rpc_url)
    return [document_route(CARD_PATH, agent_card_to_dict(card)), *(_negotiating(route, card) for route in rpc)]


class OperationExecutor(AgentExecutor):
    """Performs the operation that a message names, and publishes the task's states and its artifact."""

    def __init__(self, operations: Operations, card: AgentCard, spoken: Spoken | None = None) -> None:
        self._operations = operations
        self._card = card
        self._spoken = spoken

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task, message = context.current_task, context.message
        assert message is not None
        if task is None:
            task = new_task_from_user_message(message)
            await event_queue.enqueue_event(task)
        progress = Progress(TaskUpdater(event_queue, task.id, task.context_id), _state(task))
        try:
            contexts = {other.id: other.context_id for other in context.related_tasks}
            check_references(message.reference_task_ids, task.context_id, contexts)
            name, parameters, spoken = wanted(message, self._spoken)
        except Problem as problem:
            said = self._operations.refuse("a2a.message", problem, transport="http")
            await progress.move("REJECTED" if progress.state == "SUBMITTED" else "FAILED", self._part(said, context))
            return
        await progress.move("WORKING")
        if spoken is not None and spoken.heard is not None and EXTENSION not in self._activated(context):
            await _speak(progress, spoken.heard(parameters[spoken.parameter], task.context_id))
            return
        said = await self._operations.call(name, parameters, transport="http", session_id=task.context_id)
        part = self._part(said, context, spoken)
        await progress.artifact(part, activated=self._activated(context))
        await progress.move(end_of(said), None if said.problem is None else part)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task
        assert task is not None
        await Progress(TaskUpdater(event_queue, task.id, task.context_id), _state(task)).move("CANCELED")

    def _activated(self, context: RequestContext) -> list[str]:
        call = context.call_context
        return negotiate(call.requested_extensions, self._card.capabilities.extensions).activated

    def _part(self, said: Said, context: RequestContext, spoken: Spoken | None = None) -> Part:
        """Return the envelope if the client activated the extension, else the result, its text or the error."""
        if EXTENSION in self._activated(context):
            part = new_data_part(said.shown, media_type=MEDIA_TYPE)
            part.metadata.update({"x-content-type": MEDIA_TYPE})
            return part
        if said.problem is not None:
            return new_text_part(said.problem.as_lafs()["message"])
        if spoken is not None:
            return new_text_part(spoken.text(said.envelope.result))
        return new_data_part(said.envelope.result, media_type="application/json")


async def _speak(progress: Progress, words: AsyncGenerator[str, None]) -> None:
    """Publish a streamed answer as pieces of one artifact; a failure becomes the status's message."""
    waiting: str | None = None
    async with aclosing(words):
        try:
            async for piece in words:
                if waiting is not None:
                    await progress.piece(waiting, last=False)
                waiting = piece
        except Problem as problem:
            if waiting is not None:
                await progress.piece(waiting, last=True)
            await progress.move("FAILED", new_text_part(problem.as_lafs()["message"]))
            return
    await progress.piece(waiting or "", last=True)
    await progress.move("COMPLETED")


class Progress:
    """Moves a task through its states, as the task machine allows (K1)."""

    def __init__(self, updater: TaskUpdater, state: State) -> None:
        self._updater = updater
        self.state: State = state
        self._pieces = 0

    async def move(self, to: State, part: Part | None = None) -> None:
        self.state = advance(self.state, to)
        message = None if part is None else self._updater.new_agent_message([part])
        await self._updater.update_status(_STATES[to], message)

    async def piece(self, text: str, *, last: bool) -> None:
        """Publish a piece of the artifact `answer`."""
        begun, self._pieces = self._pieces > 0, self._pieces + 1
        await self._updater.add_artifact(
            [new_text_part(text)], artifact_id="answer", name="answer", append=begun, last_chunk=last
        )

    async def artifact(self, part: Part, *, activated: list[str]) -> None:
        if is_terminal(self.state):
            raise Problem("state_conflict", "A task that has ended takes no more artifacts.", state=self.state)
        metadata = {"x-content-type": MEDIA_TYPE} if activated else None
        await self._updater.add_artifact([part], name="answer", metadata=metadata, extensions=activated or None)


def end_of(said: Said) -> State:
    """Return the task's next state; a caller who must authenticate may come back to the task."""
    if said.problem is None:
        return "COMPLETED"
    return "AUTH_REQUIRED" if said.problem.row.action == "authenticate" else "FAILED"


def wanted(message: Message, spoken: Spoken | None = None) -> tuple[str, dict[str, Any], Spoken | None]:
    """Return the operation and parameters that a message asks for, and `spoken` if the message is plain text."""
    for data in get_data_parts(message.parts):
        if isinstance(data, dict) and isinstance(data.get("operation"), str):
            parameters = whole_numbers(data.get("parameters", {}))
            if isinstance(parameters, dict):
                return data["operation"], parameters, None
    text = "\n".join(get_text_parts(message.parts)).strip()
    if spoken is not None and text:
        return spoken.operation, {spoken.parameter: text}, spoken
    raise Problem(
        "schema_mismatch",
        "The message names no operation.",
        at="$.message.parts",
        fix='Send a data part {"operation": name, "parameters": {…}}; the card lists the names as skills.',
    )


def envelope_in(parts: Iterable[Part]) -> Envelope | None:
    """Return the envelope that an artifact or a message carries, validated."""
    for part in parts:
        if part.HasField("data") and part.media_type == MEDIA_TYPE:
            (data,) = get_data_parts([part])
            return decode(msgspec.json.encode(whole_numbers(data)))
    return None


def _state(task: Task) -> State:
    name: Any = TaskState.Name(task.status.state).removeprefix("TASK_STATE_")
    return name  # type: ignore[no-any-return]


def _negotiating(route: Route, card: AgentCard) -> Route:
    """Put `route` behind the negotiation of extensions: refuse without a required one, echo the activated ones."""
    return Route(route.path, _Negotiated(route.app, card), methods=list(route.methods or ()))


class _Negotiated:
    def __init__(self, app: ASGIApp, card: AgentCard) -> None:
        self._app = app
        self._card = card

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        values = request.headers.getlist(HTTP_EXTENSION_HEADER) + request.headers.getlist(f"X-{HTTP_EXTENSION_HEADER}")
        agreed = negotiate(get_requested_extensions(values), self._card.capabilities.extensions)
        if agreed.missing_required:
            await _extension_required(agreed)(scope, receive, send)
            return
        told = (HTTP_EXTENSION_HEADER.lower().encode(), ", ".join(agreed.requested).encode())
        scope = {**scope, "headers": [*scope["headers"], told]}  # one header, whichever of the two the client used

        async def echoing(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start" and agreed.activated:
                header = (HTTP_EXTENSION_HEADER.lower().encode(), ", ".join(agreed.activated).encode())
                message = {**message, "headers": [*message["headers"], header]}
            await send(message)

        await self._app(scope, receive, echoing)


def _extension_required(agreed: Negotiation) -> Response:
    problem = Problem(
        "invalid_request",
        "This agent needs an extension that the request did not activate.",
        missing=agreed.missing_required,
        fix=f"Send the header {HTTP_EXTENSION_HEADER} with the extensions in `missing`.",
    )
    body = {**problem.as_problem_json(), "status": 400, "code": EXTENSION_REQUIRED}
    return Response(msgspec.json.encode(body), 400, media_type="application/problem+json")
