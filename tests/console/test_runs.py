"""The runs' pages as HTML: the agent's steps, what the model saw, replay and fork."""

from __future__ import annotations

import re

from tests.console.conftest import Console
from tests.console.served import QUESTION, workflow


def test_the_overview_counts_and_offers_every_workflow(console: Console, finished: str) -> None:
    page = console.page("/")
    assert page.one(".tiles").text.count("completed") == 1
    assert {node["value"]: node.text for node in page.one("select#workflow").all("option")} == {
        "clarify": "clarify",
        "harbour": "harbour: question",
        "forestay-ask": "forestay-ask: question, agentId, sessionId, source",
        "review": "review",
    }
    assert any(node.attributes.get("href") == f"/runs/{finished}" for node in page.all("a"))


def test_runs_are_filtered(console: Console, finished: str) -> None:
    def listed(query: str) -> list[str]:
        cells = console.page(f"/runs?{query}").all("td.strong")
        return [link["href"].rsplit("/", 1)[1] for cell in cells for link in cell.all("a")]

    assert finished in listed("status=completed&workflow=harbour")
    assert finished not in listed("status=failed")
    assert console.page("/runs?status=failed&tag=none").one(".empty").text.startswith("No run matches.")


def test_a_run_shows_the_agents_steps(console: Console, finished: str) -> None:
    page = console.page(f"/runs/{finished}")
    assert page.one("h1").text == "harbour completed"
    agent = page.one("section.agent")
    assert agent.one("h2").text == "Agent local.harbour.master completed"
    steps = agent.all("li.step")
    assert [step.one("h3").text.split(" ")[0] for step in steps] == ["Instructions", "Task", "Turn", "Turn", "Answer"]
    assert QUESTION in steps[1].text
    tally, write = agent.all("div.tool")
    assert "3 berths are named in the notes." in tally.one("pre.result").text
    said = r"refused May ext.tally talk to hosts on the network\? \(collector.example\) by key_\w+ not there"
    assert re.fullmatch(said, tally.all("p.policy")[1].text)
    assert '"path": "report.md"' in write.one("pre.arguments").text
    assert "asked local.harbour.master asks for tool.write; a person must decide." in write.text
    assert re.search(r"approved May the agent call write\? by key_\w+ fine", write.text)
    assert "The Aurora lies at berth 7." in steps[-1].text
    assert page.one("svg.graph").one("g.completed").text.startswith("Harbour master")


def test_a_turn_shows_what_the_model_saw_and_proves_it(console: Console, finished: str) -> None:
    page = console.page(f"/runs/{finished}/turns/0/1")
    assert page.one(".note").text.startswith("Put together again from the ledger")
    seen = page.all("li.step")
    assert [step.one("h2").text.split(" ")[0] for step in seen] == [
        "Instructions",
        "Facts",
        "Task",
        "Assistant",
        "Tool",
    ]
    assert "The Petrel lies at berth 3" in seen[1].one("pre").text
    assert "calls write" in page.text


def test_turns_that_are_not_there_are_not_found(console: Console, finished: str) -> None:
    for place in ("1/0", "0/99", "0/99999999999999"):
        assert "There is no such turn" in console.page(f"/runs/{finished}/turns/{place}", 404).text
    for place in ("0/x", "x/0", "0/-1", "0/9999999999999999"):
        console.page(f"/runs/{finished}/turns/{place}", 400)


def test_a_run_is_replayed_and_forked(console: Console, finished: str) -> None:
    console.page(f"/runs/{finished}").one("form[action=/runs/" + finished + "/fork]")
    for mode in ("replay", "branch"):
        made = console.send(f"/runs/{finished}/fork", mode=mode, from_seq="0").headers["location"]
        assert made != f"/runs/{finished}"
        fork = console.page(made)
        assert f"fork of {finished[:10]}" in fork.one("#status").text
        if mode == "replay":
            assert fork.one("h1").text == "harbour completed"
            assert len(fork.all("li.step")) == 5  # a replay shows the recorded steps
    console.send(f"/runs/{finished}/fork", 400, mode="replay", from_seq="x")
    console.send(f"/runs/{finished}/fork", 400, mode="other", from_seq="0")


def test_live_lines_come_with_their_place_and_end_with_the_run(console: Console, finished: str) -> None:
    text = console.http.get(f"/runs/{finished}/live?after=3").text
    assert text.startswith("id: 4\nevent: line\n")
    assert text.rstrip().endswith("event: end\ndata:")
    assert console.http.get(f"/runs/{finished}/live?after=x").status_code == 400


def test_the_graph_is_that_of_the_run_and_a_wide_one_has_the_width_of_the_page(console: Console) -> None:
    first = workflow("moving", *((f"node-{number}", "core.identity", {}) for number in range(4)))
    first["edges"] = []  # four in a row
    api = console.running.api
    assert api.put("/v1/workflows/moving", json=first).status_code in (200, 201)
    run = console.running.start("moving")
    console.running.until(run, "run.completed")
    later = {**workflow("moving", ("another", "core.noop", {})), "version": "2.0.0"}
    assert api.put("/v1/workflows/moving", json=later).status_code in (200, 201)
    page = console.page(f"/runs/{run}")
    assert [node.one("title").text for node in page.one("svg.graph").all("g")] == [
        f"Node-{place}" for place in range(4)
    ]
    assert page.all("section.wide")
    assert not console.page(f"/runs/{console.running.start('moving')}").all("section.wide")
