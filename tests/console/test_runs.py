"""The runs' pages as HTML: the agent's steps, what the model saw, replay and fork."""

from __future__ import annotations

import re

from tests.console.conftest import Console
from tests.console.page import parse
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
        return [cell.all("a")[0]["href"].rsplit("/", 1)[1] for cell in cells]

    assert finished in listed("status=completed&workflow=harbour")
    assert finished not in listed("status=failed")
    assert console.page("/runs?status=failed&tag=none").one(".empty").text.startswith("No run matches.")


def test_runs_are_searched_and_sorted_and_say_what_they_are_about(console: Console, finished: str) -> None:
    rows = console.page("/runs?q=BERTH+does&sort=longest").one("tbody").all("tr")
    row = next(row for row in rows if finished in row.all("a")[0]["href"])
    assert row.all("td")[0].text == QUESTION
    assert re.fullmatch(r"[\d.]+ (ms|s)", row.all("td")[4].text)
    assert int(row.all("td")[5].text) > 100
    tomorrow = console.page("/runs?since=2999-01-01")
    assert tomorrow.one(".empty").text.startswith("No run matches.")
    assert "A day is written" in console.page("/runs?until=tomorrow", 400).text
    assert tomorrow.one("input#since")["value"] == "2999-01-01"


def test_the_answer_stands_on_top_and_turns_are_folded(console: Console, finished: str) -> None:
    page = console.page(f"/runs/{finished}")
    assert page.one(".asked-for").text == QUESTION
    assert "The Aurora lies at berth 7." in page.one("section.answer").text
    for step in page.one("section.agent").all("li.step"):
        assert "open" not in step.all("details")[0].attributes


def test_the_times_of_nodes_and_tools_are_drawn_and_lead_to_the_node(console: Console, finished: str) -> None:
    picture = console.page(f"/runs/{finished}").one("svg.gantt")
    bars = [(bar["class"], bar.one("title").text.split(":")[0]) for bar in picture.all("rect")]
    assert bars[0] == ("node completed", "master")
    assert [label for kind, label in bars if kind.startswith("tool")] == ["tally", "write"]
    assert [label for kind, label in bars if kind.startswith("model")] == ["turn 1", "turn 2", "turn 3"]
    assert [label for kind, label in bars if kind.startswith("wait")] == ["waits (approval)"] * 2
    page = console.page(picture.one("a")["href"])
    assert page.one("h1").text == "Harbour master completed"
    assert QUESTION in page.text.replace('\\"', '"')
    assert [cell.text for cell in page.one("table").all("td")][:2] == ["1", "completed"]
    assert console.page(f"/runs/{finished}").one("svg.graph").one("a")["href"] == picture.one("a")["href"]
    assert "no such node" in console.page(f"/runs/{finished}/nodes/nowhere", 404).text


def test_a_failed_run_is_tried_again_from_the_node_that_failed(console: Console) -> None:
    document = workflow("breaks", ("first", "core.identity", {}), ("then", "core.fail", {"message": "no"}))
    assert console.running.api.put("/v1/workflows/breaks", json=document).status_code in (200, 201)
    run = console.running.start("breaks")
    console.running.until(run, "run.failed")
    page = console.page(f"/runs/{run}")
    assert page.one("form.retry").one("button").text == "Try again from then"
    again = console.send(f"/runs/{run}/retry").headers["location"]
    console.running.until(again.rsplit("/", 1)[1], "run.failed")
    assert f"fork of {run[:10]}" in console.page(again).one("#status").text
    node = console.page(f"/runs/{run}/nodes/then")
    assert "no" in node.one(".alert").text


def test_two_runs_are_compared(console: Console, finished: str) -> None:
    document = workflow("counts", ("first", "core.identity", {}), ("then", "core.identity", {}))
    assert console.running.api.put("/v1/workflows/counts", json=document).status_code in (200, 201)
    runs = [console.running.start("counts", number=number) for number in (1, 1, 2)]
    for run in runs:
        console.running.until(run, "run.completed")
    one, same, other = runs
    assert "They are the same." in console.page(f"/runs/{one}/diff?against={same}").one(".note").text
    page = console.page(f"/runs/{one}/diff?against={other}")
    assert "They went apart at event 0." in page.text
    assert {"Inputs", "Variables", "Events"} <= {node.text for node in page.all("h2")}
    console.page(f"/runs/{one}/diff?against=nowhere", 404)
    console.page(f"/runs/{one}/diff", 404)


def test_a_run_that_cannot_start_keeps_what_was_typed(console: Console) -> None:
    for fields, at in (({"workflow": "harbour", "inputs": "{"}, "inputs"), ({"question": "  "}, "question")):
        page = parse(console.send("/runs", 400, **fields).text)
        assert page.one(f"#{at}")["aria-invalid"] == "true"
        assert page.one(f"#wrong-{at}").text
        assert page.one(f"#{at}").text == fields[at].strip()


def test_charts_count_the_runs_of_the_time(console: Console, finished: str) -> None:
    for over in ("day", "week", "month", "year", "nonsense"):
        page = console.page(f"/charts?over={over}")
        assert [node.one("strong").text for node in page.all("figcaption")] == ["Runs", "Tokens", "Cost", "Latency"]
        assert page.all("svg.chart")[0].all("rect.good")
    assert page.one("nav[aria-label=Time]").one("a[aria-current=page]").text == "the last week"


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
