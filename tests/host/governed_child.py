"""A process that does one story of governance through the whole host, and kills itself with SIGKILL at boundary N.

Usage: python -m tests.host.governed_child STORY FOLDER N (0: never), or TYPE:COUNT for N: when so many records of that
type are written. A boundary stands before and after everything that is written to the ledger or to the vault of keys,
and after every call of the model. Each story can be told again from its beginning: what it did before is done. At its
end it writes what a person would see into FOLDER/end. FOLDER/outside names the servers of others, where there are any.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from forestay.governance import Credential, Secret, Transition
from forestay.host import Host
from forestay.kernel import Agents, Budgets, Ceiling, Config, Models, Price, Problem
from forestay.models import Script, ScriptedCall, Turn
from forestay.runs import CreateRun, RunFilter
from tests.host.agent_child import Boundaries, Logged, count_commits, count_records
from tests.runs.documents import node, workflow

TENANT, AGENT = "default", "vendor.acme.tide"
ORDER = workflow("order", [node("n")], variables=[{"name": "order", "type": "string", "required": True}])
SCRIPT = Script((Turn("", (ScriptedCall("read", {"path": "tide.md"}),)), Turn("Low.")), position="conversation")
SCOPES = ["deploy:promote", "deploy:rollback"]
TASKS = [
    {"taskId": name, "input": f"How is the tide at {name}?", "expected": {"kind": "golden", "match": match}}
    for name, match in (
        ("north", {"strategy": "exact", "value": "Low."}),
        ("south", {"strategy": "contains", "value": "High"}),
    )
]
SUITE = {"suiteId": "acme.evals.tide", "version": "1.0.0", "modes": ["golden"], "tasks": TASKS}


def pack(version: str) -> dict[str, Any]:
    manifest = {
        "agentId": AGENT,
        "persona": "Tide",
        "modelClass": "general",
        "systemPrompt": "Tell the tide.",
        "toolAllowlist": ["read"],
        "memoryShape": {"longTerm": True},
    }
    return {"name": "vendor.acme", "version": version, "agents": [manifest]}


async def once(making: Awaitable[object]) -> None:
    """Make a run that may be there from an earlier life."""
    try:
        await making
    except Problem as problem:
        if problem.key != "run_already_active":
            raise


async def evaluation(host: Host) -> Any:
    """Two tasks, of which one passes."""
    await host.directory.install(TENANT, pack("1.0.0"))
    kept = await host.evaluations.put(TENANT, SUITE)
    await once(host.evaluations.request(TENANT, kept.ref, AGENT, modes=("golden",), run_id="run_eval"))
    ended = await host.runs.wait("run_eval", TENANT)
    assert ended.outputs is not None
    summary = {name: value for name, value in ended.outputs["summary"].items() if "atency" not in name}
    scored = [item.payload["taskId"] for item in await told(host, "run_eval", "eval.scored")]
    return [ended.status, sorted(scored), summary["passed"], summary["aggregateScore"]]


async def promotion(host: Host) -> Any:
    """Two versions go all the way, the second as a canary."""
    for version, share in (("1.0.0", None), ("2.0.0", 25)):
        await host.directory.install(TENANT, pack(version))
        for step in range(4):
            more: dict[str, Any] = {"channel": "stable", "canary_percent": share} if step == 3 else {}
            run_id = f"run_{version[0]}-{step}"
            if not await is_there(host, run_id):
                wanted = Transition(version, "promote", **more)
                asked = host.deployments.request(TENANT, AGENT, wanted, principal="ann", scopes=SCOPES, run_id=run_id)
                await once(asked)
            await host.deployments.settled(TENANT, run_id)
            await host.runs.wait(run_id, TENANT)
    listed = [(item.version, item.state, item.canary_percent) for item in await host.deployments.listed(TENANT, AGENT)]
    records = [record for _, record in await host.ledger.read_all("run/")]
    return [listed, sorted(item.type for item in records if item.type.startswith("deployment."))]


async def budget(host: Host) -> Any:
    """An agent's turn with a tool, under a ceiling of its own and one of the day."""
    request = CreateRun(
        workflow_id="forestay-ask",
        inputs={"question": "How is the tide?"},
        configurable={"budget": {"maxTokens": 100_000, "maxToolCalls": 5, "maxCostUsd": 5}},
    )
    await once(host.runs.create_run(request, TENANT, run_id="run_budget"))
    ended = await host.runs.wait("run_budget", TENANT)
    standings = await host.budgets.standings(TENANT)
    held = [item.held for item in standings if any(item.held.values())]
    own = next(item.spent for item in standings if not item.account.startswith("project"))
    used = [item.payload["inputTokens"] + item.payload["outputTokens"] for item in await usage(host)]
    (host.data.parent / "spent").write_text(
        json.dumps({"spent": own["tokens"], "used": used, "calls": own["toolCalls"]})
    )
    return [ended.status, held, len(standings)]


async def usage(host: Host) -> list[Any]:
    return await told(host, "run_budget", "provider.usage")


