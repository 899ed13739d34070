"""Every command and where it lives. A module is imported when one of its commands is called."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    module: str
    help: str


# Groups have sub-commands; the module's `app` is a `Group`.
GROUPS: dict[str, Entry] = {
    "agent": Entry("forestay.cli.agent", "Agents: packs to install, the roster, the org chart."),
    "budget": Entry("forestay.cli.budget", "Budgets: what was spent, what calls hold, and the ceilings."),
    "config": Entry("forestay.cli.config", "The configuration: show it, set a value."),
    "conform": Entry("forestay.cli.conform", "Try a host, envelopes or extensions against their contract."),
    "credential": Entry("forestay.cli.credential", "Credentials: what requests are signed with, and where it may go."),
    "deploy": Entry("forestay.cli.deploy", "Deployments: which version of an agent serves."),
    "envelope": Entry("forestay.cli.envelope", "Check, project and explain LAFS envelopes."),
    "eval": Entry("forestay.cli.eval", "Evaluations: suites, and how well an agent does."),
    "ext": Entry("forestay.cli.ext", "Try, check, build and grant extensions."),
    "key": Entry("forestay.cli.key", "API keys: make, list, revoke."),
    "ledger": Entry("forestay.cli.ledger", "Read, follow, verify and move the ledger."),
    "mcp": Entry("forestay.cli.mcp", "MCP: use servers (add, trust, call), or be one (serve)."),
    "memory": Entry("forestay.cli.memory", "Memory: what agents keep between runs, to find and to forget."),
    "model": Entry("forestay.cli.model", "Models: add, list, try and remove them."),
    "policy": Entry("forestay.cli.policy", "What the host would decide, and by which rule."),
    "relay": Entry("forestay.cli.relay", "Ask a model past its window: facts in, output of any length out."),
    "run": Entry("forestay.cli.run", "Runs: find, start, watch, answer, cancel, retry, compare."),
    "schedule": Entry("forestay.cli.schedule", "Schedules: runs that start by the clock."),
    "schema": Entry("forestay.cli.schema", "The JSON Schemas of every contract, generated from the types."),
    "session": Entry("forestay.cli.session", "Conversations: list, show, fork, export, import."),
    "trigger": Entry("forestay.cli.trigger", "Triggers: events from outside that start runs."),
    "webhook": Entry("forestay.cli.webhook", "Webhooks: addresses that are told of events."),
    "workflow": Entry("forestay.cli.workflow", "Workflows: check, store, draw."),
}

# Single commands; the module has a function of that name.
COMMANDS: dict[str, Entry] = {
    "version": Entry("forestay.cli.basics", "The version of forestay and of what it stands on."),
    "doctor": Entry("forestay.cli.doctor", "What works here, and what to do about the rest."),
    "problems": Entry("forestay.cli.basics", "Every kind of problem, explained."),
    "ask": Entry("forestay.cli.ask", "Ask an agent about this folder."),
    "chat": Entry("forestay.cli.chat", "Talk with an agent about this folder."),
    "demo": Entry("forestay.cli.demo", "The whole story once, offline, in under a minute."),
    "dev": Entry("forestay.cli.dev", "Serve this folder while you edit it."),
    "init": Entry("forestay.cli.init", "Write a commented forestay.toml."),
    "up": Entry("forestay.cli.up", "Serve the host over HTTP until it is stopped."),
    "worker": Entry("forestay.cli.worker", "Carry runs of a shared ledger until it is stopped."),
    "fleet": Entry("forestay.cli.fleet", "The processes that share a ledger, and what each carries."),
    "migrate": Entry("forestay.cli.migrate", "Bring the tables of a PostgreSQL ledger up to date."),
    "setup": Entry("forestay.cli.basics", "Fetch what forestay takes from npm."),
}
