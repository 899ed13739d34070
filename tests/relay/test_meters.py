"""The relay's numbers: counted from what was written, taken by a registry as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from forestay.kernel import Ledger, ManualClock, Problem
from forestay.relay.journal import COUNTERS, HISTOGRAMS
from tests.relay.conftest import Failing, Pieces, make_relay

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "relay.md"


async def test_a_registry_shows_what_was_done(ledger: Ledger, clock: ManualClock) -> None:
    relay = make_relay(ledger, clock, Pieces(["One sentence here. And", " another one here."]))
    registry = CollectorRegistry()
    registry.register(relay.meters)  # what a host does
    session = await relay.init("app")
    await session.ingest("The mill is old. The basin is deep.", "a.md")
    await session.dispatch("", "What is old?", remember=True)
    found = {
        match[1]: float(match[2])
        for match in re.finditer(r"^(crp_\S+) (\S+)$", generate_latest(registry).decode(), re.MULTILINE)
    }
    assert found["crp_sessions_opened_total"] == 1
    assert found["crp_ingests_total"] == 1
    assert found["crp_ingest_bytes_total"] == 35
    assert found['crp_facts_extracted_total{source="ingest"}'] == 2
    assert found['crp_facts_extracted_total{source="window"}'] == 2
    assert found['crp_windows_total{kind="first"}'] == 1
    assert found['crp_windows_total{kind="continuation"}'] == 1
    assert found['crp_dispatches_total{outcome="complete"}'] == 1
    status = await session.session_status()
    assert found['crp_tokens_total{direction="input"}'] == status.total_input_tokens
    assert found['crp_tokens_total{direction="output"}'] == status.total_output_tokens
    assert found["crp_dispatch_seconds_count"] == 1
    assert found["crp_envelope_seconds_count"] == 1
    assert found["crp_facts_loaded"] == 4
    assert found['crp_dispatch_seconds_bucket{le="+Inf"}'] == 1


async def test_failures_and_refusals_are_counted_by_their_number_and_kind(ledger: Ledger, clock: ManualClock) -> None:
    relay = make_relay(ledger, clock, Failing("provider_error"))
    session = await relay.init("app")
    with pytest.raises(Problem):
        await session.dispatch("", "Say something.")
    with pytest.raises(Problem):
        await session.configure(max_continuations=1)
    assert relay.meters.value("crp_dispatches", "1020") == 1
    assert relay.meters.value("crp_security_events", "rbac_denied") == 1


def test_every_number_is_in_the_reference() -> None:
    page = PAGE.read_text("utf-8")
    for name in COUNTERS:
        assert f"`{name}_total" in page, name
    for name in HISTOGRAMS:
        assert f"`{name}`" in page, name


def test_the_client_library_is_not_imported_before_somebody_looks() -> None:
    script = "import sys, forestay.relay; assert 'prometheus_client' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
