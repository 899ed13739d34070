"""Tools of extensions and built-in tools, as sources; and the tools of one extension as another one calls them.

S1  A tool's effect class is what it could do, not what it says: an extension's tool is `read` only while nothing that
    the extension may use can change anything, and `unsafe` otherwise.
S2  Built-in tools pass through the extensions' dispatcher: the same policy and the same evidence as a host call.
S3  A tool's outcome is given back when the evidence of what it did is on disk.
S4  An extension that another one waits for cannot call that one's tools: neither would ever go on.
S5  Agents and workflows are offered an extension's tool in place of the built-in one of its name, as in pi. What an
    extension calls itself stays the built-in one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from forestay.agents import text_of
from forestay.extensions.connectors.contract import Call, Output, text
from forestay.extensions.host_call import Subject
from forestay.extensions.mcp.tool_names import resource
from forestay.extensions.protocol import HostCall
from forestay.kernel import Grant, Problem, SubjectRules
from forestay.tools import BUILT_IN, EffectClass, Tool, ToolOutcome, ToolSource, Update, fit_for, prepared

if TYPE_CHECKING:
    from forestay.extensions.extensions import Extensions
    from forestay.extensions.guests import Member
    from forestay.extensions.registry import Tool as Registered

CHANGING = frozenset({"write", "exec", "http", "tool", "*"})
"""Capabilities whose use may change something."""

_OWN_CAPABILITIES = ("read", "write", "exec")
T = TypeVar("T")


class During(Protocol):
    """Does the work of one extension, and lets a person be asked meanwhile."""

    async def __call__(
        self,
        work: Callable[[], Awaitable[T]],
        /,
        *,
        extension: str | None = None,
        name: str = "",
        about: dict[str, Any] | None = None,
        changes: bool = False,
        repeats: bool = False,
    ) -> T: ...


class ExtensionTools(ToolSource):
    """The tools of a suite's extensions, for one caller. `consents` says that a person at the terminal may grant."""

    kind = "ext"

    def __init__(self, suite: Extensions, during: During, *, consents: bool) -> None:
        self._suite = suite
        self._during = during
        self._consents = consents

    async def list(self) -> Sequence[Tool]:
        if not self._suite.members or not (known := self._suite.tools()):
            return []
        active = self._suite.session.active  # what an extension chose (`pi.setActiveTools`)
        return [self.described(item) for item in known if item.name in active and self._is_mine(item)]

    def _is_mine(self, item: Registered) -> bool:
        return self._suite.owner(item.name).extension.runtime != "mcp"

    async def prepare(self, tool: Tool, arguments: Any) -> Any:
        return await self._during(
            lambda: self._suite.prepare_arguments(tool.name, arguments),
            extension=self._suite.owner(tool.name).extension.name,
            name=f"prepare:{tool.name}:",
            about={"tool": tool.name},
            repeats=True,
        )

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        owner = self._suite.owner(tool.name)
        try:
            outcome = await self._during(
                lambda: self._suite.call_tool(tool.name, arguments, call_id=call_id, prepared=True),
                extension=owner.extension.name,
                about={"tool": tool.name},
                changes=self._effect(owner, tool.name) != "read",  # granted since the tools were listed
                repeats=tool.effect != "read",  # then the once-guard asks about what began and was not recorded
            )
        finally:
            await self._suite.recorded()
        for partial in outcome.updates:
            await update(partial)
        return ToolOutcome(text_of(outcome.content), outcome.is_error, outcome.details)

    def described(self, item: Registered) -> Tool:
        owner = self._suite.owner(item.name)
        return Tool(
            item.name,
            item.description,
            item.parameters,
            self._effect(owner, item.name),
            f"{self.kind}:{owner.extension.name}/{item.name}",
            prepares=item.prepares,
            typebox=item.typebox,
        )

    def _effect(self, member: Member, tool: str) -> EffectClass:
        """S1. What a person grants while the tool runs is on record before it is used."""
        policy = self._suite.dispatcher.authority.policy
        rules = policy.subjects.get(member.extension.name, SubjectRules())
        mode = rules.mode or policy.mode
        granted = any(grant.capability in CHANGING for grant in (*rules.allow, *policy.defaults))
        may = granted or mode == "permissive" or (mode == "prompt" and self._consents)
        return "unsafe" if may else "read"


class McpTools(ExtensionTools):
    """The pinned tools of a suite's MCP servers: `unsafe` unless a person says otherwise (P14)."""

    kind = "mcp"

    def _is_mine(self, item: Registered) -> bool:
        return self._suite.owner(item.name).extension.runtime == "mcp"

    async def describe(self, name: str) -> Tool | None:
        """Also a tool that is withdrawn, by its name: a call of it asks a person."""
        found = await super().describe(name)
        if found is not None or self._suite.withdrawn_by(name) is None:
            return found
        return Tool(name, "", {"type": "object"}, "unsafe", f"{self.kind}:{resource(name)}")

    def described(self, item: Registered) -> Tool:
        effect = self._effect(self._suite.owner(item.name), item.name)
        return Tool(item.name, item.description, item.parameters, effect, f"{self.kind}:{resource(item.name)}")

    def _effect(self, member: Member, tool: str) -> EffectClass:
        return member.extension.effect(tool)


