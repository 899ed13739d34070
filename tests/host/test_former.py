"""A project of 0.1, made by the command `holdfast`, opens under today's name, and nothing of it is lost."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions import Places, Trust
from forestay.extensions.trust import content_hash
from forestay.kernel import Ledger, Problem, config, former
from tests.forked import forestay

ARCHIVE = Path(__file__).parent / "former" / "harbour-0.1.tar.gz"
KEY = "hfk_0123456789abcdefghijklmn"
ENVIRONMENT = {"HOLDFAST_API_KEY": KEY, "HOLDFAST_EXPORT_KEY": "a-long-export-key-of-the-former-name"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "harbour"


def command(project: Path, *words: str) -> Any:
    """The result of a command, with the environment that 0.1 was used with."""
    done = forestay(project, *words, "--json", environ={**os.environ, **ENVIRONMENT})
    envelope = json.loads(done.stdout or done.stderr.splitlines()[-1])
    assert envelope["success"], envelope
    return envelope["result"]


def finding(project: Path) -> str:
    done = forestay(project, "doctor", "--json", environ={**os.environ, **ENVIRONMENT})
    found = json.loads(done.stdout)["result"]["findings"]
    return next(item["detail"] for item in found if item["name"] == "former name")


def test_the_ledger_the_runs_the_key_the_facts_and_the_export_of_0_1_are_there(project: Path) -> None:
    assert finding(project) == (
        "holdfast.toml is read; .holdfast is renamed when used; "
        "the variable HOLDFAST_API_KEY is set; the variable HOLDFAST_EXPORT_KEY is set"
    )
    assert command(project, "ledger", "verify") == {"streams": 16, "records": 95, "faults": []}
    assert not (project / ".holdfast").exists()
    assert "holdfast.toml is read; .forestay was .holdfast" in finding(project)
    assert "words" in json.dumps(command(project, "ext", "grants", "list")["grants"])
    facts = command(project, "relay", "facts", "Aurora")["facts"]
    assert facts[0]["text"] == "The Aurora lies at berth 7."
    taken = command(project, "relay", "import", "session.crp", "--data", "elsewhere")
    assert taken["session_id"] == command(project, "relay", "facts", "Aurora")["session_id"]
    _goes_on(project)


def _goes_on(project: Path) -> None:
    """A real host takes up the runs that 0.1 left, with the key that 0.1 gave."""
    with subprocess.Popen(
        [sys.executable, "-m", "forestay", "up", "--port", "0", "--json"],
        cwd=project, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["result"]["url"]

            def ask(path: str, body: Any = None) -> Any:
                data = None if body is None else json.dumps(body).encode()
                headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
                with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=60) as answer:
                    return json.loads(answer.read())

            runs = {run["workflowId"]: run for run in ask("/v1/runs")["runs"]}
            assert runs["holdfast-ask"]["status"] == "completed"
            assert runs["gate"]["status"] == "waiting-approval"
            assert runs["long"]["status"] in ("running", "completed")  # its delay was over long ago
            gate = runs["gate"]["runId"]
            ask(f"/v1/runs/{gate}/interrupts/ask", {"resumeValue": {"action": "accept"}})
            ended = ask(f"/v1/runs/{gate}/events/poll?lastSequence=0&timeout=30")
            while not ended["isComplete"]:
                last = ended["events"][-1]["sequence"]
                ended = ask(f"/v1/runs/{gate}/events/poll?lastSequence={last}&timeout=30")
            assert ask(f"/v1/runs/{gate}")["outputs"]["said"] == "hello"
            asked = ask(f"/v1/runs/{runs['holdfast-ask']['runId']}/events/poll?timeout=1")["events"]
            own = {
                event["type"] for event in asked if "." in event["type"] and event["type"].startswith(("hold", "fore"))
            }
            assert own and all(name.startswith("forestay.") for name in own)
            forked = ask(f"/v1/runs/{runs['holdfast-ask']['runId']}:fork", {"mode": "replay", "fromSeq": 0})
            ask(f"/v1/runs/{forked['runId']}/events/poll?lastSequence=0&timeout=30")
            again = ask(
                "/v1/runs", {"workflowId": "holdfast-ask", "inputs": {"question": "Where does the Aurora lie?"}}
            )
            assert again["runId"]
        finally:
            process.terminate()


def test_a_folder_that_a_host_of_0_1_has_open_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / ".holdfast"
    folder.mkdir()
    with (folder / "host.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Problem) as caught:
            former.adopt(tmp_path)
    assert caught.value.key == "state_conflict"
    assert folder.is_dir()


def test_a_folder_beside_the_new_one_stays(tmp_path: Path) -> None:
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / ".forestay").mkdir()
    assert not former.adopt(tmp_path)
    assert former.look(tmp_path, config.PROJECT_FILE).both


async def test_trust_of_the_former_folder_holds_for_the_same_content_and_no_other(tmp_path: Path) -> None:
    entry = tmp_path / ".holdfast" / "extensions" / "mine" / "index.ts"
    entry.parent.mkdir(parents=True)
    entry.write_text("export default () => {};")
    async with Ledger.open(tmp_path / "ledger.db") as ledger:
        trust = Trust(ledger)
        then = content_hash(tmp_path, places=Places((".pi/extensions", ".holdfast/extensions")))
        await trust._record("trust.given", trust._named(tmp_path), then, "user")
        assert former.adopt(tmp_path)
        assert (await trust.standing(tmp_path)).state == "trusted"
        (tmp_path / ".forestay" / "extensions" / "mine" / "index.ts").write_text("export default () => 1;")
        assert (await trust.standing(tmp_path)).state == "changed"


def test_settings_of_0_1_are_read_under_todays_names(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        '[data]\ndir = ".holdfast"\n'
        '[agents]\nallow = ["holdfast:write", "ext:holdfast.x/*"]\npaths = [".holdfast/agents"]\n'
    )
    found = config.load(tmp_path, environ={}, user_file=tmp_path / "none.toml").config
    assert (found.data.dir, found.agents.paths) == (".forestay", [".forestay/agents"])
    assert found.agents.allow == ["forestay:write", "ext:holdfast.x/*"]
    (tmp_path / "forestay.toml").write_text("[http]\nport = 1\n")
    found = config.load(tmp_path, environ={}, user_file=tmp_path / "none.toml").config
    assert (found.http.port, found.agents.allow) == (1, [])


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("holdfast.timer.set", "forestay.timer.set"),
        ("core.holdfast.assistant", "core.forestay.assistant"),
        ("holdfast:read", "forestay:read"),
        ("ext.holdfast.tool", "ext.holdfast.tool"),
        ("holdfasts.own", "holdfasts.own"),
        ("node.completed", "node.completed"),
    ],
)
def test_names_of_our_own_and_no_others_are_renamed(then: str, now: str) -> None:
    assert former.renamed(then) == now


def test_variables_of_0_1_fill_in_for_those_that_are_not_set() -> None:
    environ = {"HOLDFAST_URL": "a", "HOLDFAST_API_KEY": "b", "FORESTAY_API_KEY": "c", "HOME": "/"}
    assert former.environment(environ) == {"FORESTAY_URL": "a"}
