"""Explains how policy would decide an extension's next call; asks, performs and records nothing."""

from __future__ import annotations

import ipaddress
import posixpath

from forestay.extensions.authority import confined, decided, granted_folders
from forestay.extensions.capabilities import resource_of
from forestay.extensions.compiler.cache import cache_folder
from forestay.extensions.connectors.addresses import is_localhost, is_public
from forestay.extensions.connectors.paths import Kept, Roots
from forestay.extensions.profiles import Project, policy_in_force
from forestay.extensions.protection import protected
from forestay.kernel import Decision, Policy, Request


async def explained(project: Project, request: Request) -> Decision:
    """Return the decision about `request`; its resource is a path, URL, variable or tool as a person writes it."""
    policy = await policy_in_force(project)
    suite = project.opened
    methods = suite.dispatcher.authority.methods_of(request.subject) if suite is not None else {}
    if request.capability in ("read", "write") and request.resource is not None:
        return _about_path(project, policy, request, methods)
    if request.capability == "http" and request.resource is not None:
        return _about_host(policy, request, methods)
    return decided(policy, request, methods)


def _about_path(project: Project, policy: Policy, request: Request, methods: dict[str, tuple[str, ...]]) -> Decision:
    lifted = project.settings.unprotected
    kept = Kept.of(protected(project.root, project.data, cache=cache_folder(), lifted=lifted), lifted)
    roots = Roots.of(project.root, extra=granted_folders(policy, request.subject), kept=kept)
    resource = roots.resource(str(request.resource))
    located = Request(request.subject, request.capability, request.method, resource)
    decision = decided(policy, located, methods)
    held = roots.guarded(request.capability, resource)
    if held is not None or roots.hides(posixpath.join(project.root.resolve(), resource or "")):
        reason = f"{resource} is a protected place of the host: no grant opens it."
        return Decision("deny", "protected", reason, decision.evidence)
    return confined(policy, located, decision, project.clock.now_ms())


def _about_host(policy: Policy, request: Request, methods: dict[str, tuple[str, ...]]) -> Decision:
    """Decide about a host: a non-public address needs a grant that names it; a name is checked when it is resolved."""
    text = str(request.resource)
    host = resource_of("http", {"url": text if "://" in text else f"//{text}"}, Roots("", ())) or text
    decision = decided(policy, Request(request.subject, "http", request.method, host), methods)
    if not decision.allowed or _is_public(host):
        return decision
    return policy.decide(Request(request.subject, "http", request.method, host, by_name_only=True))


def _is_public(host: str) -> bool:
    try:
        return is_public(ipaddress.ip_address(host))
    except ValueError:
        return not is_localhost(host)
