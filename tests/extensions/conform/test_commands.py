"""`ext install`, `ext corpus add|fetch|record|words`, `ext conform` and `ext bench`, whole and without the network."""

from __future__ import annotations

import json

import pytest
from tests.extensions.conform.registry import LOADER_PACKAGE, Registry, tarball, use
from typer.testing import CliRunner

from forestay import assets
from forestay.cli.ext import app
from forestay.cli.output import take_flags

pytestmark = pytest.mark.skipif(assets.npm_command() is None, reason="there is no npm here")

EXTENSION = {
    "package.json": json.dumps(
        {
            "name": "@some/extension",
            "version": "1.2.3",
            "type": "module",
            "pi": {"extensions": ["./main.js", "./other.js"]},
            "dependencies": {"helper": "^2.0.0"},
        }
    ),
    "main.js": "import { word } from 'helper';\n"
    "export default (pi) => { pi.registerCommand(word, { description: 'd', handler() {} }); };\n",
    "other.js": "import { gone } from 'nowhere';\nexport default (pi) => { pi.on('agent_start', () => gone); };\n",
}
HELPER = {
    "package.json": json.dumps({"name": "helper", "version": "2.0.1", "type": "module", "main": "i.js"}),
    "i.js": "export const word = 'hello';\n",
}
LOCK = {
    "schema": "forestay.corpus.v1",
    "oracles": {"real": {"group": "loader", "package": "loader", "node": [18]}},
    "packages": [],
    "unavailable": {"lost": "It was taken down."},
}


def _run(*arguments):
    take_flags([])  # whatever another test asked for
    done = CliRunner().invoke(app.typer, [str(argument) for argument in arguments], standalone_mode=False)
    if done.exception is not None and not done.stdout:
        raise done.exception
    return done.return_value if done.return_value is not None else done.exit_code, json.loads(done.stdout)


@pytest.fixture
def registry(tmp_path, monkeypatch):
    with Registry([EXTENSION, HELPER, LOADER_PACKAGE]) as registry:
        use(monkeypatch, registry, tmp_path / "npm-cache")
        yield registry


@pytest.fixture
def corpus(tmp_path, registry):
    folder = tmp_path / "corpus"
    folder.mkdir()
    integrity = json.loads(registry.answer("loader")[2])["versions"]["1.0.0"]["dist"]["integrity"]
    loader = {"group": "loader", "package": "loader", "version": "1.0.0", "integrity": integrity, "oracle": "real"}
    (folder / "lock.json").write_text(json.dumps({**LOCK, "packages": [loader]}))
    code, envelope = _run("corpus", "fetch", "--corpus", folder)
    assert (code, envelope["result"]["fetched"]) == (0, ["loader@1.0.0"])
    assert envelope["result"]["unavailable"] == LOCK["unavailable"]
    return folder


def _added(corpus):
    code, envelope = _run("corpus", "add", "@some/extension@1.2.3", "--oracle", "real", "--corpus", corpus)
    assert code == 0, envelope
    return envelope["result"]


def test_add_pins_asks_the_loader_records_and_compares(corpus):
    result = _added(corpus)
    assert result["entries"] == ["main.js", "other.js"]
    assert result["counted"] == {"equal": 1, "no_oracle": 1}
    assert result["integrity"].startswith("sha512-")
    digests = json.loads((corpus / "registrations.json").read_bytes())["packages"]["@some/extension@1.2.3"]
    assert digests == result["digests"]
    assert digests["main.js"].startswith("sha256:") and digests["other.js"] is None
    lock = json.loads((corpus / "lock.json").read_bytes())
    (pinned,) = [item for item in lock["packages"] if item["package"] == "@some/extension"]
    assert (pinned["version"], pinned["integrity"]) == ("1.2.3", result["integrity"])
    assert lock["unavailable"] == LOCK["unavailable"]
    kept = json.loads((corpus / "locks" / "some-extension.json").read_bytes())["packages"]
    assert kept["node_modules/helper"]["version"] == "2.0.1"
    assert all("resolved" not in item for item in kept.values())


