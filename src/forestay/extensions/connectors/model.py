"""The `model` method: asks a language model, within the extension's token limit for one session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from forestay.extensions.connectors.contract import Call, Output
from forestay.kernel import Amounts, Budget, Limits, Problem, canonical


class Model(Protocol):
    """A language model for extensions; `stream` yields text parts and ends with the whole answer."""

    def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]: ...

    async def models(self) -> list[Mapping[str, Any]]: ...


class ModelConnector:
    """`complete` {model, context, options} streams {delta} chunks and answers {message}; `list` names the models.

    The evidence of the call has the provider's count. An extension without tokens left is refused; with few left, it
    gets a shorter answer. A request counts when it begins, and an interrupted answer counts by its length: else an
    extension could avoid the limit by leaving early or by asking many times at once.
    """

    method = "model"

    def __init__(
        self,
        model: Model | None = None,
        *,
        tokens: int | None = None,
        offered: Callable[[str], Awaitable[Sequence[Mapping[str, Any]]]] | None = None,
    ) -> None:
        """`offered(extension)` lists the models, including those that other extensions registered."""
        self._model = model
        self._offered = offered
        self._limits = Limits(tokens=tokens)
        self._spent: dict[str, Amounts] = {}

    async def wait(self, call: Call, params: Mapping[str, Any]) -> Output:
        operation = params.get("op", "complete")
        if operation == "list" and self._offered is not None:
            return {"models": [dict(model) for model in await self._offered(call.extension)]}
        if self._model is None:
            raise Problem("state_conflict", "No model is connected.", fix="Configure a model provider.")
        if operation == "list":
            return {"models": [dict(model) for model in await self._model.models()]}
        if operation != "complete":
            raise Problem("invalid_request", f"There is no model operation {operation!r}.", at="$.params.op")
        request = self._affordable(call.extension, params)
        asked, said = _estimate(params.get("context")), 0
        last: Mapping[str, Any] = {}
        self._spend(call.extension, asked)
        try:
            async for part in self._model.stream(request):
                last = part
                said += _estimate(part.get("delta"))
                call.check()
                if call.streaming and "delta" in part:
                    await call.room()
                    call.emit(dict(part))
        finally:
            counted = self._counted(call, last)
            self._spend(call.extension, (asked + said if counted is None else counted) - asked)
        return dict(last)

    def _affordable(self, extension: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the request, limited to the tokens that the extension has left."""
        budget = Budget(self._limits, self._spent.get(extension, Amounts()))
        left = budget.left("tokens")
        if left is None:
            return params
        if left == 0:
            raise Problem(
                "budget_exhausted",
                f"{extension} has used all of its {self._limits.tokens} model tokens for this session.",
                fix="Raise extensions.policy.max_model_tokens.",
            )
        options = dict(params.get("options") or {}) if isinstance(params.get("options"), Mapping) else {}
        wanted = options.get("maxTokens")
        options["maxTokens"] = min(wanted, left) if isinstance(wanted, int | float) else left
        return {**params, "options": options}

    def _spend(self, extension: str, tokens: int) -> None:
        self._spent[extension] = self._spent.get(extension, Amounts()) + Amounts(tokens=tokens)

    def _counted(self, call: Call, last: Mapping[str, Any]) -> int | None:
        """Return the provider's token count, if there is one, and note it as evidence."""
        message = last.get("message")
        if not isinstance(message, Mapping):
            return None
        if isinstance(message.get("model"), str):
            call.facts["model"] = f"{message.get('provider')}/{message['model']}"
        used = message.get("usage")
        if not isinstance(used, Mapping):
            return None
        spent = {"input_tokens": int(used.get("input", 0)), "output_tokens": int(used.get("output", 0))}
        call.facts.update(spent)
        return sum(spent.values())


def _estimate(said: Any) -> int:
    """Estimate the tokens of a value, for an answer without the provider's count."""
    if said is None:
        return 0
    return max(1, len(said if isinstance(said, str) else canonical.encode(said)) // 4)
