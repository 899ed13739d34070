"""A host as a process: started, killed, drained (real processes, real signals)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contracts.openwop.conftest import Api, LocalHost
from tests.forked import PIPE, Forked
from tests.runs.documents import node, workflow


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path / "data")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.stop()


def up(data: Path, *options: str, **environment: str) -> Forked:
    known = {name: value for name, value in os.environ.items() if name != "FORESTAY_API_KEY"}
    words = ["up", "--port", "0", "--data", str(data), "--json", *options]
    return Forked(Path.cwd(), *words, environ={**known, **environment}, stderr=PIPE)


def first_line(process: Forked) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def finish(process: Forked) -> int:
    process.terminate()
    process.communicate(timeout=30)
    return process.returncode


def answered(url: str, key: str) -> int:
    return httpx.get(f"{url}/v1/runs", headers={"Authorization": f"Bearer {key}"}, trust_env=False).status_code


def everything_said(process: Forked, line: dict[str, Any]) -> str:
    """What a host printed from its first line to its end."""
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    return json.dumps(line) + out.decode() + err.decode()


def test_without_a_terminal_the_first_key_is_kept_in_a_file_of_its_owner(tmp_path: Path) -> None:
    process = up(tmp_path)
    line = first_line(process)
    said = line["result"]
    file = Path(said["keyFile"])
    key = file.read_text().strip()
    assert (said["key"], said["keyFrom"], file.stat().st_mode & 0o777) == (None, "file", 0o600)
    assert answered(said["url"], key) == 200
    assert key not in everything_said(process, line)
    process = up(tmp_path)
    line = first_line(process)
    assert line["result"]["keyFile"] == str(file) and answered(line["result"]["url"], key) == 200
    assert key not in everything_said(process, line)
    file.unlink()
    process = up(tmp_path, "--show-key")
    line = first_line(process)
    assert (line["result"]["key"], line["result"]["keyFrom"]) == (None, "earlier")
    everything_said(process, line)


def test_show_key_prints_the_key_that_was_made_and_keeps_none(tmp_path: Path) -> None:
    process = up(tmp_path, "--show-key")
    said = first_line(process)["result"]
    try:
        assert answered(said["url"], said["key"]) == 200
        assert not (tmp_path / "first-key").exists()
    finally:
        assert finish(process) == 0


@pytest.mark.parametrize("options", [(), ("--show-key",)])
def test_a_key_that_was_given_is_never_printed(tmp_path: Path, options: tuple[str, ...]) -> None:
    given = "a-key-from-the-environment"
    process = up(tmp_path, *options, FORESTAY_API_KEY=given, FORESTAY_HTTP_ACCESS_LOG="true")
    line = first_line(process)
    assert line["result"]["keyFrom"] == "environment" and answered(line["result"]["url"], given) == 200
    assert given not in everything_said(process, line)


def test_a_folder_brings_its_workflows(tmp_path: Path) -> None:
    from tests.contracts.openwop.documents import DOCUMENTS

    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "noop.json").write_text(json.dumps(DOCUMENTS["noop"]))
    process = up(tmp_path / "data", "--workflows", str(folder), FORESTAY_API_KEY="a-key-from-the-environment")
    try:
        said = first_line(process)["result"]
        assert said["workflows"] == ["suite-noop"]
        api = Api(said["url"], {"full": "a-key-from-the-environment"})
        answer = api.post("/v1/runs", {"workflowId": "suite-noop"})
        assert answer.status_code == 201
        assert api.get("/v1/host/sample/test/runs/__probe__/events").status_code == 404  # no seams without the flag
        api.close()
    finally:
        assert finish(process) == 0


@pytest.mark.parametrize(
    ("options", "environment", "words"),
    [
        (["--port", "99999"], {}, "--port"),
        (["--workflows", "nowhere"], {}, "nowhere"),
        ([], {"FORESTAY_API_KEY": "short"}, "16 to 256"),
    ],
)
def test_a_host_that_cannot_start_says_why(
    tmp_path: Path, options: list[str], environment: dict[str, str], words: str
) -> None:
    process = up(tmp_path, *options, **environment)
    said, _ = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    document = json.loads(said)
    assert document["success"] is False and words in said.decode()


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder with a workflow that holds, one that needs an absent node type, and one that is no JSON."""
    folder = tmp_path / "workflows"
    folder.mkdir()
    (folder / "good.json").write_text(json.dumps(workflow("good", [node("a")])))
    (folder / "own.json").write_text(json.dumps(workflow("forestay-ask", [node("a")])))
    (folder / "strange.json").write_text(json.dumps(workflow("strange", [node("a", "acme.absent")])))
    (folder / "torn.json").write_text('{"id": ')
    return folder


