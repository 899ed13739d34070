"""From a configuration to a running host: everything is built here, once, and closed in the opposite order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.agents import Catalogue
from forestay.governance import (
    EVALUATION,
    TASK,
    WORKFLOW,
    AgentDirectory,
    Budgets,
    BudgetTable,
    Deployments,
    Evaluations,
    Judge,
    Metering,
    Staff,
)
from forestay.host.agent_choice import AgentChoice
from forestay.host.agent_node import ASK, AgentNode
from forestay.host.egress import Egress
from forestay.host.extension_model import ExtensionModel
from forestay.host.extensions import ProjectExtensions
from forestay.host.metrics import HostMetrics, WatchedModel
from forestay.host.models import HostModels
from forestay.host.node_files import load_nodes, trust_in_nodes
from forestay.host.prompts import Prompts
from forestay.host.run_ui import RunUi
from forestay.host.session_turns import SessionTurns
from forestay.host.sole import sole_host
from forestay.host.tools import HostTools
from forestay.host.tracing import Tracing, open_tracing
from forestay.host.workflow_files import Found, LeftOut, load_workflows
from forestay.kernel import (
    HOST_SECRET,
    OPERATOR,
    Clock,
    Config,
    DeploymentGate,
    Ids,
    Ledger,
    Projection,
    Randomness,
    SystemClock,
    SystemRandomness,
    derive,
    former,
    kept_in,
    kept_secret,
    make_folder,
)
from forestay.models import OpenModel, embed
from forestay.relay import Relay
from forestay.runs import (
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
    from forestay.extensions import Consent, Ui


SAMPLE_GATED = "local.sample.gated"
"""With the test seams: the agent whose promotions need an evaluation."""
_SAMPLE_GATE = DeploymentGate(agent=SAMPLE_GATED, evaluation=True)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a host is opened, beyond its configuration.

    `root` is the project folder. `data`, when given, is used in place of `config.data.dir`. `allow_egress` names
    `host:port` pairs that calls out may reach though they are private. `consent` asks a person at the terminal,
    `ui` shows them what extensions show.
    `trust_nodes` trusts the project's node files as they are now. `workflows` are folders beside those of the
    configuration; `strict` refuses to open when one of their files cannot be stored. `models` are model objects by the
    name that the configuration may use for them. `tracing`, when given, is used in place of what the configuration
    asks for.
    """

    config: Config = Config()
    root: Path = Path()
    data: Path | None = None
    allow_egress: tuple[str, ...] = ()
    sample_seams: bool = False
    trust_nodes: bool = False
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
    left_out: tuple[LeftOut, ...]  # files of these folders that hold no workflow that can run here
    extensions: ProjectExtensions
    relay: Relay
    models: HostModels
    agents: Catalogue
    directory: AgentDirectory  # the agents of each tenant
    staff: Staff
    deployments: Deployments
    evaluations: Evaluations
    webhooks: Webhooks
    schedules: Schedules
    idempotency: Idempotency
    budgets: Budgets
    egress: Egress
    clock: Clock
    ids: Ids
    tools: HostTools
    sessions: Sessions
    turns: SessionTurns
    key_for: Callable[[str], bytes]  # a secret of its own for each purpose
    metrics: HostMetrics
    tracing: Tracing

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

    def capabilities(self) -> dict[str, Any]:
        """What this host adds to the discovery document: what is wired, and nothing else."""
        return {
            "budget": self.budgets.capability(),
            "agents": {"evalSuite": self.evaluations.capability()},
            "forestay": {
                "agents": sorted(agent.agent_id for agent in self.agents),
                "model": self.models.default.name,
            },
        }


