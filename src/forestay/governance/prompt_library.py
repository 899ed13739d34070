"""`PromptLibrary`: the prompt templates that a tenant may use, by id and version (OpenWOP RFC 0028).

- L1  A tenant has the templates of the host and its project, and its own.
- L2  A stored version never changes. A reference without a version means the newest one.
- L3  A tenant cannot change or remove a template of the host, or use its id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from forestay.agents import (
    KINDS,
    LIBRARY,
    MAX_TEMPLATE_BYTES,
    SOURCES,
    Observability,
    PromptKind,
    PromptMeta,
    PromptRef,
    PromptTemplate,
    precedence,
    prompts_by_kind,
    read_template,
)
from forestay.governance.journal import Journal
from forestay.kernel import Clock, Draft, Ledger, Problem, PromptSettings, Record, canonical, iso

_MOST = 1_000  # templates of a tenant, counting each version
_Shelf = dict[str, dict[str, PromptTemplate]]


class PromptLibrary:
    """The templates of every tenant of one ledger; `host` are those of the host and its project."""

    def __init__(
        self, ledger: Ledger, clock: Clock, settings: PromptSettings, host: Iterable[PromptTemplate] = ()
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._host: _Shelf = {}
        for template in host:
            if template.version in self._host.setdefault(template.template_id, {}):
                message = f"There are two templates {template.ref}."
                raise Problem("already_exists", message, templateId=template.template_id)
            self._host[template.template_id][template.version] = template
        self._shelves: dict[str, Journal[_Shelf]] = {}
        self.observability: Observability = settings.observability
        self.defaults: Mapping[PromptKind, PromptRef] = prompts_by_kind(settings.defaults, "prompts.defaults")
        for ref in self.defaults.values():
            _chosen(self._host, ref.template_id, ref.version)

    def capability(self) -> dict[str, Any]:
        """Return the capability for discovery."""
        found: dict[str, Any] = {
            "supported": True,
            "endpointsSupported": True,
            "mutableLibrary": True,
            "agentBindings": True,
            "templateKinds": list(KINDS),
            "variableSources": list(SOURCES),
            "maxTemplateBytes": MAX_TEMPLATE_BYTES,
            "observability": self.observability,
            "library": {"id": LIBRARY},
        }
        defaults = {kind: str(ref) for kind, ref in self.defaults.items()}
        return {**found, "defaults": defaults} if defaults else found

    async def template(self, tenant: str, ref: PromptRef, kind: PromptKind | None = None) -> PromptTemplate:
        """Return the template of a reference; one of another kind than `kind` is refused."""
        if ref.library_id not in (None, LIBRARY):
            raise Problem("not_found", "There is no such library.", libraryId=(ref.library_id or "")[:128])
        found = await self.get(tenant, ref.template_id, ref.version)
        if kind not in (None, found.kind):
            raise Problem("prompt_ref_invalid", f"{found.ref} is for {found.kind} and not for {kind}.", ref=found.ref)
        return found

    async def get(self, tenant: str, template_id: str, version: str | None = None) -> PromptTemplate:
        return _chosen(await self._known(tenant), template_id, version)

    async def listed(self, tenant: str) -> list[PromptTemplate]:
        """Return the newest version of each template, in order of id."""
        known = await self._known(tenant)
        return [_newest(known[name]) for name in sorted(known)]

    async def create(self, tenant: str, document: Any) -> PromptTemplate:
        """Store a new template, or another version of one; `already_exists`."""
        template = read_template(document)

        def decide(shelf: _Shelf) -> list[Draft]:
            if template.template_id in self._host or template.version in shelf.get(template.template_id, {}):
                raise Problem("already_exists", f"{template.ref} exists already.", templateId=template.template_id)
            return [self._put(shelf, template)]

        return (await self._shelf(tenant).change(decide))[template.template_id][template.version]

    async def update(self, tenant: str, template_id: str, document: Any) -> PromptTemplate:
        """Store the next version of a template; it must be newer than the existing ones."""
        template = read_template(document)
        if template.template_id != template_id:
            raise Problem("prompt_template_invalid", "The template has another id than its address.", at="$.templateId")
        self._check_own(template_id)

        def decide(shelf: _Shelf) -> list[Draft]:
            newest = _chosen(shelf, template_id, None)
            if precedence(template.version) <= precedence(newest.version):
                message = f"{template.version} is not newer than {newest.version}."
                raise Problem("state_conflict", message, version=newest.version)
            return [self._put(shelf, template)]

        return (await self._shelf(tenant).change(decide))[template_id][template.version]

    async def remove(self, tenant: str, template_id: str) -> None:
        """Remove every version of a template; runs that used one keep their records."""
        self._check_own(template_id)

        def decide(shelf: _Shelf) -> list[Draft]:
            _chosen(shelf, template_id, None)
            return [Draft("prompt.removed", {"templateId": template_id})]

        await self._shelf(tenant).change(decide)

    def _put(self, shelf: _Shelf, template: PromptTemplate) -> Draft:
        if sum(map(len, shelf.values())) >= _MOST:
            raise Problem("state_conflict", f"There are {_MOST} prompt templates already.", fix="Remove some.")
        now = iso(self._clock.now_ms())
        known = shelf.get(template.template_id)
        first = _newest(known).meta if known else None
        meta = {"source": "user", "createdAt": first.created_at if first else now, "updatedAt": now}
        if template.meta is not None and template.meta.author is not None:
            meta["author"] = template.meta.author
        return Draft("prompt.stored", {"template": {**msgspec.to_builtins(template), "meta": meta}})

    def _check_own(self, template_id: str) -> None:
        if template_id in self._host:
            raise Problem("permission_denied", "The host's own templates cannot be changed.", templateId=template_id)

    async def _known(self, tenant: str) -> _Shelf:
        return {**await self._shelf(tenant).value(), **self._host}

    def _shelf(self, tenant: str) -> Journal[_Shelf]:
        if tenant not in self._shelves:
            stream = "prompts/" + hashlib.sha256(tenant.encode()).hexdigest()[:32]
            self._shelves[tenant] = Journal(self._ledger, stream, {}, _take)
        return self._shelves[tenant]


def read_prompts(root: Path, paths: Iterable[str]) -> list[PromptTemplate]:
    """Read every template that `paths` name: files, or folders of `*.json`."""
    found = []
    for text in paths:
        path = root / text
        if not path.exists():
            raise Problem("not_found", f"There are no prompt templates at {path.name}.", at="prompts.paths")
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            try:
                template = read_template(canonical.decode(file.read_bytes()))
            except Problem as problem:
                raise Problem("prompt_template_invalid", f"{file.name}: {problem.message}", **problem.details) from None
            found.append(of_host(template))
    return found


def of_host(template: PromptTemplate) -> PromptTemplate:
    """Mark a template as the host's own (L3)."""
    return msgspec.structs.replace(template, meta=PromptMeta(source="host"))


def _chosen(shelf: _Shelf, template_id: str, version: str | None) -> PromptTemplate:
    versions = shelf.get(template_id)
    if not versions or (version is not None and version not in versions):
        named = template_id[:128] + (f"@{version[:64]}" if version else "")
        raise Problem("not_found", f"There is no prompt template {named}.", templateId=template_id[:128])
    return _newest(versions) if version is None else versions[version]


def _newest(versions: Mapping[str, PromptTemplate]) -> PromptTemplate:
    return versions[max(versions, key=precedence)]


def _take(shelf: _Shelf, record: Record) -> _Shelf:
    if record.type == "prompt.removed":
        return {name: versions for name, versions in shelf.items() if name != record.payload["templateId"]}
    template = msgspec.convert(record.payload["template"], PromptTemplate)
    return {**shelf, template.template_id: {**shelf.get(template.template_id, {}), template.version: template}}
