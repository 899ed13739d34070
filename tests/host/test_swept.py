"""Every operation of the surface is in the sweep of hostile requests and in the sweep across tenants."""

from __future__ import annotations

from pathlib import Path

from forestay.surface import Serving
from tests.contracts.openwop.test_openapi import ENDLESS, MORE_STATUSES, STREAM
from tests.host.test_security_sweep import BODIES, OWN, client, routes, run
from tests.security.test_hostile import addresses

# Schemathesis makes its requests from these (`test_openapi.py`, `tests/contracts/crp/test_schemathesis.py`).
DESCRIBED = {"/v1/openapi.json": "", "/crp/openapi.json": "/crp"}  # and what stands before their paths
# Other people's contracts, which no document of ours describes: `tests/security/test_hostile.py` tries them.
NOT_DESCRIBED = {
    "a2a.card", "a2a.rpc", "mcp.rpc", "openai.models", "openai.model", "openai.embed", "openai.chat", "openai.respond",
    "openai.response", "anthropic.messages", "anthropic.models",
}  # fmt: skip


def test_every_operation_is_in_both_sweeps(tmp_path: Path) -> None:
    async def story(serving: Serving) -> None:
        operations = {
            item.name: (item.method, item.path) for item in serving.app.operations if item.contract != "console"
        }
        async with client(serving) as nobody:
            documents = {base: (await nobody.get(path)).json()["paths"] for path, base in DESCRIBED.items()}
            tried = await addresses(serving, nobody)
        described = {
            (method.upper(), base + path)
            for base, paths in documents.items()
            for path in paths
            for method in paths[path]
        }
        assert {name for name, place in operations.items() if place not in described} == NOT_DESCRIBED
        assert {operations[name][1] for name in NOT_DESCRIBED} <= set(tried)
        swept = {(method, path) for _, method, path in routes(serving)}
        assert set(operations.values()) <= swept
        # What the sweeps say of single operations is of operations that are there.
        assert swept >= OWN and {path for _, path in swept} >= BODIES.keys()
        assert operations.keys() >= {STREAM, ENDLESS, *MORE_STATUSES}

    run(story, tmp_path, sample_seams=True)
