"""The workflows that can be run: where their definitions are kept, and what a request to run one is held to.

There is a stream per workflow and a record per revision; what is stored is valid. A request is checked before a run
sees it: what is wrong is a Problem that says where, never a guess.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from forestay.kernel import Draft, Ledger, Problem, canonical, misfit
from forestay.runs.check import check_workflow, fits
from forestay.runs.definition import Workflow, read_workflow
from forestay.runs.mock_models import check_mock
from forestay.runs.nodes.registry import NodeRegistry
from forestay.runs.plan import Plan, compile_plan
from forestay.runs.types import ENGINE_VERSION, CreateRun, Limits, WorkflowVersion

SHARED = "_"
RESERVED = "forestay-"
"""What the ids of the host's own workflows begin with: evaluations and deployments rely on what they do."""
_PAGE = 1000
_MAX_HELD = 64 * 1024 * 1024
"""Bytes of documents whose plans are kept; a plan takes some times as much as its document."""
_SEGMENT = re.compile(r"[A-Za-z0-9._:@~-]{1,128}")
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


class Ref(msgspec.Struct, frozen=True):
    """One revision of one workflow: a place in the ledger that never changes."""

    stream: str
    seq: int


class Stored(msgspec.Struct, frozen=True):
    ref: Ref
    document: dict[str, Any]
    plan: Plan
    digest: str
    size: int


class Condition(msgspec.Struct, frozen=True):
    """What a put asks of the latest revision: to be one of `digests`, to be there at all, or not to be there."""

    digests: frozenset[str] | None = None
    exists: bool | None = None

    def check(self, latest: Stored | None) -> None:
        told: dict[str, Any] = {} if latest is None else {"revision": latest.ref.seq + 1, "etag": f'"{latest.digest}"'}
        if self.digests is not None and (latest is None or latest.digest not in self.digests):
            raise Problem("precondition_failed", "The workflow is not at the revision that If-Match names.", **told)
        if self.exists is not None and self.exists != (latest is not None):
            what = "There is no such workflow yet." if latest is None else "The workflow exists already."
            raise Problem("precondition_failed", what, **told)