def test_adding_twice_changes_nothing(corpus):
    _added(corpus)
    before = {path.name: path.read_bytes() for path in corpus.rglob("*.json") if "cache" not in path.parts}
    _added(corpus)
    assert {path.name: path.read_bytes() for path in corpus.rglob("*.json") if "cache" not in path.parts} == before


def test_what_cannot_be_added_leaves_the_corpus_as_it_was(corpus):
    before = (corpus / "lock.json").read_bytes()
    for named in ("nobody@1.0.0", "@some/extension@9.9.9", "no-version", "helper@2.0.1"):
        code, envelope = _run("corpus", "add", named, "--oracle", "real", "--corpus", corpus)
        assert code != 0 and envelope["success"] is False
    code, envelope = _run("corpus", "add", "@some/extension@1.2.3", "--oracle", "other", "--corpus", corpus)
    assert code != 0 and envelope["error"]["details"]["known"] == ["real"]
    assert (corpus / "lock.json").read_bytes() == before
    assert sorted(path.name for path in (corpus / "cache").iterdir() if path.name != "words") == ["loader"]


def test_a_package_that_is_not_what_was_pinned_is_refused(corpus):
    import shutil

    _added(corpus)
    lock = json.loads((corpus / "lock.json").read_bytes())
    for item in lock["packages"]:
        item["integrity"] = "sha512-" + "A" * 86 + "==" if item["package"] != "loader" else item["integrity"]
    (corpus / "lock.json").write_text(json.dumps(lock))
    shutil.rmtree(corpus / "cache" / "some-extension")
    code, envelope = _run("corpus", "fetch", "--corpus", corpus)
    assert code != 0
    assert "is not what the corpus pins" in envelope["result"]["failed"]["@some/extension@1.2.3"]


def test_words_of_the_loaders_host_become_a_file(corpus, tmp_path):
    out = tmp_path / "words.json"
    code, envelope = _run("corpus", "words", "real", "--out", out, "--corpus", corpus)
    assert (code, len(envelope["result"]["tools"])) == (0, 7)
    words = json.loads(out.read_bytes())["tools"]["ls"]
    assert (words["description"], words["promptSnippet"]) == ("Words for Ls", "Snippet")
    assert words["promptGuidelines"] is None


def test_conform_writes_a_report_for_programs_and_people(corpus, tmp_path):
    _added(corpus)
    code, envelope = _run("conform", "--corpus", corpus, "--report", tmp_path / "report", "--no-scenarios")
    assert code == 0
    assert envelope["result"]["totals"] == {"equal": 1, "no_oracle": 1, "measured": 1, "equal_share": 1.0}
    report = json.loads((tmp_path / "report" / "conform.json").read_bytes())
    assert report["unavailable"] == LOCK["unavailable"]
    (results,) = [item["results"] for item in report["sets"]]
    assert {item["entry"]: item["outcome"] for item in results} == {"main.js": "equal", "other.js": "no_oracle"}
    page = (tmp_path / "report" / "conform.html").read_text()
    assert "not loadable by the real loader either" in page and "taken down" in page
    code, envelope = _run("conform", "nobody", "--corpus", corpus, "--report", tmp_path / "none")
    assert code != 0 and not (tmp_path / "none").exists()


def test_conform_tells_a_difference(corpus, tmp_path):
    _added(corpus)
    kept = corpus / "cache" / "oracle" / "some-extension.json"
    answers = json.loads(kept.read_bytes())
    answers[0]["registrations"]["commands"][0]["description"] = "other"
    kept.write_text(json.dumps(answers))
    _, envelope = _run("conform", "--corpus", corpus, "--report", tmp_path / "report", "--no-scenarios")
    assert envelope["result"]["totals"]["different"] == 1
    assert "commands[0].description" in (tmp_path / "report" / "conform.html").read_text()
    _, envelope = _run("conform", "--fresh", "--corpus", corpus, "--report", tmp_path / "report", "--no-scenarios")
    assert envelope["result"]["totals"]["equal"] == 1


