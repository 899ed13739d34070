"""The models that extensions and the person of a session can choose: the host's, and those of extensions.

C1  A virtual model does not answer itself: for each answer, its extension names a model of the host.
C2  The scope is a person's selection of models (`models.enabled`) in pi's patterns; without one, it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from forestay.extensions.connectors.model import Model
from forestay.extensions.guests import Guest, Member
from forestay.kernel import Problem

LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh")
Described = Mapping[str, Any]


class ModelCatalogue:
    """Lists models, and asks the extension of a virtual model which model answers."""

    def __init__(self, model: Model | None, members: Callable[[], Sequence[Member]], scope: Sequence[str] = ()) -> None:
        self._model = model
        self._members = members
        self._scope = scope

    async def reachable(self, asked_by: str | None = None) -> list[Described]:
        """List the host's models and those of extensions; `asked_by` knows its own, so they are left out."""
        offered: list[Described] = list(await self._model.models()) if self._model is not None else []
        for member in self._members():
            if member.extension.name != asked_by:
                for provider in member.extension.registrations.providers.values():
                    offered += [provider.described(model) for model in provider.models]
                offered += [item.model for item in member.extension.registrations.virtual_models.values()]
        return offered

    async def selectable(self) -> list[Described]:
        """List what a person may choose for a conversation: the host's models and virtual ones, within the scope."""
        own: list[Described] = list(await self._model.models()) if self._model is not None else []
        virtual = [item for guest in self._guests() for item in _virtual(guest)]
        return [scoped["model"] for scoped in _scoped([*own, *virtual], self._scope)] if self._scope else own + virtual

    async def scoped(self) -> list[dict[str, Any]]:
        """List the models in the scope, in the order of its patterns: `{model, thinkingLevel}` (C2)."""
        return _scoped(await self.reachable(), self._scope) if self._scope else []

    def virtual(self, provider: str, id: str) -> Described | None:
        """Return a virtual model as its extension described it; None when there is none of that name."""
        found = self._router(provider, id)
        return found[1] if found is not None else None

    async def route(self, provider: str, id: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask which model answers a request for a virtual one: `{provider, id, thinkingLevel, state}` (C1)."""
        found = self._router(provider, id)
        if found is None:
            raise Problem("model_unknown", f"There is no model {provider[:80]}/{id[:80]} here.")
        return await found[0].route(provider, id, request)

    def _router(self, provider: str, id: str) -> tuple[Guest, Described] | None:
        routers = ((guest, item) for guest in self._guests() for item in _virtual(guest))
        return next((found for found in routers if _name(found[1]) == (provider, id)), None)

    def _guests(self) -> list[Guest]:
        return [member.extension for member in self._members()]


def _virtual(guest: Guest) -> list[Described]:
    return [item.model for item in guest.registrations.virtual_models.values()]


def _name(model: Described) -> tuple[Any, Any]:
    return model.get("provider"), model.get("id")


def _scoped(offered: Sequence[Described], patterns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the models that match the patterns (`PROVIDER/ID` or `ID`, with `*`); a final `:high` pins a level."""
    found: dict[tuple[Any, Any], dict[str, Any]] = {}
    for pattern in patterns:
        named, _, level = pattern.rpartition(":")
        pinned = {"thinkingLevel": level} if named and level in LEVELS else {}
        wanted = (named if pinned else pattern).lower()
        for model in offered:
            provider, id = (str(part).lower() for part in _name(model))
            if fnmatchcase(f"{provider}/{id}", wanted) or fnmatchcase(id, wanted):
                found.setdefault(_name(model), {"model": dict(model), **pinned})
    return list(found.values())