async def delivery(host: Host) -> Any:
    """One event, offered in each life."""
    await host.runs.put_workflow(ORDER, tenant=TENANT)
    made = await host.triggers.subscriptions.subscribe(TENANT, "queue", "order", subscription_id="sub_child")
    await host.triggers.offer(TENANT, made.subscription_id, "order-1", {"order": "two boats"})
    await host.triggers.deliver_due()
    page = await host.runs.list_runs(RunFilter(), TENANT, None, 100)
    ended = [await host.runs.wait(item.run_id, TENANT) for item in page.runs]
    deliveries = [(item.state, item.run_id) for item in await host.triggers.deliveries(TENANT)]
    return [[(item.status, item.inputs) for item in ended], len(deliveries), deliveries[0][0]]


async def memory(host: Host) -> Any:
    """An agent that remembers what it answered, and one entry that is forgotten."""
    await host.directory.install(TENANT, pack("1.0.0"))
    request = CreateRun(workflow_id="forestay-ask", inputs={"question": "How is the tide?", "agentId": AGENT})
    await once(host.runs.create_run(request, TENANT, run_id="run_memory"))
    ended = await host.runs.wait("run_memory", TENANT)
    for name in ("mem_kept", "mem_gone"):
        if not (await host.ledger.read(f"memory/{name}", 0, 1)):
            await host.memories.put(TENANT, "harbour", f"What {name} says.", memory_id=name)
    try:
        await host.memories.forget(TENANT, "mem_gone")
    except Problem as problem:
        if problem.key != "not_found":
            raise
    entries = await host.memories.listed(TENANT)
    written = await told(host, "run_memory", "memory.written")
    return [ended.status, sorted((item.memory_ref, item.content) for item in entries), len(written)]


class Outside(msgspec.Struct, frozen=True):
    """An authorization server and an API that takes its tokens, and a token whose time is over."""

    issuer: str
    api: str
    access: str
    refresh: str

    def known_to(self, config: Config) -> Config:
        addresses = {"auth_url": f"{self.issuer}/authorize", "token_url": f"{self.issuer}/token"}
        provider = {**addresses, "client_id": "forestay", "audiences": [self.api]}
        more = msgspec.convert({"oauth": {"providers": {"ports": provider}}}, Config)
        return msgspec.structs.replace(config, oauth=more.oauth)


def outside(folder: Path) -> Outside | None:
    file = folder / "outside"
    return msgspec.json.decode(file.read_bytes(), type=Outside) if file.exists() else None


async def renewal(host: Host) -> Any:
    """A request whose token is over: it is renewed at the authorization server, kept, and sent."""
    others = outside(host.data.parent)
    assert others is not None
    if not await host.credentials.listed(TENANT):
        about = Credential(credential_id="ports", issuer="ports", audiences=(others.api,))
        await host.credentials.put(TENANT, about, Secret(others.access, others.refresh, 1))
    call = node("get", "core.http", config={"url": f"http://{others.api}/", "credential": "ports"})
    await host.runs.put_workflow(workflow("call", [call]), tenant=TENANT)
    await once(host.runs.create_run(CreateRun(workflow_id="call"), TENANT, run_id="run_renewal"))
    ended = await host.runs.wait("run_renewal", TENANT)
    kept = await host.credentials.secret(TENANT, "ports")
    assert kept is not None
    (host.data.parent / "kept").write_text(kept.value)
    decided = [item.payload["decision"] for item in await told(host, "run_renewal", "egress.decided")]
    keys = await host.ledger.vault().names("cred_")
    return [ended.status, decided, len(await host.credentials.listed(TENANT)), len(keys)]


STORIES: dict[str, Callable[[Host], Awaitable[Any]]] = {
    "evaluation": evaluation,
    "promotion": promotion,
    "budget": budget,
    "delivery": delivery,
    "memory": memory,
    "renewal": renewal,
}


async def is_there(host: Host, run_id: str) -> bool:
    try:
        await host.runs.get_run(run_id, TENANT)
    except Problem:
        return False
    return True


async def told(host: Host, run_id: str, type: str) -> list[Any]:
    return [event for event in (await host.runs.poll(run_id, TENANT, -1, 0)).events if event.type == type]


def count_keys(boundaries: Boundaries, vault: type[Any]) -> None:
    def counted(write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def between(*given: Any) -> Any:
            boundaries.reach()
            done = await write(*given)
            boundaries.reach()
            return done

        return between

    for name in ("keep", "fresh", "destroy"):
        setattr(vault, name, counted(getattr(vault, name)))


async def main(story: str, folder: Path, deadline: str) -> None:
    written, named, count = deadline.partition(":")
    boundaries = Boundaries(0 if named else int(deadline))
    count_commits(boundaries)
    if named:
        count_records(written, int(count))
    others = outside(folder)
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "tide.md").write_text("The tide is low.\n")
    config = Config(
        models=Models(default="logged"),
        agents=Agents(allow=["*"]),
        budgets=Budgets(ceilings=[Ceiling("project", per="day", max_tokens=1_000_000)], prices={"*": Price(1, 2)}),
    )
    config = config if others is None else others.known_to(config)
    reached = () if others is None else (others.api, others.issuer.removeprefix("http://"))
    model = Logged(folder / "model", boundaries, SCRIPT)
    options = {"root": project, "data": folder / "data", "models": {"logged": model}, "allow_egress": reached}
    async with Host.open(config, **options) as host:
        count_keys(boundaries, type(host.ledger.vault()))
        end = await STORIES[story](host)
        (folder / "boundaries").write_text(str(-boundaries.left))
    (folder / "end").write_text(json.dumps(end, sort_keys=True))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
