"""What a server asks of the host: a model's answer, a person's answer, the folders that it may use.

R1  Each question is a host call of the server's own subject: `model` for sampling, `ui` for elicitation. Policy
    decides, evidence is left, and the budgets of an extension hold.
R2  Only what policy would not refuse is announced. A refusal is an answer too.
R3  One question is answered at a time, and there is a largest number of them for a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.client import ClientRequestContext

from forestay.extensions.connectors.contract import Call, Output
from forestay.extensions.mcp.hidden_text import hidden_in, spelled
from forestay.kernel import Problem, canonical
from forestay.tools import checker

MAX_QUESTIONS = 200
MAX_FIELDS = 30
MAX_QUESTION = 32 * 1024
_STOPS = {"stop": "endTurn", "length": "maxTokens"}
_FLAT = frozenset({"string", "number", "integer", "boolean", "array"})
_UNHEARD = ("consent_required", "cancelled")


class ServerRequests:
    """Answers the questions of one server. `ask` makes a host call of its subject, `may` says what is not refused."""

    def __init__(
        self,
        name: str,
        ask: Callable[[str, dict[str, Any]], Awaitable[Output]],
        may: Callable[[str], bool],
        folders: Sequence[str] = (),
    ) -> None:
        self._name = name
        self._ask = ask
        self._folders = folders
        self._turn = asyncio.Lock()
        self._count = 0
        self.held: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered while a question is answered."""
        self.sampling = self._sample if may("model") else None
        self.elicitation = self._elicit if may("ui") else None
        self.roots = self._list_roots if folders else None

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        try:
            answer = (await self._asked("model", _sampling(params)))["message"]
        except Problem as problem:
            return _refused(problem)
        said = "\n".join(block["text"] for block in answer["content"] if block.get("type") == "text")
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text=said),
            model=f"{answer['provider']}/{answer['model']}",
            stop_reason=_STOPS.get(answer["stopReason"], answer["stopReason"]),
        )

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        try:
            form = _form(self._name, params)
            answer = (await self._asked("ui", form))["value"]
        except Problem as problem:
            if problem.key in _UNHEARD:
                return types.ElicitResult(action="cancel")
            if problem.key == "capability_denied":
                return types.ElicitResult(action="decline")
            return _refused(problem)
        if answer is None:
            return types.ElicitResult(action="cancel")
        asked, given = form["schema"].get("properties", {}), answer.get("content") or {}
        content = {name: value for name, value in given.items() if name in asked}
        return types.ElicitResult(action=answer["action"], content=content if answer["action"] == "accept" else None)

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        """The granted folders as they were when the connection was made: a sandbox does not change either."""
        roots = [types.Root(uri=Path(folder).as_uri(), name=Path(folder).name) for folder in self._folders]  # type: ignore[arg-type]
        return types.ListRootsResult(roots=roots)

    async def _asked(self, method: str, params: dict[str, Any]) -> Output:
        """R3."""
        self._count += 1
        if self._count > MAX_QUESTIONS:
            told = f"{self._name} has asked {MAX_QUESTIONS} questions; no more are answered."
            raise Problem("quota_exceeded", told, limit=MAX_QUESTIONS)
        with self.held():
            async with self._turn:
                return await self._ask(method, params)


def granted_folders(call: Call) -> list[str]:
    """The folders whose contents a server is granted, and no others."""
    items = call.roots.items
    named = [("." if root is items[0] else root.real, root) for root in items if not root.private]
    return [
        root.real for name, root in named if call.policy.granted("read", name) or call.policy.granted("write", name)
    ]


def _sampling(params: types.CreateMessageRequestParams) -> dict[str, Any]:
    """The request as the `model` method takes it. What a model could not be shown is refused."""
    messages: list[dict[str, Any]] = []
    for message in params.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        if not all(isinstance(block, types.TextContent) for block in blocks):
            raise Problem("invalid_request", "Only text is passed on to a model.", at="$.params.messages")
        texts = [block.text for block in blocks if isinstance(block, types.TextContent)]
        messages.append({"role": message.role, "content": [{"type": "text", "text": text} for text in texts]})
    options = {
        "maxTokens": params.max_tokens,
        "temperature": params.temperature,
        "stopSequences": params.stop_sequences,
    }
    context = {"systemPrompt": params.system_prompt, "messages": messages}
    return {"op": "complete", "context": context, "options": {n: v for n, v in options.items() if v is not None}}


def _form(server: str, params: types.ElicitRequestParams) -> dict[str, Any]:
    """The question as a dialog: flat fields, nothing hidden, and a largest size."""
    message = spelled(params.message)
    if isinstance(params, types.ElicitRequestURLParams):
        link = spelled(params.url)
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        message = f"{message}\n\nIt asks to open {link} yourself; nothing is opened by itself."
    else:
        schema = params.model_dump(mode="json", by_alias=True)["requestedSchema"]
    if faults := _faults(message, schema):
        raise Problem("invalid_request", f"The question of {server} cannot be asked. {faults[0]}", faults=faults[:10])
    return {"op": "form", "title": f"The MCP server {server} asks", "message": message, "schema": schema}


def _faults(message: str, schema: dict[str, Any]) -> list[str]:
    """Why a person is not asked this; empty when nothing speaks against it."""
    found = [f"Hidden characters at {line}" for line in hidden_in(schema)]
    fields = schema.get("properties", {})
    if not isinstance(fields, dict) or not all(_is_flat(field) for field in fields.values()):
        found.append("A field is no plain value.")
    elif len(canonical.encode([message, schema])) > MAX_QUESTION or len(fields) > MAX_FIELDS:
        found.append("It is too long.")
    try:
        checker(schema)
    except Problem as problem:
        found.append(spelled(problem.message)[:300])
    return found


def _is_flat(field: Any) -> bool:
    return isinstance(field, dict) and str(field.get("type", "string")) in _FLAT


def _refused(problem: Problem) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=problem.message)
