"""The host's models: opened once by the name that the configuration gives a class of work, closed with the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from forestay import models
from forestay.kernel import Budgets, Clock, Config, Models, Problem
from forestay.models import Model, OpenModel

_LONG_CONTEXT = 100_000  # tokens


class HostModels:
    """Models by specification; the same specification is the same model."""

    def __init__(
        self,
        settings: Models,
        *,
        clock: Clock,
        folder: Path,
        own: Mapping[str, OpenModel] | None = None,
        watched: Callable[[OpenModel], OpenModel] = lambda model: model,
    ) -> None:
        """`watched` wraps each model that is opened, so that its calls are counted."""
        self._settings = settings
        self._clock = clock
        self._folder = folder
        self._watched = watched
        self._open: dict[str, OpenModel] = {name: watched(model) for name, model in (own or {}).items()}

    @property
    def default(self) -> OpenModel:
        return self._named(self._settings.default)

    def all(self) -> list[OpenModel]:
        """Every model that the configuration names and that can be opened, the default first."""
        found = [self.default]
        for spec in self.names:
            try:
                found.append(self._named(spec))
            except Problem:  # a caller who asks for that model hears which key is missing
                continue
        return list(dict.fromkeys(found))

    @property
    def names(self) -> list[str]:
        """What a person may choose from, by the names of the settings; the default first."""
        return list(dict.fromkeys([*self._settings.used, *self._settings.entries]))

    def named_for(self, agent_id: str, model_class: str) -> str:
        """What the settings name for an agent: its own model, or that of its class, or the default."""
        settings = self._settings
        return settings.agents.get(agent_id) or settings.classes.get(model_class, settings.default)

    def for_agent(self, agent_id: str, model_class: str) -> OpenModel:
        """The agent's own model, or that of its class, or the default."""
        return self._named(self.named_for(agent_id, model_class))

    def has(self, provider: str, id: str) -> bool:
        """Whether there is a model of that provider and name."""
        return any(identity(model) == (provider, id) for model in self.all())

    def chosen(self, provider: str | None, name: str | None) -> OpenModel:
        """The model that a caller names by its provider, its name or both, as they are shown; the default for none.

        A model that is not configured is a Problem: no other one answers in its place.
        """
        if not provider and not name:
            return self.default
        if not provider and name in self.names:
            return self._named(str(name))
        offered = self.all()
        for model in offered:
            shown = identity(model)
            if (not provider or provider == shown[0]) and (not name or name in (shown[1], model.name, "/".join(shown))):
                return model
        named = "/".join(filter(None, (provider, name)))
        raise Problem(
            "model_unknown",
            f"There is no model {named[:120]} here.",
            known=[model.name for model in offered],
            fix="Use one of `known`, or configure it in [models].",
        )

    def _named(self, spec: str) -> OpenModel:
        if spec not in self._open:
            opened = models.open(spec, clock=self._clock, folder=self._folder, entries=self._settings.entries)
            self._open[spec] = self._watched(opened)
        return self._open[spec]

    def capabilities_of(self, model: Model) -> frozenset[str]:
        """What a model is known to be capable of: what its entry says, and a long context (OpenWOP RFC 0031 §C)."""
        entry = self._settings.entries.get(identity(model)[0])
        long = {"long-context"} if model.context_window >= _LONG_CONTEXT else set[str]()
        return frozenset(entry.capabilities if entry is not None else ()) | long

    def capability(self) -> dict[str, Any]:
        """What discovery says of the default model."""
        known = sorted(self.capabilities_of(self.default))
        return {"supported": True, "advertised": known, "substitutionSupported": False}

    async def close(self) -> None:
        for model in self._open.values():
            await model.aclose()
        self._open.clear()


def identity(model: Model) -> tuple[str, str]:
    """The provider (or the entry of the settings) and the name of a model, as others are shown them."""
    provider, _, name = model.name.partition(":")
    return provider, name or provider


def priced(config: Config) -> Budgets:
    """The budgets with the prices that models of the settings bring along; each is nearer than a pattern."""
    own = {f"{name}:*": entry.price for name, entry in config.models.entries.items() if entry.price is not None}
    return msgspec.structs.replace(config.budgets, prices={**own, **config.budgets.prices})
