"""From a configuration to a running host: everything is built here, once, and closed in the opposite order."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import forestay
from forestay.agents import Catalogue
from forestay.extensions import SANDBOX
from forestay.governance import (
    AUTHORIZE,
    EVALUATION,
    TASK,
    WORKFLOW,
    AgentDirectory,
    Authorizations,
    Budgets,
    BudgetTable,
    Credentials,
    Deployments,
    Evaluations,
    Judge,
    Metering,
    PromptLibrary,
    Staff,
    TriggerClock,
    Triggers,
    TriggerTable,
    read_prompts,
)
from forestay.host.a2a_peers import A2aPeers
from forestay.host.agent_node import ASK, AgentChoice, AgentNode
from forestay.host.agent_root import AGENT_ROOT, AgentRoots
from forestay.host.checkpoints import audit_log
from forestay.host.completion import COMPLETION
from forestay.host.egress import Egress
from forestay.host.extension_model import ExtensionModel
from forestay.host.extensions import ProjectExtensions
from forestay.host.former_memory import take_over
from forestay.host.mail_intake import MailIntake
from forestay.host.memory import NodeMemories
from forestay.host.models import HostModels, priced
from forestay.host.node_files import load_nodes, trust_in_nodes
from forestay.host.node_packs import MAX_SECONDS
from forestay.host.oauth_providers import oauth_providers
from forestay.host.outbound import Outbound
from forestay.host.prompts import Prompts
from forestay.host.run_ui import RunUi
from forestay.host.sample_network import SampleNetwork
from forestay.host.sample_prompts import sample_prompts
from forestay.host.sample_workflows import sample_workflows
from forestay.host.session_front import SessionFronts
from forestay.host.session_turns import SessionTurns
from forestay.host.session_ui import SessionUi
from forestay.host.shared_secret import check_secret, host_secret
from forestay.host.sole import sole_host
from forestay.host.telemetry import HostMetrics, Tracing, WatchedModel, cost_emit, open_tracing
from forestay.host.tools import CALL, HostTools
from forestay.host.worker_name import worker_name
from forestay.host.workflow_files import Found, LeftOut, load_workflows
from forestay.kernel import (
    OPERATOR,
    AuditLog,
    Clock,
    Config,
    DeploymentGate,
    Ids,
    Ledger,
    Locks,
    Problem,
    Projection,
    Randomness,
    SharedClock,
    SystemClock,
    SystemRandomness,
    Workers,
    derive,
    former,
    kept_in,
    make_folder,
)
from forestay.models import OpenModel, embed
from forestay.relay import Memories, MemoryTable, Relay
from forestay.runs import (
    QUEUE,
    Annotations,
    CreateRun,
    Idempotency,
    Limits,
    Outbox,
    RetryPolicy,
    Runs,
    RunSnapshot,
    Schedules,
    ScheduleTable,
    Webhooks,
    Workflow,
    service,
    standard_registry,
)
from forestay.sessions import Sessions, SessionTable

if TYPE_CHECKING:
    from httpx import AsyncBaseTransport

    from forestay.extensions import Consent, Ui


_STANDBY_SECONDS = 0.2
SAMPLE_GATED = "local.sample.gated"
"""With the test seams: the agent whose promotions need an evaluation."""
_SAMPLE_GATE = DeploymentGate(agent=SAMPLE_GATED, evaluation=True)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a host is opened, beyond its configuration.

    `root` is the project folder. `data`, when given, is used in place of `config.data.dir`. `allow_egress` names
    `host:port` pairs that calls out may reach though they are private. `consent` asks a person at the terminal,
    `ui` shows them what extensions show.
    `standby` waits while another host has the folder open, or somebody the ledger alone. `new_secret` goes on with a
    secret that hosts of the ledger did not have before.
    `read_only` opens it for somebody who only looks: no run is taken up, nothing is stored, sent or asked of a model.
    `room` is how many runs this host carries at a time; with 0 it carries none, and other processes of the ledger do.
    `trust_nodes` trusts the project's node files as they are now. `workflows` are folders beside those of the
    configuration; `strict` refuses to open when one of their files cannot be stored. `models` are model objects by the
    name that the configuration may use for them. `tracing`, when given, is used in place of what the configuration
    asks for. `transport`, when given, leads calls out another way than a socket.
    """

    config: Config = Config()
    root: Path = Path()
    data: Path | None = None
    allow_egress: tuple[str, ...] = ()
    sample_seams: bool = False
    trust_nodes: bool = False
    standby: bool = False
    new_secret: bool = False
    read_only: bool = False
    room: int | None = None
    workflows: tuple[Path, ...] = ()
    strict: bool = False
    retry: RetryPolicy = RetryPolicy()
    limits: Limits | None = None
    clock: Clock | None = None
    randomness: Randomness | None = None
    projections: tuple[Projection, ...] = ()
    consent: Consent | None = None
    ui: Ui | None = None
    models: dict[str, OpenModel] = {}
    tracing: Tracing | None = None
    transport: AsyncBaseTransport | None = None

    @property
    def folder(self) -> Path:
        return self.data if self.data is not None else self.root / self.config.data.dir

    @property
    def ledger(self) -> Path | str:
        """The ledger's address: the one of the configuration, otherwise the file in the data folder."""
        return self.config.data.ledger or self.folder / "ledger.db"


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a running host below HTTP. `async with Host.open(config) as host`."""

    config: Config
    root: Path
    data: Path
    ledger: Ledger
    runs: Runs
    workflows: tuple[str, ...]  # those of the project's folders, which were stored on opening
    packs: tuple[str, ...]  # the node packs that are loaded
    left_out: tuple[LeftOut, ...]  # files of these folders that hold no workflow that can run here
    extensions: ProjectExtensions
    relay: Relay
    memories: Memories
    models: HostModels
    agents: Catalogue
    directory: AgentDirectory  # the agents of each tenant
    prompts: PromptLibrary  # the prompt templates of each tenant
    roots: AgentRoots
    staff: Staff
    deployments: Deployments
    evaluations: Evaluations
    annotations: Annotations
    webhooks: Webhooks
    schedules: Schedules
    triggers: Triggers
    idempotency: Idempotency
    budgets: Budgets
    egress: Egress
    audit: AuditLog
    credentials: Credentials
    authorizations: Authorizations
    sample_network: SampleNetwork | None  # with the test seams
    clock: Clock
    ids: Ids
    tools: HostTools
    sessions: Sessions
    turns: SessionTurns
    fronts: SessionFronts
    key_for: Callable[[str], bytes]  # a secret of its own for each purpose
    metrics: HostMetrics
    tracing: Tracing
    locks: Locks
    workers: Workers | None  # the processes that share the ledger; None where this one has it
    about: dict[str, Any]  # what they are told of this one

    @staticmethod
    def open(config: Config | None = None, **options: Any) -> AbstractAsyncContextManager[Host]:
        """A host with this configuration; `options` are the other fields of `Options`."""
        return open_host(Options(config=config or Config(), **options))

    async def run(
        self, workflow: Workflow | str, inputs: dict[str, Any] | None = None, *, tenant: str = OPERATOR
    ) -> RunSnapshot:
        """Run a workflow to its end: one that is stored, by its id, or one that `@workflow` declared."""
        if not isinstance(workflow, str):
            await self.runs.put_workflow(workflow.document, tenant=tenant)
            workflow = workflow.id
        made = await self.runs.create_run(CreateRun(workflow_id=workflow, inputs=inputs or {}), tenant)
        return await self.runs.wait(made.run_id, tenant)

    @property
    def _packs(self) -> dict[str, Any]:
        cap = self.config.extensions.policy.max_memory_mb * 1024 * 1024
        limits = {"maxMemoryBytes": cap, "maxExecutionMs": int(MAX_SECONDS * 1000)}
        return {"supported": True, "abiVersions": [1], "engine": "wasmtime", "loadedPacks": list(self.packs), **limits}

    def capabilities(self) -> dict[str, Any]:
        """What this host adds to the discovery document: what is wired, and nothing else."""
        return {
            "budget": self.budgets.capability(),
            "prompts": self.prompts.capability(),
            "feedback": self.annotations.capability(),
            "triggerBridge": self.triggers.capability(),
            "memory": self.memories.capability(),
            "httpClient": Outbound.capability(),
            "oauth": self.authorizations.capability(),
            "secrets": {"supported": True, "scopes": ["tenant"], "resolution": "host-managed"},
            "modelCapabilities": self.models.capability(),
            "agents": {"evalSuite": self.evaluations.capability(), "memoryBackends": ["long-term"]},
            **({"nodePackRuntimes": {"wasm": self._packs}} if self.packs else {}),
            "forestay": {
                "agents": sorted(agent.agent_id for agent in self.agents),
                "model": self.models.default.name,
                "installGate": {"supported": True, "grants": sorted(SANDBOX)},
            },
        }


def host_tables() -> list[Projection]:
    """The tables that every host keeps."""
    return [
        *service.projections(),
        *Relay.projections(),
        Outbox(),
        ScheduleTable(),
        BudgetTable(),
        SessionTable(),
        TriggerTable(),
        MemoryTable(),
    ]


async def _opened(options: Options, projections: list[Projection], clock: Clock, ids: Ids) -> Ledger:
    """The ledger; a standby waits until nobody has it alone."""
    transient: frozenset[str] = frozenset()
    while True:
        try:
            opening = partial(Ledger.open, options.ledger, projections=projections, clock=clock, ids=ids)
            return await asyncio.to_thread(opening)
        except Problem as problem:
            if not options.standby or problem.key not in transient | {"state_conflict"}:
                raise
            transient = frozenset({"ledger_unreachable"})  # the address is right: the database comes back
        await asyncio.sleep(_STANDBY_SECONDS)


def _about(workers: Workers | None, room: int | None, boot: str) -> dict[str, Any]:
    """What other processes of the ledger are told of this one; `boot` is the name of this life of it."""
    name = workers.name if workers is not None else "host"
    told = {"name": name, "version": forestay.__version__, "pid": os.getpid(), "machine": socket.gethostname()}
    return {**told, "boot": boot} if room is None else {**told, "boot": boot, "room": room}


async def _boots(workers: Workers) -> set[str]:
    """The lives of hosts that share the ledger now."""
    return {str(about.get("boot")) for about in await asyncio.to_thread(workers.living)}


@asynccontextmanager
async def open_host(options: Options) -> AsyncIterator[Host]:
    shared_clock = SharedClock(SystemClock())
    clock = options.clock or shared_clock
    randomness = options.randomness or SystemRandomness()
    ids = Ids(clock, randomness)
    config, root, data = options.config, options.root.resolve(), options.folder
    catalogue = Catalogue.read(root, config.agents.paths)
    if options.data is None:
        former.adopt(root)
    make_folder(data)
    projections = [*host_tables(), *options.projections]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(sole_host(data, standby=options.standby))
        with kept_in(data):
            secret = host_secret(data, randomness)
        ledger = await stack.enter_async_context(await _opened(options, projections, clock, ids))
        if ledger.shared:
            await check_secret(ledger, secret, renew=options.new_secret)
        workers = ledger.workers(worker_name(data, randomness), QUEUE) if ledger.shared else None
        if workers is not None:
            stack.callback(workers.close)
            await asyncio.to_thread(workers.keep_time, shared_clock.set)
        if options.room == 0 and workers is None:
            message = "A host that carries no runs needs others that do, on one PostgreSQL ledger."
            raise Problem("config_invalid", message, at="--no-worker", fix="Give --database postgresql://….")
        locks = Locks(workers)
        metrics = HostMetrics()
        tracing = options.tracing or open_tracing(config.telemetry)
        stack.callback(tracing.close)
        network = await stack.enter_async_context(SampleNetwork()) if options.sample_seams else None
        reachable = options.allow_egress if network is None else (*options.allow_egress, network.place)
        look_up = None if network is None else network.look_up
        egress = Egress(reachable, ledger=ledger, look_up=look_up, transport=options.transport)
        stack.push_async_callback(egress.close)
        credentials = Credentials(ledger, clock=clock, randomness=randomness, shared=locks.shared)
        authorizations = Authorizations(
            ledger,
            credentials,
            egress,
            oauth_providers(config, network),
            runs=lambda: runs,
            key=derive(secret, "oauth"),
            clock=clock,
            ids=ids,
            randomness=randomness,
            locks=locks,
        )
        models = HostModels(
            config.models,
            clock=clock,
            folder=root,
            own=options.models,
            watched=lambda model: WatchedModel(model, metrics, tracing),
        )
        stack.push_async_callback(models.close)
        embedder = embed.open(config.models.embedder) if config.models.embedder else None
        relay = Relay(
            ledger,
            secret=derive(secret, "relay"),
            model=None if options.read_only else models.default,
            clock=clock,
            ids=ids,
            randomness=randomness,
            embedder=embedder,
            vectors=data / "vectors",
            snapshots=None if locks.shared or options.read_only else data / "ledger.db.sessions",
            locks=locks,
        )
        stack.push_async_callback(relay.aclose)
        memories = Memories(
            ledger,
            clock=clock,
            ids=ids,
            randomness=randomness,
            embedder=embedder,
            shared=locks.shared,
            blotted=credentials.blotted,
        )
        sessions = Sessions(ledger, clock, ids, cwd=str(root))
        prompts = Prompts(clock, ids.new("life"), runs=lambda: runs)
        ui = SessionUi(ids, living=lambda: extensions.living, told=lambda: extensions.attend())
        sessions.heard = ui.changed
        prompts.absent = lambda: options.ui is None and ui.absent
        extensions = ProjectExtensions(
            ledger,
            root=root,
            config=config,
            clock=clock,
            randomness=randomness,
            prompts=prompts,
            consent=options.consent,
            ui=RunUi(prompts, options.ui or ui),
            model=ExtensionModel(models),
            data=data,
            sessions=sessions,
        )
        turns = SessionTurns(
            sessions, extensions, ui, clock, ids, runs=lambda: runs, agents=lambda *of: directory.get(*of)
        )
        stack.push_async_callback(extensions.close)
        stack.push_async_callback(prompts.close)
        budgets = Budgets(ledger, priced(config), clock=clock)
        outbound = Outbound(egress, credentials)
        tools = HostTools(extensions, config.agents, clock, outbound=outbound, runs=lambda: runs, tracing=tracing)
        directory = AgentDirectory(ledger, catalogue)
        templates = [*read_prompts(root, config.prompts.paths), *(sample_prompts() if options.sample_seams else ())]
        prompt_library = PromptLibrary(ledger, clock, config.prompts, templates)
        staff = Staff(ledger, directory, runs=lambda: runs)
        gates = [*([_SAMPLE_GATE] if options.sample_seams else ()), *config.deployments.gates]
        deployments = Deployments(
            ledger, gates, runs=lambda: runs, scores=lambda *of: evaluations.score(*of), exists=directory.get
        )
        judge = config.evaluations.judge
        evaluations = Evaluations(
            ledger,
            runs=lambda: runs,
            versions=directory.version,
            judge=Judge(models.chosen(None, None if judge == "default" else judge))
            if judge and not options.read_only
            else None,
            observer=deployments.observed,
        )
        node = AgentNode(
            relay=relay,
            memories=memories,
            models=models,
            extensions=extensions,
            budgets=budgets,
            choice=AgentChoice(ledger, directory, staff, deployments),
            settings=config.agents,
            clock=clock,
            ids=ids,
            data=data,
            tools=tools,
            turns=turns,
            tracing=tracing,
        )
        registry = standard_registry(sample_seams=options.sample_seams)
        registry.add(node.type)
        registry.add(deployments.type)
        registry.add(evaluations.type)
        registry.add(authorizations.type)
        if options.sample_seams:
            registry.wrap("core.identity", node.pinned)  # the contract's fixture pins an agent there
        if options.sample_seams and tracing.active:
            registry.add(cost_emit(tracing))
        if config.a2a.peers:
            registry.add(A2aPeers(config.a2a.peers).type)
        if options.trust_nodes:
            await trust_in_nodes(ledger, root, config.workflows.nodes).give(root)
        cap = config.extensions.policy.max_memory_mb * 1024 * 1024
        own = await load_nodes(ledger, root, config.workflows.nodes, clock, cap=cap, data=data)
        for item in own.types:
            registry.add(item)
        runs = Runs(
            ledger,
            clock=clock,
            ids=ids,
            randomness=randomness,
            secret=derive(secret, "interrupts"),
            nodes=registry,
            models=models,
            governor=Metering(budgets, staff, directory),
            tools=tools,
            http=outbound,
            memory=NodeMemories(memories),
            prompts=prompt_library,
            capabilities_of=models.capabilities_of,
            secrets=credentials.value if options.sample_seams else None,
            limits=options.limits or Limits(max_loop_iterations=config.workflows.max_loop_iterations),
            sample_seams=options.sample_seams,
            workers=workers,
            room=options.room,
            replays_ask=config.workflows.replay_asks_models and not config.budgets.ceilings,
        )
        metrics.watch(ledger, runs, relay)
        webhooks = Webhooks(
            ledger,
            runs,
            egress,
            clock=clock,
            ids=ids,
            randomness=randomness,
            key=derive(secret, "webhooks"),
            check_url=egress.check_url,
            policy=options.retry,
            locks=locks,
        )
        schedules = Schedules(ledger, runs, clock=clock, ids=ids, attribution=staff.fired, locks=locks)
        triggers = Triggers(
            ledger,
            runs,
            staff,
            clock=clock,
            ids=ids,
            secret=derive(secret, "triggers"),
            locks=locks,
            mailboxes={name: item.tenant for name, item in config.mailboxes.items()},
        )
        ticks = TriggerClock(ledger, triggers, clock=clock, shared=locks.shared)
        mail = MailIntake(ledger, triggers, config.mailboxes, locks)
        await credentials.start()
        await memories.start()
        stack.push_async_callback(memories.close)
        boot = ids.new("boot")
        about = _about(workers, options.room, boot)
        if workers is not None:
            workers.describe(about)
        found = Found()
        if not options.read_only:
            await take_over(ledger, memories)
            await stack.enter_async_context(runs)
            for document in (ASK, CALL, COMPLETION, AGENT_ROOT, WORKFLOW, EVALUATION, TASK, AUTHORIZE):
                await runs.put_workflow(document, tenant=None)
            for folder in (*(root / text for text in config.workflows.paths), *options.workflows):
                found += await load_workflows(runs, folder, strict=options.strict)
            for document in sample_workflows() if options.sample_seams else ():
                if document["id"] not in found.stored:
                    await runs.put_workflow(document, tenant=None)
            if options.ui is None:
                await stack.enter_async_context(turns.following(models.default.name))
            for part in (webhooks, schedules, triggers, ticks, mail):
                await part.start()
                stack.push_async_callback(part.close)
        idempotency = Idempotency(
            ledger,
            clock,
            ids,
            owner=boot,
            key=derive(secret, "idempotency"),
            living=None if workers is None else partial(_boots, workers),
        )
        yield Host(
            config=config,
            root=root,
            data=data,
            ledger=ledger,
            runs=runs,
            workflows=found.stored,
            left_out=found.left_out,
            packs=own.packs,
            extensions=extensions,
            relay=relay,
            memories=memories,
            models=models,
            agents=catalogue,
            directory=directory,
            prompts=prompt_library,
            roots=AgentRoots(directory, staff),
            staff=staff,
            deployments=deployments,
            evaluations=evaluations,
            annotations=Annotations(ledger, runs, clock, ids),
            webhooks=webhooks,
            schedules=schedules,
            triggers=triggers,
            idempotency=idempotency,
            budgets=budgets,
            egress=egress,
            audit=audit_log(ledger, secret, ids, locks),
            credentials=credentials,
            authorizations=authorizations,
            sample_network=network,
            clock=clock,
            ids=ids,
            tools=tools,
            sessions=sessions,
            turns=turns,
            fronts=SessionFronts(ui, turns, extensions, runs),
            key_for=lambda purpose: derive(secret, purpose),
            metrics=metrics,
            tracing=tracing,
            locks=locks,
            workers=workers,
            about=about,
        )
