"""What extensions registered, checked a second time on this side of the sandbox, and how names are shared out.

R1  within one extension the last registration of a name wins; across extensions the first does (P10).
R2  a command that two extensions register is called `name:1` and `name:2`.
R3  a registration that cannot be true is a Problem; nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from forestay.extensions.manifest import CapabilityManifest
from forestay.extensions.protocol import VERSION, Register
from forestay.kernel import Problem
from forestay.tools import Fitting

T = TypeVar("T", bound=msgspec.Struct)
MAX_REGISTRATIONS = 1_000
MAX_HANDLERS = 100  # of one event
MAX_BYTES = 8 * 1024 * 1024  # of all registrations of one extension, as JSON
MAX_NAME = 256


class Tool(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    label: str
    description: str
    parameters: dict[str, Any]
    prompt_snippet: str | None = None
    prompt_guidelines: list[str] | None = None
    execution_mode: str | None = None
    prepares: bool = False
    typebox: bool = False
    renders_call: bool = False
    renders_result: bool = False


class Command(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    completes: bool = False


class Shortcut(msgspec.Struct, frozen=True):
    shortcut: str
    description: str | None = None


class Flag(msgspec.Struct, frozen=True):
    name: str
    type: str
    default: bool | str | None = None
    description: str | None = None


class Renderer(msgspec.Struct, frozen=True):
    name: str


class Provider(msgspec.Struct, frozen=True, rename="camel"):
    provider: str
    api: str | None = None
    name: str | None = None
    base_url: str | None = None
    models: list[dict[str, Any]] = msgspec.field(default_factory=list)
    streams: bool = False
    oauth: bool = False

    def described(self, model: dict[str, Any]) -> dict[str, Any]:
        """One of its models, as a model registry tells of it."""
        shared = {"provider": self.provider, "api": self.api, "baseUrl": self.base_url}
        own = {key: value for key, value in model.items() if key != "headers" and value is not None}
        return {**{key: value for key, value in shared.items() if value is not None}, **own, "provider": self.provider}


class Server(msgspec.Struct, frozen=True, omit_defaults=True):
    """An MCP server that an extension names, as an entry of `.mcp.json` would."""

    name: str
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None


class VirtualModel(msgspec.Struct, frozen=True):
    """A model that an extension routes to another one, as a model registry tells of it."""

    name: str
    model: dict[str, Any]


class Handler(msgspec.Struct, frozen=True):
    event: str
    count: int
    known: bool = True


_KINDS: dict[str, type[msgspec.Struct]] = {
    "tool": Tool,
    "command": Command,
    "shortcut": Shortcut,
    "flag": Flag,
    "renderer": Renderer,
    "entry_renderer": Renderer,
    "provider": Provider,
    "mcp_server": Server,
    "tool_renderer": Renderer,
    "markdown_transformer": Renderer,
    "virtual_model": VirtualModel,
}
_DROPPED = {"unregister_mcp_server": "mcp_server", "unregister_virtual_model": "virtual_model"}


_NAMES = {"provider": "provider", "unregister_provider": "provider", "handler": "event", "shortcut": "shortcut"}
"""What a registration is known by, when that is not its `name`."""


class Registrations:
    """What one extension registered, in order."""

    def __init__(self, extension: str) -> None:
        self.extension = extension
        self.tools: dict[str, Tool] = {}
        self.commands: dict[str, Command] = {}
        self.shortcuts: dict[str, Shortcut] = {}
        self.flags: dict[str, Flag] = {}
        self.flag_values: dict[str, bool | str] = {}  # the first default of each (R1 is about what is said of it)
        self.renderers: dict[str, Renderer] = {}
        self.entry_renderers: dict[str, Renderer] = {}
        self.providers: dict[str, Provider] = {}
        self.servers: dict[str, Server] = {}
        self.tool_renderers: dict[str, Renderer] = {}
        self.markdown_transformers: dict[str, Renderer] = {}
        self.virtual_models: dict[str, VirtualModel] = {}
        self.handlers: dict[str, int] = {}
        self._kept: dict[str, dict[str, Any]] = {
            "tool": self.tools,
            "command": self.commands,
            "shortcut": self.shortcuts,
            "flag": self.flags,
            "renderer": self.renderers,
            "entry_renderer": self.entry_renderers,
            "provider": self.providers,
            "mcp_server": self.servers,
            "tool_renderer": self.tool_renderers,
            "markdown_transformer": self.markdown_transformers,
            "virtual_model": self.virtual_models,
        }
        self._sizes: dict[tuple[str, str], int] = {}
        self._bytes = 0
        self.fittings: dict[str, Fitting] = {}
        """Of the tools that were called: what converts and checks their arguments."""

    def add(self, kind: str, spec: dict[str, Any]) -> None:
        """Keep a registration, instead of an earlier one of the same name (R1, R3)."""
        self._weigh(kind, spec)
        if kind == "unregister_provider":
            self.providers.pop(str(spec.get("provider")), None)
        elif kind in _DROPPED:
            self._kept[_DROPPED[kind]].pop(str(spec.get("name")), None)
        elif kind == "handler":
            self._add_handler(self._read(spec, Handler))
        elif kind in _KINDS:
            name, item = self.key(kind, spec)[1], self._read(spec, _KINDS[kind])
            kept = self._kept[kind]
            if len(kept) >= MAX_REGISTRATIONS:
                raise self._refusal(f"The extension registers more than {MAX_REGISTRATIONS} of a kind.")
            kept[name] = item
            if kept is self.tools:
                self.fittings.pop(name, None)
            if isinstance(item, Flag) and item.default is not None:
                self.flag_values.setdefault(item.name, item.default)
        else:
            raise self._refusal(f"Nothing can be registered as {kind!r}.")

    def _add_handler(self, handler: Handler) -> None:
        if handler.count > MAX_HANDLERS or len(self.handlers) >= MAX_REGISTRATIONS:
            raise self._refusal(f"The extension registers more than {MAX_HANDLERS} handlers of {handler.event[:64]}.")
        self.handlers[handler.event] = handler.count

    def _refusal(self, message: str, **details: Any) -> Problem:
        return Problem("registration_invalid", message, extension=self.extension, **details)

    def tool(self, name: str) -> Tool:
        """The tool of this name; a Problem lists those that there are."""
        found = self.tools.get(name)
        if found is None:
            known = sorted(self.tools)
            raise Problem("not_found", f"{self.extension} has no tool {name}.", tools=known, fix="Use one of `tools`.")
        return found

    def fit(self, name: str, arguments: Any) -> Any:
        """The arguments as the tool's schema wants them, converted and checked."""
        return (self.fittings.get(name) or self.fitting(name))(arguments)

    def fitting(self, name: str) -> Fitting:
        """What converts and checks the arguments of a tool; made when it is first called, and kept in `fittings`."""
        tool = self.tool(name)
        made = self.fittings[name] = Fitting(name, tool.parameters, typebox=tool.typebox)
        return made

    def _weigh(self, kind: str, spec: dict[str, Any]) -> None:
        key, size = self.key(kind, spec), len(msgspec.json.encode(spec))
        if len(key[1]) > MAX_NAME:
            told = f"A name has {len(key[1])} characters; at most {MAX_NAME} are taken."
            raise self._refusal(told, registration=kind[:64])
        total = self._bytes - self._sizes.get(key, 0) + size
        if total > MAX_BYTES:
            told = f"The extension registers {total} bytes; at most {MAX_BYTES} are kept."
            raise self._refusal(told, registration=kind[:64])
        self._sizes[key], self._bytes = size, total

    def _read(self, spec: dict[str, Any], kind: type[T]) -> T:
        try:
            return msgspec.convert(spec, kind)
        except msgspec.ValidationError as error:
            raise self._refusal(str(error), registration=kind.__name__.lower()) from error

    def key(self, kind: str, spec: dict[str, Any]) -> tuple[str, str]:
        """Which registration this is: a later one of the same key replaces it."""
        return kind, str(spec.get(_NAMES.get(kind, "name"), ""))

    def message(self, version: str, manifest: CapabilityManifest | None = None) -> Register:
        """What was registered, as the protocol's `register` payload (§3)."""
        return Register(
            name=self.extension,
            version=version,
            api_version=VERSION,
            capabilities=None if manifest is None else [entry.capability for entry in manifest.capabilities],
            capability_manifest=manifest,
            tools=self.inspect()["tools"],
            slash_commands=self.inspect()["commands"],
            event_hooks=list(self.handlers),
        )

    def inspect(self) -> dict[str, Any]:
        """What `ext inspect` shows of it."""
        servers = [msgspec.to_builtins(item) for item in self.servers.values()]
        return {
            "path": self.extension,
            "tools": [
                {"name": t.name, "label": t.label, "description": t.description, "parameters": t.parameters}
                for t in self.tools.values()
            ],
            "commands": [{"name": c.name, "description": c.description} for c in self.commands.values()],
            "handlers": dict(self.handlers),
            "shortcuts": [{"shortcut": s.shortcut, "description": s.description} for s in self.shortcuts.values()],
            "flags": [
                {"name": f.name, "type": f.type, "default": f.default, "description": f.description}
                for f in self.flags.values()
            ],
            "renderers": list(self.renderers),
            "providers": [{"name": p.provider, "api": p.api, "models": p.models} for p in self.providers.values()],
            **({"mcpServers": servers} if servers else {}),
        }


def tool_owners(all_registrations: Iterable[Registrations]) -> dict[str, str]:
    """Which extension's tool a name means: the first one's (R1)."""
    owners: dict[str, str] = {}
    for registrations in all_registrations:
        for name in registrations.tools:
            owners.setdefault(name, registrations.extension)
    return owners


def command_names(all_registrations: Iterable[Registrations]) -> dict[str, tuple[str, str]]:
    """How each command is called: invocation name -> (extension, registered name) (R2)."""
    entries = [(r.extension, name) for r in all_registrations for name in r.commands]
    counts: dict[str, int] = {}
    for _, name in entries:
        counts[name] = counts.get(name, 0) + 1
    called: dict[str, tuple[str, str]] = {}
    seen: dict[str, int] = {}
    for extension, name in entries:
        seen[name] = number = seen.get(name, 0) + 1
        invocation = f"{name}:{number}" if counts[name] > 1 else name
        while invocation in called:
            number += 1
            invocation = f"{name}:{number}"
        called[invocation] = (extension, name)
    return called