@pytest.mark.parametrize("by", ["flag", "settings"])
def test_a_host_starts_without_the_workflows_that_do_not_hold_and_names_them(
    tmp_path: Path, mixed: Path, by: str
) -> None:
    settings = {} if by == "flag" else {"FORESTAY_WORKFLOWS_PATHS": str(mixed)}
    process = up(tmp_path / "data", *(["--workflows", str(mixed)] if by == "flag" else []), **settings)
    try:
        said = first_line(process)["result"]
        assert said["workflows"] == ["good"]
        assert [(item["file"], item["problem"]) for item in said["leftOut"]] == [
            ("own.json", "workflow_invalid"),
            ("strange.json", "workflow_invalid"),
            ("torn.json", "invalid_json"),
        ]
        assert "acme.absent" in said["leftOut"][1]["reason"]
        ready = httpx.get(f"{said['url']}/readyz", trust_env=False)
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "leftOut": said["leftOut"]})
    finally:
        assert finish(process) == 0


def test_strict_refuses_a_folder_with_a_workflow_that_does_not_hold(tmp_path: Path, mixed: Path) -> None:
    process = up(tmp_path / "data", "--workflows", str(mixed), "--strict")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "own.json" in json.loads(said)["error"]["message"]


def test_sigterm_drains_streams_end_and_work_goes_on_after_the_restart(host: LocalHost) -> None:
    api = Api(host.start(), host.keys)
    run_id = api.start("approval")
    api.wait(run_id, "waiting-approval")
    seen: list[str] = []
    reading, polling = threading.Event(), threading.Event()

    def read() -> None:
        with api.http.stream("GET", f"/v1/runs/{run_id}/events") as answer:
            for line in answer.iter_lines():
                seen.append(line)
                reading.set()

    polled: list[int] = []

    def poll() -> None:
        last = api.events(run_id)[-1]["sequence"]
        polling.set()
        polled.append(api.get(f"/v1/runs/{run_id}/events/poll?timeout=60&lastSequence={last}").status_code)

    threads = [threading.Thread(target=read), threading.Thread(target=poll)]
    for thread in threads:
        thread.start()
    assert reading.wait(20) and polling.wait(20)
    assert host.stop() == 0
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert polled in ([503], [200])
    api.close()
    api = Api(host.start(), host.keys)
    answer = api.post(f"/v1/runs/{run_id}/interrupts/gate", {"resumeValue": {"action": "accept"}})
    assert answer.status_code == 200
    assert api.wait(run_id)["status"] == "completed"
    api.close()


