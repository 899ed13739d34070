"""A model that an extension routes (pi's virtual models): for each answer the extension names a model of the host.

O1  One model writes an answer: the extension chooses once, before the first word. A recorded answer asks neither.
O2  Only models of the host write; any other name is a Problem.
O3  The session has the router's `state`, in pi's form, before the model is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forestay.agents import to_pi
from forestay.host.models import HostModels
from forestay.host.prompts import Prompts
from forestay.kernel import Problem
from forestay.models import Message, Model
from forestay.runs import Execution
from forestay.sessions import SessionTree

if TYPE_CHECKING:
    from forestay.extensions import Extensions

STATE = "pi.virtual-model-state"
"""The type of the entries with a router's state, in pi's session format."""


class RoutedModel:
    """The routed model of one execution of a node; `meter` wraps each chosen model to count its use."""

    def __init__(
        self,
        named: tuple[str, str],
        suite: Extensions,
        models: HostModels,
        ctx: Execution,
        prompts: Prompts,
        meter: Callable[[Model], Model],
    ) -> None:
        self.name = "/".join(named)
        self._named = named
        self._suite = suite
        self._models = models
        self._ctx = ctx
        self._prompts = prompts
        self._meter = meter

    async def answering(self, messages: Sequence[Message]) -> Model:
        """Return the model that writes the next answer (O1)."""
        provider, id = self._named
        tree = self._suite.session.tree if self._ctx.inputs.get("sessionId") else None
        request = self._request(messages, tree)
        route = await self._prompts.during(
            self._ctx,
            lambda: self._suite.catalogue.route(provider, id, request),
            name="route:",
            about={"model": self.name},
            repeats=True,
        )
        try:
            model = self._models.chosen(str(route.get("provider")), str(route.get("id")))
        except Problem as problem:
            if problem.key != "model_unknown":
                raise
            message = f"{self.name} was routed to {route.get('provider')}/{route.get('id')}, which is no model here."
            raise Problem("model_unknown", message, **problem.details) from problem
        await self._keep(tree, route.get("state"), request.get("state"))
        return self._meter(model)

    def _request(self, messages: Sequence[Message], tree: SessionTree | None) -> dict[str, Any]:
        last = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
        is_spoken_to = any(message.role == "user" for message in messages[last + 1 :])
        request: dict[str, Any] = {
            "thinkingLevel": self._suite.session.thinking,
            "reason": "user" if is_spoken_to else "continuation",
            "messages": [to_pi(message) for message in messages],
        }
        if tree is not None and (previous := self._previous(tree)) is not None:
            request["previous"] = {"model": previous}
        if tree is not None and (state := _kept_state(tree, self._named)) is not None:
            request["state"] = state
        return request

    def _previous(self, tree: SessionTree) -> Mapping[str, Any] | None:
        """Return the model that answered last in the session, when the host still has it."""
        for entry in reversed(tree.branch()):
            message = entry.get("message")
            if isinstance(message, Mapping) and message.get("role") == "assistant" and message.get("content"):
                named = {"provider": message.get("provider"), "id": message.get("model")}
                return named if self._models.has(str(named["provider"]), str(named["id"])) else None
        return None

    async def _keep(self, tree: SessionTree | None, state: Any, before: Any) -> None:
        """Keep the router's state for the next answer, if it changed (O3)."""
        if tree is None or state is None or state == before:
            return
        provider, id = self._named
        data = {"provider": provider, "modelId": id, "state": state}
        tree.append("custom", place=f"{self._ctx.place}state", customType=STATE, data=data)
        await self._suite.session.save()


def _kept_state(tree: SessionTree, named: tuple[str, str]) -> Any:
    for entry in reversed(tree.branch()):
        data = entry.get("data")
        if entry.get("customType") == STATE and isinstance(data, Mapping) and _of(data) == named:
            return data["state"]
    return None


def _of(data: Mapping[str, Any]) -> tuple[Any, Any]:
    return data.get("provider"), data.get("modelId")
