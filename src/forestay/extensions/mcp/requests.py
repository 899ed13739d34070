"""Answers a server's requests to the host: for a model's answer, a person's answer, or its granted folders.

R1  Each request is a host call of the server's own subject: `model` for sampling, `ui` for elicitation. Policy decides,
    evidence is recorded, and an extension's budgets apply.
R2  The host announces only what policy does not refuse. A refused request gets an error answer.
R3  Requests are answered one at a time, up to a limit for each connection.
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
    """Answers the requests of one server. `ask` makes a host call of its subject; `may` tells what is not refused."""

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
        """Entered while the host answers a request."""
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
        """Return the folders granted when the connection opened: the sandbox does not change after that either."""
        roots = [types.Root(uri=Path(folder).as_uri(), name=Path(folder).name) for folder in self._folders]  # type: ignore[arg-type]
        return types.ListRootsResult(roots=roots)

    async def _asked(self, method: str, params: dict[str, Any]) -> Output:
        """Make one host call at a time, up to the limit (R3)."""
        self._count += 1
        if self._count > MAX_QUESTIONS:
            told = f"{self._name} has sent {MAX_QUESTIONS} requests; the host answers no more."
            raise Problem("quota_exceeded", told, limit=MAX_QUESTIONS)
        with self.held():
            async with self._turn:
                return await self._ask(method, params)


def granted_folders(call: Call) -> list[str]:
    """Return the folders that a server may read or write."""
    items = call.roots.items
    named = [("." if root is items[0] else root.real, root) for root in items if not root.private]
    return [
        root.real for name, root in named if call.policy.granted("read", name) or call.policy.granted("write", name)
    ]


def _sampling(params: types.CreateMessageRequestParams) -> dict[str, Any]:
    """Convert the request for the `model` method; refuse content that is not text."""
    messages: list[dict[str, Any]] = []
    for message in params.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        if not all(isinstance(block, types.TextContent) for block in blocks):
            raise Problem("invalid_request", "The host passes only text to a model.", at="$.params.messages")
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
    """Convert the request into a dialog: flat fields, no hidden characters, a size limit."""
    message = spelled(params.message)
    if isinstance(params, types.ElicitRequestURLParams):
        link = spelled(params.url)
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        message = f"{message}\n\nIt asks you to open {link}; the host does not open it."
    else:
        schema = params.model_dump(mode="json", by_alias=True)["requestedSchema"]
    if faults := _faults(message, schema):
        raise Problem(
            "invalid_request", f"The host cannot show the question of {server}. {faults[0]}", faults=faults[:10]
        )
    return {"op": "form", "title": f"The MCP server {server} asks", "message": message, "schema": schema}


def _faults(message: str, schema: dict[str, Any]) -> list[str]:
    """Return why a person cannot be asked this; empty when it is fine."""
    found = [f"Hidden characters at {line}" for line in hidden_in(schema)]
    fields = schema.get("properties", {})
    if not isinstance(fields, dict) or not all(_is_flat(field) for field in fields.values()):
        found.append("A field is not a plain value.")
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
