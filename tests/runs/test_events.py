"""Every event that a run can emit has the contract's shape (OpenWOP §1.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from forestay.kernel import Problem
from forestay.models import DEFAULT_PARAMS, Delta, Deltas, FinishReason, Message, Params, ToolSpec, Usage
from forestay.runs.nodes.core import standard_registry
from forestay.runs.nodes.registry import NodeError
from forestay.runs.ports import Caller, HttpRequest, HttpResponse
from forestay.runs.types import ForkRequest
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, node, start, waiting, when, workflow
from tests.runs.events import check_events, snapshot_schema


class Script:
    """A model that plays a list of answers, and the source that gives it to every node."""

    name, context_window, max_output_tokens = "p:m", 8_192, None

    def __init__(self, *answers: Delta | list[Delta]) -> None:
        self.answers = list(answers)
        self.asked: list[Params] = []

    def chosen(self, provider: str | None, name: str | None) -> Script:
        return self

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def stream(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), params: Params = DEFAULT_PARAMS
    ) -> Deltas:
        self.asked.append(params)
        answer = self.answers.pop(0)
        for delta in answer if isinstance(answer, list) else [answer]:
            yield delta


def said(text: str, finish_reason: FinishReason | None = "stop", **fields: Any) -> Delta:
    return Delta(text, finish_reason=finish_reason, **fields)


class Tools:
    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller) -> Any:
        if tool == "denied":
            raise Problem("capability_denied", "No.")
        return {"echo": arguments, "key": caller.idempotency_key}

    def names(self) -> list[str]:
        return ["echo", "denied"]


class Web:
    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.sent: list[HttpRequest] = []

    async def send(self, request: HttpRequest, caller: Caller) -> HttpResponse:
        self.sent.append(request)
        return HttpResponse(status=self.status, headers={"x": "y"}, body=b'{"ok": true}')


async def test_events_of_a_run_with_everything(host: Host) -> None:
    types = standard_registry(sample_seams=True, custom=False)

    @types.node("test.chatty")
    async def chatty(ctx: Any) -> dict[str, Any]:
        ctx.log("info", "working", step=1)
        ctx.emit("acme.progress", {"percent": 50})
        ctx.artifact("report", {"n": 1})
        await ctx.effect("e", lambda: 1)
        if ctx.attempt == 1:
            raise NodeError("busy", "not yet")
        return {}

    async with host(nodes=types) as runs:
        await runs.put_workflow(workflow("child", [node("n")]), tenant=None)
        plan = [{"kind": "next-worker", "nextWorkerIds": ["child"]}, {"kind": "terminate", "reason": "done"}]
        document = workflow(
            "w",
            [
                node("wait", "core.delay", config={"delayMs": 10}),
                node("chatty", "test.chatty", settings={"retry": {"maxAttempts": 2, "initialDelayMs": 1}}),
                node("ask", "core.clarificationGate", config={"questions": [{"id": "q", "question": "?"}]}),
                node("talk", "core.conversationGate", config={"mockAutoResume": True}),
                node("gate", "core.approvalGate", config={"actions": ["accept", "reject", "ask", "edit-accept"]}),
                node("signal", "core.waitForEvent", config={"event": "go"}),
                node("boss", "core.orchestrator.supervisor", config={"plan": plan}),
                node("work", "core.dispatch"),
                node("skip"),
                node("chan", "core.channelWrite", config={"channelName": "c", "value": 1, "reducer": "append"}),
            ],
            [
                edge("wait", "chatty"), edge("chatty", "ask"), edge("ask", "talk"), edge("talk", "gate"),
                edge("gate", "signal"), edge("gate", "skip", condition=when("output.action == 'reject'")),
                edge("signal", "boss"), edge("boss", "work"), edge("work", "boss"), edge("work", "chan"),
            ],
            channels={"conversation": {"reducer": "message"}},
        )  # fmt: skip
        run_id = await start(runs, document, {"a": 1}, tags=["t"], metadata={"m": 1})
        await waiting(runs, run_id, "clarification.requested")
        await runs.resolve_by_node(run_id, "ask", "acme", {"resumeValue": {"answers": {"q": "x"}}}, "ann")
        await waiting(runs, run_id, "approval.requested")
        await runs.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "ask", "question": "?"}}, "ann")
        await runs.resolve_by_node(run_id, "gate", "acme", {"resumeValue": {"action": "edit-accept"}}, "ann")
        await runs.pause(run_id, "acme")
        await runs.resume(run_id, "acme")
        await runs.signal(run_id, "acme", "go", {})
        run = await finish(runs, run_id)
        assert run.status == "completed", run.error
        events = await runs.events(run_id, "acme")
        check_events(_plain(events))
        seen = {event.type for event in events}
        assert {"acme.progress", "artifact.created", "node.retried", "runOrchestrator.decided"} <= seen
        schema = snapshot_schema()
        if schema is not None:
            schema.validate(msgspec.to_builtins(run))
        branch = await runs.fork(run_id, "acme", ForkRequest(mode="branch", from_seq=len(events) - 3))
        await finish(runs, branch.run_id)
        check_events(_plain(await runs.events(branch.run_id, "acme")))


def _plain(events: Any) -> Any:
    """The vendor's own event has no shape of ours; its place in the order is kept."""
    return [msgspec.structs.replace(e, type="forestay.timer.fired", payload={"nodeId": "x", "key": "x"})
            if e.type == "acme.progress" else e for e in events]  # fmt: skip


