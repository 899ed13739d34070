"""The tool catalogue (RFC 0078) of a host that says it has one."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.contracts.openwop.conftest import Api, refused

FIELDS = {
    "toolId", "source", "title", "description", "inputSchema", "outputSchema", "auth", "egress", "approval",
    "replayPolicy", "safetyTier", "costHint", "latencyHint",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _offered(capabilities: dict[str, Any]) -> None:
    if not capabilities.get("toolCatalog", {}).get("supported"):
        pytest.skip("this host has no tool catalogue")


def test_the_catalogue_is_a_bare_array_of_descriptors(api: Api, capabilities: dict[str, Any]) -> None:
    tools = api.get("/v1/tools").json()
    assert isinstance(tools, list) and tools
    ids = [item["toolId"] for item in tools]
    assert len(ids) == len(set(ids)) and ids == [item["toolId"] for item in api.get("/v1/tools").json()]
    for item in tools:
        assert set(item) <= FIELDS
        assert item["safetyTier"] in ("pure", "read", "write", "exec")
        assert item["source"] in capabilities["toolCatalog"]["sources"]
        assert item["safetyTier"] != "exec" or item["source"] == "host-extension"
        assert item["inputSchema"]["type"] == "object"
    assert {item["source"] for item in tools} == {"workflow", "host-extension"}  # this project names no MCP server


def test_a_tool_is_found_by_its_id(api: Api) -> None:
    for item in api.get("/v1/tools").json():
        assert api.get(f"/v1/tools/{quote(item['toolId'], safe='')}").json() == item
    refused(api.get("/v1/tools/no-such-tool"), 404, "not_found")


def test_a_source_narrows_the_list(api: Api) -> None:
    flow = api.workflow("chain")
    found = api.get("/v1/tools", params={"source": "workflow"}).json()
    assert f"workflow:{flow}" in {item["toolId"] for item in found}
    assert {item["source"] for item in found} == {"workflow"}
    refused(api.get("/v1/tools", params={"source": "cellar"}), 400, "validation_error")


def test_who_cannot_call_a_tool_does_not_see_it(api: Api) -> None:
    refused(api.caller("").get("/v1/tools"), 401, "unauthenticated")
    refused(api.caller("").get("/v1/tools/forestay:bash"), 401, "unauthenticated")
    refused(api.caller("reader").get("/v1/tools"), 403, "forbidden")
    other = api.caller("other")
    assert "forestay:bash" not in {item["toolId"] for item in other.get("/v1/tools").json()}
    refused(other.get("/v1/tools/forestay:bash"), 404, "not_found")
    made = api.post("/host/v1/keys", {"name": "looks-only", "scopes": ["manifest:read"]})
    if made.status_code == 201:
        looks = Api(api.url, {"looks": made.json()["result"]["apiKey"]}, "looks")
        assert looks.get("/v1/tools").json() == []
        refused(looks.get("/v1/tools/forestay:bash"), 404, "not_found")
        looks.close()


def test_tiers_and_approvals_say_what_happens(api: Api) -> None:
    tools = {item["toolId"]: item for item in api.get("/v1/tools").json()}
    if "forestay:bash" not in tools:
        pytest.skip("these are forestay's own tools")
    shell, reader = tools["forestay:bash"], tools["forestay:read"]
    assert (shell["safetyTier"], shell["approval"], shell["source"]) == ("exec", "always", "host-extension")
    assert (reader["safetyTier"], reader["approval"], reader["egress"]) == ("read", "never", "none")
    assert tools["forestay:write"]["replayPolicy"] == "idempotent"
