"""Checking what callers send before a run sees it: located Problems, never a guess."""

from __future__ import annotations

from typing import Any

from holdfast.kernel import canonical
from holdfast.kernel.json_schema import misfit
from holdfast.kernel.problems import Problem
from holdfast.runs.check import fits
from holdfast.runs.definition import Workflow
from holdfast.runs.log import ENGINE_VERSION
from holdfast.runs.mock_models import check_mock
from holdfast.runs.types import CreateRun, Limits

_INTEGERS = ("recursionLimit", "runTimeoutMs", "maxTokens")


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
    if len(request.tags) > limits.max_tags:
        raise Problem("out_of_range", f"At most {limits.max_tags} tags.", at="$.tags", limit=limits.max_tags)
    for index, tag in enumerate(request.tags):
        if not 1 <= len(tag) <= 256:
            raise Problem("out_of_range", "A tag has 1 to 256 characters.", at=f"$.tags[{index}]")
    _small(request.inputs, limits.max_inputs_bytes, "$.inputs")
    _small(request.metadata, limits.max_metadata_bytes, "$.metadata")
    _small(request.configurable, limits.max_metadata_bytes, "$.configurable")
    _configurable(request.configurable, trusted=trusted)
    return request.workflow_id


def _small(value: Any, limit: int, at: str) -> None:
    size = len(canonical.encode_strict(value))
    if size > limit:
        raise Problem("payload_too_large", f"{at[2:]} may have {limit} bytes.", at=at, limit=limit, observed=size)


def _configurable(value: dict[str, Any], *, trusted: bool) -> None:
    for key in _INTEGERS:
        if key in value and (isinstance(value[key], bool) or not isinstance(value[key], int) or value[key] < 1):
            raise Problem("schema_mismatch", f"`{key}` is a positive integer.", at=f"$.configurable.{key}")
    temperature = value.get("temperature", 0)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 <= temperature <= 2:
        raise Problem("schema_mismatch", "`temperature` is a number from 0 to 2.", at="$.configurable.temperature")
    if not isinstance(value.get("promptOverrides", {}), dict):
        raise Problem("schema_mismatch", "`promptOverrides` is an object.", at="$.configurable.promptOverrides")
    if "mockProvider" in value:
        if not trusted:
            raise Problem(
                "mock_provider_forbidden", "Mock providers need a test key.", at="$.configurable.mockProvider"
            )
        check_mock(value["mockProvider"])


def check_against(workflow: Workflow, request: CreateRun) -> None:
    """A request against the workflow's variables and its `configurableSchema`."""
    for variable in workflow.variables:
        at = f"$.inputs.{variable.name}"
        if variable.name not in request.inputs:
            if variable.required and not isinstance(variable.default_value, str | int | float | bool | dict | list):
                raise Problem("schema_mismatch", f"The input {variable.name!r} is required.", at=at)
        elif not fits(request.inputs[variable.name], variable.type):
            raise Problem("schema_mismatch", f"The input {variable.name!r} is not of type {variable.type}.", at=at)
    if workflow.configurable_schema is not None:
        found = misfit(workflow.configurable_schema, request.configurable)
        if found is not None:
            raise Problem("schema_mismatch", found[1], at="$.configurable" + found[0])


def check_engine(version: str, *, trusted: bool) -> None:
    """An engine plays the versions of its own major number."""
    if not trusted:
        raise Problem("force_engine_version_forbidden", "Only test keys may force an engine version.")
    if version.split(".")[0] != ENGINE_VERSION.split(".")[0]:
        raise Problem("version_out_of_range", f"This engine is {ENGINE_VERSION}.", supported=ENGINE_VERSION)