def test_k4_a_killed_host_does_not_start_a_keyed_run_twice(host: LocalHost) -> None:
    """SIGKILL while keyed requests are under way; after the restart each key has at most one run, and one answer."""
    api = Api(host.start(), host.keys)
    name = api.workflow("noop")
    tag = uuid.uuid4().hex
    keys = [uuid.uuid4().hex for _ in range(40)]
    answered: dict[str, str] = {}

    def send(key: str) -> None:
        body = {"workflowId": name, "tags": [tag], "metadata": {"key": key}}
        try:
            answer = httpx.post(
                f"{host.url}/v1/runs",
                json=body,
                headers={"Authorization": f"Bearer {host.keys['full']}", "Idempotency-Key": key},
                trust_env=False,
                timeout=10,
            )
            answered[key] = answer.json()["runId"]
        except httpx.HTTPError:
            pass

    threads = [threading.Thread(target=send, args=(key,)) for key in keys]
    for index, thread in enumerate(threads):
        thread.start()
        if index == 20:
            assert host.process is not None
            host.process.send_signal(signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert host.process is not None and host.process.stdout is not None
    host.process.wait(10)
    host.process.stdout.close()
    api.close()

    api = Api(host.start(), host.keys)
    for key in keys:
        body = {"workflowId": name, "tags": [tag], "metadata": {"key": key}}
        answer = api.post("/v1/runs", body, headers={"Idempotency-Key": key})
        if answer.status_code == 409:  # its lease is another boot's and has not run out: nothing is done twice
            assert answer.json()["error"] == "idempotency_in_flight"
            continue
        assert answer.status_code == 201
        if key in answered:
            assert answer.json()["runId"] == answered[key]
    runs = api.get("/v1/runs", params={"tag": tag, "limit": 200}).json()["runs"]
    used = [api.run(run["runId"])["metadata"]["key"] for run in runs]
    assert len(used) == len(set(used))
    api.close()


def test_a_host_that_is_killed_while_it_drains_goes_on_after_the_restart(host: LocalHost) -> None:
    """SIGTERM, and SIGKILL while a node is still given time: its request goes out again, and nothing else is lost."""
    asked: list[str] = []
    first = threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if len(asked) == 1:  # until our process is gone
                first.set()
                self.rfile.read(1)
                return
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = f"127.0.0.1:{server.server_port}"
    api = Api(host.start("--allow-egress", place), host.keys)
    document = workflow("slow", [node("ask", "core.http", config={"url": f"http://{place}/", "method": "GET"})])
    assert api.http.put("/v1/workflows/slow", json=document).status_code == 201
    run_id = api.post("/v1/runs", {"workflowId": "slow"}).json()["runId"]
    assert first.wait(20)
    assert host.process is not None and host.process.stdout is not None
    host.process.terminate()
    while (refused := api.post("/v1/runs", {"workflowId": "slow"})).status_code == 201:
        pass
    assert refused.status_code == 503 and refused.headers["Retry-After"]
    host.process.kill()
    host.process.wait(10)
    host.process.stdout.close()
    api.close()

    api = Api(host.start("--allow-egress", place), host.keys)
    assert api.wait(run_id)["status"] == "completed"
    api.close()
    server.shutdown()
    server.server_close()


def test_a_second_host_on_the_same_folder_says_who_has_it(host: LocalHost) -> None:
    url = host.start()
    for seen in (True, False):  # also where the first one's note is not to be found
        if not seen:
            (host.folder / "host.json").unlink()
        process = up(host.folder)
        said = json.loads(process.communicate(timeout=60)[0])
        assert process.returncode != 0 and said["error"]["details"]["problem"] == "state_conflict"
        assert host.process is not None
        assert (url if seen else f"process {host.process.pid}") in said["error"]["message"]
    assert host.stop() == 0


def test_the_first_answer_of_a_new_host_knows_its_key_and_its_workflows(tmp_path: Path) -> None:
    """Nobody can connect before the host can serve: a caller is refused by the machine, never by a host half ready."""
    from tests.contracts.openwop.documents import DOCUMENTS

    folder = tmp_path / "workflows"
    folder.mkdir()
    for index in range(20):
        document = {**DOCUMENTS["noop"], "id": f"suite-noop-{index:02}"}
        (folder / f"{index:02}.json").write_text(json.dumps(document))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key = "a-key-from-the-environment"
    process = up(tmp_path / "data", "--port", str(port), "--workflows", str(folder), FORESTAY_API_KEY=key)
    headers = {"Authorization": f"Bearer {key}"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False) as http:
            while process.poll() is None:
                try:
                    answer = http.get("/v1/workflows/suite-noop-19")
                    break
                except httpx.ConnectError:
                    continue
            assert answer.status_code == 200, answer.text
        first_line(process)
    finally:
        assert finish(process) == 0


def test_a_port_that_two_hosts_bound_is_the_ones_that_listens_first(tmp_path: Path) -> None:
    from forestay.kernel import Problem
    from forestay.surface.server import bind, serving, url_of

    async def main() -> None:
        first = bind("127.0.0.1", 0)
        second = bind("127.0.0.1", first.getsockname()[1])
        with first, second:
            first.listen()
            with pytest.raises(Problem) as caught:
                async with serving(None, second):
                    pass
            assert caught.value.key == "unavailable" and url_of(second).rsplit(":")[-1] in caught.value.message

    asyncio.run(main())
