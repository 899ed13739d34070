"""The workflow document (OpenWOP §1.6): closed and typed; a mistake is reported with its place."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from forestay.kernel import Problem, canonical

TriggerRule = Literal["all_success", "any_success", "all_complete", "none_failed", "any_failed"]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
WorkflowId = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern="^[a-z][a-z0-9_-]*$")]
NodeId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
TypeId = Annotated[str, msgspec.Meta(min_length=1, max_length=256, pattern="^[a-z][a-zA-Z0-9._-]*$")]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class _Closed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of the document; it refuses fields that the contract does not have."""


class Position(_Closed, frozen=True):
    x: float
    y: float


class StaticPort(_Closed, frozen=True, tag_field="type", tag="static"):
    value: Any


class ExpressionPort(_Closed, frozen=True, tag_field="type", tag="expression"):
    expression: Annotated[str, msgspec.Meta(min_length=1)]


class ConnectionPort(_Closed, frozen=True, tag_field="type", tag="connection"):
    node_id: NodeId
    output_key: Name
    optional: bool = False


class VariablePort(_Closed, frozen=True, tag_field="type", tag="variable"):
    variable_name: Name
    optional: bool = False


Port = StaticPort | ExpressionPort | ConnectionPort | VariablePort


class Node(_Closed, frozen=True):
    id: NodeId
    type_id: TypeId
    name: Annotated[str, msgspec.Meta(min_length=1)]
    position: Position
    config: dict[str, Any]
    inputs: dict[str, Port]
    credentials_ref: str | None = None
    settings: dict[str, Any] = {}
    output_role: Literal["primary", "secondary"] | None = None
    disabled: bool = False
    notes: str | None = None
    group_id: str | None = None
    agent: dict[str, Any] | None = None
    envelope_contract: dict[str, Any] | None = None
    artifact_type: str | None = None
    card_type: str | None = None
    output_sensitivity: dict[str, bool] = {}


class Condition(_Closed, frozen=True):
    type: Literal["expression", "equals", "notEquals", "contains", "regex"] | None = None
    left: str | None = None
    right: Any = None
    expression: str | None = None


class Edge(_Closed, frozen=True):
    id: Name
    source_node_id: NodeId
    target_node_id: NodeId
    source_output: str = "output"
    target_input: str = "input"
    condition: Condition | None = None
    label: str | None = None
    trigger_rule: TriggerRule | None = None


class Trigger(_Closed, frozen=True):
    id: Name
    type: Literal[
        "manual",
        "schedule",
        "webhook",
        "event",
        "artifact",
        "canvas",
        "envelope",
        "command",
        "chat-message",
        "channel-write",
    ]
    name: str | None = None
    description: str | None = None
    config: dict[str, Any] = {}
    enabled: bool = True
    node_id: str | None = None
    event_type: str | None = None


class Variable(_Closed, frozen=True):
    name: Name
    type: Literal["string", "number", "boolean", "object", "array"]
    description: str | None = None
    required: bool = False
    default_value: Any = msgspec.UNSET
    sensitive: bool = False


class Access(_Closed, frozen=True):
    readers: list[str] = msgspec.field(default_factory=lambda: ["*"])
    writers: list[str] = msgspec.field(default_factory=lambda: ["*"])


class Channel(_Closed, frozen=True):
    reducer: str
    schema: dict[str, Any] | None = None
    default: Any = msgspec.UNSET
    max_size: Positive | None = None
    ttl_ms: Annotated[int, msgspec.Meta(ge=1, le=31_536_000_000)] | None = None
    options: dict[str, Any] = {}
    access: Literal["public", "private"] | Access = "public"
    schema_version: Positive = 1
    compatible_with: list[Positive] = []
    sensitive: bool = False


class Retry(_Closed, frozen=True):
    """A node's retry policy (W13). `max_attempts` counts the first one."""

    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    initial_delay_ms: Count = 1000
    backoff: Literal["exponential", "linear", "fixed"] = "exponential"
    max_delay_ms: Count = 60_000
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] | bool = 0.0
    non_retryable: list[str] = []


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The keys of a node's `settings` that the engine reads; other keys belong to the author."""

    retry: Retry | None = None
    timeout_ms: Positive | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The keys of a workflow's `settings` that the engine reads; other keys belong to the author."""

    timeout: Count = 0
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=99)] = 0
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    max_loopback_iterations: Positive = 5


class Workflow(_Closed, frozen=True):
    id: WorkflowId
    name: Name
    version: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    nodes: Annotated[list[Node], msgspec.Meta(min_length=1, max_length=10_000)]
    edges: Annotated[list[Edge], msgspec.Meta(max_length=50_000)]
    triggers: list[Trigger]
    variables: list[Variable]
    metadata: dict[str, Any]
    settings: Settings
    description: str | None = None
    type: str | None = None
    is_active: bool | None = None
    status: Literal["active", "inactive", "draft", "archived"] | None = None
    tenant_id: str | None = None
    scope_id: str | None = None
    slug: str | None = None
    groups: list[dict[str, Any]] = []
    channels: dict[str, Channel] = {}
    configurable_schema: dict[str, Any] | None = None
    defaults: dict[str, Any] | None = None
    accepts_inherited_artifacts: list[dict[str, Any]] = []
    created_at: str | None = None
    updated_at: str | None = None


def read_workflow(document: Any) -> Workflow:
    """Return the typed document; `workflow_invalid` with the place of the first field that has the wrong shape."""
    try:
        return msgspec.convert(document, Workflow)
    except msgspec.ValidationError as error:
        message, at = canonical.located(error)
        found = {"at": at, "message": message}
        raise Problem(
            "workflow_invalid", f"{message} (at {at}).", at=at, errors=[found], fix="Correct the field named in `at`."
        ) from error


def read_settings(node: Node) -> NodeSettings:
    """Return the typed part of a node's settings; raise msgspec.ValidationError when it is not valid."""
    return msgspec.convert(node.settings, NodeSettings)