async def test_events_of_failing_runs(host: Host) -> None:
    async with host() as runs:
        for document, inputs, fields in (
            (workflow("f", [node("bad", "core.fail"), node("b")], [edge("bad", "b")]), {}, {}),
            (workflow("r", [node("a"), node("b")], [edge("a", "b")]), {}, {"configurable": {"recursionLimit": 1}}),
            (workflow("t", [node("a", "core.delay", config={"ms": 9999})]), {}, {"configurable": {"runTimeoutMs": 5}}),
            (workflow("c", [node("a", "conformance.requiresMissing")]), {}, {}),
            (workflow("i", [node("a", inputs={"x": {"type": "expression", "expression": "1 / 0"}})]), {}, {}),
        ):
            run_id = await start(runs, document, inputs, **fields)
            run = await finish(runs, run_id)
            assert run.status == "failed"
            assert run.error is not None and run.error.code
            check_events(await runs.events(run_id, "acme"))
        run_id = await start(runs, workflow("g", [node("g", "core.approvalGate")]))
        await runs.cancel(run_id, "acme", "ann", "no")
        check_events(await runs.events(run_id, "acme"))


async def test_a_prompt_streams_its_text_and_is_asked_once(host: Host) -> None:
    model = Script([said("Hel", finish_reason=None), said("lo", usage=Usage(3, 2, cost_usd=0.01))])
    async with host(models=model) as runs:
        run_id = await start(runs, workflow("w", [node("ai", "core.ai.callPrompt", config={"prompt": "hi"})]))
        run = await finish(runs, run_id)
        assert run.outputs == {"text": "Hello", "model": "m", "finishReason": "stop"}
        events = await runs.events(run_id, "acme")
        check_events(events)
        chunks = [event.payload["chunk"] for event in events if event.type == "output.chunk"]
        assert chunks == ["Hel", "lo"]
        assert run.metrics == {
            "openwopCost": {"tokens": {"input": 3, "output": 2}, "usd": 0.01, "model": "m", "provider": "p"}
        }
        replay = await runs.fork(run_id, "acme", ForkRequest(mode="replay"))
        assert replay.status == "completed"
        assert len(model.asked) == 1


async def test_structured_output_tries_again_with_what_was_wrong(host: Host) -> None:
    schema = {"type": "object", "required": ["valid"], "properties": {"valid": {"type": "boolean"}}}
    config = {"outputSchema": schema, "prompt": "json please", "maxTokens": 50}
    cases: list[tuple[list[Any], str, list[str]]] = [
        ([said('{"valid": true}')], "completed", []),
        ([said('```json\n{"valid": true}\n```')], "completed", ["envelope.recovery.applied"]),
        ([said("no"), said('{"valid": true}')], "completed", ["envelope.retry.attempted"]),
        (
            [said("{", finish_reason="length"), said('{"valid": true}')],
            "completed",
            ["envelope.truncated", "envelope.retry.attempted"],
        ),
        ([said("", refusal="I will not")], "failed", ["envelope.refusal"]),
        (
            [said('{"valid": 1}')] * 3,
            "failed",
            ["envelope.retry.attempted", "envelope.retry.attempted", "envelope.retry.exhausted"],
        ),
    ]
    for index, (answers, status, expected) in enumerate(cases):
        model = Script(*answers)
        async with host(models=model) as runs:
            document = workflow(f"w{index}", [node("ai", "core.ai.structuredOutput", config=config)])
            run_id = await start(runs, document)
            run = await finish(runs, run_id)
            assert run.status == status
            events = await runs.events(run_id, "acme")
            check_events(events)
            assert [event.type for event in events if event.type.startswith("envelope.")] == expected
            if "envelope.truncated" in expected:
                assert [params.max_tokens for params in model.asked] == [50, 100]


async def test_tools_and_http_go_through_what_is_wired(host: Host) -> None:
    web = Web()
    async with host(tools=Tools(), http=web) as runs:
        document = workflow(
            "w",
            [
                node("tool", "core.tool", config={"tool": "echo", "arguments": {"a": 1}}),
                node("http", "core.http", config={"url": "https://example.org/x", "method": "POST", "body": {"b": 2}}),
            ],
            [edge("tool", "http")],
        )
        run_id = await start(runs, document)
        run = await finish(runs, run_id)
        assert run.outputs == {"status": 200, "headers": {"x": "y"}, "body": {"ok": True}}
        assert web.sent[0].headers["Idempotency-Key"]
        events = await runs.events(run_id, "acme")
        check_events(events)
        calls = [event.payload["callId"] for event in events if event.type.startswith("agent.tool")]
        assert len(calls) == 4 and calls[0] == calls[1] != calls[2] == calls[3]
        denied = workflow("d", [node("tool", "core.tool", config={"tool": "denied"})])
        run_id = await start(runs, denied)
        run = await finish(runs, run_id)
        assert run.error is not None and run.error.code == "forbidden"
        told = [event for event in await runs.events(run_id, "acme") if event.type == "agent.toolReturned"]
        assert told[0].payload["status"] == "forbidden"
    async with host(http=Web(503)) as runs:
        run_id = await start(runs, workflow("h", [node("http", "core.http", config={"url": "https://example.org"})]))
        run = await finish(runs, run_id)
        assert run.error is not None and run.error.code == "http_status"
