"""The envelope as protobuf messages, from a descriptor that is built here: no compiler, no generated file.

`PROTO` is the same schema as text, for clients in other languages; a test keeps the two alike. Numbers inside
`google.protobuf.Value` are doubles: whole ones come back as integers, beyond 2**53 they lose digits.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, struct_pb2
from google.protobuf.message import Message

from forestay.envelope.types import Envelope
from forestay.envelope.validate import decode

PACKAGE: Final = "forestay.lafs.v1"
SERVICE: Final = f"{PACKAGE}.Operations"
_FILE = "forestay/lafs/v1/envelope.proto"
_VALUE, _STRUCT = ".google.protobuf.Value", ".google.protobuf.Struct"

# name, type, and whether absence is told apart from the default; `*` repeats. The number is the place.
_MESSAGES: dict[str, tuple[str, ...]] = {
    "Warning": ("string code", "string message", "string? deprecated", "string? replacement", "string? removeBy"),
    "Meta": (
        "string specVersion",
        "string schemaVersion",
        "string timestamp",
        "string operation",
        "string requestId",
        "string transport",
        "bool strict",
        "string mvi",
        "int64 contextVersion",
        "string? sessionId",
        "Warning* warnings",
    ),
    "Error": (
        "string code",
        "string message",
        "string category",
        "bool retryable",
        "int64? retryAfterMs",
        "Struct details",
        "string? agentAction",
        "bool? escalationRequired",
        "string? suggestedAction",
        "string? docUrl",
    ),
    "Page": (
        "string mode",
        "int64? limit",
        "int64? offset",
        "string? nextCursor",
        "bool? hasMore",
        "int64? total",
    ),
    "Envelope": (
        "string schema",
        "Meta meta",
        "bool success",
        "Value result",
        "Page page",
        "Error error",
        "Struct extensions",
    ),
    "CallRequest": ("string operation", "Struct parameters", "string? requestId", "string? sessionId"),
}
_INT64 = ("contextVersion", "retryAfterMs", "limit", "offset", "total")


def _field(text: str, number: int) -> descriptor_pb2.FieldDescriptorProto:
    kind, name = text.split(" ")
    field = descriptor_pb2.FieldDescriptorProto(name=name, number=number, json_name=name)
    field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
    field.proto3_optional = kind.endswith("?")
    kind = kind.rstrip("?*")
    scalars = {"string": field.TYPE_STRING, "bool": field.TYPE_BOOL, "int64": field.TYPE_INT64}
    if kind in scalars:
        field.type = scalars[kind]
    else:
        field.type = field.TYPE_MESSAGE
        field.type_name = {"Value": _VALUE, "Struct": _STRUCT}.get(kind, f".{PACKAGE}.{kind}")
    return field


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=_FILE, package=PACKAGE, syntax="proto3", dependency=["google/protobuf/struct.proto"]
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, text in enumerate(fields, 1):
            field = _field(text, number)
            if field.proto3_optional:  # what `optional` means in proto3: a oneof of its own
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
            message.field.append(field)
    service = file.service.add(name="Operations")
    service.method.add(name="Call", input_type=f".{PACKAGE}.CallRequest", output_type=f".{PACKAGE}.Envelope")
    return file


def _proto_text() -> str:
    lines = ['syntax = "proto3";', f"package {PACKAGE};", 'import "google/protobuf/struct.proto";', ""]
    for name, fields in _MESSAGES.items():
        lines.append(f"message {name} {{")
        for number, text in enumerate(fields, 1):
            kind, field = text.split(" ")
            prefix = "optional " if kind.endswith("?") else "repeated " if kind.endswith("*") else ""
            kind = kind.rstrip("?*")
            kind = f"google.protobuf.{kind}" if kind in ("Value", "Struct") else kind
            lines.append(f"  {prefix}{kind} {field} = {number};")
        lines += ["}", ""]
    lines += ["service Operations {", "  rpc Call(CallRequest) returns (Envelope);", "}"]
    return "\n".join(lines) + "\n"


PROTO: Final = _proto_text()
_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
_pool.Add(_file())


def _class(name: str) -> type[Message]:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


EnvelopeMessage: Final = _class("Envelope")
CallRequest: Final = _class("CallRequest")


def to_message(envelope: Envelope) -> Message:
    """`envelope` as a message."""
    plain: dict[str, Any] = msgspec.to_builtins(envelope)
    said: dict[str, Any] = {
        "schema": plain["$schema"],
        "meta": plain["_meta"],
        "success": plain["success"],
        "result": plain["result"],
    }
    for name, member in (("page", "page"), ("error", "error"), ("extensions", "_extensions")):
        if plain.get(member) is not None:
            said[name] = plain[member]
    return json_format.ParseDict(said, EnvelopeMessage())


def from_message(message: Message) -> Envelope:
    """The envelope that `message` carries, validated as any foreign envelope is."""
    said: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    meta = {"strict": False, "contextVersion": 0, **said.get("meta", {})}
    plain: dict[str, Any] = {
        "$schema": said.get("schema"),
        "_meta": meta,
        "success": said.get("success", False),
        "result": whole_numbers(said.get("result")),
    }
    if "page" in said:
        plain["page"] = _integers(said["page"])
        if plain["page"].get("mode") == "cursor":
            plain["page"].setdefault("nextCursor", None)
    if "error" in said:
        defaults: dict[str, Any] = {"retryable": False, "retryAfterMs": None, "details": {}}
        plain["error"] = _integers({**defaults, **said["error"]})
        plain["error"]["details"] = whole_numbers(plain["error"]["details"])
    if "extensions" in said:
        plain["_extensions"] = whole_numbers(said["extensions"])
    _integers(meta)
    return decode(msgspec.json.encode(plain))


def whole_numbers(value: Any) -> Any:
    """A value whose whole doubles are integers again."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    if isinstance(value, dict):
        return {name: whole_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return value


def _integers(members: dict[str, Any]) -> dict[str, Any]:
    """protobuf's JSON writes 64-bit integers as text."""
    for name in _INT64:
        if isinstance(members.get(name), str):
            members[name] = int(members[name])
    return members
