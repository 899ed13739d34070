"""Targets of the extensions: their protocol, components, MCP servers, manifests, source maps, packages."""

from __future__ import annotations

from typing import Any

import mcp_types
import msgspec
from tests.fuzz.target import lines_of, target, text_of

from forestay.extensions.components import messages
from forestay.extensions.components.binary import outline
from forestay.extensions.connectors.addresses import canonical_host
from forestay.extensions.locations import _table
from forestay.extensions.manifest import parse_manifest
from forestay.extensions.mcp.content import passed_on
from forestay.extensions.mcp.definitions import Definition, compare
from forestay.extensions.mcp.hidden_text import hidden_in
from forestay.extensions.mcp.server_config import checked
from forestay.extensions.mcp.stdio import _parsed
from forestay.extensions.packs import body, filled, front_matter
from forestay.extensions.protocol import (
    ErrorBody,
    EventHook,
    HostCall,
    HostResult,
    Message,
    Register,
    SlashCommand,
    SlashResult,
    ToolCall,
    ToolResult,
)
from forestay.extensions.themes import TOKENS, theme_of
from forestay.kernel import canonical

_JSON = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1", b'""', b"{}", b"[]")
_PAYLOADS: dict[str, type[msgspec.Struct]] = {
    "register": Register,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "slash_command": SlashCommand,
    "slash_result": SlashResult,
    "event_hook": EventHook,
    "host_call": HostCall,
    "host_result": HostResult,
    "error": ErrorBody,
}
_REGISTER = (
    b'{"name":"a","version":"1","api_version":"1.0","capabilities":["read"],"tools":[{"name":"t","description":"d",'
    b'"parameters":{"type":"object"}}],"slash_commands":[{"name":"c"}],"event_hooks":["tool_call","nothing"]}'
)


@target(
    ["extensions.protocol", "extensions.components.messages", "extensions.registry"],
    [
        b'{"id":"1","version":"1.0","type":"register","payload":' + _REGISTER + b"}",
        b'{"id":"2","version":"1.0","type":"host_call","payload":{"call_id":"c","capability":"read","method":"fs",'
        b'"params":{}}}',
        b'{"id":"3","version":"1.0","type":"tool_result","payload":{"call_id":"c","output":{},"is_error":false}}',
    ],
    (*_JSON, *(f'"{name}"'.encode() for name in _PAYLOADS), b'"payload":', b'"capability_manifest":', b'"error":'),
)
def extension_protocol(data: bytes) -> None:
    """A message of the wire format, and the payload that its type says."""
    message = canonical.decode(data, Message)
    kind = _PAYLOADS.get(message.type)
    if kind is Register:
        messages.registrations("a", canonical.encode(message.payload)).inspect()
    elif kind is not None:
        again = canonical.decode(canonical.encode(message.payload), kind)
        assert canonical.decode(canonical.encode(again), kind) == again


@target(
    ["extensions.components.messages", "extensions.outcomes"],
    [
        _REGISTER,
        b'{"output":{"content":[{"type":"text","text":"x"}]},"is_error":true}',
        b'{"error":{"code":"denied","message":"no"}}',
        b'"a word"',
        b'{"output":null,"is_error":false}',
        b"",
    ],
    (*_JSON, b'"output":', b'"is_error":', b'"error":', b'"code":"denied"', b'"message":', b'"content":', b'"input":'),
)
def component_answer(data: bytes) -> None:
    """What a component gave back, in every place where one is read."""
    for work in (
        lambda: messages.unknown_events(messages.registrations("a", data)),
        lambda: messages.undeclared(data, {"read"}),
        lambda: messages.tool_result("a", True, data),
        lambda: messages.tool_result("a", False, data),
        lambda: messages.command_result("a", True, data),
        lambda: messages.event_result("a", "tool_call", True, data),
        lambda: messages.failure("a", data),
    ):
        try:
            canonical.encode(work())
        except messages.Problem as problem:
            canonical.encode(problem.as_lafs())


_COMPONENT = b"\0asm\x0d\0\x01\0"
_MODULE = b"\0asm\x01\0\0\0"


@target(
    ["extensions.components.binary"],
    [
        _COMPONENT + b"\x01\x0d" + _MODULE + b"\x05\x03\x01\x00\x01",
        _COMPONENT + b"\x00\x15\x12pi.ext.manifest.v1{}",
        _COMPONENT + b"\x04\x08" + _COMPONENT,
        _MODULE,
        b"\x7fELF",
    ],
    (_COMPONENT, _MODULE, b"\x12pi.ext.manifest.v1", b"\xff\xff\xff\xff\x0f", b"\x80\x80", b"\x04", b"\x05"),
)
def component_binary(data: bytes) -> None:
    """The sections of a component, before anything compiles it."""
    found = outline(data)
    if found.manifest is not None:
        parse_manifest(canonical.decode(found.manifest), "component")


@target(
    ["extensions.mcp.content"],
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a"}]}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}],'
        b'"structuredContent":{"a":1},"isError":false}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"resource_link","uri":"a:b","name":"n"},'
        b'{"type":"resource","resource":{"uri":"a:b","text":"t"}},{"type":"audio","data":"","mimeType":"a/b"}]}}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}',
        b'{"jsonrpc":"2.0","id":"x","error":{"code":-32600,"message":"no"}}',
    ],
    (*_JSON, b'"jsonrpc":"2.0"', b'"id":1', b'"result":', b'"type":"text"', b'"content":', b'"uri":', b"\\u202e"),
)
def mcp_line(data: bytes) -> None:
    """A line that a server wrote, and what is passed on of it: nothing hidden."""
    try:
        message = _parsed(data)
    except ValueError:
        return  # it counts as noise
    if isinstance(message, mcp_types.JSONRPCResponse):
        try:
            result = mcp_types.CallToolResult.model_validate(message.result)
        except ValueError:
            return
        given = passed_on("s", "t", result, {"type": "object"})
        assert hidden_in([block.get("text", "") for block in given["content"]]) == []
        canonical.encode(given)


