"""A model of the settings from outside: the real command against a real server that wants a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_command_line import forestay
from tests.models.wire import Reply, serving_beside

SETTINGS = """\
[models]
default = "router"

[models.entries.router]
base_url = "{url}"
model = "vendor/model"
api_key_env = "ROUTER_KEY"
context_window = 32768
"""
COMMANDS = [("ask", "How is the tide?"), ("relay", "ask", "How is the tide?")]


def project(folder: Path, url: str, settings: str = SETTINGS) -> None:
    """A project with a keyed model, whose key a person trusts it with."""
    (folder / "forestay.toml").write_text(settings.format(url=url))
    assert forestay(folder, "model", "trust", "router").code == 0


@pytest.mark.parametrize("words", COMMANDS)
def test_a_keyed_endpoint_answers(words: tuple[str, ...], tmp_path: Path) -> None:
    with serving_beside(Reply(("The tide is low.",)), key="sk-router") as server:
        project(tmp_path, server.openai)
        ran = forestay(tmp_path, *words, ROUTER_KEY="sk-router")
    assert ran.code == 0, ran.out
    assert "The tide is low." in ran.out
    assert server.headers[0]["authorization"] == "Bearer sk-router"


@pytest.mark.parametrize("words", COMMANDS)
def test_a_server_that_is_down_is_one_message_with_its_address(words: tuple[str, ...], tmp_path: Path) -> None:
    with serving_beside() as server:
        pass
    project(tmp_path, server.openai)
    ran = forestay(tmp_path, *words, ROUTER_KEY="sk-router")
    assert ran.code == 9
    error = ran.envelope["error"]
    assert error["message"] == f"The connection to the model server at {server.openai} failed."
    assert error["suggestedAction"].startswith("Check that the server runs")
    assert "retry" not in ran.err
    assert all(line.startswith(("model ", "in ", "run ")) for line in ran.err.splitlines())


def test_a_key_that_is_not_set_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    with serving_beside(Reply(("x",))) as server:
        project(tmp_path, server.openai)
        ran = forestay(tmp_path, "ask", "How is the tide?", ROUTER_KEY="")
        assert server.requests == []
    assert ran.code == 3
    assert "ROUTER_KEY is not set" in ran.envelope["error"]["message"]


def test_a_question_is_put_to_the_model_that_a_person_names(tmp_path: Path) -> None:
    with serving_beside(Reply(("The tide is low.",))) as server:
        project(tmp_path, server.openai, SETTINGS.replace('default = "router"', ""))
        ran = forestay(tmp_path, "ask", "How is the tide?", "--model", "router", ROUTER_KEY="sk-router")
        assert (ran.code, ran.envelope["result"]["answer"]) == (0, "The tide is low.")
        assert len(server.requests) == 1
        other = forestay(tmp_path, "ask", "How is the tide?", "--model", "nosuch", ROUTER_KEY="sk-router")
        assert other.code != 0 and "There is no model nosuch here." in other.envelope["error"]["message"]
        assert len(server.requests) == 1
