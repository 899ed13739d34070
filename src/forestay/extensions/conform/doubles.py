"""A scenario's test doubles on our side: a person with listed answers, a session in memory, a network of rules.

They mirror the doubles of `scenario.mjs`, operation for operation, so every difference comes from the extension's run.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from forestay.extensions.connectors.contract import Call, Output
from forestay.kernel import Problem

_DIALOGS = ("select", "confirm", "input", "editor", "custom")
_STAMP = "2026-01-01T00:00:00.000Z"


class Person:
    """Records what is shown and answers dialogs in order."""

    interactive = True

    def __init__(self, answers: list[Any]) -> None:
        self.answers = list(answers)
        self.shown: list[dict[str, Any]] = []
        self.editor = ""

    async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        rest = {key: value for key, value in params.items() if key != "op"}
        if operation == "getEditorText":
            return self.editor
        if operation in ("setEditorText", "pasteToEditor"):
            text = str(rest.get("text"))
            self.editor = text if operation == "setEditorText" else self.editor + text
        if operation == "setTheme":  # it shows nothing; the extension gets the result as its answer
            return None
        if operation not in _DIALOGS:
            self.shown.append({"op": operation, **rest})
            return None
        answer = self.answers.pop(0) if self.answers else None
        self.shown.append({"op": operation, **rest, "answer": answer})
        return answer


class SessionDouble:
    """A session in memory; `acted` collects the changes that the extension makes."""

    def __init__(self, scenario: Mapping[str, Any], cwd: str, acted: list[dict[str, Any]]) -> None:
        given: Mapping[str, Any] = scenario.get("session") or {}
        self.given, self.scenario, self.cwd = given, scenario, cwd
        self.acted = acted
        self.name = given.get("name")
        self.entries: list[dict[str, Any]] = [dict(entry) for entry in given.get("entries") or ()]
        self.tools = list(given.get("activeTools") or ("read", "bash", "edit", "write"))
        self.thinking = given.get("thinkingLevel", "off")
        self.model = given.get("model")
        self.labels: dict[str, Any] = {}
        self.registered: list[dict[str, Any]] = []

    async def request(self, operation: str, params: Mapping[str, Any]) -> Any:
        arguments = list(params.get("args") or ())
        if operation in _READS:
            return _READS[operation](self, *arguments)
        if operation not in _CHANGES:
            raise Problem("invalid_request", f"The session double knows no {operation}.")
        self.acted.append({"op": operation, "args": arguments})
        return _CHANGES[operation](self, *arguments)

    @property
    def last(self) -> dict[str, Any]:
        return self.entries[-1] if self.entries else {}

    def append(self, custom_type: str, data: Any = None) -> None:
        entry = {"type": "custom", "id": f"new-{len(self.entries) + 1}", "parentId": self.last.get("id")}
        self.entries.append({**entry, "timestamp": _STAMP, "customType": custom_type, "data": data})

    def choose_model(self, model: Any) -> bool:
        self.model = model
        return True


_READS: dict[str, Callable[..., Any]] = {
    "getCwd": lambda self: self.cwd,
    "getSessionDir": lambda _self: "/sessions",
    "getSessionId": lambda _self: "session-1",
    "getSessionFile": lambda self: self.given.get("file"),
    "getLeafEntry": lambda self: self.last or None,
    "getLeafId": lambda self: self.last.get("id"),
    "getEntry": lambda self, id: next((entry for entry in self.entries if entry.get("id") == id), None),
    "getLabel": lambda self, id: self.labels.get(id),
    "getHeader": lambda self: self.given.get("header"),
    "getSessionName": lambda self: self.name,
    "getChildren": lambda self, id: [entry for entry in self.entries if entry.get("parentId") == id],
    "getEntries": lambda self, *_: list(self.entries),
    "getBranch": lambda self, *_: list(self.entries),
    "getTree": lambda _self: [],
    "buildSessionContext": lambda self: self.given.get("context"),
    "getModel": lambda self: self.model,
    "isIdle": lambda self: self.scenario.get("idle") is not False,
    "hasPendingMessages": lambda self: self.scenario.get("pending") is True,
    "getContextUsage": lambda self: self.given.get("usage"),
    "getSystemPrompt": lambda self: str(self.scenario.get("systemPrompt") or ""),
    "getActiveTools": lambda self: list(self.tools),
    "getAllTools": lambda self: [*(self.scenario.get("tools") or ()), *self.registered],
    "getCommands": lambda self: list(self.scenario.get("commands") or ()),
    "getThinkingLevel": lambda self: self.thinking,
    "waitForIdle": lambda _self: None,
}
_CHANGES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(
        ("sendMessage", "sendUserMessage", "abort", "shutdown", "reload", "compact"), lambda _self, *_: None
    ),
    **dict.fromkeys(("newSession", "fork", "switchSession", "navigateTree"), lambda _self, *_: {"cancelled": False}),
    "appendEntry": SessionDouble.append,
    "setSessionName": lambda self, name: setattr(self, "name", name),
    "setLabel": lambda self, id, label=None: self.labels.__setitem__(id, label),
    "setActiveTools": lambda self, names: setattr(self, "tools", list(names)),
    "setModel": SessionDouble.choose_model,
    "setThinkingLevel": lambda self, level: setattr(self, "thinking", level),
}


class Models:
    """The models of a scenario; none of them can complete."""

    def __init__(self, models: list[dict[str, Any]]) -> None:
        self._models = models

    async def models(self) -> list[Mapping[str, Any]]:
        return list(self._models)

    def stream(self, request: Mapping[str, Any]) -> Any:
        raise Problem("state_conflict", "No model completes in a scenario.")


class Network:
    """Answers `fetch` from rules; a URL without a rule does not exist."""

    method = "http"

    def __init__(self, rules: list[dict[str, Any]], acted: list[dict[str, Any]]) -> None:
        self._rules = rules
        self._acted = acted

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        url, method = str(params.get("url")), str(params.get("method") or "GET")
        self._acted.append({"op": "fetch", "args": [method, url]})
        for rule in self._rules:
            if url.startswith(rule["url"]) and rule.get("method", method) == method:
                return self._answer(call, url, rule)
        raise Problem("io_failed", "fetch failed")

    def _answer(self, call: Call, url: str, rule: dict[str, Any]) -> Output:
        body = str(rule.get("body") or "")
        headers = [[key, value] for key, value in (rule.get("headers") or {}).items()]
        head = {"status": rule.get("status", 200), "statusText": "", "headerList": headers, "url": url}
        if not call.streaming:
            return {**head, "body": body}
        call.emit({**head, "redirected": False})
        call.emit({"base64": base64.b64encode(body.encode()).decode()})
        return {"size": len(body)}
