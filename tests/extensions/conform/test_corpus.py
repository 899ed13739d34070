"""The corpus lock, the scenarios and the comparison; what needs fetched packages runs where they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forestay.extensions.api_table import EVENTS
from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.source import sources
from forestay.extensions.conform.corpus import Corpus, Lock, OracleSpec, Package
from forestay.extensions.conform.differential import Difference, compare, differing, normal, registrations_of
from forestay.extensions.conform.oracle import Verdict
from forestay.extensions.conform.recorded import read_recorded, record, registrations_digest
from forestay.extensions.conform.report import document, page
from forestay.extensions.conform.run import SetResult, conform, oracle_wording, packages_of, totals
from forestay.extensions.conform.scenarios import ScenarioResult, compare_scenario, covered, read_scenarios
from forestay.kernel import Problem

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


# Events of pi 1.5.0; the scenarios are played against the versions that `corpus/locks` pin.
NEWER = {
    "session_info_changed", "session_compact_failed", "context_with_system", "agent_settled", "ui_prompt_start",
    "ui_prompt_end", "mcp_servers_change", "agent_before_settle", "provider_stream_event",
}  # fmt: skip


def test_scenarios_cover_every_event_and_enough_extensions():
    found = covered(read_scenarios(ROOT / "corpus" / "scenarios"))
    assert found["scenarios"] >= 60
    assert found["extensions"] >= 40
    assert set(EVENTS) - set(found["events"]) == NEWER


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
    corpus.save(Lock("forestay.corpus.v1", {"o": OracleSpec("b", "b", (20,))}, packages))
    assert [item.group for item in corpus.lock().packages] == ["a", "b"]
    assert packages_of(corpus) == []
    with pytest.raises(Problem):
        corpus.oracle("o")


def test_the_report_names_each_outcome():
    from forestay.extensions.conform.differential import Result

    sets = [SetResult("p", "1", "o", (Result("p", "<a>", "different", "", (Difference("x", 1, 2),)),))]
    behaviour = [ScenarioResult("s", "e", "equal")]
    told = document(sets, behaviour, "2026-01-01T00:00:00Z")
    assert told["totals"]["equal_share"] == 0.0
    assert told["scenarios"]["equal"] == 1
    text = page(sets, behaviour, "2026-01-01T00:00:00Z")
    assert "&lt;a&gt;" in text and "<a>" not in text and "1 different" in text


UI_METHODS = """
select confirm input notify onTerminalInput setStatus setWorkingMessage setWorkingVisible setWorkingIndicator
setHiddenThinkingLabel setWidget setFooter setHeader setTitle custom pasteToEditor setEditorText getEditorText editor
addAutocompleteProvider setEditorComponent getEditorComponent theme getAllThemes getTheme setTheme getToolsExpanded
setToolsExpanded
""".split()


def test_the_probes_touch_every_ui_method_and_every_kind_of_host_call():
    texts = {path.name: path.read_text() for path in (ROOT / "corpus" / "probes").glob("*.ts")}
    assert [name for name in UI_METHODS if f"ui.{name}" not in texts["ui.ts"]] == []
    whole = "".join(texts.values())
    for used in (
        "pi.exec(",
        "fetch(",
        "registerProvider(",
        "appendEntry(",
        "node:fs",
        "setActiveTools(",
        "getEntries(",
    ):
        assert used in whole, used
    listed = read_scenarios(ROOT / "corpus" / "scenarios")
    assert {item.extension for item in listed if item.group == "probe"} == set(texts)
    assert any(step.get("emit", {}).get("type") == "tool_call" for item in listed for step in item.steps)


def test_a_recorded_digest_tells_one_registration_from_another(tmp_path):
    told = {"tools": [{"name": "a", "label": None}], "commands": []}
    same = {"commands": [], "tools": [{"name": "a"}]}
    assert registrations_digest(told) == registrations_digest(same)
    assert registrations_digest(told) != registrations_digest({**told, "tools": [{"name": "b"}]})
    corpus = Corpus(tmp_path)
    package = Package("g", "p", "1.0.0", "sha512-x", "o", ("a.ts", "b.ts"))
    record(corpus, package, [Verdict("a", told), Verdict("b", error="no")])
    assert read_recorded(corpus).packages == {"p@1.0.0": {"a.ts": registrations_digest(told), "b.ts": None}}
    with pytest.raises(Problem):
        record(corpus, package, [Verdict("a", told)])


def test_every_entry_of_the_lock_has_its_digest():
    recorded = read_recorded(CORPUS).packages
    for package in CORPUS.lock().packages:
        if package.entries:
            assert set(recorded[f"{package.package}@{package.version}"]) == set(package.entries), package.group


def _package(group):
    return next(item for item in CORPUS.lock().packages if item.group == group)


def _has_words(package):
    return (CORPUS.cache / "words" / f"{package.oracle}.json").is_file()


@pytest.mark.skipif(not _is_here("pi-0.73"), reason="the corpus is not fetched: make corpus")
@pytest.mark.parametrize("group", ["pi-0.73", "pi-examples-1.5.0"])
def test_examples_register_what_was_recorded_without_asking_node(group):
    """A few of them, spread over the list; the sweep has all."""
    package = _package(group)
    if not (_is_here(group) and _has_words(package)):
        pytest.skip("the corpus is not fetched: make corpus")
    assert _really(_unlike_recorded(package, package.entries[::12])) == []


async def _unlike_recorded(package, names):
    recorded = read_recorded(CORPUS).packages[f"{package.package}@{package.version}"]
    words = oracle_wording(CORPUS, package.oracle)
    unlike = []
    for name in names:
        if recorded[name] is not None:
            artifact, _ = compile_source(sources(CORPUS.home(package) / name)[0])
            found = registrations_digest(await registrations_of(artifact, words))
            unlike += [name] if found != recorded[name] else []
    return unlike


SETS = {
    "pi-0.73": {"equal": 71, "no_oracle": 1},
    "pi-examples-1.5.0": {"equal": 76, "no_oracle": 2},
}
# Each is blocked by a forbidden API in its own sources, or by one that a package needs (Pi §2A.4): theirs.
BLOCKED = {
    "pi-lens": ["eval() with a dynamic string", "node:net", "node:perf_hooks"],
    "pi-mcp-adapter": ["node:net", "node:worker_threads"],
    "pi-subagents": ["node:worker_threads"],
}
FURTHER_BLOCKED = {
    "0xkobold-pi-web": ["eval() with a dynamic string", "node:inspector", "node:net", "node:tls", "node:vm"],
    "gotgenes-pi-permission-system": ["eval() with a dynamic string"],
    "pi-markdown-preview": ["node:net", "node:tls"],
    "pi-sandbox": ["node:net", "node:tls"],
}
# Ours: the sandbox has no `node:sqlite`.
FURTHER_NOT_LOADED = {"context-mode", "samfp-pi-memory"}
# Ours: it lists the models of the host, and the sandbox's host has its own.
FURTHER_DIFFERENT = {"pi-claude-bridge"}


@pytest.mark.sweep
@pytest.mark.skipif(not _is_here("pi-0.73"), reason="the corpus is not fetched: make corpus")
@pytest.mark.parametrize("group", SETS)
def test_the_official_examples_are_equal_in_every_field(group):
    (found,) = _really(conform(CORPUS, [_package(group)]))
    unlike = [item for item in found.results if item.outcome not in ("equal", "no_oracle")]
    assert unlike == []
    assert found.counted() == SETS[group]


@pytest.mark.sweep
@pytest.mark.skipif(not _is_here("pi-0.73"), reason="the corpus is not fetched: make corpus")
@pytest.mark.parametrize("group", [item.group for item in CORPUS.lock().packages if item.tier == "npm-registry"])
def test_published_packages_are_equal_or_blocked_for_a_cause_that_has_a_name(group):
    if not _is_here(group):
        pytest.skip("not fetched: make corpus")
    (found,) = _really(conform(CORPUS, [_package(group)]))
    if group in FURTHER_NOT_LOADED | FURTHER_DIFFERENT:
        expected = "not_loaded" if group in FURTHER_NOT_LOADED else "different"
        assert {item.outcome for item in found.results} == {expected}
        return
    blocked = {**BLOCKED, **FURTHER_BLOCKED}
    if group not in blocked:
        assert {item.outcome for item in found.results} == {"equal"}, found.results
        return
    (result,) = found.results
    assert result.outcome == "blocked"
    assert [part.split(" is forbidden")[0] for part in result.reason.split("; ")] == blocked[group]


def test_most_published_packages_are_not_blocked():
    published = [item for item in CORPUS.lock().packages if item.tier == "npm-registry" and item.part == "named"]
    assert 1 - len(BLOCKED) / len(published) >= 0.8
    further = [item for item in CORPUS.lock().packages if item.part == "further"]
    assert len(further) >= 15
    assert 1 - len({*FURTHER_BLOCKED, *FURTHER_NOT_LOADED, *FURTHER_DIFFERENT}) / len(further) >= 0.8


def test_the_parts_of_the_corpus_are_counted_apart():
    from forestay.extensions.conform.differential import Result

    named = SetResult("p", "1", "o", (Result("p", "a", "equal"),))
    further = SetResult("q", "1", "o", (Result("q", "b", "not_loaded", "why"),), "further")
    told = document([named, further], [], "2026-01-01T00:00:00Z")
    assert (told["totals"]["equal_share"], told["further"]["equal_share"]) == (1.0, 0.0)
    assert "Further packages" in page([named, further], [], "2026-01-01T00:00:00Z")


@pytest.mark.sweep
@pytest.mark.skipif(not _is_here("pi-0.73"), reason="the corpus is not fetched: make corpus")
def test_scenarios_behave_as_in_the_real_runtime():
    listed = read_scenarios(ROOT / "corpus" / "scenarios")

    async def run():
        return [await compare_scenario(CORPUS, item) for item in listed]

    results = _really(run())
    unlike = [
        (item.scenario, item.outcome, item.reason, item.differences) for item in results if item.outcome != "equal"
    ]
    assert len(unlike) <= len(results) * 0.05, unlike
    assert [name for name, _, reason, _ in unlike if not reason] == []
