"""What hostile extensions try, through the modules that they would use. Each ends in a refusal with evidence."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.extensions.dispatcher_world import World
from tests.extensions.guest_run import run, run_async

from forestay.extensions.consent import Answer, Question


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, mode="permissive")
    (world.project / "ok.txt").write_text("ok")
    (world.project / "out").symlink_to(world.outside)
    yield world
    world.close()


@pytest.mark.parametrize(
    "body",
    [
        'return caught(() => require("fs").readFileSync("/etc/passwd", "utf8"))',
        'return caught(() => require("fs").readFileSync("../outside/secret.txt", "utf8"))',
        'return caught(() => require("fs").readFileSync("out/secret.txt", "utf8"))',
        'return caught(() => require("fs").readFileSync("/proc/self/environ"))',
        'return caught(() => require("fs").readFileSync(new URL("file:///etc/passwd")))',
        'return caught(() => require("fs").readFileSync(Buffer.from("/etc/passwd")))',
        'return caught(() => require("fs/promises").readFile("/etc/passwd"))',
        'return caught(() => require("fs/promises").open("/etc/passwd"))',
        'return caught(() => require("fs").openSync("/etc/passwd", "r"))',
        'return caught(() => require("fs").readdirSync("/"))',
        'return caught(() => require("fs").writeFileSync("../outside/new.txt", "x"))',
        'return caught(() => require("fs").renameSync("ok.txt", "../outside/moved"))',
        'return caught(() => require("fs").copyFileSync("/etc/passwd", "stolen"))',
        'return caught(() => require("fs").symlinkSync("/etc", "etc"))',
        'return caught(() => require("fs").rmSync("../outside", { recursive: true }))',
        'return caught(() => require("fs").mkdtempSync("/tmp/../etc/x"))',
        'return caught(() => require("fs").watch("/etc", () => 0))',
        'return caught(() => require("fs").createReadStream("/etc/passwd").toArray())',
        'return caught(() => require("child_process").execSync("pwd", { cwd: "/etc", stdio: "pipe" }))',
    ],
)
def test_files_outside_are_eacces(world: World, body: str) -> None:
    found = run(world, body)
    assert found.get("code") == "EACCES" and found["hostcall"] == "denied", found
    assert (world.outside / "secret.txt").read_text() == "top secret"
    ends = [record for record in world.records() if record.type == "host_call.end" and record.payload["is_error"]]
    assert ends and ends[-1].payload["error"]["code"] == "denied"


def test_existence_outside_cannot_be_probed(world: World) -> None:
    body = 'const fs = require("fs"); return [fs.existsSync("/etc/passwd"), fs.existsSync("/etc/no-such"), fs.existsSync("ok.txt")]'
    assert run(world, body) == [False, False, True]


def test_the_environment_gives_no_secret_away(world: World) -> None:
    body = """
      const found = JSON.stringify({ ...process.env }) + JSON.stringify(Object.entries(process.env));
      return [found.includes("sk-proj"), found.includes("hunter2"), process.env.OPENAI_API_KEY ?? null, "OPENAI_API_KEY" in process.env,
        process.env.EDITOR, String(require("child_process").execSync("env", { stdio: "pipe" })).includes("sk-proj"),
        process.env.toString === undefined, process.env.__proto__ ?? null];
    """
    assert run(world, body) == [False, False, None, False, "vi", False, True, None]


class Internal(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"internal")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1"])
def test_fetch_does_not_reach_this_machine(world: World, host: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Internal)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        port = server.server_address[1]
        fetched = run(world, f'return caught(async () => (await fetch("http://{host}:{port}/")).text())')
        assert fetched["name"] == "TypeError" and fetched["hostcall"] == "denied", fetched
        asked = f'return caught(() => new Promise((y, n) => require("http").get("http://{host}:{port}/", y).on("error", n)))'
        assert run(world, asked)["hostcall"] == "denied"
    finally:
        server.shutdown()
        server.server_close()


def test_what_reaches_native_code_is_not_there_so_that_asking_for_it_says_no(world: World) -> None:
    body = 'return ["binding", "_linkedBinding", "dlopen"].map((name) => [typeof process[name], name in process])'
    assert run(world, body) == [["undefined", False]] * 3


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return caught(() => process.exit(1))", "ERR_PROCESS_EXIT"),
        ("return caught(() => process.kill(1, 9))", "EPERM"),
        ('return caught(() => process.chdir("/"))', "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM"),
        ('return caught(() => require("child_process").fork("x.js"))', "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM"),
        ('return caught(() => require("http").createServer())', "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM"),
        ('return caught(() => require("net"))', "MODULE_NOT_FOUND"),
        ('return caught(() => require("vm"))', "MODULE_NOT_FOUND"),
        ('return caught(() => require("worker_threads"))', "MODULE_NOT_FOUND"),
        ('return caught(() => require("module").createRequire("/x")("vm"))', "MODULE_NOT_FOUND"),
    ],
)
def test_what_would_leave_the_sandbox_is_not_there(world: World, body: str, code: str) -> None:
    assert run(world, body)["code"] == code


def test_polluted_prototypes_do_not_change_what_the_host_sees(world: World) -> None:
    body = """
      Object.prototype.path = "/etc/passwd"; Object.prototype.base64 = "eA=="; Object.prototype.capability = "log";
      Array.prototype.toJSON = () => ["x"]; String.prototype.toJSON = () => "/etc/passwd";
      const fs = require("fs");
      try { return [await caught(() => fs.readFileSync("ok.txt", "utf8"))]; }
      finally { for (const name of ["path", "base64", "capability"]) delete Object.prototype[name]; delete Array.prototype.toJSON; delete String.prototype.toJSON; }
    """
    assert run(world, body)[0].get("value") in ("ok", None)
    assert all("passwd" not in str(record.payload) for record in world.records())


class Refuser:
    def __init__(self) -> None:
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return Answer(allow=question.capability == "read")


def test_the_whole_story_of_a_denied_program(tmp_path: Path) -> None:
    """Prompt mode: declared read, used exec through child_process, asked, denied, EACCES with the reason, on record."""
    person = Refuser()
    world = World(tmp_path, mode="prompt", consent=person)
    (world.project / "ok.txt").write_text("ok")
    body = """
      const fs = require("fs"); const cp = require("child_process");
      return [fs.readFileSync("ok.txt", "utf8"), await caught(() => cp.execSync("id", { stdio: "pipe" })),
        await caught(() => new Promise((yes, no) => cp.exec("id", (error) => (error ? no(error) : yes()))))];
    """
    read, sync, later = asyncio.run(run_async(world, body))
    assert read == "ok"
    for error in (sync, later):
        assert error["code"] == "EACCES" and error["hostcall"] == "denied" and "denied exec" in error["message"]
    assert [question.capability for question in person.asked] == ["read", "exec"]
    story = [
        (record.type, record.payload.get("rule") or record.payload.get("error", {}).get("code"))
        for record in world.records()
        if record.payload.get("capability") in ("read", "exec")
    ]
    assert story == [
        ("host_call.start", None),
        ("policy.decision", "mode-prompt"),
        ("consent.asked", "mode-prompt"),
        ("consent.answered", None),
        ("policy.decision", "person-allow"),
        ("host_call.end", None),
        ("host_call.start", None),
        ("policy.decision", "mode-prompt"),
        ("consent.asked", "mode-prompt"),
        ("consent.answered", None),
        ("policy.decision", "person-deny"),
        ("host_call.end", "denied"),
        ("host_call.start", None),
        ("policy.decision", "subject-deny"),
        ("host_call.end", "denied"),
    ]
    world.close()
