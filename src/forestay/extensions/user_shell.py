"""`!command`: runs a person's command in a conversation, after asking the extensions that listen to `user_bash`.

Y1  An extension may answer in place of the shell, or run the command itself (`operations`, as over ssh); then its own
    policy decides its host calls. Otherwise the command runs confined, like the agent's `bash`.
Y2  The command becomes a message of the session. The model does not see a `!!command`.
"""

from __future__ import annotations

import base64
import codecs
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from forestay.extensions.connectors.tool import tail
from forestay.extensions.host_call import Subject
from forestay.extensions.protocol import HostCall
from forestay.kernel import Grant, Problem
from forestay.tools import BUILT_IN, Tool, ToolOutcome, ToolSource, Update

if TYPE_CHECKING:
    from forestay.extensions.extensions import Extensions

PERSON = "person"
"""The policy subject of a person's own commands and reads."""
_AWAY = "person:away"
_KEPT_CHARACTERS = 4 * 1024 * 1024


class ShellLine(NamedTuple):
    """A line that runs a command; the model does not see an `excluded` one."""

    command: str
    excluded: bool = False


def shell_line(text: str) -> ShellLine | None:
    """Return the command of a line `!command` or `!!command`; None for any other line."""
    said = text.strip()
    if not said.startswith("!"):
        return None
    excluded = said.startswith("!!")
    command = said[2 if excluded else 1 :].strip()
    return ShellLine(command, excluded) if command else None


class PersonShell(ToolSource):
    """A person's shell in a conversation. It has no network for a person who is `away` (not at this terminal)."""

    kind = "forestay"

    def __init__(self, suite: Extensions, line: ShellLine, *, away: bool = True) -> None:
        self._suite = suite
        self._line = line
        self._subject = _AWAY if away else PERSON
        self._capabilities = ("read", "write", "exec", *(() if away else ("http",)))

    async def list(self) -> Sequence[Tool]:
        return [BUILT_IN["bash"].tool]

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        message = await self.run(call_id, command=str(arguments["command"]))
        return ToolOutcome(message["output"], details=message)

    async def run(
        self, call_id: str, heard: Callable[[str], None] = lambda _: None, command: str | None = None
    ) -> dict[str, Any]:
        """Run the command; return its message for the session (Y1, Y2). `heard` gets the output as it comes."""
        command = command or self._line.command
        event = {"command": command, "excludeFromContext": self._line.excluded, "cwd": str(self._suite.root)}
        answer = await self._suite.emit({"type": "user_bash", **event})
        said = answer if isinstance(answer, Mapping) else {}
        if isinstance(said.get("result"), Mapping):
            done: Mapping[str, Any] = said["result"]
            heard(str(done.get("output") or ""))
        elif said.get("operations"):
            member = next(item for item in self._suite.members if item.extension.name == said["extension"])
            done = await member.extension.run_shell(command, str(self._suite.root), heard)
        else:
            done = await self._own(call_id, command, heard)
        return self.message(command, done)

    async def _own(self, call_id: str, command: str, heard: Callable[[str], None]) -> dict[str, Any]:
        dispatcher = self._suite.dispatcher
        dispatcher.admit(Subject(self._subject, self._suite.roots(self._subject)))
        if self._subject not in dispatcher.authority.policy.subjects:
            for name in self._capabilities:
                dispatcher.learn(self._subject, "allow", Grant(name, source="agent"))
        params = {"command": "bash", "args": ["-c", "exec 2>&1\n" + command], "stream": True}
        request = HostCall(f"shell:{call_id[-64:]}", "", "exec", params)
        decoder, output, code = codecs.getincrementaldecoder("utf-8")("replace"), "", None
        async for part in dispatcher.call(request, self._subject):
            if part.error is not None:
                raise Problem("io_failed", part.error.message)
            text = decoder.decode(base64.b64decode(str(part.output.get("base64") or "")))
            heard(text)
            output = (output + text)[-_KEPT_CHARACTERS:]
            code = part.output.get("code", code)
        return {"output": output, "exitCode": code}

    def message(self, command: str, done: Mapping[str, Any]) -> dict[str, Any]:
        """Return a command's message for the session: pi's `bashExecution`, without its time (Y2)."""
        cut = tail(str(done.get("output") or "").rstrip("\n"))
        code = done.get("exitCode")
        return {
            "role": "bashExecution",
            "command": command,
            "output": cut["content"],
            **({"exitCode": code} if isinstance(code, int) else {}),
            "cancelled": done.get("cancelled") is True,
            "truncated": bool(cut["truncated"]) or done.get("truncated") is True,
            **({"excludeFromContext": True} if self._line.excluded else {}),
        }