class BuiltInTools(ToolSource):
    """The built-in tools, called as host calls of `subject` (S2); `scope` tells its calls from those of others."""

    kind = "forestay"

    def __init__(self, suite: Extensions, subject: str, scope: str) -> None:
        self._suite = suite
        self._subject = subject
        self._scope = scope

    async def list(self) -> Sequence[Tool]:
        """S5: less those that an extension replaces."""
        suite = self._suite
        replaced = {tool.name for tool in suite.tools()} if suite.members else ()
        offered = BUILT_IN if suite.session.chosen is None else suite.session.active
        return [row.tool for name, row in BUILT_IN.items() if name in offered and name not in replaced]

    async def prepare(self, tool: Tool, arguments: Any) -> Any:
        return prepared(tool.name, arguments)

    async def call(
        self, tool: Tool, arguments: dict[str, Any], *, call_id: str, idempotency_key: str | None, update: Update
    ) -> ToolOutcome:
        dispatcher = self._suite.dispatcher
        dispatcher.admit(Subject(self._subject, self._suite.roots(self._subject)))
        if self._subject not in dispatcher.authority.policy.subjects:
            # The gate decided that the caller may use the tool; what is denied to everybody stays denied.
            for name in _OWN_CAPABILITIES:
                dispatcher.learn(self._subject, "allow", Grant(name, source="agent"))
        params = {"name": tool.name, "input": arguments}
        request = HostCall(f"{self._scope}:{call_id[:64]}", "", "tool", params)
        try:
            result = await dispatcher.answer(request, self._subject)
        finally:
            await self._suite.recorded()
        if result.error is not None:
            return ToolOutcome(result.error.message, is_error=True, details={"code": result.error.code})
        return ToolOutcome(text_of(result.output.get("content")), details=result.output.get("details"))


class OtherTools:
    """The `tool` method beyond the built-in tools: the tools of the other extensions, by the same steps.

    Policy has allowed the caller the capability `tool` for this name. The tool's own host calls are its extension's:
    decided by the policy of that extension, recorded in its stream.
    """

    method = "tool.other"

    def __init__(self, suite: Extensions) -> None:
        self._suite = suite
        self._source = ExtensionTools(suite, at_once, consents=True)
        self._waits: list[tuple[str, str]] = []  # the caller, and the extension that it waits for

    async def wait(self, call: Call, params: Mapping[str, Any]) -> Output:
        name = text(params, "name")
        holder = self._suite.holder(name)
        if holder is not None and holder.extension.name == call.extension:
            call.facts["extension"] = call.extension
            return await holder.extension.perform(call, name, params.get("input", {}))
        tool = holder.extension.registrations.tools.get(name) if holder is not None else None
        if holder is None or tool is None:
            raise Problem("method_not_found", f"There is no tool {name[:80]!r}.", at="$.params.name")
        owner = call.facts["extension"] = holder.extension.name
        with self._waiting(call.extension, owner):
            arguments = await fit_for(self._source, self._source.described(tool), params.get("input", {}))
            outcome = await self._suite.call_tool(name, arguments, call_id=call.call_id, prepared=True)
        if outcome.is_error:
            raise Problem("extension_failed", text_of(outcome.content)[:2000] or f"{name} failed.", tool=name)
        return {"content": outcome.content, "details": outcome.details}

    @contextmanager
    def _waiting(self, caller: str, owner: str) -> Iterator[None]:
        """S4."""
        if owner in self.callers(caller):
            raise Problem(
                "state_conflict",
                f"{owner} waits for an answer of {caller}, so {caller} cannot call its tools now.",
                fix="Answer first, or call your own function without `pi.tool`.",
            )
        self._waits.append((caller, owner))
        try:
            yield
        finally:
            self._waits.remove((caller, owner))

    def callers(self, name: str) -> list[str]:
        """The extensions that wait for a tool of `name`, directly or through others; the nearest first."""
        found = [name]
        for asked in found:
            found += [caller for caller, owner in self._waits if owner == asked and caller not in found]
        return found[1:]


async def at_once(
    work: Callable[[], Awaitable[T]],
    /,
    *,
    extension: str | None = None,
    name: str = "",
    about: dict[str, Any] | None = None,
    changes: bool = False,
    repeats: bool = False,
) -> T:
    """`During` where nobody is asked."""
    return await work()
