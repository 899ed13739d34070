"""The pages of sessions without a browser: every form works without a script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.console.conftest import Console
from tests.console.page import Node
from tests.console.served import served
from tests.console.talking import talking


@pytest.fixture(scope="module")
def visitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with served(talking(tmp_path_factory.mktemp("talk")), "--trust") as running:
        found = Console(running)
        yield found
        found.http.close()


def begun(visitor: Console, message: str) -> str:
    """The address of a conversation that begins with a message."""
    return str(visitor.send("/sessions", message=message).headers["location"])


def until_over(visitor: Console, address: str) -> Node:
    """The page when no turn is under way any more."""
    state = f"/host/v1{address}/ui"
    while (run := visitor.running.api.get(state).json()["result"]["runId"]) is not None:
        visitor.running.until(run, "run.completed", "run.failed", "run.cancelled")
    return visitor.page(address)


def lines(page: Node) -> list[str]:
    return [item.text for item in page.one("ol").all("li")]


def test_a_conversation_is_begun_shown_and_gone_on_with(visitor: Console) -> None:
    address = begun(visitor, "Where does the Aurora lie?")
    page = until_over(visitor, address)
    said = lines(page)
    assert said[0].startswith("You Where does the Aurora lie?")
    assert "calls read" in said[1] and '"path": "notes.md"' in said[1]
    assert said[2].startswith("read ok") and "berth 7" in said[2]
    assert "The Aurora lies at berth 7." in said[3]
    assert not page.one("ol").all("details")[0].attributes.get("open"), "tool calls are folded"
    visitor.send(f"{address}/say", message="And the Borealis?")
    page = until_over(visitor, address)
    assert "The Borealis lies at berth 9." in lines(page)[-1]
    visitor.send(f"{address}/change", do="name", name="Two boats")
    assert "Two boats" in visitor.page(address).one("h1").text
    assert any("Two boats" in link.text for link in visitor.page("/sessions").all("a"))
    users = [item for item in page.one("ol").all("li") if item["class"].startswith("line user")]
    visitor.send(f"{address}/change", do="move", entry=users[1]["id"].removeprefix("entry-"))
    page = visitor.page(address)
    assert page.one("textarea").text == "And the Borealis?", "what is said anew stands in the editor"
    assert len([text for text in lines(page) if text.startswith("You")]) == 1
    assert "Other branches" in page.text and "And the Borealis?" in page.text
    copy = visitor.send(f"{address}/change", do="fork", entry=users[0]["id"].removeprefix("entry-"))
    assert copy.headers["location"] != address
    assert len(lines(visitor.page(str(copy.headers["location"])))) == 1
    visitor.send(f"{address}/change", 400, do="explode")
    visitor.send(f"{address}/say", 400, message=" ")
    visitor.page("/sessions/nowhere", 404)


def test_a_message_chooses_its_model_and_its_agent_and_the_choice_stays(visitor: Console) -> None:
    begins = visitor.page("/sessions")
    assert [item.text for item in begins.one("#model").all("option")][1:] == ["scripted:model.json", "local"]
    first = {"message": "Where does the Aurora lie?", "model": "local", "agent": "core.forestay.assistant"}
    address = str(visitor.send("/sessions", **first).headers["location"])
    page = until_over(visitor, address)
    assert "The local model found this" in page.text
    chosen = {name: page.one(f"#{name}") for name in ("model", "agent")}
    picked = {
        name: [item.text for item in found.all("option") if "selected" in item.attributes]
        for name, found in chosen.items()
    }
    assert picked == {"model": ["local"], "agent": ["core.forestay.assistant"]}
    visitor.send(f"{address}/say", 400, message="Again", model="openai:gpt-of-somebody")
    visitor.send(f"{address}/say", 404, message="Again", agent="no-such-agent")


def test_an_answer_is_shown_as_markdown(visitor: Console) -> None:
    address = begun(visitor, "Where does the Aurora lie?")
    page = until_over(visitor, address)
    (spoken,) = [
        item for item in page.all("div") if "prose" in item.attributes.get("class", "") and "berth 7" in item.text
    ]
    assert [item.text for item in spoken.all("strong")] == ["berth 7"]


def test_dialogs_of_extensions_are_answered_by_forms(visitor: Console) -> None:
    address = begun(visitor, "")
    visitor.page(address)  # who opens the page is there
    visitor.send(f"{address}/say", message="/berth for two")
    answers = {"select": "1", "confirm": "yes", "input": "Aurora", "editor": "windy"}
    for operation, value in answers.items():
        (form,) = _dialogs(visitor, address, operation)
        assert "harbour asks" in form.text
        path = form.one("form")["action"]
        visitor.send(path, operation=operation, value=value, do="answer")
    page = until_over(visitor, address)
    assert "harbour Moored" in page.text and "~x~" in page.text
    entries = visitor.running.api.get(f"/host/v1{address}").json()["result"]["entries"]
    told = {"args": "for two", "chosen": "south", "sure": True, "name": "Aurora", "log": "windy", "ui": True}
    assert [entry["data"] for entry in entries] == [told]
    assert any(button.attributes.get("data-command") == "/berth " for button in page.all("button"))


def test_a_command_that_fails_says_so_in_the_words_of_its_extension(visitor: Console) -> None:
    address = begun(visitor, "/fail")
    told = until_over(visitor, address).one("#failure").text
    assert "This turn failed. extension harbour" in told and "Error: no wind" in told
    visitor.send(f"{address}/say", message="Where does the Aurora lie?")
    page = until_over(visitor, address)
    assert page.one("#failure").text == "" and "berth 7" in page.one("#lines").text
    interface = visitor.page(f"{address}?only=interface")
    assert not interface.all("ol") and interface.one("#places"), "what was said is not sent again"


def _dialogs(visitor: Console, address: str, operation: str) -> list[Node]:
    """The dialogs on the page, once one of this kind stands there."""
    with visitor.running.api.stream("GET", f"/host/v1{address}/ui/stream") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                dialogs = json.loads(line.removeprefix("data: "))["ui"]["dialogs"]
                if any(item["operation"] == operation for item in dialogs):
                    break
    return [item for item in visitor.page(address).all("article") if "dialog" in item["class"]]


def test_the_pages_script_hears_words_and_changes(visitor: Console) -> None:
    """The first it hears is to look at the whole page, which may be older than the stream. A turn that is over before
    the script listens is heard as a change alone; its words are on the page then."""
    address = begun(visitor, "")
    heard: list[str] = []
    with visitor.http.stream("GET", f"{address}/live") as stream:
        for line in stream.iter_lines():
            heard.append(line)
            if heard.count("event: said") == 1 and line == "event: said":  # what stood before it listened
                visitor.send(f"{address}/say", message="Where does the Aurora lie?")
            elif re.fullmatch(r'data: ".*berth 7.*"', line) or (
                line.startswith("event: ") and _answered(visitor, address)
            ):
                break
    events = [line.removeprefix("event: ") for line in heard if line.startswith("event: ")]
    assert events[0] == "said" and {"said", "chunk"} & set(events[1:])
    until_over(visitor, address)


def _answered(visitor: Console, address: str) -> bool:
    return "The Aurora lies at berth 7." in visitor.page(address).one("#lines").text
