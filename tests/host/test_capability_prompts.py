"""An extension asks for a capability inside a run, and a person answers over HTTP (`host.prompts`, W1 to W5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions import Grants
from forestay.kernel import Grant, Mode
from tests.forked import python
from tests.host.prompting import ID, Person, options, person, project
from tests.runs.documents import node, workflow

ROOT = Path(__file__).parents[2]


def play(
    folder: Path, story: Callable[[Person], Coroutine[Any, Any, None]], *tools: str, mode: Mode = "prompt"
) -> None:
    async def whole() -> None:
        async with person(options(folder, *tools, mode=mode)) as me:
            await story(me)

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_the_question_says_everything_and_a_denial_reaches_the_extension(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        run_id = await me.start()
        assert await me.settled(run_id) == "waiting-approval"
        asked = await me.question(run_id)
        data = asked["data"]
        assert (asked["kind"], data["artifactType"], data["actions"]) == (
            "approval",
            "capability-prompt",
            ["accept", "reject"],
        )
        about = data["artifactData"]
        assert (about["extension"], about["capability"], about["method"], about["tool"]) == (
            ID,
            "exec",
            "exec",
            "shout",
        )
        assert about["decision"]["rule"] == "mode-prompt" and about["decision"]["evidence"]["subject"] == ID
        assert about["loss"]["arithmetic"][-1].startswith(about["loss"]["advice"])
        assert about["sandbox"].startswith("Commands run")
        assert [item["value"] for item in about["choices"]["remember"]] == ["once", "session", "always"]
        assert await me.answer(run_id, action="reject", comment="Not on this quay.") == "completed"
        assert me.returned() == ["A person denied exec to crier. Not on this quay."]
        told = await me.story("ext/", f"run/{run_id}")
        wanted = [
            "host_call.start",
            ("policy.decision", "mode-prompt"),
            "consent.asked",
            "interrupt.requested",
            "approval.received",
            "consent.answered",
            ("policy.decision", "person-deny"),
            "host_call.end",
            "run.completed",
        ]
        assert [item for item in told if item in wanted] == wanted

    play(project(tmp_path), story, "shout")


def test_what_was_allowed_for_the_session_is_not_asked_again(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        run_id = await me.start()
        await me.settled(run_id)
        assert await me.answer(run_id, action="accept") == "completed"
        assert me.returned() == ["loud\n", "loud\n"]
        again = await me.start()
        assert await me.settled(again) == "completed"
        told = await me.story("ext/")
        assert told.count("consent.asked") == 1 and told.count(("policy.decision", "subject-allow")) == 3
        assert await me.serving.host.ledger.read("grants") == []

    play(project(tmp_path), story, "shout", "shout")


BORROWER = """
export default function (pi) {
  pi.registerTool({ name: "borrow", label: "borrow", description: "Borrows a voice",
    parameters: { type: "object", properties: {} }, execute: async () => pi.tool("shout", {}) });
}
"""


def test_the_run_of_an_extension_asks_for_the_one_whose_tool_it_calls(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        run_id = await me.start()
        assert await me.settled(run_id) == "waiting-approval"
        asked = (await me.question(run_id))["data"]["artifactData"]
        assert (asked["extension"], asked["capability"], asked["resource"]) == ("borrower", "tool", "shout")
        assert await me.answer(run_id, action="accept") == "waiting-approval"
        asked = (await me.question(run_id))["data"]["artifactData"]
        assert (asked["extension"], asked["capability"]) == (ID, "exec")
        assert await me.answer(run_id, action="accept") == "completed"
        assert me.returned() == ["loud\n"]

    folder = project(tmp_path)
    (folder / ".pi" / "extensions" / "borrower.js").write_text(BORROWER)
    play(folder, story, "borrow")


def test_once_is_for_one_call(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        run_id = await me.start()
        await me.settled(run_id)
        assert await me.answer(run_id, action="accept", remember="once") == "waiting-approval"
        assert await me.answer(run_id, action="reject", remember="once") == "completed"
        assert me.returned() == ["loud\n", "A person denied exec to crier."]

    play(project(tmp_path), story, "shout", "shout")


def test_always_is_on_the_ledger_with_its_scope_and_expiry(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        run_id = await me.start()
        await me.settled(run_id)
        scopes = (await me.question(run_id))["data"]["artifactData"]["choices"]["scopes"]
        assert [item["scope"] for item in scopes] == [["note.md"]]
        value = {"action": "accept", "remember": "always", "scope": ["note.md"], "expiresInSeconds": 3600}
        assert await me.answer(run_id, **value) == "completed"
        assert me.returned() == ["berth 7"]
        host = me.serving.host
        standing = await Grants(host.ledger, host.clock).standing(ID)
        assert [(item.effect, item.grant.capability, item.grant.scope.patterns) for item in standing] == [
            ("allow", "read", ("note.md",))
        ]
        assert standing[0].grant.expires_ms is not None

    play(project(tmp_path), story, "peek")


READERS = """
import { readFileSync } from "node:fs";
export default function (pi) {
  for (const [name, file] of [["peek", "note.md"], ["pry", "other.md"]]) {
    pi.registerTool({ name, label: name, description: `Does ${name}`, parameters: { type: "object", properties: {} },
      async execute() {
        try { return { content: [{ type: "text", text: readFileSync(file, "utf8") }] }; }
        catch (error) { return { content: [{ type: "text", text: error.code }] }; }
      } });
  }
}
"""


@pytest.mark.parametrize("remember", ["session", "always"])
def test_a_yes_about_one_file_opens_no_other(tmp_path: Path, remember: str) -> None:
    async def story(me: Person) -> None:
        run_id = await me.start()
        await me.settled(run_id)
        about = (await me.question(run_id))["data"]["artifactData"]
        assert "every file and folder" in about["choices"]["everything"]["means"] and "note.md only" in about["allows"]
        assert [item["seconds"] for item in about["choices"]["expiries"]] == [3600, 86_400, 604_800]
        assert await me.answer(run_id, action="accept", remember=remember) == "waiting-approval"
        assert (await me.question(run_id))["data"]["artifactData"]["resource"] == "other.md"
        assert await me.answer(run_id, action="reject", remember="once") == "completed"
        assert me.returned() == ["berth 7", "EACCES"]
        host = me.serving.host
        standing = await Grants(host.ledger, host.clock).standing(ID)
        kept = [("read", ("note.md",))] if remember == "always" else []
        assert [(item.grant.capability, item.grant.scope.patterns) for item in standing] == kept

    (project(tmp_path, READERS) / "other.md").write_text("berth 8")
    play(tmp_path, story, "peek", "pry")


def test_everything_is_a_choice_of_its_own(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        run_id = await me.start()
        await me.settled(run_id)
        value = {"action": "accept", "remember": "always", "everything": True, "expiresInSeconds": 60}
        assert await me.answer(run_id, **value) == "completed"
        assert me.returned() == ["berth 7", "berth 8"]
        host = me.serving.host
        held = (await Grants(host.ledger, host.clock).standing(ID))[0].grant
        assert (held.capability, held.scope.patterns) == ("read", ()) and held.expires_ms is not None

    (project(tmp_path, READERS) / "other.md").write_text("berth 8")
    play(tmp_path, story, "peek", "pry")


def test_everything_and_a_scope_together_are_a_no(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        run_id = await me.start()
        await me.settled(run_id)
        assert await me.answer(run_id, action="accept", everything=True, scope=["note.md"]) == "completed"
        assert me.returned() == ["EACCES"]

    play(project(tmp_path, READERS), story, "peek")


def test_a_scope_that_does_not_cover_the_call_or_makes_no_sense_is_a_no(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        for scope, why in ((["other/**"], "only for other/**"), (["../x"], "is no scope")):
            run_id = await me.start()
            await me.settled(run_id)
            assert await me.answer(run_id, action="accept", remember="once", scope=scope) == "completed"
            assert me.returned()[0].startswith("EACCES") and why in me.returned()[0]

    play(project(tmp_path), story, "peek")


def test_w1_hooks_and_synchronous_calls_wait_and_nothing_is_told_twice(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        run_id = await me.start()
        await me.settled(run_id)
        first = (await me.question(run_id))["data"]["artifactData"]
        assert (first["capability"], first["event"]) == ("read", "tool_call")
        assert await me.answer(run_id, action="accept") == "waiting-approval"
        second = (await me.question(run_id))["data"]["artifactData"]
        assert (second["capability"], second["tool"]) == ("exec", "shout_now")
        assert await me.answer(run_id, action="accept") == "completed"
        assert me.returned() == ["loud\n", "2"]  # `heard` counts the starts of both calls, each told once

    play(project(tmp_path), story, "shout_now", "heard")


LOADING = """
import { readFileSync } from "node:fs";
let note = "";
try { note = readFileSync("note.md", "utf8"); } catch (error) { note = error.code; }
export default function (pi) {
  pi.registerTool({ name: "said", label: "s", description: "d", parameters: { type: "object", properties: {} },
    async execute() { return { content: [{ type: "text", text: note }] }; } });
}
"""


def test_what_an_extension_needs_while_it_is_loaded_is_asked_by_the_run_that_opens_it(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        run_id = await me.start()
        assert await me.settled(run_id) == "waiting-approval"
        assert (await me.question(run_id))["data"]["artifactData"]["capability"] == "read"
        assert await me.answer(run_id, action="accept") == "completed"
        assert me.returned() == ["berth 7"]

    play(project(tmp_path, LOADING), story, "said")


def test_decisions_of_others_reach_a_running_host(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        host = me.serving.host
        run_id = await me.start()
        await me.settled(run_id)
        await me.answer(run_id, action="reject")
        suite = await host.extensions.suite()
        grants = Grants(host.ledger, host.clock)

        async def until(decided: int) -> None:
            while suite.decided < decided:
                await asyncio.sleep(0.01)

        await grants.allow(ID, Grant("exec"), by="user")  # over HTTP, or by a command: a newer word than the session's
        await until(0)
        assert await me.settled(await me.start()) == "completed"
        assert me.returned() == ["loud\n"]
        await grants.revoke(ID, "exec")
        await until(1)
        assert await me.settled(await me.start()) == "waiting-approval"

    play(project(tmp_path), story, "shout")


def test_w4_a_run_that_is_cancelled_lets_the_extension_go(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        first = await me.start()
        await me.settled(first)
        assert (await me.http.post(f"/v1/runs/{first}/cancel", json={})).status_code in (200, 202)
        assert await me.settled(first) == "cancelled"
        second = await me.start()  # the thread of the extension was waiting inside a synchronous call
        assert await me.settled(second) == "waiting-approval"
        assert await me.answer(second, action="accept") == "completed"
        assert me.returned() == ["berth 7"]

    play(project(tmp_path), story, "peek")


def test_w4_when_the_run_that_asks_is_cancelled_another_one_asks(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        first = await me.start()
        await me.settled(first)
        second = await me.start()
        prompts = me.serving.host.extensions.prompts
        while len(prompts._works) < 2:
            await asyncio.sleep(0.01)
        assert (await me.http.get(f"/v1/runs/{second}")).json()["status"] == "running"  # it waits for the same answer
        await me.http.post(f"/v1/runs/{first}/cancel", json={})
        assert await me.settled(second) == "waiting-approval"
        assert await me.answer(second, action="accept") == "completed"
        assert (await me.story("ext/")).count("consent.asked") == 1

    play(project(tmp_path), story, "shout")


def test_w5_another_tenant_is_never_asked(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        key = (await me.serving.services.keys.create("other", tenant="elsewhere"))[1]
        me.http.headers["Authorization"] = f"Bearer {key}"
        run_id = await me.start()
        assert await me.settled(run_id) == "completed"
        assert "consent.asked" not in await me.story("ext/")

    play(project(tmp_path), story, "shout")


def test_a_tool_node_asks_for_the_tool_and_for_what_its_extension_needs(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        for tool in ("peek", "write"):
            arguments = {"path": "x.md", "content": "x"} if tool == "write" else {}
            document = workflow(tool, [node("t", "core.tool", config={"tool": tool, "arguments": arguments})])
            await me.serving.host.runs.put_workflow(document, tenant=None)
        run_id = await me.start("peek")
        assert await me.settled(run_id) == "waiting-approval"
        assert (await me.question(run_id))["data"]["artifactData"]["capability"] == "read"
        assert await me.answer(run_id, action="accept") == "completed"
        run_id = await me.start("write")
        assert await me.settled(run_id) == "waiting-approval"
        assert await me.answer(run_id, action="reject") == "failed" and not (tmp_path / "x.md").exists()
        run_id = await me.start("write")
        await me.settled(run_id)
        assert await me.answer(run_id, action="accept") == "completed" and (tmp_path / "x.md").exists()

    play(project(tmp_path), story)


def test_in_strict_mode_nobody_is_asked(tmp_path: Path) -> None:
    async def story(me: Person) -> None:
        assert await me.settled(await me.start()) == "completed"
        assert "no grant for exec" in me.returned()[0]

    play(project(tmp_path), story, "shout", mode="strict")


def die(folder: Path, when: str) -> str:
    done = python("tests.host.prompt_child", str(folder), when)
    assert done.returncode == -9, done.stderr
    return (folder / "run").read_text()


def test_w2_a_kill_while_the_question_waits_loses_nothing(tmp_path: Path) -> None:
    run_id = die(project(tmp_path), "waiting")

    async def story(me: Person) -> None:
        assert await me.settled(run_id) == "waiting-approval"
        assert (await me.question(run_id))["data"]["artifactData"]["capability"] == "write"
        assert await me.answer(run_id, action="accept") == "completed"
        assert me.returned() == ["noted"] and (tmp_path / "ran.log").read_text() == "ran\n"

    play(tmp_path, story, "note")


def test_w3_a_kill_after_the_grant_is_a_question_not_a_repetition(tmp_path: Path) -> None:
    (project(tmp_path) / "note.md").write_text("hang here")
    run_id = die(tmp_path, "granted")

    async def story(me: Person) -> None:
        assert await me.settled(run_id) == "waiting-approval"
        assert (await me.question(run_id))["data"]["artifactType"] == "uncertain-effect"
        assert await me.answer(run_id, action="reject", comment="It was written.") == "completed"
        assert me.returned() == ["It was written."] and (tmp_path / "ran.log").read_text() == "ran\n"

    play(tmp_path, story, "note")


def test_a_tool_node_that_died_in_an_unsafe_tool_asks_before_it_runs_it_again(tmp_path: Path) -> None:
    run_id = die(project(tmp_path), "node")

    async def story(me: Person) -> None:
        assert await me.settled(run_id) == "waiting-approval"
        asked = (await me.question(run_id))["data"]
        assert asked["artifactType"] == "uncertain-effect" and asked["artifactData"]["tool"] == "bash"
        assert await me.answer(run_id, action="reject", comment="It was done.") == "failed"
        assert (tmp_path / "ran.log").read_text() == "ran\n"

    play(tmp_path, story)
