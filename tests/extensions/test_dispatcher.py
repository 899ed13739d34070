"""The door: derive, compare, decide, perform, leave evidence. Each test names the invariant that it holds."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.extensions.dispatcher_world import World

from forestay.extensions import capabilities
from forestay.extensions.api_table import CAPABILITIES, FILE_READS, FILE_WRITES
from forestay.extensions.capabilities import derive
from forestay.extensions.connectors.log import LogConnector
from forestay.extensions.connectors.ui import NoUi, ScriptedUi, TerminalUi
from forestay.extensions.consent import Answer, Question
from forestay.extensions.evidence import Correlation, Evidence, LogFile, log_entry, normalized, params_hash, stream_of
from forestay.extensions.grants import Grants, checked, policy_of
from forestay.extensions.host_call import Subject
from forestay.extensions.protocol import HostCall
from forestay.extensions.resolution import Need, resolve
from forestay.kernel import (
    ExtensionConfig,
    ExtensionOverride,
    ExtensionPolicy,
    Grant,
    Ledger,
    ManualClock,
    Problem,
    Request,
    Scope,
    canonical,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, grants=["read", "write", "exec", "env:HOME"])
    yield world
    world.close()


# -- derivation -----------------------------------------------------------------------------------------------------


def test_c1_capabilities_follow_from_method_and_params() -> None:
    for name in ("read", "grep", "find", "ls"):
        assert derive("tool", {"name": name}) == "read"
    assert [derive("tool", {"name": name}) for name in ("write", "edit", "bash", "anything")] == [
        "write", "write", "exec", "tool",
    ]  # fmt: skip
    assert {derive("fs", {"op": name}) for name in FILE_READS} == {"read"}
    assert {derive("fs", {"op": name}) for name in FILE_WRITES} == {"write"}
    for method in ("exec", "http", "env", "session", "ui", "model", "log", "events"):
        assert derive(method, {"capability": "read", "name": "read"}) == method
    assert derive("crypto", {}) == capabilities.NONE
    for method, params in (("fs", {"op": "format"}), ("fs", {}), ("vm", {}), ("__proto__", {}), ("", {})):
        with pytest.raises(Problem):
            derive(method, params)
    assert derive("tool", {"name": ["read"]}) == "tool" and derive("tool", {}) == "tool"


@pytest.mark.parametrize("claim", [name for name in CAPABILITIES if name != "write"])
def test_d2_a_wrong_claim_is_refused_and_nothing_happens(world: World, claim: str) -> None:
    call = world.request("fs", {"op": "write", "path": "x", "text": "x"}, capability=claim)
    result = world.dispatcher.call_sync(call, "ext.test")
    assert result.error is not None and result.error.code == "invalid_request"
    assert not (world.project / "x").exists()
    right = world.request("fs", {"op": "write", "path": "x", "text": "x"}, capability="write")
    assert not world.dispatcher.call_sync(right, "ext.test").is_error


def test_unknown_extensions_methods_and_reused_ids_are_refused(world: World) -> None:
    call = world.request("fs", {"op": "stat", "path": "."})
    assert world.dispatcher.call_sync(call, "ext.other").error.code == "denied"  # type: ignore[union-attr]
    assert world.refused("vm", code="1").code == "invalid_request"

    async def twice() -> list[str]:
        slow = HostCall("same", "", "exec", {"command": "sleep", "args": ["5"], "stream": True})
        codes = []
        async for result in world.dispatcher.call(slow, "ext.test"):
            if result.error is not None:
                codes.append(result.error.details["problem"])  # type: ignore[index]
                break
            again = await asyncio.to_thread(world.dispatcher.call_sync, slow, "ext.test")
            codes.append(again.error.code if again.error else "ok")
            world.dispatcher.cancel("same")
        return codes

    assert asyncio.run(asyncio.wait_for(twice(), 20)) == ["invalid_request", "cancelled"]


# -- policy ---------------------------------------------------------------------------------------------------------


def test_d1_strict_denies_what_was_not_granted(tmp_path: Path) -> None:
    world = World(tmp_path)
    for method, params in (
        ("fs", {"op": "read", "path": "a"}),
        ("fs", {"op": "write", "path": "a", "text": ""}),
        ("exec", {"command": "true"}),
        ("http", {"url": "https://example.com"}),
        ("env", {"op": "get", "name": "HOME"}),
        ("tool", {"name": "bash", "input": {"command": "true"}}),
        ("tool", {"name": "custom", "input": {}}),
        ("session", {"op": "getEntries"}),
        ("ui", {"op": "notify", "message": "x"}),
        ("model", {"op": "complete"}),
    ):
        error = world.refused(method, **params)
        assert error.code == "denied" and "strict" in error.message, (method, error)
    assert world.ok("log", level="info", event="e", message="m") == {}
    assert world.ok("crypto", op="hash", algorithm="sha256", base64="")["base64"]
    world.close()


def test_denial_wins_over_everything(tmp_path: Path) -> None:
    config = ExtensionConfig(
        policy=ExtensionPolicy(mode="permissive", deny_caps=["exec"]),
        overrides={"ext.test": ExtensionOverride(deny=["write:locked/**"])},
    )
    world = World(tmp_path, mode="permissive", grants=["exec", "write"], config=config)
    assert world.refused("exec", command="true").code == "denied"
    assert world.refused("tool", name="bash", input={"command": "true"}).code == "denied"
    assert world.refused("fs", op="write", path="locked/x", text="").code == "denied"
    (world.project / "locked").mkdir()
    (world.project / "open").symlink_to("locked")
    assert world.refused("fs", op="write", path="open/x", text="").code == "denied"
    assert world.ok("fs", op="write", path="x", text="") == {"bytes": 0}
    world.close()


def test_manifest_methods_are_held(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["read"])
    subject = world.dispatcher.authority.subject("ext.test")
    world.dispatcher.admit(Subject(subject.id, subject.roots, methods={"read": ("tool",)}))
    assert world.refused("fs", op="stat", path=".").code == "denied"
    assert world.ok("tool", name="ls", input={})["content"]
    world.close()


# -- environment ----------------------------------------------------------------------------------------------------


def test_environment_shows_what_was_granted_and_no_secret(world: World) -> None:
    assert world.ok("env", op="get", name="HOME") == {"value": "/home/someone"}
    assert world.ok("env", op="all") == {"variables": {"HOME": "/home/someone"}}
    for name in ("OPENAI_API_KEY", "DATABASE_URL", "PATH"):
        assert world.refused("env", op="get", name=name).code == "denied"


def test_secrets_need_a_grant_by_name_in_every_mode(tmp_path: Path) -> None:
    world = World(tmp_path, mode="permissive", grants=["env"])
    seen = world.ok("env", op="all")["variables"]
    assert "EDITOR" in seen and "OPENAI_API_KEY" not in seen and "DATABASE_URL" not in seen
    assert world.refused("env", op="get", name="OPENAI_API_KEY").code == "denied"
    world.close()
    (tmp_path / "named").mkdir()
    named = World(tmp_path / "named", grants=["env:OPENAI_API_KEY"])
    assert named.ok("env", op="get", name="OPENAI_API_KEY")["value"].startswith("sk-proj")
    named.close()


# -- evidence -------------------------------------------------------------------------------------------------------


def test_d3_every_call_leaves_start_decision_end_in_order(world: World) -> None:
    world.ok("fs", op="write", path="a", text="secret-token-value")
    world.refused("http", url="https://example.com/?token=abcdef123456")
    world.refused("fs", op="read", path="/etc/passwd")
    types = [record.type for record in world.records()]
    assert types[:6] == ["host_call.start", "policy.decision", "host_call.end"] * 2
    first, decision, end = world.records()[:3]
    params = {"op": "write", "path": "a", "text": "secret-token-value"}
    expected = hashlib.sha256(canonical.encode({"method": "fs", "params": params})).hexdigest()
    assert first.payload == {"capability": "write", "method": "fs", "params_hash": expected, "runtime": "js"}
    assert decision.payload["effect"] == "allow" and decision.payload["rule"] == "subject-allow"
    assert end.payload["is_error"] is False and end.payload["duration_ms"] >= 0
    assert first.attrs["host_call_id"] == "host-1" and first.attrs["extension_id"] == "ext.test"
    last = world.records()[-1]
    assert last.type == "host_call.end" and last.payload["error"] == {"code": "denied", "problem": "path_outside_root"}


def test_e2_no_parameter_reaches_the_ledger(world: World) -> None:
    marks = ["MARK-content-7f3a", "sk-proj-" + "a1b2c3d4" * 4, "MARK-stdin-99", "MARK-query"]
    world.ok("fs", op="write", path="a", text=marks[0])
    world.ok("exec", command="cat", input=marks[2], env={"KEY": marks[1]})
    world.refused("http", url=f"https://example.com/?q={marks[3]}", headers={"authorization": marks[1]})
    world.refused("fs", op="nonsense", path=marks[0])
    world.refused("exec", command="true", args="not a list " + marks[0])
    whole = msgspec.json.encode([msgspec.to_builtins(record) for record in world.records()]).decode()
    for mark in marks:
        assert mark not in whole


def test_e3_names_that_cannot_be_stored_do_not_end_the_evidence(world: World) -> None:
    hostile = ["a\0b", "\ud800", "x" * 10_000, "a\nb"]
    for text in hostile:
        world.sync("fs", op="read", path=text)
        world.sync("env", op="get", name=text)
        world.dispatcher.call_sync(HostCall(text, text, "fs", {"op": "stat", "path": "."}), "ext.test")
        world.dispatcher.call_sync(HostCall("m", "", text, {}), "ext.test")
    assert world.ok("fs", op="stat", path=".")["kind"] == "directory"
    assert world.records()[-1].payload["is_error"] is False
    assert asyncio.run(world.ledger.verify()).ok


def test_params_hash_is_canonical() -> None:
    assert params_hash("fs", {"b": 1, "a": "é"}) == params_hash("fs", {"a": "é", "b": 1})
    text = '{"method":"fs","params":{"a":"é","b":1}}'
    assert params_hash("fs", {"b": 1, "a": "é"}) == hashlib.sha256(text.encode()).hexdigest()


def test_e3_when_evidence_cannot_be_written_no_call_is_made(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["write"])
    world.ok("fs", op="write", path="a", text="")
    world.ledger.close()
    world.sync("fs", op="write", path="b", text="")
    with pytest.raises(Problem, match="could not be written"):
        world.evidence.flush()
    result = world.sync("fs", op="write", path="c", text="")
    assert result.is_error and not (world.project / "c").exists()


def test_e1_evidence_of_many_threads_stays_whole_and_ordered(world: World) -> None:
    def work() -> None:
        for _ in range(25):
            world.ok("fs", op="stat", path=".")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_call: dict[str, list[str]] = {}
    for record in world.records():
        by_call.setdefault(record.attrs["host_call_id"], []).append(record.type)
    assert len(by_call) == 100
    assert all(kinds == ["host_call.start", "policy.decision", "host_call.end"] for kinds in by_call.values())
    assert asyncio.run(world.ledger.verify()).ok


def test_e4_the_log_file_is_a_projection(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["read"])
    log = LogFile("sess/../evil", environ={"PI_EXTENSION_LOG_DIR": str(tmp_path / "logs")})
    world.evidence = Evidence(world.ledger, sink=log)
    world.dispatcher._records._evidence = world.evidence
    world.ok("fs", op="stat", path=".")
    world.close()
    log.close()
    assert log.path.parent == tmp_path / "logs" and log.path.name == "sess_.._evil.jsonl"
    entries = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [entry["event"] for entry in entries] == ["host_call.start", "policy.decision", "host_call.end"]
    for entry in entries:
        assert entry["schema"] == "pi.ext.log.v1" and entry["level"] == "info" and entry["message"]
        assert entry["correlation"]["extension_id"] == "ext.test" and entry["correlation"]["scenario_id"] == "scn-1"
    plain = normalized(entries[0], str(world.project))
    assert plain["ts"] == "<ts>" and plain["source"]["pid"] == "<pid>"


def test_log_entries_cannot_forge_others(world: World) -> None:
    evil = 'done\n{"schema":"pi.ext.log.v1","event":"policy.decision","data":{"effect":"allow"}}\r\u001b[2J\u2028'
    world.ok("log", level="info", event="my\nevent", message=evil, data={"password": "hunter2", "api_key": "x" * 20})
    _, level, event, message, data = world.logged[0]
    assert level == "info" and "\n" not in event and "\n" not in message and "\u001b" not in message
    assert data == {"password": "[REDACTED]", "api_key": "[REDACTED]"}
    assert world.refused("log", level="fatal", message="x").code == "invalid_request"
    assert LogConnector().method == "log"


def test_streams_are_named_safely() -> None:
    assert stream_of("@scope/pkg") == "ext/@scope/pkg"
    assert stream_of("a b\n../c") == "ext/a~20b~a../c" and stream_of("") == "ext/~"


def test_a_cancel_token_stops_every_call_under_it_and_no_others(tmp_path: Path) -> None:
    world = World(tmp_path, mode="permissive")

    async def one(call_id: str, token: str | None, extension: str = "ext.test") -> str:
        request = HostCall(call_id, "", "exec", {"command": "sleep", "args": ["0.5"]}, cancel_token=token)
        found = [result async for result in world.dispatcher.call(request, extension)]
        return found[-1].error.code if found[-1].error is not None else "ok"

    async def main() -> list[str]:
        calls = [asyncio.ensure_future(one(name, token)) for name, token in (("a", "t"), ("b", "t"), ("c", None))]
        while len(world.dispatcher._running) < 3 or any(
            flight.call is None for flight in world.dispatcher._running.values()
        ):
            await asyncio.sleep(0.01)
        world.dispatcher.cancel_token("ext.other", "t")  # a token belongs to its extension
        world.dispatcher.cancel_token("ext.test", "t")
        world.dispatcher.cancel_token("ext.test", "t")
        return await asyncio.gather(*calls)

    assert asyncio.run(asyncio.wait_for(main(), 30)) == ["timeout", "timeout", "ok"]
    problems = [record.payload["error"]["problem"] for record in world.records() if "error" in record.payload]
    assert problems == ["cancelled", "cancelled"]
    world.close()


# -- asking ---------------------------------------------------------------------------------------------------------


class Person:
    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        await asyncio.sleep(0)
        return self.answers.pop(0)


def test_d6_a_person_is_asked_once_and_the_answer_holds(tmp_path: Path) -> None:
    person = Person(Answer(allow=True), Answer(allow=False))
    world = World(tmp_path, mode="prompt", consent=person)
    (world.project / "a").write_text("x")

    async def main() -> list[Any]:
        reads = [world.stream("fs", op="read", path="a") for _ in range(5)]
        found = await asyncio.gather(*reads)
        await world.stream("exec", command="true")
        await world.stream("exec", command="true")
        # A synchronous call asks through the loop, from the extension's own thread.
        later = await asyncio.to_thread(world.sync, "fs", op="stat", path="a")
        return [result[0].is_error for result in found] + [later.is_error]

    assert asyncio.run(main()) == [False] * 6
    assert [(one.capability, one.extension) for one in person.asked] == [("read", "ext.test"), ("exec", "ext.test")]
    assert "Commands run" in person.asked[1].note
    rules = [record.payload["rule"] for record in world.records() if record.type == "policy.decision"]
    assert rules.count("person-allow") == 5 and "person-deny" in rules and "subject-deny" in rules
    world.close()


@pytest.mark.parametrize("remember", ["once", "session", "always"])
def test_q4_a_yes_about_one_file_opens_no_other(tmp_path: Path, remember: Any) -> None:
    person = Person(Answer(True, remember), Answer(False, "once"), Answer(False, "once"))
    world = World(tmp_path, mode="prompt", consent=person)
    for name in ("a", "b"):
        (world.project / name).write_text(name)

    async def main() -> list[bool]:
        # Both ask at once: the second waits for the first answer, which is not about it.
        both = await asyncio.gather(*(world.stream("fs", op="read", path=name) for name in ("a", "b")))
        later = await world.stream("fs", op="read", path="b")
        return [result[0].is_error for result in (*both, later)]

    assert asyncio.run(main()) == [False, True, True]
    assert [question.resource for question in person.asked] == ["a", "b", "b"]
    if remember != "once":
        world.ok("fs", op="read", path="a")  # not asked again: nobody has an answer left
    world.close()


def test_q4_everything_is_a_choice_of_its_own(tmp_path: Path) -> None:
    person = Person(Answer(True, "session", everything=True))
    world = World(tmp_path, mode="prompt", consent=person)
    for name in ("a", "b"):
        (world.project / name).write_text(name)

    async def main() -> list[bool]:
        both = await asyncio.gather(*(world.stream("fs", op="read", path=name) for name in ("a", "b")))
        return [result[0].is_error for result in both]

    assert asyncio.run(main()) == [False, False] and len(person.asked) == 1
    world.close()


def test_q4_a_folder_that_is_searched_is_granted_with_what_lies_below(tmp_path: Path) -> None:
    person = Person(Answer(True, "session"), Answer(False, "once"))
    world = World(tmp_path, mode="prompt", consent=person)
    (world.project / "src").mkdir()
    (world.project / "src" / "a").write_text("needle")
    (world.project / "b").write_text("needle")

    async def main() -> list[bool]:
        asked = {"name": "grep", "input": {"pattern": "needle", "path": "src"}}
        found = [(await world.stream("tool", **asked))[0] for _ in range(2)]
        assert all("needle" in json.dumps(result.output) for result in found)
        below = await world.stream("fs", op="read", path="src/a")
        beside = await world.stream("fs", op="read", path="b")
        return [below[0].is_error, beside[0].is_error]

    assert asyncio.run(main()) == [False, True]
    assert [question.scope for question in person.asked] == [("src/**",), ("b",)]
    world.close()


def test_q4_what_no_pattern_can_name_is_allowed_for_one_call(tmp_path: Path) -> None:
    person = Person(Answer(True, "always"), Answer(False, "once"))
    world = World(tmp_path, mode="prompt", consent=person)
    for name in ("a*", "ab"):
        (world.project / name).write_text(name)

    async def main() -> list[bool]:
        calls = [await world.stream("fs", op="read", path=name) for name in ("a*", "ab")]
        return [result[0].is_error for result in calls]

    assert asyncio.run(main()) == [False, True] and len(person.asked) == 2
    world.close()


@pytest.mark.parametrize(
    ("method", "params", "resource", "scope"),
    [
        ("fs", {"op": "read"}, "notes/a.md", ("notes/a.md",)),
        ("fs", {"op": "read"}, "/etc/hosts", ("/etc/hosts",)),
        ("fs", {"op": "list"}, "notes", ("notes/**",)),
        ("fs", {"op": "list"}, ".", ("**",)),
        ("fs", {"op": "read"}, "odd,name", None),
        ("fs", {"op": "read"}, None, None),
        ("http", {}, "api.example.com", ("api.example.com",)),
        ("env", {}, "HOME", ("HOME",)),
        ("tool", {"name": "tally"}, "tally", ("tally",)),
        ("exec", {}, "make", None),
    ],
)
def test_q4_what_was_asked_is_a_scope(
    method: str, params: dict[str, Any], resource: str | None, scope: tuple[str, ...] | None
) -> None:
    assert capabilities.asked_scope(derive(method, params), method, params, resource) == scope


def test_a_tool_of_another_extension_is_a_resource_and_may_be_granted_by_name() -> None:
    grant = checked("tool:tally,count_*")
    for name, covered in (("tally", True), ("count_words", True), ("other", False)):
        request = Request("ext.a", "tool", "tool", name)
        assert grant.covers(request, 0) is covered
    for bad in ("tool:a*b", "tool:*x"):
        with pytest.raises(Problem):
            checked(bad)


def test_without_a_person_the_answer_is_no(tmp_path: Path) -> None:
    world = World(tmp_path, mode="prompt")
    error = world.refused("exec", command="true")
    assert error.code == "denied" and error.details["problem"] == "consent_required"
    world.close()


async def test_grants_are_kept_scoped_expiring_and_revocable(tmp_path: Path, clock: ManualClock) -> None:
    async with Ledger.open(tmp_path / "l.db", clock=clock) as ledger:
        grants = Grants(ledger, clock)
        await grants.allow("ext.a", Grant.parse("read:src/**", expires_ms=clock.now_ms() + 60_000))
        await grants.deny("ext.a", Grant.parse("exec"))
        await grants.allow("ext.b", Grant.parse("http:example.com"))
        with pytest.raises(Problem, match="no capability"):
            await grants.allow("ext.a", Grant("fly"))
        policy = await grants.apply(policy_of(ExtensionConfig(), clock, mode="strict"))

        def allows(subject: str, capability: str, resource: str | None = None) -> bool:
            return policy.decide(Request(subject, capability, resource=resource)).allowed

        assert allows("ext.a", "read", "src/x") and not allows("ext.a", "read", "x")
        assert not allows("ext.a", "exec") and allows("ext.b", "http", "example.com")
        clock.advance(61)
        assert not allows("ext.a", "read", "src/x")
        shown = [item.shown(clock.now_ms()) for item in await grants.standing("ext.a")]
        assert [(item["capability"], item["effect"], item["expired"]) for item in shown] == [
            ("read", "allow", True),
            ("exec", "deny", False),
        ]
        assert await grants.revoke("ext.a", "exec") == 1
        assert [item.grant.capability for item in await grants.standing("ext.a")] == ["read"]
        with pytest.raises(Problem, match="Nothing was decided"):
            await grants.revoke("ext.c")


def test_grant_flags_are_checked() -> None:
    assert checked("http:127.0.0.1").scope.hosts == ("127.0.0.1",)
    assert checked("read:~/notes/**").scope.paths[0].startswith("/")
    for text in ("fly", "read:", "exec:x", "read:../x"):
        with pytest.raises(Problem):
            checked(text)


def test_capabilities_resolve_as_declared_and_inferred_less_denied() -> None:
    declared = [Need("read", ("tool",), Scope(paths=("src/**",))), Need("exec")]
    inferred = [Need("read", ("fs",), Scope(paths=("docs/**",))), Need("http")]
    found = resolve(declared, inferred, denied=["exec"], mode="strict")
    assert [item.capability for item in found.effective] == ["http", "read"]
    assert found.effective[1].methods == ("fs", "tool") and found.effective[1].scope.paths == ("docs/**", "src/**")
    assert (found.removed, found.drift, found.verdict) == (("exec",), ("http",), "refused")
    assert resolve(declared, inferred, denied=["exec"], mode="prompt").verdict == "needs_decision"
    assert resolve(declared, inferred, denied=["exec"], mode="permissive").verdict == "accepted"
    assert resolve(declared, inferred, denied=["exec"], allowed=[Need("exec")], mode="strict").verdict == "accepted"
    assert found.log_data()["declared"] == ["exec", "read"]
    with pytest.raises(Problem, match="no capability"):
        resolve([Need("fly")], [])


# -- the person's screen, the model, the session --------------------------------------------------------------------


def test_dialogs_without_anybody_are_denied_and_notices_kept(tmp_path: Path) -> None:
    ui = NoUi()
    world = World(tmp_path, grants=["ui"], ui=ui)
    assert world.streamed("ui", op="notify", message="hi")[0].output == {"value": None}
    assert world.streamed("ui", op="confirm", title="?")[0].error.code == "denied"  # type: ignore[union-attr]
    assert [call["op"] for call in ui.calls] == ["notify", "confirm"]
    world.close()


def test_a_script_answers_in_order(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('["b", true, {"op": "input", "answer": "typed"}, null, 0]')
    ui = ScriptedUi.load(script)
    world = World(tmp_path, grants=["ui"], ui=ui)

    def ask(**params: Any) -> Any:
        result = world.streamed("ui", **params)[0]
        return result.output["value"] if not result.is_error else result.error.code  # type: ignore[union-attr]

    assert ask(op="select", title="t", options=["a", "b"]) == "b"
    assert ask(op="confirm", title="t") is True
    assert ask(op="input", title="t") == "typed"
    assert ask(op="select", title="t", options=["a"]) is None
    assert ask(op="select", title="t", options=["first"]) == "first"
    assert ask(op="input", title="t") == "denied"
    assert [call.get("answer") for call in ui.calls] == ["b", True, "typed", None, "first"]
    world.close()


async def test_a_terminal_asks_the_person_at_it() -> None:
    import io

    screen = io.StringIO()
    terminal = TerminalUi(io.StringIO("2\ny\nname\n"), screen)
    assert await terminal.request("e", "select", {"title": "Pick\u001b[2J", "options": ["a", "b"]}) == "b"
    assert await terminal.request("e", "confirm", {"title": "Sure"}) is True
    assert await terminal.request("e", "input", {"title": "Who"}) == "name"
    assert "\u001b" not in screen.getvalue()


def test_the_model_streams_and_a_missing_one_says_so(tmp_path: Path) -> None:
    class Model:
        async def stream(self, request: Mapping[str, Any]) -> Any:
            for word in ("one ", "two"):
                yield {"delta": word}
            yield {"message": {"content": "one two", "usage": {}}}

        async def models(self) -> list[Mapping[str, Any]]:
            return [{"provider": "p", "id": "m"}]

    world = World(tmp_path, grants=["model"], model=Model())
    results = world.streamed("model", op="complete", stream=True, context={})
    assert [item.output.get("delta") for item in results[:2]] == ["one ", "two"]
    assert results[-1].output["message"]["content"] == "one two"
    assert world.streamed("model", op="list")[0].output == {"models": [{"provider": "p", "id": "m"}]}
    world.close()
    (tmp_path / "b").mkdir()
    bare = World(tmp_path / "b", grants=["model"])
    assert bare.streamed("model")[0].error.details["problem"] == "state_conflict"  # type: ignore[union-attr,index]
    bare.close()


async def test_d4_a_timeout_ends_a_call_that_waits_for_somebody(tmp_path: Path, clock: ManualClock) -> None:
    class Silent(NoUi):
        async def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
            await asyncio.sleep(3600)

    world = World(tmp_path, grants=["ui"], ui=Silent(), clock=clock)
    call = world.request("ui", {"op": "confirm", "title": "?"}, timeout_ms=5_000)
    results = [result async for result in world.dispatcher.call(call, "ext.test")]
    assert len(results) == 1 and results[0].error is not None and results[0].error.code == "timeout"
    await asyncio.to_thread(world.close)


def test_capability_resolve_is_an_entry(world: World) -> None:
    from forestay.extensions.evidence import Event

    data = resolve([Need("read")], [Need("http")]).log_data([{"capability": "http", "value_hash": "x"}])
    world.evidence.write(Correlation("ext.test", "scn-1"), Event("capability.resolve", data))
    entry = log_entry(world.records()[-1])
    assert entry["event"] == "capability.resolve" and entry["data"]["drift"] == ["http"]
