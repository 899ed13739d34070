"""Checking what callers send before a run sees it: located Problems, never a guess."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from forestay.kernel import Problem, canonical, misfit
from forestay.runs.check import fits
from forestay.runs.definition import Workflow
from forestay.runs.mock_models import check_mock
from forestay.runs.types import ENGINE_VERSION, CreateRun, Limits

MAX_NAME = 256  # of a tag or a scopeId: what a list can be asked for
_LAID_OVER = ("inputs", "variables", "configurable", "metadata")  # each an object, laid over the source's
_OVERLAY = frozenset({*_LAID_OVER, "tags"})
_POSITIVE = {"type": "integer", "minimum": 1}
# The keys of `configurable` that mean something here; a workflow's nodes may know others (OpenWOP §1.2).
CONFIGURABLE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "recursionLimit": _POSITIVE,
        "runTimeoutMs": _POSITIVE,
        "maxTokens": _POSITIVE,
        "model": {"type": "string", "minLength": 1},
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "promptOverrides": {"type": "object", "additionalProperties": {"type": "string"}},
        "escalationThreshold": {"type": "number", "minimum": 0, "maximum": 1},
    },
}


def check_create(request: CreateRun, tenant: str, limits: Limits, *, trusted: bool) -> str:
    """Everything about a request that needs no workflow; the workflow's id."""
    if request.mode is not None or request.eval_suite_ref is not None or request.agent_id is not None:
        raise Problem(
            "capability_not_provided",
            "This host starts runs of workflows only.",
            requiredCapability="agents.evalSuite" if request.mode == "eval" else "agents.liveRuntime",
        )
    if not request.workflow_id:
        raise Problem("schema_mismatch", "`workflowId` is missing.", at="$.workflowId")
    if request.tenant_id is not None and request.tenant_id != tenant:
        raise Problem("permission_denied", "The key belongs to another tenant.", at="$.tenantId")
    _tags(request.tags, limits)
    if len(request.scope_id or "") > MAX_NAME:
        raise Problem("out_of_range", f"A scopeId has at most {MAX_NAME} characters.", at="$.scopeId")
    _sizes(limits, request.inputs, request.configurable)
    _small(request.metadata, limits.max_metadata_bytes, "$.metadata")
    _configurable(request.configurable, trusted=trusted)
    return request.workflow_id


def check_against(workflow: Workflow, request: CreateRun) -> None:
    """A request against the workflow's variables and its `configurableSchema`."""
    _check_inputs(workflow, request.inputs)
    _fit_configurable(workflow, request.configurable)


def check_child(workflow: Workflow, inputs: dict[str, Any], limits: Limits) -> None:
    """What a run gives a workflow that it starts: held to what a caller is held to."""
    _small(inputs, limits.max_inputs_bytes, "$.inputs")
    _check_inputs(workflow, inputs)


def _check_inputs(workflow: Workflow, inputs: dict[str, Any]) -> None:
    for variable in workflow.variables:
        if variable.name not in inputs and variable.required and variable.default_value in (None, UNSET):
            at = f"$.inputs.{variable.name}"
            raise Problem("schema_mismatch", f"The input {variable.name!r} is required.", at=at)
    _fit(workflow, inputs, "$.inputs")


def check_overlay(
    workflow: Workflow, overlay: dict[str, Any], configurable: dict[str, Any], limits: Limits, *, trusted: bool
) -> None:
    """What a branch lays over its source, which ran with `configurable`: held to what a new run is held to."""
    root = "$.runOptionsOverlay"
    unknown = sorted(overlay.keys() - _OVERLAY)
    if unknown:
        raise Problem("schema_mismatch", f"An overlay has no {unknown[0]!r}.", at=root, allowed=sorted(_OVERLAY))
    for name in _LAID_OVER:
        if not isinstance(overlay.get(name, {}), dict):
            raise Problem("schema_mismatch", f"`{name}` is an object.", at=f"{root}.{name}")
    inputs, variables, wanted, metadata = (overlay.get(name, {}) for name in _LAID_OVER)
    _tags(overlay.get("tags", []), limits, root)
    _sizes(limits, inputs, wanted, root)
    _small(metadata, limits.max_metadata_bytes, f"{root}.metadata")
    _small(variables, limits.max_inputs_bytes, f"{root}.variables")
    _fit(workflow, inputs, f"{root}.inputs")
    _fit(workflow, variables, f"{root}.variables")
    _configurable(wanted, root, trusted=trusted)
    _fit_configurable(workflow, {**configurable, **wanted}, root)


def _tags(tags: Any, limits: Limits, root: str = "$") -> None:
    at = f"{root}.tags"
    if not isinstance(tags, list):
        raise Problem("schema_mismatch", "`tags` is an array.", at=at)
    if len(tags) > limits.max_tags:
        raise Problem("out_of_range", f"At most {limits.max_tags} tags.", at=at, limit=limits.max_tags)
    for index, tag in enumerate(tags):
        if not isinstance(tag, str):
            raise Problem("schema_mismatch", "A tag is a text.", at=f"{at}[{index}]")
        if not 1 <= len(tag) <= MAX_NAME:
            raise Problem("out_of_range", f"A tag has 1 to {MAX_NAME} characters.", at=f"{at}[{index}]")


def _sizes(limits: Limits, inputs: dict[str, Any], configurable: dict[str, Any], root: str = "$") -> None:
    _small(inputs, limits.max_inputs_bytes, f"{root}.inputs")
    _small(configurable, limits.max_metadata_bytes, f"{root}.configurable")


def _small(value: Any, limit: int, at: str) -> None:
    size = len(canonical.encode_strict(value)) if value else 2
    if size > limit:
        raise Problem("payload_too_large", f"{at[2:]} may have {limit} bytes.", at=at, limit=limit, observed=size)


def _fit(workflow: Workflow, values: dict[str, Any], root: str) -> None:
    for variable in workflow.variables:
        if variable.name in values and not fits(values[variable.name], variable.type):
            at = f"{root}.{variable.name}"
            raise Problem("schema_mismatch", f"The input {variable.name!r} is not of type {variable.type}.", at=at)


def _fit_configurable(workflow: Workflow, value: dict[str, Any], root: str = "$") -> None:
    if workflow.configurable_schema is not None:
        found = misfit(workflow.configurable_schema, value)
        if found is not None:
            raise Problem("schema_mismatch", found[1], at=f"{root}.configurable{found[0]}")


def _configurable(value: dict[str, Any], root: str = "$", *, trusted: bool) -> None:
    at = f"{root}.configurable"
    found = misfit(CONFIGURABLE, value) if value else None
    if found is not None:
        raise Problem("schema_mismatch", found[1], at=at + found[0])
    if "mockProvider" in value:
        at = f"{at}.mockProvider"
        if not trusted:
            raise Problem("mock_provider_forbidden", "Mock providers need a test key.", at=at)
        check_mock(value["mockProvider"], at)


def check_engine(version: str, *, trusted: bool) -> None:
    """An engine plays the versions of its own major number."""
    if not trusted:
        raise Problem("force_engine_version_forbidden", "Only test keys may force an engine version.")
    if version.split(".")[0] != ENGINE_VERSION.split(".")[0]:
        raise Problem("version_out_of_range", f"This engine is {ENGINE_VERSION}.", supported=ENGINE_VERSION)
