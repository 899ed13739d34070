"""The connectors that pass a call on: session, ui, model, events, log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from forestay.extensions.connectors.contract import Call, Output, Session, text
from forestay.extensions.connectors.ui import DIALOGS, NoUi, Ui
from forestay.extensions.themes import OPERATIONS as THEME_OPERATIONS
from forestay.extensions.themes import Themes
from forestay.kernel import Amounts, Bounds, Budget, Limits, Problem, bounded, canonical, cut, redact, redact_text

LEVELS = ("debug", "info", "warn", "error")
MAX_LOG_TEXT = 4096
_LOG_DATA = Bounds(text=MAX_LOG_TEXT, total=32_768, items=200, depth=16)


class Model(Protocol):
    """A language model as extensions reach it; `stream` yields text parts and ends with the whole answer."""

    def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]: ...

    async def models(self) -> list[Mapping[str, Any]]: ...


class SessionConnector:
    method = "session"
    waits = True

    def __init__(self, session: Session | None = None) -> None:
        self._session = session

    async def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        if self._session is None:
            raise Problem("state_conflict", "There is no session here.", fix="Run the extension inside a session.")
        return {"value": await self._session.request(text(params, "op"), params)}


class UiConnector:
    """Dialogs and notices. What nobody can answer is denied, not guessed (Pi §3.2A `ui`).

    `hold(extension, True)` while a person has a dialog before them: how long they take is not the extension's time.
    """

    method = "ui"
    waits = True

    def __init__(
        self,
        ui: Ui | None = None,
        themes: Themes | None = None,
        hold: Callable[[str, bool], None] = lambda _extension, _held: None,
    ) -> None:
        self._ui = ui or NoUi()
        self._themes = themes or Themes()
        self._hold = hold

    async def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        operation = text(params, "op")
        if operation in DIALOGS:
            return {"value": await self._dialog(call.extension, operation, params)}
        if operation not in THEME_OPERATIONS:
            return {"value": await self._ui.request(call.extension, operation, params)}
        answer = self._themes.request(call.extension, operation, params)
        if operation == "setTheme":  # who shows something may want to show it again
            shown = {"op": operation, "name": params.get("name"), "success": answer["success"]}
            await self._ui.request(call.extension, operation, shown)
        return {"value": answer}

    async def _dialog(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        self._hold(extension, True)
        try:
            return await self._ui.request(extension, operation, params)
        finally:
            self._hold(extension, False)


class ModelConnector:
    """`complete` {model, context, options} streams {delta} chunks and answers {message}; `list` names the models.

    What a provider counted is in the evidence of the call. An extension that has used its tokens is refused, and one
    that has nearly used them gets a shorter answer. What is under way counts as it begins, and an answer that was
    broken off counts by its length: else nobody who goes away early, or asks many times at once, would have used any.
    """

    method = "model"
    waits = True

    def __init__(
        self,
        model: Model | None = None,
        *,
        tokens: int | None = None,
        offered: Callable[[str], Awaitable[Sequence[Mapping[str, Any]]]] | None = None,
    ) -> None:
        """`offered(extension)` lists the models, those that other extensions registered included."""
        self._model = model
        self._offered = offered
        self._limits = Limits(tokens=tokens)
        self._spent: dict[str, Amounts] = {}

    async def run(self, call: Call, params: Mapping[str, Any]) -> Output:
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
        """The request, asking for no more tokens than the extension has left."""
        budget = Budget(self._limits, self._spent.get(extension, Amounts()))
        left = budget.left("tokens")
        if left is None:
            return params
        if left == 0:
            raise Problem(
                "budget_exhausted",
                f"{extension} has used the {self._limits.tokens} model tokens that one session gives it.",
                fix="Raise extensions.policy.max_model_tokens.",
            )
        options = dict(params.get("options") or {}) if isinstance(params.get("options"), Mapping) else {}
        wanted = options.get("maxTokens")
        options["maxTokens"] = min(wanted, left) if isinstance(wanted, int | float) else left
        return {**params, "options": options}

    def _spend(self, extension: str, tokens: int) -> None:
        self._spent[extension] = self._spent.get(extension, Amounts()) + Amounts(tokens=tokens)

    def _counted(self, call: Call, last: Mapping[str, Any]) -> int | None:
        """What the provider counted, if it came to that."""
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
    """About how many tokens something has, when nobody counted them."""
    if said is None:
        return 0
    return max(1, len(said if isinstance(said, str) else canonical.encode(said)) // 4)


class EventsConnector:
    """The bus between extensions: `emit` {channel, data}."""

    method = "events"

    def __init__(self, emit: Callable[[str, str, Any], None] | None = None) -> None:
        self._emit = emit

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        if params.get("op", "emit") != "emit":
            raise Problem("invalid_request", f"There is no events operation {params.get('op')!r}.", at="$.params.op")
        if self._emit is not None:
            self._emit(call.extension, text(params, "channel"), params.get("data"))
        return {}


class LogConnector:
    """What an extension says itself, cleaned: one record a call, no line of anybody else's (Pi §3.1)."""

    method = "log"

    def __init__(self, write: Callable[[str, str, str, str, Any], None] | None = None) -> None:
        self._write = write

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        level = text(params, "level", "info")
        if level not in LEVELS:
            raise Problem("invalid_request", f"A level is one of {', '.join(LEVELS)}.", at="$.params.level")
        event = clean(text(params, "event", "extension.log")[:128])[:128]
        message = clean(text(params, "message", event))
        if self._write is not None:
            self._write(call.extension, level, event, message, redact(bounded(params.get("data"), _LOG_DATA)))
        return {}


def clean(value: str) -> str:
    """One line without control characters or secrets: nothing that could look like another log entry."""
    value = cut(value, MAX_LOG_TEXT)
    plain = "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in value)
    return redact_text(plain)
