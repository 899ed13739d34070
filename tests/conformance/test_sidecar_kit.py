"""The kit for sidecars passes a forestay, and each of its scenarios can fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from forestay.conformance import Trial, conform_sidecar
from forestay.conformance.sidecar_scenarios import of_sidecars
from forestay.kernel import Problem
from tests.contracts.openwop.conftest import LocalHost
from tests.forked import forestay


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHost]:
    running = LocalHost(tmp_path_factory.mktemp("sidecar") / "data")
    running.start()
    yield running
    running.stop()


class Says(httpx.BaseTransport):
    """The real sidecar, but where a path fits something else answers."""

    def __init__(self, paths: str, status: int, body: object) -> None:
        self._real = httpx.HTTPTransport()
        self._paths, self._status, self._body = re.compile(paths), status, body

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._real.handle_request(request)
        if not self._paths.search(request.url.path):
            return answer
        answer.read()
        return httpx.Response(self._status, json=self._body, request=request)

    def close(self) -> None:
        self._real.close()


def tried(host: LocalHost, *names: str, transport: httpx.BaseTransport | None = None) -> Trial:
    return conform_sidecar(f"{host.url}/crp", host.keys["full"], names=names, transport=transport)


def test_a_forestay_passes_every_scenario(host: LocalHost) -> None:
    told: list[str] = []
    trial = conform_sidecar(f"{host.url}/crp/", host.keys["full"], told=lambda item: told.append(item.name))
    assert [(item.name, item.reason) for item in trial.results if item.outcome != "pass"] == []
    assert told == list(of_sidecars)
    left = httpx.get(f"{host.url}/crp/sessions", headers={"Authorization": f"Bearer {host.keys['full']}"}).json()
    assert left["count"] == 0, "it leaves nothing open"


# Of each scenario a path, and an answer there that a sidecar may not give.
WRONG = {
    "health": ("/health$", 200, {"status": "ok"}),
    "session-lifecycle": ("/close$", 200, {"closed": False}),
    "bad-requests": ("/sessions$", 400, {"error": "no"}),
    "ingest-and-find": ("/facts$", 200, {"facts": [{"text": "It is 9 m deep."}]}),
    "facts-of-two-sources": ("/facts$", 200, {"facts": [{"text": "Ship: Borealis"}, {"text": "Berth: 9"}]}),
    "feedback-and-restore": ("/restore$", 200, {"facts_restored": 0, "fact_ids": []}),
    "envelope-preview": ("/envelope$", 200, {"envelope_text": ""}),
    "dispatch": ("/dispatch$", 200, {"output": ""}),
    "dispatch-stream": ("/stream$", 200, {"output": "no stream"}),
    "roles": ("/export$", 200, {"state": "here it is"}),
    "signed-requests": ("/status$", 200, {"windows_completed": 0}),
    "export-and-import": ("/import$", 201, {"session_id": "taken"}),
    "json-rpc": ("/rpc$", 200, {"jsonrpc": "2.0", "id": 1, "result": {}}),
    "json-rpc-errors": ("/rpc$", 200, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000}}),
    "session-limits": ("/configure$", 200, {"max_continuations": 99}),
}


@pytest.mark.parametrize("name", of_sidecars)
def test_a_wrong_answer_fails_the_scenario_that_asks_for_it(host: LocalHost, name: str) -> None:
    trial = tried(host, name, transport=Says(*WRONG[name]))
    assert (trial.ok, [item.outcome for item in trial.results]) == (False, ["fail"]), trial.results


def test_a_sidecar_without_a_model_is_not_asked_for_answers(host: LocalHost) -> None:
    nobody = {"code": 1020, "message": "There is no model.", "details": {}}
    trial = tried(host, "dispatch", "dispatch-stream", transport=Says("/dispatch", 502, nobody))
    assert (trial.ok, {item.outcome for item in trial.results}) == (True, {"not-applicable"})


def test_what_is_no_sidecar_and_no_scenario_is_said() -> None:
    with pytest.raises(Problem, match="does not answer"):
        conform_sidecar("http://127.0.0.1:1/crp", None)
    with pytest.raises(Problem, match="no scenario 'flight'"):
        conform_sidecar("http://127.0.0.1:1/crp", None, names=["flight"])


def test_the_command_says_what_held(host: LocalHost, tmp_path: Path) -> None:
    words = ["conform", "crp", "--url", f"{host.url}/crp", "--key", host.keys["full"], "--only", "health"]
    done = forestay(tmp_path, *words, "--junit", "out.xml", "--human")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pass  health\n") and done.stdout.endswith("\nconformant\n")
    assert 'classname="crp.service"' in (tmp_path / "out.xml").read_text()
