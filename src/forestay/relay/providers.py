"""The models of a session: those a caller registered, by priority, or the relay's own when there is none.

V1  What a caller registered is the fall-back order, and all of it: the relay's own model is not behind it (C11, C18).
V2  Keys are kept in memory only. A session whose providers another process had registered has none until the
    caller registers one again; no other model answers for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forestay import models
from forestay.kernel import Problem
from forestay.models import REMOTE, Model, OpenModel

if TYPE_CHECKING:
    from forestay.relay.relay import Relay

_OLLAMA = "http://127.0.0.1:11434/v1"
TYPES = (*REMOTE, "ollama", "local")


def open_provider(
    provider_type: str, model: str | None, *, api_key: str | None = None, base_url: str | None = None
) -> OpenModel:
    """`openai`, `anthropic` or `ollama` as the contract names them, or `local`, which needs neither key nor network."""
    if provider_type not in TYPES:
        raise Problem(
            "invalid_request",
            f"{provider_type[:40]!r} is not a provider type.",
            at="$.provider_type",
            known=list(TYPES),
        )
    if provider_type == "local":
        return models.open("local")
    if not model:
        raise Problem("invalid_request", "The provider needs a model.", at="$.model", fix="Name the model.")
    if provider_type == "ollama":
        return models.open(f"openai:{model}@{base_url or _OLLAMA}", api_key=api_key)
    spec = f"{provider_type}:{model}" + (f"@{base_url}" if base_url else "")
    return models.open(spec, api_key=api_key)


class Providers:
    """Models in the order in which they are asked; `asked` is the one that a dispatch under way has chosen."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._own: list[tuple[int, int, Model]] = []
        self._opened: list[OpenModel] = []
        self.asked: Model | None = None

    def add(self, model: Model, priority: int) -> None:
        """A model that the caller lends, and closes."""
        if all(model is not known for _, _, known in self._own):
            self._own.append((priority, len(self._own), model))

    def lend(self, model: Model, priority: int) -> None:
        """A model that takes the place of one of the same name: each execution of a node lends its own."""
        self._own = [item for item in self._own if (item[0], item[2].name) != (priority, model.name)]
        self.add(model, priority)

    def open(self, model: OpenModel, priority: int) -> None:
        """A model that the session opened, and closes."""
        self._opened.append(model)
        self.add(model, priority)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While a dispatch is under way, `asked` is the model that it has chosen."""
        try:
            yield
        finally:
            self.asked = None

    def ordered(self, recorded: Sequence[str]) -> list[Model]:
        """The models that may begin an answer, the first to be asked first. `recorded` are the providers that the
        session's log names."""
        found = self.known(recorded)
        if not found and recorded:
            raise Problem(
                "provider_missing",
                f"The session's provider {recorded[-1]} is not here: keys are kept in memory only.",
                providers=list(recorded),
                fix="Register the provider again, or open a new session.",
            )
        if not found:
            raise Problem(
                "provider_error",
                "The session has no model.",
                fix="Open the relay with a model, or register a provider for the session.",
            )
        return found

    def named(self, name: str) -> Model:
        """The model that began an answer: it alone continues it (C18)."""
        known = [*self._registered(), *filter(None, [self._relay.model])]
        found = next((model for model in known if model.name == name), None)
        if found is None:
            raise Problem(
                "provider_missing",
                f"{name} began this answer, and the session does not have it now. No other model goes on with it.",
                model=name,
                known=[model.name for model in known],
                fix="Register that provider again and resume, or dispatch the task anew.",
            )
        return found

    def _registered(self) -> list[Model]:
        return [model for _, _, model in sorted(self._own, key=lambda item: item[:2])]

    def known(self, recorded: Sequence[str]) -> list[Model]:
        """The models that are here, in their order; the relay's own only where `recorded` names none."""
        if self._own or recorded:
            return self._registered()
        return [self._relay.model] if self._relay.model is not None else []

    async def aclose(self) -> None:
        opened, self._opened = self._opened, []
        for model in opened:
            await model.aclose()
        self._own.clear()
