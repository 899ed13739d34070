"""The library of prompt templates (OpenWOP RFC 0027, RFC 0028): read, change, and render without a model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.responses import Response

from forestay.agents import PromptKind, PromptTemplate, compose, composed_view, read_ref
from forestay.host import Host
from forestay.kernel import Problem
from forestay.surface.openapi import cacheable
from forestay.surface.operations import Body, Call, Operations, Query, Result

api = Operations[Host](scopes=("manifest:read",), tag="prompts")
_WRITE = ("workspace:write",)
_ONE = "/v1/prompts/{templateId}"
Version = Annotated[str, Meta(min_length=1, max_length=64)]


class PromptQuery(Query, frozen=True):
    """Which templates: all that every given filter fits, `limit` of them behind the id `cursor`."""

    kind: PromptKind | None = None
    tag: Annotated[str, Meta(max_length=64)] | None = None
    model_class: Annotated[str, Meta(max_length=128)] | None = None
    source: Literal["host", "pack", "user"] | None = None
    cursor: Annotated[str, Meta(max_length=128)] = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class PromptPage(Result, frozen=True, omit_defaults=False):
    items: list[PromptTemplate]
    next_cursor: str | None = None


class VersionQuery(Query, frozen=True):
    version: Version | None = None
    library_id: Annotated[str, Meta(max_length=128)] | None = None


class RenderRequest(Body, frozen=True):
    ref: Any
    variables: dict[str, Any]
    content_trust: Literal["trusted", "untrusted"] = "trusted"


class Rendered(Result, frozen=True):
    hash: str
    refs: list[str]
    variable_hashes: dict[str, str]
    content_trust: Literal["trusted", "untrusted"]
    composed: str | None = None


@api.get("/v1/prompts", "prompt-templates.list", PromptPage)
async def listed(host: Host, call: Call, query: PromptQuery) -> dict[str, Any]:
    """The newest version of each template that the caller's tenant may use, by id."""
    fitting = [item for item in await host.prompts.listed(call.tenant) if _fits(item, query)]
    rest = [item for item in fitting if item.template_id > query.cursor]
    page: dict[str, Any] = {"items": rest[: query.limit]}
    return {**page, "nextCursor": page["items"][-1].template_id} if len(rest) > query.limit else page


@api.post(
    "/v1/prompts",
    "prompt-templates.create",
    {201: PromptTemplate},
    scopes=_WRITE,
    body=dict[str, Any],
    problems=("prompt_template_invalid", "already_exists", "state_conflict"),
)
async def create(host: Host, call: Call) -> Response:
    """Keep a template, or another version of one."""
    made = await host.prompts.create(call.tenant, call.body)
    return call.answer(made, 201, {"Location": f"/v1/prompts/{made.template_id}?version={made.version}"})


@api.get(_ONE, "prompt-templates.get", {200: PromptTemplate, 304: None})
async def get(host: Host, call: Call, query: VersionQuery) -> Response:
    """A template in a version, or in its newest one."""
    ref = {"templateId": call.path["templateId"], "version": query.version, "libraryId": query.library_id}
    try:
        wanted = read_ref({name: value for name, value in ref.items() if value is not None})
    except Problem as problem:
        raise Problem("not_found", "There is no such prompt template.") from problem
    found = await host.prompts.template(call.tenant, wanted)
    cached = "private, max-age=31536000, immutable" if query.version else "private, max-age=60"
    return cacheable(call, found, {"Cache-Control": cached})


@api.put(
    _ONE,
    "prompt-templates.update",
    PromptTemplate,
    scopes=_WRITE,
    body=dict[str, Any],
    problems=("prompt_template_invalid", "state_conflict", "permission_denied"),
)
async def update(host: Host, call: Call) -> PromptTemplate:
    """Keep the next version of a template; the ones before stay."""
    return await host.prompts.update(call.tenant, call.path["templateId"], call.body)


@api.delete(_ONE, "prompt-templates.remove", {204: None}, scopes=_WRITE, problems=("permission_denied",))
async def remove(host: Host, call: Call) -> None:
    """Remove a template of the tenant's own, in all its versions."""
    await host.prompts.remove(call.tenant, call.path["templateId"])


@api.post(
    "/v1/prompts:render",
    "prompt-templates.render",
    Rendered,
    problems=("prompt_ref_invalid", "prompt_variable_unresolved", "prompt_variable_type_mismatch", "not_found"),
)
async def render(host: Host, call: Call, body: RenderRequest) -> dict[str, Any]:
    """Fill a template as a node would, without asking a model; the text is told where the host tells prompts."""
    ref = read_ref(body.ref)
    template = await host.prompts.template(call.tenant, ref)
    sources = dict.fromkeys(("input", "variable", "context"), body.variables)
    composed = compose(template, sources, ref.variable_overrides, untrusted=body.content_trust == "untrusted")
    view = composed_view(composed, host.prompts.observability)
    names = ("hash", "refs", "variableHashes", "contentTrust", "composed")
    return {name: view[name] for name in names if name in view}


def _fits(template: PromptTemplate, query: PromptQuery) -> bool:
    source = template.meta.source if template.meta else "host"
    hints = template.model_hints
    return (
        query.kind in (None, template.kind)
        and query.source in (None, source)
        and (query.tag is None or query.tag in template.tags)
        and (query.model_class is None or (hints is not None and hints.model_class == query.model_class))
    )
