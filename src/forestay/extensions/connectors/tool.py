"""The `tool` method for the built-in tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forestay.extensions.connectors import file_tools, search_tools, truncate
from forestay.extensions.connectors.contract import Call, Output, number, text
from forestay.extensions.connectors.exec import ExecConnector
from forestay.extensions.connectors.fs import FsConnector
from forestay.kernel import Problem
from forestay.tools import BUILT_IN, prepared

Tool = Callable[[FsConnector, Call, Mapping[str, Any]], Output]
_FILE_TOOLS: dict[str, Tool] = {
    "read": file_tools.read,
    "write": file_tools.write,
    "edit": file_tools.edit,
    "ls": file_tools.ls,
    "grep": search_tools.grep,
    "find": search_tools.find,
}


class ToolConnector:
    method = "tool"

    def __init__(self, fs: FsConnector, exec: ExecConnector) -> None:
        self._fs = fs
        self._exec = exec

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        name = text(params, "name")
        given = params.get("input", {})
        if not isinstance(given, Mapping):
            raise Problem("schema_mismatch", "A tool's input is an object.", at="$.params.input")
        known = BUILT_IN.get(name)
        if known is None:
            raise Problem("method_not_found", f"There is no tool {name[:80]!r}.", at="$.params.name")
        fit = known.tool.fit(prepared(name, given))
        return self._bash(call, fit) if name == "bash" else _FILE_TOOLS[name](self._fs, call, fit)

    def _bash(self, call: Call, params: Mapping[str, Any]) -> Output:
        """`command`, `timeout` in seconds. Output and errors together, the end kept when it is long."""
        command, seconds = text(params, "command"), number(params, "timeout", 0)
        # One pipe for both, so that lines keep the order in which the command wrote them.
        shell = ["-c", "exec 2>&1\n" + command]
        outcome = self._exec.run(
            call, {"command": "bash", "args": shell, "timeout": seconds * 1000, "cwd": params.get("cwd")}
        )
        cut = truncate.tail(outcome["stdout"].rstrip("\n"))
        output = cut["content"] or "(no output)"
        details: dict[str, Any] = {}
        if cut["truncated"] or outcome["truncated"]:
            details["truncation"] = cut
            first = cut["totalLines"] - cut["outputLines"] + 1
            output += f"\n\n[Showing lines {first}-{cut['totalLines']} of {cut['totalLines']}.]"
        if outcome.get("note"):
            output += f"\n\n[{outcome['note']}]"
        if outcome["timed_out"]:
            raise Problem("timeout", f"{output}\n\nCommand timed out after {seconds} seconds")
        if outcome["code"] != 0:
            raise Problem(
                "io_failed", f"{output}\n\nCommand exited with code {outcome['code']}", exit_code=outcome["code"]
            )
        return file_tools.result(output, details)