@asynccontextmanager
async def open_host(options: Options) -> AsyncIterator[Host]:
    clock = options.clock or SystemClock()
    randomness = options.randomness or SystemRandomness()
    ids = Ids(clock, randomness)
    config, root, data = options.config, options.root.resolve(), options.folder
    catalogue = Catalogue.read(root, config.agents.paths)
    if options.data is None:
        former.adopt(root)
    make_folder(data)
    projections = [
        *service.projections(),
        *Relay.projections(),
        Outbox(),
        ScheduleTable(),
        BudgetTable(),
        SessionTable(),
        *options.projections,
    ]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(sole_host(data))
        with kept_in(data):
            secret = kept_secret(data / HOST_SECRET, randomness)
        ledger = await stack.enter_async_context(
            Ledger.open(options.ledger, projections=projections, clock=clock, ids=ids, sole=True)
        )
        metrics = HostMetrics()
        tracing = options.tracing or open_tracing(config.telemetry)
        stack.callback(tracing.close)
        egress = Egress(options.allow_egress, ledger=ledger)
        stack.push_async_callback(egress.close)
        models = HostModels(
            config.models,
            clock=clock,
            folder=root,
            own=options.models,
            watched=lambda model: WatchedModel(model, metrics, tracing),
        )
        stack.push_async_callback(models.close)
        relay = Relay(
            ledger,
            secret=derive(secret, "relay"),
            model=models.default,
            clock=clock,
            ids=ids,
            randomness=randomness,
            embedder=embed.open(config.models.embedder) if config.models.embedder else None,
            vectors=data / "vectors",
        )
        stack.push_async_callback(relay.aclose)
        sessions = Sessions(ledger, clock, ids, cwd=str(root))
        prompts = Prompts(clock, ids.new("life"), runs=lambda: runs)
        extensions = ProjectExtensions(
            ledger,
            root=root,
            config=config,
            clock=clock,
            randomness=randomness,
            prompts=prompts,
            consent=options.consent,
            ui=options.ui or RunUi(prompts),
            model=ExtensionModel(models),
            data=data,
            sessions=sessions,
        )
        turns = SessionTurns(sessions, extensions, clock, ids, runs=lambda: runs)
        stack.push_async_callback(extensions.close)
        stack.push_async_callback(prompts.close)
        budgets = Budgets(ledger, config.budgets, clock=clock)
        tools = HostTools(extensions, config.agents, ledger, clock, runs=lambda: runs, tracing=tracing)
        directory = AgentDirectory(ledger, catalogue)
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
            judge=Judge(models.chosen(None, judge)) if judge else None,
            observer=deployments.observed,
        )
        node = AgentNode(
            ledger=ledger,
            relay=relay,
            models=models,
            extensions=extensions,
            budgets=budgets,
            choice=AgentChoice(directory, staff, deployments),
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
        if options.trust_nodes:
            await trust_in_nodes(ledger, root, config.workflows.nodes).give(root)
        for own in await load_nodes(ledger, root, config.workflows.nodes):
            registry.add(own)
        runs = Runs(
            ledger,
            clock=clock,
            ids=ids,
            randomness=randomness,
            secret=derive(secret, "interrupts"),
            nodes=registry,
            models=models,
            governor=Metering(budgets, staff),
            tools=tools,
            http=egress,
            limits=options.limits or Limits(max_loop_iterations=config.workflows.max_loop_iterations),
            sample_seams=options.sample_seams,
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
        )
        schedules = Schedules(ledger, runs, clock=clock, ids=ids, attribution=staff.fired)
        await stack.enter_async_context(runs)
        for document in (ASK, WORKFLOW, EVALUATION, TASK):
            await runs.put_workflow(document, tenant=None)
        found = Found()
        for folder in (*(root / text for text in config.workflows.paths), *options.workflows):
            found += await load_workflows(runs, folder, strict=options.strict)
        await webhooks.start()
        stack.push_async_callback(webhooks.close)
        await schedules.start()
        stack.push_async_callback(schedules.close)
        idempotency = Idempotency(ledger, clock, ids, owner=ids.new("boot"), key=derive(secret, "idempotency"))
        yield Host(
            config=config,
            root=root,
            data=data,
            ledger=ledger,
            runs=runs,
            workflows=found.stored,
            left_out=found.left_out,
            extensions=extensions,
            relay=relay,
            models=models,
            agents=catalogue,
            directory=directory,
            staff=staff,
            deployments=deployments,
            evaluations=evaluations,
            webhooks=webhooks,
            schedules=schedules,
            idempotency=idempotency,
            budgets=budgets,
            egress=egress,
            clock=clock,
            ids=ids,
            tools=tools,
            sessions=sessions,
            turns=turns,
            key_for=lambda purpose: derive(secret, purpose),
            metrics=metrics,
            tracing=tracing,
        )
