"""Every command and where it lives. A module is imported when one of its commands is called."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    module: str
    help: str


# Groups have sub-commands; the module's `app` is a Typer.
GROUPS: dict[str, Entry] = {
    "config": Entry("holdfast.cli.config", "The configuration and where each value comes from."),
    "envelope": Entry("holdfast.cli.envelope", "Check, project and explain LAFS envelopes."),
    "ext": Entry("holdfast.cli.ext", "Try, check, build and grant extensions."),
    "key": Entry("holdfast.cli.key", "API keys: make, list, revoke."),
    "ledger": Entry("holdfast.cli.ledger", "Read, follow, verify and move the ledger."),
    "relay": Entry("holdfast.cli.relay", "Ask a model past its window: facts in, output of any length out."),
    "run": Entry("holdfast.cli.run", "Runs: start, watch, answer, cancel, fork, compare."),
    "schema": Entry("holdfast.cli.schema", "The JSON Schemas of every contract, generated from the types."),
    "workflow": Entry("holdfast.cli.workflow", "Workflows: check, store, draw."),
}

# Single commands; the module has a function of that name.
COMMANDS: dict[str, Entry] = {
    "version": Entry("holdfast.cli.basics", "The version of holdfast and of what it stands on."),
    "doctor": Entry("holdfast.cli.doctor", "What works here, and what to do about the rest."),
    "problems": Entry("holdfast.cli.basics", "Every kind of problem, explained."),
    "ask": Entry("holdfast.cli.ask", "Ask an agent about this folder."),
    "demo": Entry("holdfast.cli.demo", "The whole story once, offline, in under a minute."),
    "init": Entry("holdfast.cli.init", "Write a commented holdfast.toml."),
    "up": Entry("holdfast.cli.up", "Serve the host over HTTP until it is stopped."),
    "setup": Entry("holdfast.cli.basics", "Fetch what holdfast takes from npm."),
}