_TOOL = b'{"name":"echo","description":"Says it.","input_schema":{"type":"object","properties":{"a":{}}}}'


@target(
    ["extensions.mcp.definitions", "extensions.mcp.hidden_text"],
    [b"[" + _TOOL + b"]", b"[" + _TOOL + b"," + _TOOL.replace(b"echo", b"e\\u200b") + b"]", b'[{"name":""}]'],
    (*_JSON, b'"name":', b'"output_schema":', b'"annotations":', b'"title":', b"\\u202e", b"\\ud800", b'"$ref":"#"'),
)
def mcp_definitions(data: bytes) -> None:
    """Tools as a server defines them: what can be pinned shows a person everything."""
    offered = canonical.decode(data, list[Definition])[:50]
    for change in compare({"old": Definition("old")}, offered):
        assert hidden_in(msgspec.to_builtins(change)) == []
    for item in offered:
        assert item.digest.startswith("sha256:")


@target(
    ["extensions.mcp.server_config"],
    [
        b'a\n{"command":"node","args":["x"],"env":{"A":"${B}"},"cwd":"."}',
        b'b\n{"type":"http","url":"https://example.com/mcp","headers":{"Authorization":"Bearer ${T}"}}',
    ],
    (*_JSON, b'"command":', b'"url":', b'"args":', b'"env":', b'"headers":', b'"type":"sse"', b"${A:-b}"),
)
def mcp_servers(data: bytes) -> None:
    """An entry of `.mcp.json`."""
    name, text = lines_of(data, 2)
    found = checked(name, ".mcp.json", canonical.decode(text))
    canonical.encode([found.subject, found.fingerprint, found.named_by, found.shown()])


_MANIFEST = (
    b'{"schema":"pi.ext.manifest.v1","extension_id":"a","name":"A","version":"1.0.0","api_version":"1.0",'
    b'"runtime":"js","entrypoint":"a.ts","capabilities":["read"],"capability_manifest":{"schema":"pi.ext.cap.v1",'
    b'"capabilities":[{"capability":"read","methods":["fs"],"scope":{"paths":["src/**"]}}]}}'
)


@target(
    ["extensions.manifest"],
    [_MANIFEST, _MANIFEST.replace(b'"js"', b'"wasm"'), _MANIFEST.replace(b"src/**", b"../..")],
    (*_JSON, b'"schema":', b'"capabilities":', b'"scope":', b'"paths":', b'"hosts":', b'"env":', b'"runtime":"mcp"'),
)
def extension_manifest(data: bytes) -> None:
    """A manifest; one that is accepted is read again as the same."""
    found = parse_manifest(canonical.decode(data), "extension.json")
    assert parse_manifest(canonical.decode(found.canonical_bytes()), "again") == found
    found.declared()


@target(
    ["extensions.compiler.sourcemap"],
    [
        b'{"version":3,"sources":["a.ts"],"sourcesContent":["x"],"names":[],"mappings":"AAAA;AACA,CAAC"}',
        b'{"version":3,"sources":[],"mappings":"AAAAA,gB;;"}',
    ],
    (*_JSON, b'"sources":', b'"mappings":', b"AAAA", b";", b",", b"g", b"gggggggggggggggB"),
)
def source_map(data: bytes) -> None:
    """The source map of a package, and places in it."""
    found = _table(text_of(data))
    for line in range(1, 4) if found is not None else ():
        for column in (1, 2, 70):
            found.original(line, column)


@target(
    ["extensions.packs"],
    [b"---\nname: a\ndescription: 'b c'\n---\nDo $1 and ${@:2} of $ARGUMENTS\nx 'y z'", b"plain\n", b'---\na: "b\n---'],
    (b"---\n", b"name: ", b"$1", b"$@", b"${@:2:1}", b"$ARGUMENTS", b"'", b'"', b"\\"),
)
def skill_text(data: bytes) -> None:
    """A skill or a prompt of a package, filled with what a person typed."""
    text = text_of(data)
    front_matter(text)
    filled(body(text), text.rpartition("\n")[2])


_COLOURS = b",".join(b'"%b":"#010203"' % name.encode() for name in TOKENS)


@target(
    ["extensions.themes"],
    [b'{"name":"a","vars":{"x":"y","y":"#000000"},"colors":{%b}}' % _COLOURS, b'{"name":"a","colors":{}}'],
    (*_JSON, b'"vars":', b'"colors":', b'"#fff"', b"255", b'"x"'),
)
def theme(data: bytes) -> None:
    """A theme of a package."""
    document: Any = canonical.decode(data)
    canonical.encode(theme_of(document, "theme"))


@target(
    ["extensions.connectors.addresses"],
    [b"EXAMPLE.com.", b"[::1]", b"127.0.0.1", b"xn--nxasmq6b", "bücher.example".encode(), b"fe80::1%eth0"],
    (b".", b":", b"::", b"xn--", b"%", b"0x", "。".encode(), b"[", b"]"),
)
def host_name(data: bytes) -> None:
    """A host name in one spelling, which is the same when it is asked again."""
    found = canonical_host(lines_of(data, 1)[0])
    assert canonical_host(found) == found