def test_install_brings_the_dependencies_and_follows_a_lock(tmp_path, registry):
    root = tmp_path / "extension"
    root.mkdir()
    for name, text in EXTENSION.items():
        (root / name).write_text(text)
    code, envelope = _run("install", root)
    assert (code, envelope["result"]) == (0, {"installed": 1, "packages": ["helper@2.0.1"], "locked": False})
    code, envelope = _run("install", root)
    assert (code, envelope["result"]["locked"]) == (0, True)
    code, envelope = _run("install", root, "--offline")
    assert code == 0  # npm's cache has it


def test_install_runs_no_script_and_leads_nowhere_else(tmp_path, registry):
    root, scripts = tmp_path / "extension", {"install": "touch ran", "postinstall": "touch ran"}
    for name, folder in (("inside", root / "inside"), ("outside", tmp_path / "outside")):
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"name": name, "version": "1.0.0", "scripts": scripts}))
    needs = {"inside": "file:./inside", "outside": "file:../outside"}
    (root / "package.json").write_text(json.dumps({"name": "x", "version": "1.0.0", "dependencies": needs}))
    code, envelope = _run("install", root)
    assert (code, envelope["result"]["packages"]) == (0, ["inside@1.0.0", "outside@1.0.0"])
    assert not list(tmp_path.rglob("ran"))
    assert all((root / "node_modules" / name).resolve().is_relative_to(root) for name in needs)


def test_install_tells_what_npm_said(tmp_path, registry):
    root = tmp_path / "extension"
    root.mkdir()
    assert _run("install", root)[1]["error"]["details"]["problem"] == "extension_invalid"
    wanted = {"name": "x", "version": "1.0.0", "dependencies": {"nobody": "1.0.0"}}
    (root / "package.json").write_text(json.dumps(wanted))
    code, envelope = _run("install", root)
    assert code != 0 and "nobody" in envelope["error"]["details"]["reason"]


def test_bench_holds_budgets_and_tells_what_grew(tmp_path):
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "one.ts").write_text("export default (pi: any) => { pi.on('session_start', () => {}); };")
    measures = ("cold", "warm", "dispatch")
    wide = [{"name": "all", "measure": measure, "percentile": 99, "budget_ms": 1e6} for measure in measures]
    budgets, out, before = tmp_path / "budgets.json", tmp_path / "now.json", tmp_path / "before.json"
    budgets.write_text(json.dumps(wide))
    code, envelope = _run("bench", "--extensions", tmp_path / "e", "--budgets", budgets, "--out", out)
    result = envelope["result"]
    assert (code, result["extensions"], result["samples"]) == (0, 1, {"cold": 1, "warm": 1, "dispatch": 50})
    assert all(row["held"] for row in result["budgets"])
    assert json.loads(out.read_bytes()) == result

    before.write_text(json.dumps({**result, "milliseconds": {"cold": {"p50": 1e-6}, "warm": {"p50": 1e6}}}))
    code, envelope = _run("bench", "--extensions", tmp_path / "e", "--budgets", budgets, "--previous", before)
    assert code != 0
    assert [row["name"] for row in envelope["error"]["details"]["slower"]] == ["cold p50"]

    budgets.write_text(json.dumps([{**wide[0], "budget_ms": 1e-6}]))
    code, envelope = _run("bench", "--extensions", tmp_path / "e", "--budgets", budgets)
    assert code != 0 and [row["held"] for row in envelope["error"]["details"]["missed"]] == [False]

    for bad in ([{**wide[0], "measure": "other"}], [{**wide[0], "percentile": 0}], [{**wide[0], "more": 1}]):
        budgets.write_text(json.dumps(bad))
        assert _run("bench", "--extensions", tmp_path / "e", "--budgets", budgets)[0] != 0
    assert _run("bench", "--previous", tmp_path / "none.json")[0] != 0


def test_the_same_files_pack_to_the_same_bytes():
    assert tarball(HELPER) == tarball(dict(HELPER))
