"""The inbox as HTML: each kind of question has its own form, and what is sent is what a person meant."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forestay.console.faults import Refused
from forestay.console.questions import Question, answer_of, groups
from forestay.kernel import Problem
from forestay.runs import Interrupt
from tests.console.conftest import Console
from tests.console.page import Node, parse
from tests.console.served import QUESTION, served, workflow


def card(page: Node, run: str) -> Node:
    """The question of a run."""
    return next(item for item in page.all("article.question") if any(run in a["href"] for a in item.all("a")))


def test_a_capability_prompt_shows_the_reasoning_and_the_arithmetic(console: Console) -> None:
    run = console.running.start("harbour", question=QUESTION)
    console.running.until(run, "interrupt.requested")
    prompt = card(console.page("/inbox"), run)
    assert prompt.one("h3").text == "May ext.tally talk to hosts on the network? (collector.example)"
    assert "ext.tally asks for http on collector.example; a person must decide." in prompt.text
    lines = {line.one("dt").text: line.one("dd").text for line in prompt.one("dl").all("div")}
    assert lines["extension"] == "ext.tally"
    assert (lines["capability"], lines["on"], lines["rule"]) == ("http", "collector.example", "mode-prompt")
    allow, deny = prompt.one("table.losses").one("tbody").all("tr")
    assert ("best" in allow.attributes.get("class", "")) != ("best" in deny.attributes.get("class", ""))
    assert "P(malicious)" in prompt.one("details.arithmetic").one("pre").text
    assert [field["value"] for field in prompt.all("input[type=radio]")] == ["once", "session", "always"]
    assert prompt.one("input[name=scope]")["value"] == "collector.example"

    console.send(f"/inbox/{run}/master", 400, action="accept", remember="always", scope="not a host!")
    console.send(f"/inbox/{run}/master", 400, action="accept", remember="always", expiry="never")
    sent = console.send(f"/inbox/{run}/master", action="reject", remember="once", value="it <b>may</b> not")
    assert sent.headers["location"] == "/inbox"
    console.running.until(run, "interrupt.requested", count=2)
    page = console.page(f"/runs/{run}")
    assert "refused May ext.tally talk to hosts on the network? (collector.example)" in page.one("section.agent").text
    assert "it <b>may</b> not" in page.one("section.agent").text  # as text

    asked = card(console.page("/inbox"), run)
    assert asked.one("h3").text == "May the agent call write?"
    edited = '{"path": "report.md", "content": "Edited."}'
    console.send(f"/inbox/{run}/master", action="edit-accept", edited=edited, value="shorter", back="run")
    console.running.until(run, "run.completed")
    assert '"content": "Edited."' in console.page(f"/runs/{run}").one("pre.edited").text
    console.send(f"/inbox/{run}/master", 409, action="accept")


def test_an_answer_that_always_holds_becomes_a_grant(console: Console) -> None:
    run = console.running.start("harbour", question=QUESTION)
    console.running.until(run, "interrupt.requested")
    answer = {"action": "reject", "remember": "always", "scope": "collector.example", "expiry": "hour"}
    console.send(f"/inbox/{run}/master", **answer)
    console.running.until(run, "interrupt.requested", count=2)
    decisions = console.page("/extensions/ext.tally").one("section#decisions")
    assert "http deny collector.example" in decisions.one("tbody").text
    console.send("/extensions/ext.tally/revoke", capability="http")


def test_a_yes_is_for_what_was_asked_and_everything_is_ticked_apart() -> None:
    data = {"artifactType": "capability-prompt", "artifactData": {
        "capability": "http",
        "resource": "a.example",
        "choices": {"scopes": [{"scope": ["a.example"]}], "everything": {"means": "every public host"}},
    }}  # fmt: skip
    asked = Question("run_x", "w", Interrupt("int_x", "n", "approval", "t", "2026-01-01T00:00:00Z", data))
    said = {"action": "accept", "remember": "always"}
    assert asked.everything == "every public host" and asked.scope == "a.example"
    assert answer_of({**said, "scope": ""}, asked) == said  # the host takes it for what was asked
    assert answer_of({**said, "scope": "a.example"}, asked) == {**said, "scope": ["a.example"]}
    assert answer_of({**said, "scope": "a.example", "everything": "yes"}, asked) == {**said, "everything": True}


def test_a_clarification_has_a_field_for_each_question(console: Console) -> None:
    run = console.running.start("clarify")
    console.running.until(run, "interrupt.requested")
    asked = card(console.page("/inbox"), run)
    assert [node.text for node in asked.all("label")] == ["Which colour?", "How many?"]
    assert [node.text for node in asked.one("select").all("option")] == ["red", "green"]
    console.send(f"/inbox/{run}/ask", 400, **{"answer-0": "red"})
    console.send(f"/inbox/{run}/ask", 400, **{"answer-0": "red", "answer-1": "two"})
    console.send(f"/inbox/{run}/ask", **{"answer-0": "green", "answer-1": "2"})
    console.running.until(run, "run.completed")
    assert console.running.api.get(f"/v1/runs/{run}").json()["outputs"] == {"answers": {"colour": "green", "count": 2}}


def test_an_approval_is_given_and_refused(console: Console) -> None:
    for action, end in (("accept", "run.completed"), ("reject", "run.failed")):
        run = console.running.start("review")
        console.running.until(run, "interrupt.requested")
        assert card(console.page("/inbox"), run).one("h3").text == "Publish the draft?"
        console.send(f"/inbox/{run}/approve", action=action)
        console.running.until(run, end)
        events = console.running.api.get(f"/v1/runs/{run}/events/poll", params={"lastSequence": -1}).json()["events"]
        assert events[-1]["type"] == end


def asked(kind: str, data: Any) -> Question:
    interrupt = Interrupt(
        interrupt_id="i", node_id="n", kind=kind, token="t", expires_at="2026-01-01T00:00:00Z", data=data
    )
    return Question("run", "flow", interrupt)


@pytest.mark.parametrize(
    "data",
    [
        None,
        "text",
        [],
        {"artifactType": "capability-prompt"},
        {"artifactType": "capability-prompt", "artifactData": {"loss": {"advice": "<b>"}, "choices": []}},
        {
            "artifactType": "capability-prompt",
            "artifactData": {"choices": {"remember": [1], "scopes": {}}, "capability": "http"},
        },
        {"questions": "none", "actions": None, "artifactData": 3},
        {"questions": [{"schema": 1}, 2]},
    ],
)
@pytest.mark.parametrize("kind", ["approval", "clarification", "custom"])
def test_a_question_that_an_author_wrote_badly_is_still_shown(kind: str, data: Any) -> None:
    from forestay.console.render import Templates

    item = asked(kind, data)
    caller = SimpleNamespace(scopes=frozenset({"manifest:read"}))
    visitor = SimpleNamespace(csrf="token", is_operator=True, caller=caller)
    page = {"questions": [item], "groups": groups([item, item]), "more": 0, "answered": 0, "refusals": []}
    text = Templates().text("inbox.html", **page, refused=Refused(), visitor=visitor, path="/inbox", open_count=0)
    assert "<b>" not in text
    assert item.text in text


def test_free_answers_are_text_or_json() -> None:
    free = asked("custom", {})
    assert answer_of({"value": "plain words"}, free) == "plain words"
    assert answer_of({"value": '{"a": [1]}'}, free) == {"a": [1]}
    assert answer_of({"action": "refine", "value": "shorter"}, free) == {"action": "refine", "feedback": "shorter"}
    with pytest.raises(Problem):
        answer_of({"value": " "}, free)
    with pytest.raises(Problem):
        answer_of({"action": "edit-accept", "edited": "[]"}, free)


def test_tiles_count_every_run_and_a_question_shows_its_own_deadline_only(tmp_path: Path) -> None:
    """Sixty questions are asked, then 205 newer runs end: the tiles and the inbox know both."""
    (tmp_path / "workflows").mkdir()
    gate = {"title": "Go on?"}
    documents = [
        workflow("patient", ("gate", "core.approvalGate", gate)),
        workflow("urgent", ("gate", "core.approvalGate", {**gate, "timeoutMs": 3_600_000})),
        workflow("done", ("step", "core.noop", {})),
    ]
    for document in documents:
        (tmp_path / "workflows" / f"{document['id']}.json").write_text(json.dumps(document))
    with served(tmp_path, "--workflows", "workflows") as running:
        for _ in range(59):
            running.start("patient")
        running.until(running.start("urgent"), "interrupt.requested")
        for _ in range(204):
            running.start("done")
        running.until(running.start("done"), "run.completed")
        visitor = Console(running)
        tiles = visitor.page("/").one(".tiles").text
        assert "60 waiting" in tiles and "205 completed" in tiles and "0 running" in tiles
        inbox = visitor.page("/inbox")
        assert len(inbox.all("article.question")) == 60
        assert len(inbox.all("time")) == 1 and "to answer by" in inbox.all("article.question")[-1].text
        assert "open until" not in inbox.one("main").text
        visitor.http.close()


def test_approvals_in_the_same_words_are_answered_together(console: Console) -> None:
    document = workflow("release", ("approve", "core.approvalGate", {"title": "Release it?"}))
    assert console.running.api.put("/v1/workflows/release", json=document).status_code in (200, 201)
    runs = [console.running.start("release", question=f"Version {number}") for number in (1, 2, 3)]
    for run in runs:
        console.running.until(run, "interrupt.requested")
    page = console.page("/inbox")
    group = next(node for node in page.all("section.group") if "Release it?" in node.text)
    picks = {field["value"]: field["name"] for field in group.all("input[type=checkbox]")}
    assert list(picks) == [f"{run}/approve" for run in runs]
    assert "Version 2" in group.text
    assert "Version 2" in card(page, runs[1]).text
    chosen = {picks[f"{run}/approve"]: f"{run}/approve" for run in runs[:2]}
    sent = console.send("/inbox/answers", action="accept", value="all of them", **chosen)
    assert sent.headers["location"] == "/inbox?answered=2"
    for run in runs[:2]:
        console.running.until(run, "run.completed")
    assert "2 answered." in console.page("/inbox?answered=2").one(".note").text
    again = parse(
        console.send("/inbox/answers", 409, action="reject", **chosen, **{"pick-x": f"{runs[2]}/approve"}).text
    )
    assert "2 could not be answered." in again.one(".alert").text
    assert "1 answered." in again.one(".note").text


def test_an_answer_that_cannot_be_read_is_asked_again_with_what_was_typed(console: Console) -> None:
    run = console.running.start("clarify")
    console.running.until(run, "interrupt.requested")
    page = parse(console.send(f"/inbox/{run}/ask", 400, **{"answer-0": "green", "answer-1": "many"}).text)
    asked = card(page, run)
    assert asked.one("p.wrong").text
    assert asked.one("input[name=answer-1]")["value"] == "many"
    assert [node.text for node in asked.all("option") if "selected" in node.attributes] == ["green"]
