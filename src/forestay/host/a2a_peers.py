"""`core.a2a.invoke`: a node that gives a task to an A2A 1.0 agent and follows the task until it ends.

- I1  Each request is one effect of the node, through the SSRF-safe connector: a message is sent once, even after a
      crash.
- I2  The run passes the agent's questions to a person. The agent's texts are untrusted, and both the question and the
      output say so.
- I3  Nothing runs between two requests for a task's status: the pause is a durable timer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from forestay.envelope import CARD_PATH
from forestay.kernel import OPERATOR, A2aPeer, Problem
from forestay.runs import Execution, NodeError, NodeType, passes_off

A2A_INVOKE = "core.a2a.invoke"
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS, _PATIENCE_MS = 250, 30_000, 3_600_000
_LONGEST = 4_000
_PREFIX = "TASK_STATE_"
# How a task that did not succeed ends the node (OpenWOP a2a-integration §State projection).
_FAILURES = {"FAILED": "a2a_task_failed", "CANCELED": "a2a_task_cancelled", "REJECTED": "rejected_by_remote"}


class A2aPeers:
    """The A2A agents in the settings. Like tools, only the operator may use them."""

    def __init__(self, peers: Mapping[str, A2aPeer]) -> None:
        self._peers = peers
        self.type = NodeType(
            type_id=A2A_INVOKE,
            execute=self.invoke,
            requires=("http",),
            check=self._check,
            summary="Gives a task to an A2A agent.",
        )

    async def invoke(self, ctx: Execution) -> dict[str, Any]:
        """Send a message to a peer and follow the task that the peer creates."""
        if ctx.tenant != OPERATOR:
            raise Problem("permission_denied", "Only the operator may use A2A peers.")
        peer = self._chosen(ctx.config)
        rpc = _Rpc(ctx, await _address(ctx, peer), peer.credential or ctx.credential)
        made = await rpc.send(_parts(ctx), ctx.config.get("skill"))
        if "message" in made:
            return _outputs({"state": "COMPLETED"}, [made["message"]])
        return await _followed(ctx, rpc, made["task"])

    def _chosen(self, config: dict[str, Any]) -> A2aPeer:
        name = config.get("peer") or (next(iter(self._peers)) if len(self._peers) == 1 else "")
        if (found := self._peers.get(name)) is None:
            known = ", ".join(sorted(self._peers))
            raise NodeError("invalid_input", f"`peer` must name one of the host's A2A peers: {known}.", retryable=False)
        return found

    def _check(self, config: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for key in ("peer", "skill", "message"):
            if not isinstance(config.get(key, ""), str):
                yield f".{key}", "A text is expected."


class _Rpc:
    """JSON-RPC to one agent, each call one effect (I1)."""

    def __init__(self, ctx: Execution, url: str, credential: str | None) -> None:
        self._ctx = ctx
        self._url = url
        self._credential = credential
        self._sent = 0

    async def send(
        self, parts: list[dict[str, Any]], skill: str | None = None, task: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a message, for an existing `task` or a new one; return `{task}` or `{message}` without waiting for the
        task to end."""
        self._sent += 1
        id = self._ctx.caller(f"a2a/{self._sent}", "a2a").idempotency_key
        message: dict[str, Any] = {"messageId": id, "role": "ROLE_USER", "parts": parts}
        if skill:
            message["metadata"] = {"skill": skill}
        if task is not None:
            message |= {"taskId": task["id"], "contextId": task.get("contextId", "")}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        made = await self._call("SendMessage", params)
        if "message" in made and "task" not in made:
            return {"message": made["message"]}
        return {"task": _task(made.get("task"))}

    async def look(self, task: dict[str, Any]) -> dict[str, Any]:
        return _task(await self._call("GetTask", {"id": task["id"]}))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = await self._ctx.http.fetch(
            self._url,
            method="POST",
            headers={"A2A-Version": "1.0"},
            body={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            credential=self._credential,
            fails=lambda status: status >= 400,
        )
        if answer.status >= 400:
            raise _failed("The A2A agent", answer.status)
        body = answer.body if isinstance(answer.body, dict) else {}
        if isinstance(error := body.get("error"), dict):  # its text is the agent's own and untrusted: leave it out
            said = f"The A2A agent refused {method}."
            raise NodeError("a2a_error", said, retryable=False, details={"code": error.get("code")})
        if not isinstance(result := body.get("result"), dict):
            raise _strange()
        return result


async def _address(ctx: Execution, peer: A2aPeer) -> str:
    """Return the URL on the agent's card for JSON-RPC of A2A 1."""
    card = await ctx.http.fetch(peer.url.rstrip("/") + CARD_PATH, fails=lambda status: status >= 400)
    if card.status >= 400:
        raise _failed("The server of the A2A agent's card", card.status)
    offered = card.body.get("supportedInterfaces") if isinstance(card.body, dict) else None
    for item in _objects(offered):
        if item.get("protocolBinding") == "JSONRPC" and str(item.get("protocolVersion", "")).startswith("1"):
            return str(item.get("url", ""))
    raise NodeError("a2a_unsupported", "The A2A agent offers no JSON-RPC of A2A 1.", retryable=False)


def _parts(ctx: Execution) -> list[dict[str, Any]]:
    """Return what to send: the `message` of the inputs or the configuration as text, else the inputs as data."""
    text = ctx.inputs.get("message", ctx.config.get("message"))
    return [{"text": text}] if isinstance(text, str) and text else [{"data": dict(ctx.inputs)}]


async def _followed(ctx: Execution, rpc: _Rpc, task: dict[str, Any]) -> dict[str, Any]:
    """Follow a task until it ends and return its outputs; pass its questions to a person."""
    waited, pause, rounds = 0, _FIRST_PAUSE_MS, 0
    while True:
        status = task["status"]
        state = str(status.get("state", "")).removeprefix(_PREFIX)
        if state == "COMPLETED":
            said = task.get("artifacts") or [status.get("message")]
            return _outputs({"state": state, "taskId": task["id"]}, said)
        if state in _FAILURES:
            told = {"taskId": task["id"], "state": state}
            raise NodeError(_FAILURES[state], f"The A2A agent's task ended as {state}.", retryable=False, details=told)
        if state in ("INPUT_REQUIRED", "AUTH_REQUIRED"):
            rounds += 1
            task = await _asked(ctx, rpc, task, state, rounds)
            continue
        if waited > _PATIENCE_MS:
            raise NodeError("a2a_timeout", "The A2A agent's task did not end in time.", details={"taskId": task["id"]})
        await ctx.sleep(pause)
        waited, pause = waited + pause, min(pause * 2, _LONGEST_PAUSE_MS)
        task = await rpc.look(task)


async def _asked(ctx: Execution, rpc: _Rpc, task: dict[str, Any], state: str, rounds: int) -> dict[str, Any]:
    """Ask a person what the agent asks, and return the task after that (I2). An answer is sent to the agent. An
    authorization is given elsewhere, so the task is only read again."""
    if rounds > ctx.limits.clarification_rounds:
        limit = ctx.limits.clarification_rounds
        ctx.emit("cap.breached", {"kind": "clarification", "limit": limit, "observed": rounds})
        raise NodeError("clarification_limit_exceeded", f"Asked more than {limit} times.", retryable=False)
    is_auth = state == "AUTH_REQUIRED"
    text = _text([task["status"].get("message")])
    asks = "An A2A agent needs an authorization" if is_auth else "An A2A agent asks"
    questions = [{"id": "answer", "question": f"{asks}; these words are the agent's own: {text}"}]
    value = await ctx.interrupt(
        "clarification",
        {"questions": questions, "contextType": "a2a-auth" if is_auth else "a2a-input"},
        announce=("clarification.requested", {"questions": questions}),
    )
    if is_auth:
        return await rpc.look(task)
    made = await rpc.send([{"text": str(value["answers"]["answer"])}], task=task)
    return made["task"] if "task" in made else await rpc.look(task)


def _task(value: Any) -> dict[str, Any]:
    """Return an agent's task; refuse a value without an id and a status."""
    known = value if isinstance(value, dict) else {}
    if not isinstance(known.get("id"), str) or not isinstance(known.get("status"), dict):
        raise _strange()
    return known


def _outputs(about: dict[str, Any], said: Any) -> dict[str, Any]:
    return {**about, "text": _text(said), "parts": _content(said), "contentTrust": "untrusted"}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _content(said: Any) -> list[dict[str, Any]]:
    """Return the parts of messages or artifacts."""
    return [part for item in _objects(said) for part in _objects(item.get("parts"))]


def _text(said: Any) -> str:
    return "\n".join(part["text"] for part in _content(said) if isinstance(part.get("text"), str))[:_LONGEST]


def _failed(who: str, status: int) -> NodeError:
    said = f"{who} answered {status}."
    return NodeError("http_status", said, retryable=passes_off(status), details={"status": status})


def _strange() -> NodeError:
    return NodeError("a2a_error", "The A2A agent's answer does not fit A2A 1.", retryable=False)
