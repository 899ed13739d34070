"""The doubles of a scenario on our side: a person who answers from a list, a session in memory, a network of rules.

They mirror those of `scenario.mjs`, operation for operation, so that what differs is the extension's run.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
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
        if operation == "setTheme":  # nothing is shown by it; what came of it is in the answer that the extension gets
            return None
        if operation not in _DIALOGS:
            self.shown.append({"op": operation, **rest})
            return None
        answer = self.answers.pop(0) if self.answers else None
        self.shown.append({"op": operation, **rest, "answer": answer})
        return answer


class SessionDouble:
    """A session in memory; `acted` are the changes that the extension made."""

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
        read = getattr(self, "_read_" + operation, None)
        if read is not None:
            return read(*arguments)
        change = getattr(self, "_do_" + operation, None)
        if change is None:
            raise Problem("invalid_request", f"The session double knows no {operation}.")
        self.acted.append({"op": operation, "args": arguments})
        return change(*arguments)

    def _read_getCwd(self) -> str:
        return self.cwd

    def _read_getSessionDir(self) -> str:
        return "/sessions"

    def _read_getSessionId(self) -> str:
        return "session-1"

    def _read_getSessionFile(self) -> Any:
        return self.given.get("file")

    def _read_getLeafEntry(self) -> Any:
        return self.entries[-1] if self.entries else None

    def _read_getLeafId(self) -> Any:
        return self.entries[-1].get("id") if self.entries else None

    def _read_getEntry(self, entry_id: str) -> Any:
        return next((entry for entry in self.entries if entry.get("id") == entry_id), None)

    def _read_getLabel(self, entry_id: str) -> Any:
        return self.labels.get(entry_id)

    def _read_getHeader(self) -> Any:
        return self.given.get("header")

    def _read_getSessionName(self) -> Any:
        return self.name

    def _read_getChildren(self, entry_id: str) -> Any:
        return [entry for entry in self.entries if entry.get("parentId") == entry_id]

    def _read_getEntries(self, *_: Any) -> Any:
        return list(self.entries)

    def _read_getBranch(self, *_: Any) -> Any:
        return list(self.entries)

    def _read_getTree(self) -> Any:
        return []

    def _read_buildSessionContext(self) -> Any:
        return self.given.get("context")

    def _read_getModel(self) -> Any:
        return self.model

    def _read_isIdle(self) -> bool:
        return self.scenario.get("idle") is not False

    def _read_hasPendingMessages(self) -> bool:
        return self.scenario.get("pending") is True

    def _read_getContextUsage(self) -> Any:
        return self.given.get("usage")

    def _read_getSystemPrompt(self) -> str:
        return str(self.scenario.get("systemPrompt") or "")

    def _read_getActiveTools(self) -> Any:
        return list(self.tools)

    def _read_getAllTools(self) -> Any:
        return [*(self.scenario.get("tools") or ()), *self.registered]

    def _read_getCommands(self) -> Any:
        return list(self.scenario.get("commands") or ())

    def _read_getThinkingLevel(self) -> Any:
        return self.thinking

    def _read_waitForIdle(self) -> None:
        return None

    def _do_sendMessage(self, *_: Any) -> None: ...

    def _do_sendUserMessage(self, *_: Any) -> None: ...

    def _do_abort(self, *_: Any) -> None: ...

    def _do_shutdown(self, *_: Any) -> None: ...

    def _do_reload(self, *_: Any) -> None: ...

    def _do_compact(self, *_: Any) -> None: ...

    def _do_newSession(self, *_: Any) -> Any:
        return {"cancelled": False}

    _do_fork = _do_switchSession = _do_navigateTree = _do_newSession

    def _do_appendEntry(self, custom_type: str, data: Any = None) -> None:
        last = self.entries[-1].get("id") if self.entries else None
        self.entries.append(
            {
                "type": "custom",
                "id": f"new-{len(self.entries) + 1}",
                "parentId": last,
                "timestamp": _STAMP,
                "customType": custom_type,
                "data": data,
            }
        )

    def _do_setSessionName(self, name: Any) -> None:
        self.name = name

    def _do_setLabel(self, entry_id: str, label: Any = None) -> None:
        self.labels[entry_id] = label

    def _do_setActiveTools(self, names: list[str]) -> None:
        self.tools = list(names)

    def _do_setModel(self, model: Any) -> bool:
        self.model = model
        return True

    def _do_setThinkingLevel(self, level: Any) -> None:
        self.thinking = level


class Models:
    """The models of a scenario; none of them completes anything."""

    def __init__(self, models: list[dict[str, Any]]) -> None:
        self._models = models

    async def models(self) -> list[Mapping[str, Any]]:
        return list(self._models)

    def stream(self, request: Mapping[str, Any]) -> Any:
        raise Problem("state_conflict", "No model completes in a scenario.")


class Network:
    """Answers `fetch` from rules; what no rule names does not exist."""

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