class Workflows:
    """The definitions of one ledger, compiled once each. `shared`: other processes put definitions too, so which
    revision is the latest is asked each time."""

    def __init__(self, ledger: Ledger, registry: NodeRegistry, limits: Limits, *, shared: bool = False) -> None:
        self._ledger = ledger
        self._shared = shared
        self._registry = registry
        self._limits = limits
        self._latest: dict[str, Ref] = {}
        self._plans: OrderedDict[Ref, Stored] = OrderedDict()  # the longest unused first
        self._held = 0

    async def put(
        self,
        document: dict[str, Any],
        tenant: str | None,
        principal: str | None,
        condition: Condition | None = None,
    ) -> WorkflowVersion:
        workflow, checked = check_workflow(document, self._registry, self._limits)
        if workflow is None or not checked.valid:
            first = checked.errors[0]
            raise Problem(
                "workflow_invalid",
                f"The workflow has {len(checked.errors)} mistake(s); the first: {first['message']} (at {first['at']})",
                at=first["at"],
                errors=checked.errors,
            )
        if tenant is not None and workflow.id.startswith(RESERVED):
            message = f"The ids that begin with {RESERVED} are the host's own."
            raise Problem("permission_denied", message, at="$.id")
        stream = stream_of(tenant, workflow.id)
        digest = canonical.digest(document)
        draft = Draft("workflow.put", {"document": document, "digest": digest, "by": principal})
        while True:
            latest = await self._head(stream)
            if condition is not None:
                condition.check(latest)
            if latest is not None and latest.digest == digest:
                return version_of(latest, warnings=checked.warnings)
            try:
                records = await self._ledger.append(stream, [draft], -1 if latest is None else latest.ref.seq)
            except Problem as problem:
                if problem.key != "ledger_conflict":
                    raise
                self._latest.pop(stream, None)  # another put came first: this one comes after it
                continue
            stored = self._keep(Ref(stream, records[0].seq), document, digest)
            if not self._shared:
                self._latest[stream] = stored.ref
            return version_of(stored, created=True, warnings=checked.warnings)

    async def requested(self, request: CreateRun, tenant: str, *, trusted: bool) -> Stored:
        """The workflow that `request` would run, after refusing what does not hold of the request."""
        workflow_id = check_create(request, tenant, self._limits, trusted=trusted)
        stored = await self.latest(workflow_id, tenant)
        _check_against(stored.plan.workflow, request)
        return stored

    async def latest(self, workflow_id: str, tenant: str) -> Stored:
        """The tenant's own definition, else the shared one; `not_found`. A reserved id is the host's for everyone."""
        for owner in (None,) if workflow_id.startswith(RESERVED) else (tenant, None):
            found = await self._head(stream_of(owner, workflow_id))
            if found is not None:
                return found
        raise Problem("not_found", f"There is no workflow {workflow_id[:128]!r}.", workflowId=workflow_id[:128])

    async def revision(self, workflow_id: str, tenant: str, revision: int | None) -> Stored:
        """As `latest`, in the revision that is asked for."""
        latest = await self.latest(workflow_id, tenant)
        return latest if revision is None else await self.at(Ref(latest.ref.stream, revision - 1))

    async def at(self, ref: Ref) -> Stored:
        found = self._plans.get(ref)
        if found is not None:
            self._plans.move_to_end(ref)
            return found
        records = await self._ledger.read(ref.stream, ref.seq, 1) if ref.seq >= 0 else []
        if not records:
            raise Problem("not_found", "There is no such revision of the workflow.", revision=ref.seq + 1)
        return self._keep(ref, records[0].payload["document"], records[0].payload["digest"])

    async def listed(self, tenant: str) -> list[Stored]:
        """The latest revision of each workflow that the tenant can run, by id."""
        found: dict[str, Stored] = {}
        for owner in (None, tenant):
            prefix = stream_of(owner, "")
            after, more = "", True
            while more:
                page = await self._ledger.streams(prefix, after, _PAGE)
                for name, head in page.items():
                    if owner is None or not name.removeprefix(prefix).startswith(RESERVED):
                        stored = await self.at(Ref(name, head.seq))
                        found[stored.plan.workflow.id] = stored
                after, more = max(page, default=""), len(page) == _PAGE
        return [found[name] for name in sorted(found)]

    async def _head(self, stream: str) -> Stored | None:
        if stream not in self._latest:
            head = await self._ledger.head(stream)
            if head.seq < 0:
                return None  # not remembered: another process may put it any time
            if self._shared:
                return await self.at(Ref(stream, head.seq))
            self._latest[stream] = Ref(stream, head.seq)
        return await self.at(self._latest[stream])

    def _keep(self, ref: Ref, document: dict[str, Any], digest: str) -> Stored:
        """Compile a document; of those that were compiled, as many are kept as there is room for."""
        if ref in self._plans:  # another caller read it meanwhile
            return self._plans[ref]
        size = len(canonical.encode(document))
        stored = self._plans[ref] = Stored(ref, document, compile_plan(read_workflow(document)), digest, size)
        self._held += size
        while self._held > _MAX_HELD and len(self._plans) > 1:
            self._held -= self._plans.popitem(last=False)[1].size
        return stored


def stream_of(tenant: str | None, workflow_id: str) -> str:
    owner = SHARED if tenant is None else segment(tenant)
    if workflow_id and not _SEGMENT.fullmatch(workflow_id):
        raise Problem("not_found", "There is no such workflow.", workflowId=workflow_id[:128])
    return f"workflow/{owner}/{workflow_id}"


def segment(text: str) -> str:
    """`text` as one segment of a stream's name."""
    if _SEGMENT.fullmatch(text) and text != SHARED:
        return text
    return "~" + hashlib.sha256(text.encode()).hexdigest()[:32]


def version_of(stored: Stored, *, created: bool = False, warnings: Sequence[dict[str, Any]] = ()) -> WorkflowVersion:
    return WorkflowVersion(
        workflow_id=stored.plan.workflow.id,
        version=stored.plan.workflow.version,
        revision=stored.ref.seq + 1,
        digest=stored.digest,
        created=created,
        warnings=list(warnings),
    )


# Requests


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


def _check_against(workflow: Workflow, request: CreateRun) -> None:
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
