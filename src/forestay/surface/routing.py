"""Finds the operation of a method and a path: exact paths by table, paths with parameters by pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from forestay.kernel import Problem
from forestay.surface.operations import Operation

PARAMETER = re.compile(r"\{([A-Za-z]+)\}")
# The form of an id; no other text names anything here.
ID_PATTERN = r"[A-Za-z0-9._:@~-]{1,128}"
_ID = re.compile(ID_PATTERN)
_FREE = frozenset({"token", "nodeId", "artifactId", "name", "filePath", "capability", "stream", "toolId"})
_SLASHED = frozenset(
    {"nodeId", "name", "stream", "toolId"}
)  # names that authors choose: they may contain an encoded slash
_DEEP = "{stream}"  # at the end of a path: matches the rest, with plain slashes
_MAX_FREE = 1024
_PATTERNS = {"workflowId": "[a-z][a-z0-9_-]{0,127}"}  # as workflow definitions allow it


class Routes:
    """The operations of one application."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations = tuple(operations)
        self._exact: dict[str, dict[str, Operation]] = {}
        patterns: dict[str, dict[str, Operation]] = {}
        for operation in self.operations:
            table = patterns if "{" in operation.path else self._exact
            methods = table.setdefault(operation.path, {})
            if operation.method in methods:
                raise ValueError(f"{operation.method} {operation.path} stands twice")
            methods[operation.method] = operation
        # The longer the fixed text, the more exact the path: `/runs/{id}:fork` is tried before `/runs/{id}`.
        paths = sorted(patterns, key=lambda path: -len(PARAMETER.sub("", path)))
        self._patterns: dict[int, list[tuple[re.Pattern[str], dict[str, Operation]]]] = {}
        self._deep: list[tuple[re.Pattern[str], dict[str, Operation]]] = []
        for path in paths:
            same = self._deep if path.endswith(_DEEP) else self._patterns.setdefault(path.count("/"), [])
            same.append((_compile(path), patterns[path]))

    def match(self, method: str, path: str, *, slashes: bool = False) -> tuple[Operation, Mapping[str, str]] | None:
        """Return the operation and its path parameters; None for an unknown path, a Problem for a method it lacks.

        With `slashes`, a NUL in the path is a slash that its caller encoded.
        """
        methods = self._exact.get(path)
        found: re.Match[str] | None = None
        if methods is None:
            for pattern, candidate in (*self._patterns.get(path.count("/"), ()), *self._deep):
                found = pattern.fullmatch(path)
                if found is not None:
                    methods = candidate
                    break
        if methods is None:
            return None
        operation = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
        if operation is None or (method == "HEAD" and operation.streams):
            raise Problem("method_not_allowed", f"{method[:16]} is not allowed here.", allow=_allow(methods))
        return operation, _checked(found.groupdict(), slashes) if found else {}


def _compile(path: str) -> re.Pattern[str]:
    parts = PARAMETER.split(path)
    return re.compile(
        "".join(_group(part) if index % 2 else re.escape(part) for index, part in enumerate(parts)), re.DOTALL
    )


def _group(name: str) -> str:
    return f"(?P<{name}>.+)" if f"{{{name}}}" == _DEEP else f"(?P<{name}>[^/]+?)"


def parameter_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a path parameter."""
    if name == "sessionId":
        return {"type": "string", "format": "uuid"}
    if name in _FREE:
        return {"type": "string", "minLength": 1, "maxLength": _MAX_FREE}
    return {"type": "string", "pattern": f"^{_PATTERNS.get(name, ID_PATTERN)}$"}


def _checked(parameters: dict[str, str], slashes: bool) -> dict[str, str]:
    for name, value in parameters.items():
        if slashes and name in _SLASHED:
            parameters[name] = value = value.replace("\0", "/")
        plain = len(value) <= _MAX_FREE and "\0" not in value if name in _FREE else _ID.fullmatch(value)
        if not plain:
            raise Problem("not_found", f"There is no such {name.removesuffix('Id')}.")
    return parameters


def _allow(methods: Mapping[str, Operation]) -> list[str]:
    more = ["HEAD"] if "GET" in methods and not methods["GET"].streams else []
    return sorted([*methods, *more])
