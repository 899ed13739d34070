"""Scenarios of prompts: the library, its renderings, and a run's events about them (RFC 0027, 0028, 0029)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from forestay.conformance.scenario import expect, has, same, scenario
from forestay.conformance.target import Target, answered, refused

_PLATFORM = "agent-platform"
_KINDS = {"system", "user", "few-shot", "schema-hint"}
_LAYERS = {
    "run-configurable", "node", "agent-intrinsic", "agent-overrides", "agent-library-default", "workflow-defaults",
    "host-defaults",
}  # fmt: skip


def _template(**more: Any) -> dict[str, Any]:
    text = {"kind": "user", "version": "1.0.0", "text": "Say {{what}} twice."}
    slot = {"name": "what", "type": "string", "required": True}
    return {"templateId": f"kit.{uuid4().hex[:12]}", **text, "variables": [slot], **more}


def _stored(target: Target, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = answered(target.post("/v1/prompts", _template(**more)), 201)
    return made


@scenario("prompt-list-and-fetch", "prompts", _PLATFORM, needs="prompts.endpointsSupported")
def fetched(target: Target) -> None:
    """Templates are listed in pages and by kind, read by id, and not sent again to who has them."""
    page = target.read("/v1/prompts", params={"limit": 1})
    expect(len(page["items"]) <= 1, "a page is longer than its limit")
    for item in target.read("/v1/prompts", params={"kind": "system"})["items"]:
        has(item, {"templateId", "version", "kind", "text"}, "a template")
        same(item["kind"], "system", "the kind of a template")
    refused(target.get("/v1/prompts", key=""), 401)
    refused(target.get("/v1/prompts/kit.no-such-template"), 404)
    for item in page["items"]:
        path = f"/v1/prompts/{item['templateId']}"
        answer = target.get(path)
        same(answered(answer, 200), item, "the template")
        again = target.get(path, headers={"If-None-Match": answer.headers.get("etag", "")})
        same(again.status_code, 304, "the status of a template that the caller has")


@scenario("prompt-mutable-lifecycle", "prompts", needs="prompts.mutableLibrary")
def lifecycle(target: Target) -> None:
    """A template is made, replaced by a newer version beside the older, seen by nobody else, and removed."""
    made = _stored(target)
    path = f"/v1/prompts/{made['templateId']}"
    refused(target.post("/v1/prompts", _template(templateId=made["templateId"])), 409)
    refused(target.ask("PUT", path, json=_template(templateId=made["templateId"])), 409)
    newer = _template(templateId=made["templateId"], version="1.1.0", text="Say {{what}} once.")
    answered(target.ask("PUT", path, json=newer), 200)
    same(target.read(path)["version"], "1.1.0", "the newest version")
    same(target.read(path, params={"version": "1.0.0"})["text"], made["text"], "the older version's text")
    refused(target.get(path, key=target.other()), 404)
    same(target.ask("DELETE", path).status_code, 204, "the status of a removal")
    refused(target.get(path), 404)


@scenario("prompt-render-deterministic", "prompts", _PLATFORM, needs="prompts.mutableLibrary")
def rendered(target: Target) -> None:
    """The same template and values give the same hashes; another value or another trust gives others."""
    ref = f"prompt:{_stored(target)['templateId']}"

    def render(what: str, trust: str = "trusted") -> dict[str, Any]:
        body = {"ref": ref, "variables": {"what": what}, "contentTrust": trust}
        found: dict[str, Any] = answered(target.post("/v1/prompts:render", body), 200)
        has(found, {"hash", "refs", "variableHashes"}, "a rendering")
        return found

    first = render("hello")
    same(render("hello"), first, "the same rendering again")
    expect(render("goodbye")["variableHashes"] != first["variableHashes"], "another value has the same hash")
    marked = render("hello", "untrusted")
    expect(marked["hash"] != first["hash"], "content that nobody vouches for is not marked")
    same(marked.get("contentTrust"), "untrusted", "contentTrust")
    unfilled = refused(target.post("/v1/prompts:render", {"ref": ref, "variables": {}}), 400)
    same(unfilled["error"], "prompt_variable_unresolved", "the error of a value that is missing")


def _prompts_of(target: Target, fixture: str) -> list[tuple[str, dict[str, Any]]]:
    run_id = target.start(fixture)
    target.wait(run_id, "completed")
    told = target.told(run_id, "agent.promptResolved", "prompt.composed")
    return [(event["type"], event["payload"]) for event in told]


def _resolved(payload: dict[str, Any]) -> None:
    has(payload, {"nodeId", "kind", "chain", "resolved"}, "agent.promptResolved")
    expect(payload["kind"] in _KINDS, f"the kind is {payload['kind']}")
    expect({entry["layer"] for entry in payload["chain"]} <= _LAYERS, "a layer is none")
    (applied,) = [entry for entry in payload["chain"] if entry["applied"]]
    same((applied["layer"], applied["source"]), ("node", payload["resolved"]), "the layer that applies")


@scenario("prompt-end-to-end-events", "prompts", _PLATFORM, needs="prompts.supported")
def end_to_end(target: Target) -> None:
    """A node's prompt is resolved, then composed, and the run tells both."""
    (first, resolved), (second, composed) = _prompts_of(target, "conformance-prompt-end-to-end")
    same((first, second), ("agent.promptResolved", "prompt.composed"), "the order")
    _resolved(resolved)
    has(composed, {"nodeId", "refs", "kind", "hash"}, "prompt.composed")
    same(composed["refs"], [resolved["resolved"]], "what was composed")
    ref = {"ref": resolved["resolved"], "variables": {}}
    if target.flag("prompts.endpointsSupported"):
        preview = answered(target.post("/v1/prompts:render", ref), 200)
        same(preview["hash"], composed["hash"], "the hash of the preview")
    if target.flag("prompts.observability") != "full":
        expect(not {"composed", "systemPrompt", "userPrompt"} & composed.keys(), "the event carries the prompt")


@scenario("prompt-all-four-kinds-events", "prompts", _PLATFORM, needs="prompts.supported")
def four_kinds(target: Target) -> None:
    """Each of a node's prompts of the four kinds, and each of several examples, is resolved and composed."""
    told = _prompts_of(target, "conformance-prompt-all-four-kinds")
    resolved = [payload for type, payload in told if type == "agent.promptResolved"]
    kinds = [payload["kind"] for payload in resolved]
    same(sorted(kinds), ["few-shot", "few-shot", "schema-hint", "system", "user"], "the kinds")
    for payload in resolved:
        _resolved(payload)
    composed = [payload["refs"][0] for type, payload in told if type == "prompt.composed"]
    same(sorted(composed), sorted(payload["resolved"] for payload in resolved), "what was composed")
