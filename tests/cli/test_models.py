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


@pytest.mark.parametrize("words", COMMANDS)
def test_a_keyed_endpoint_answers(words: tuple[str, ...], tmp_path: Path) -> None:
    with serving_beside(Reply(("The tide is low.",)), key="sk-router") as server:
        (tmp_path / "forestay.toml").write_text(SETTINGS.format(url=server.openai))
        ran = forestay(tmp_path, *words, ROUTER_KEY="sk-router")
    assert ran.code == 0, ran.out
    assert "The tide is low." in ran.out
    assert server.headers[0]["authorization"] == "Bearer sk-router"


@pytest.mark.parametrize("words", COMMANDS)
def test_a_server_that_is_down_is_one_message_with_its_address(words: tuple[str, ...], tmp_path: Path) -> None:
    with serving_beside() as server:
        pass
    (tmp_path / "forestay.toml").write_text(SETTINGS.format(url=server.openai))
    ran = forestay(tmp_path, *words, ROUTER_KEY="sk-router")
    assert ran.code == 9
    error = ran.envelope["error"]
    assert error["message"] == f"The connection to the model server at {server.openai} failed."
    assert error["suggestedAction"].startswith("Check that the server runs")
    assert "retry" not in ran.err
    assert all(line.startswith(("model ", "in ", "run ")) for line in ran.err.splitlines())


def test_a_key_that_is_not_set_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    with serving_beside(Reply(("x",))) as server:
        (tmp_path / "forestay.toml").write_text(SETTINGS.format(url=server.openai))
        ran = forestay(tmp_path, "ask", "How is the tide?", ROUTER_KEY="")
        assert server.requests == []
    assert ran.code == 3
    assert "ROUTER_KEY is not set" in ran.envelope["error"]["message"]
