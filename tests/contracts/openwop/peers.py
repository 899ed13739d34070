"""Others that a host speaks to, made with the protocols' own libraries and served on loopback: an A2A agent whose next
task state a test sets, and an MCP server with one tool."""

from __future__ import annotations

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from mcp.server import MCPServer
from starlette.applications import Starlette


class Agent(AgentExecutor):
    """An A2A agent with the skill `echo`. `plan` holds the states that its next message leads a task through."""

    def __init__(self) -> None:
        self.plan: list[str] = []
        self.heard: list[Message] = []

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        assert message is not None and context.task_id and context.context_id
        self.heard.append(message)
        if context.current_task is None:
            submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            task = Task(id=context.task_id, context_id=context.context_id, status=submitted, history=[message])
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        for state in self.plan or ["COMPLETED"]:
            if state == "COMPLETED":
                await updater.add_artifact([Part(text=f"echo: {context.get_user_input()}")])
            said = Message(message_id=f"about-{state}", role=Role.ROLE_AGENT, parts=[Part(text=f"Now {state}.")])
            await updater.update_status(getattr(TaskState, f"TASK_STATE_{state}"), said)
        self.plan = []

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError

    def app(self, url: str) -> Starlette:
        card = AgentCard(
            name="Echo",
            description="Says it again.",
            version="1.0.0",
            supported_interfaces=[
                AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
            ],
            capabilities=AgentCapabilities(streaming=False),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[AgentSkill(id="echo", name="echo", description="Says it again.", tags=["echo"])],
        )
        handler = DefaultRequestHandler(agent_executor=self, task_store=InMemoryTaskStore(), agent_card=card)
        return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")])


def mcp_app(calls: list[str]) -> Starlette:
    """An MCP server over streamable HTTP at `/mcp`; `calls` are what its tool `echo` was called with."""
    server = MCPServer("probe")

    @server.tool()
    def echo(text: str) -> str:
        """Says it again."""
        calls.append(text)
        return text

    return server.streamable_http_app()
