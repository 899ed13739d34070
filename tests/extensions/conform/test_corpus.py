"""The corpus lock, the scenarios and the comparison; what needs fetched packages runs where they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.extensions.conform.corpus import Corpus, Lock, OracleSpec, Package
from holdfast.extensions.conform.differential import Difference, compare, differing, normal
from holdfast.extensions.conform.oracle import Verdict
from holdfast.extensions.conform.report import document, page
from holdfast.extensions.conform.run import SetResult, conform, packages_of, totals
from holdfast.extensions.conform.scenarios import ScenarioResult, compare_scenario, covered, read_scenarios
from holdfast.extensions.hooks import EVENTS
from holdfast.kernel.problems import Problem

ROOT = Path(__file__).resolve().parents[3]
CORPUS = Corpus(ROOT / "corpus")


def _is_here(group: str) -> bool:
    package = next(item for item in CORPUS.lock().packages if item.group == group)
    return CORPUS.is_fetched(package) and bool(package.entries)


def test_the_lock_pins_every_package_and_holds_no_code():
    lock = CORPUS.lock()
    for package in lock.packages:
        assert package.integrity.startswith("sha512-")
        assert package.oracle in lock.oracles
        assert package.version[0].isdigit()
    named = {package.package for package in lock.packages}
    assert {"@mariozechner/pi-coding-agent", "@earendil-works/pi-coding-agent"} <= named
    assert len(next(item for item in lock.packages if item.group == "pi-0.73").entries) == 72
    kinds = {path.suffix for path in (ROOT / "corpus").rglob("*") if path.is_file() and "cache" not in path.parts}
    assert kinds <= {".json", ".ts"}  # locks, scenarios, and the probes that are this project's own


def test_pinned_versions_carry_no_address():
    for path in (ROOT / "corpus" / "locks").glob("*.json"):
        for item in json.loads(path.read_bytes())["packages"].values():
            assert "resolved" not in item


def test_scenarios_cover_every_event_and_enough_extensions():
    found = covered(read_scenarios(ROOT / "corpus" / "scenarios"))
    assert found["scenarios"] >= 60
    assert found["extensions"] >= 40
    assert set(found["events"]) == set(EVENTS)


def test_differences_are_found_in_every_place():
    theirs = {"tools": [{"name": "a", "n": 1, "gone": None}], "flag": True}
    ours = {"tools": [{"name": "b", "n": 1}, {"name": "c"}], "flag": 1}
    assert [item.at for item in differing(normal(theirs), normal(ours))] == ["flag", "tools[0].name", "tools[1]"]
    assert list(differing(normal(theirs), normal(theirs))) == []


async def test_what_the_oracle_cannot_load_counts_for_nobody(tmp_path):
    result = await compare(
        "p", tmp_path / "none.ts", "none.ts", Verdict("x", error="Failed to load extension: why\nmore")
    )
    assert (result.outcome, result.reason) == ("no_oracle", "why")
    assert totals([SetResult("p", "1", "o", (result,))]) == {"no_oracle": 1, "measured": 0, "equal_share": None}


def test_a_registration_of_our_own_is_compared_field_by_field(tmp_path):
    entry = tmp_path / "one.ts"
    entry.write_text(
        "export default (pi) => { pi.registerCommand('c', { description: 'd', handler: async () => {} }); "
        "pi.on('agent_start', () => {}); };"
    )
    told = {"commands": [{"name": "c", "description": "d", "completes": False}], "handlers": {"agent_start": 1}}
    empty = {key: [] for key in ("tools", "shortcuts", "flags", "renderers", "entryRenderers", "providers")}

    async def run():
        same = await compare("p", entry, "one.ts", Verdict("x", {**empty, **told}))
        other = await compare("p", entry, "one.ts", Verdict("x", {**empty, **told, "handlers": {"agent_start": 2}}))
        return same, other

    same, other = _really(run())
    assert same.outcome == "equal"
    assert other.differences == (Difference("handlers.agent_start", 2, 1),)


def _really(work):
    """In real time: another thread owns the sandbox."""
    import asyncio

    return asyncio.run(work)


def test_a_lock_survives_being_written(tmp_path):
    corpus = Corpus(tmp_path)
    packages = tuple(Package(name, name, "1.0.0", "sha512-x", "o") for name in ("b", "a"))
    corpus.save(Lock("holdfast.corpus.v1", {"o": OracleSpec("b", "b", (20,))}, packages))
    assert [item.group for item in corpus.lock().packages] == ["a", "b"]
    assert packages_of(corpus) == []
    with pytest.raises(Problem):
        corpus.oracle("o")


def test_the_report_names_each_outcome():
    from holdfast.extensions.conform.differential import Result

    sets = [SetResult("p", "1", "o", (Result("p", "<a>", "different", "", (Difference("x", 1, 2),)),))]
    behaviour = [ScenarioResult("s", "e", "equal")]
    told = document(sets, behaviour, "2026-01-01T00:00:00Z")
    assert told["totals"]["equal_share"] == 0.0
    assert told["scenarios"]["equal"] == 1
    text = page(sets, behaviour, "2026-01-01T00:00:00Z")
    assert "&lt;a&gt;" in text and "<a>" not in text and "1 different" in text


@pytest.mark.sweep
@pytest.mark.skipif(not _is_here("pi-0.73"), reason="the corpus is not fetched: make corpus")
def test_the_official_examples_are_equal_but_for_the_words_of_the_hosts_own_tools():
    package = next(item for item in CORPUS.lock().packages if item.group == "pi-0.73")
    (found,) = _really(conform(CORPUS, [package]))
    assert found.counted() == {"equal": 67, "host_words": 4, "no_oracle": 1}


@pytest.mark.sweep
@pytest.mark.skipif(not _is_here("pi-0.73"), reason="the corpus is not fetched: make corpus")
def test_probes_behave_as_in_the_real_runtime():
    listed = [item for item in read_scenarios(ROOT / "corpus" / "scenarios") if item.group == "probe"]

    async def run():
        return [await compare_scenario(CORPUS, item) for item in listed]

    results = _really(run())
    assert [(item.scenario, item.differences) for item in results if item.outcome != "equal"] == []
