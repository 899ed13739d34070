"""The whole HTTP surface as one ASGI application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from forestay.surface import keys
from forestay.surface.dispatch import Dispatch
from forestay.surface.exchange import note_route
from forestay.surface.openwop import events, interrupts, meta, off, runs, schedules, seams, webhooks, workflows
from forestay.surface.operations import Operation
from forestay.surface.routing import Routes
from forestay.surface.services import Services


class App:
    """Operations, and other applications mounted beside them by path prefix."""

    def __init__(self, operations: Sequence[Operation], dispatch: Dispatch, mounts: Mapping[str, ASGIApp]) -> None:
        self.operations = operations
        self._dispatch = dispatch
        self._mounts = dict(mounts)
        self._inside = [(prefix, prefix + "/") for prefix in mounts]
        self._roots = {operation.path.split("/")[1] for operation in operations}

    def mount_of(self, path: str) -> str | None:
        """The prefix of the mount that answers at `path`; None where the operations do."""
        if path in self._mounts:
            return path
        return next((prefix for prefix, inside in self._inside if path.startswith(inside)), None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        prefix = self.mount_of(scope["path"])
        if prefix is not None:
            note_route(scope, prefix)
            await self._mounts[prefix]({**scope, "root_path": prefix}, receive, send)
            return
        if self._is_lost_reader(scope):
            await self._mounts["/"](scope, receive, send)
            return
        await self._dispatch(scope, receive, send)

    def _is_lost_reader(self, scope: Scope) -> bool:
        """Whether a browser asks for a page at an address where no contract begins: the root's mount has one for it."""
        if "/" not in self._mounts or scope["method"] not in ("GET", "HEAD"):
            return False
        accepts = b",".join(value for name, value in scope["headers"] if name == b"accept")
        return b"text/html" in accepts and scope["path"].split("/")[1] not in self._roots


def build_app(
    services: Services, *, more: Sequence[Operation] = (), mounts: Mapping[str, ASGIApp] | None = None
) -> App:
    """The application of a host: OpenWOP at `/v1`, keys at `/host/v1`, and what else the host adds."""
    operations: list[Operation] = []
    operations += meta.operations(services, lambda: operations)
    for part in (workflows, runs, events, interrupts, webhooks, schedules, keys, seams):
        operations += part.operations(services)
    operations += more
    dispatch = Dispatch(
        Routes(operations),
        lambda request: services.keys.authenticate(request.headers.get("authorization")),
        services.limits,
        services.load,
        services.idempotency,
        clock=services.clock,
        ids=services.ids,
        fallback=off.unmatched,
    )
    return App(operations, dispatch, mounts or {})
