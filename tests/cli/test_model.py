"""`forestay model`: from nothing to a model that answers, from outside."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from forestay import models
from forestay.cli.init import TEMPLATE
from forestay.kernel import ModelEntry, Problem, config
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.cli.test_command_line import forestay
from tests.models.local_servers import LM_STUDIO, OLLAMA, answering


def moved(address: str) -> str:
    return address.removesuffix("/v1")


def test_a_model_of_this_machine_is_found_added_asked_and_removed(tmp_path: Path) -> None:
    (tmp_path / "forestay.toml").write_text(TEMPLATE)
    with answering(OLLAMA, says="Ready.") as address:
        host = {"OLLAMA_HOST": moved(address)}
        added = forestay(tmp_path, "model", "add", "small", **host)
        assert added.code == 0, added.out
        written = tomllib.loads((tmp_path / "forestay.toml").read_text())["models"]
        assert written["default"] == "small"
        entry = written["entries"]["small"]
        assert (entry["model"], entry["provider"], entry["context_window"]) == ("qwen3:4b", "ollama", 4096)
        tested = forestay(tmp_path, "model", "test", "small", **host)
        assert tested.envelope["result"]["answer"] == "Ready."
        assert tested.envelope["result"]["usage"]["output_tokens"] == 3
        asked = forestay(tmp_path, "ask", "Is anybody there?", **host)
        assert asked.envelope["result"]["answer"] == "Ready.", asked.out
    down = forestay(tmp_path, "model", "test", "small", **host)
    assert down.code == 9
    assert down.envelope["error"]["message"] == f"The connection to the model server at {address} failed."
    removed = forestay(tmp_path, "model", "remove", "small")
    assert removed.envelope["result"]["settings"] == ["models.entries.small", "models.default"]
    assert (tmp_path / "forestay.toml").read_text() == TEMPLATE


def test_a_keyed_server_is_added_listed_and_asked(tmp_path: Path) -> None:
    words = ["--base-url", "https://router.example/v1", "--model", "vendor/m", "--api-key-env", "ROUTER_KEY"]
    more = ["--input-price", "1.5", "--output-price", "6", "--header", "X-Title=harbour", "--no-default"]
    assert forestay(tmp_path, "model", "add", "router", *words, *more, "--context-window", "32000").code == 0
    listed = forestay(tmp_path, "model", "list", ROUTER_KEY="sk-secret")
    (item,) = listed.envelope["result"]["models"]
    assert item["key"] == {"from": "ROUTER_KEY", "state": "set"}
    assert item["price"] == {"input": 1.5, "output": 6.0}
    assert listed.envelope["result"]["default"] == "local"
    assert "sk-secret" not in listed.out
    again = forestay(tmp_path, "model", "add", "router", *words)
    assert again.envelope["error"]["details"]["problem"] == "already_exists"


def test_what_is_added_says_which_package_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ModelEntry(model="m", provider="ollama")
    assert models.lacks(entry) == ""
    monkeypatch.setattr("forestay.models.registry.find_spec", lambda name: None)
    assert models.lacks(entry) == "openai"
    assert models.lacks(ModelEntry(model="m", provider="anthropic")) == "anthropic"


@pytest.mark.parametrize(
    ("words", "at"),
    [
        (["x", "--provider", "nobody", "--model", "m"], "--provider"),
        (["x", "--provider", "openai"], "--model"),
        (["local", "--provider", "openai", "--model", "m"], "models.entries.local"),
        (["x", "--base-url", "router.example", "--model", "m"], "models.entries.x.base_url"),
        (["x", "--provider", "openai", "--model", "m", "--header", "Authorization=k"], "models.entries.x.headers"),
        (["x", "--provider", "openai", "--model", "m", "--input-price", "1"], "--input-price"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(words: list[str], at: str, tmp_path: Path) -> None:
    ran = forestay(tmp_path, "model", "add", *words)
    assert ran.code != 0
    assert ran.envelope["error"]["details"]["at"].startswith(at)
    assert list(tmp_path.iterdir()) == []


def test_a_key_from_a_command_is_for_the_users_own_settings(tmp_path: Path) -> None:
    words = ["--base-url", "https://router.example/v1", "--model", "m", "--api-key-command", "pass show router"]
    assert forestay(tmp_path, "model", "add", "work", *words).code == 0
    assert not (tmp_path / "forestay.toml").exists()
    entry = tomllib.loads((tmp_path / "forestay" / "config.toml").read_text())["models"]["entries"]["work"]
    assert entry["api_key_command"] == ["pass", "show", "router"]


def test_a_project_cannot_start_programs_or_turn_a_users_key_elsewhere(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text("[models.entries.work]\nmodel='m'\nbase_url='https://good/v1'\napi_key_command=['pass']\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "forestay.toml").write_text("[models.entries.work]\nmodel='m'\nbase_url='https://evil/v1'\n")
    entry = config.load(project, environ={}, user_file=own).config.models.entries["work"]
    assert (entry.base_url, entry.api_key_command) == ("https://evil/v1", [])
    for line in ("api_key_command=['sh', '-c', 'touch /tmp/x']", "api_key_file='/etc/passwd'"):
        (project / "forestay.toml").write_text(f"[models.entries.a]\nmodel='m'\n{line}\n")
        with pytest.raises(Problem) as caught:
            config.load(project, environ={}, user_file=own)
        assert caught.value.key == "config_invalid"
        assert caught.value.details["at"].startswith("models.entries.a.api_key_")


def test_on_a_terminal_what_is_missing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(LM_STUDIO, says="Ready.") as address:
        monkeypatch.setenv("OLLAMA_HOST", moved(address))
        terminal = PseudoTerminal(tmp_path, "model", "add", "mine")
        terminal.expect(r"1  Ollama at \S+, 2 models")
        terminal.expect("Where is the model")
        terminal.type("1")
        terminal.expect("2  gemma-3-12b")
        terminal.type("2")
        terminal.expect("Next: forestay model test mine")
        assert terminal.end() == 0
        terminal.close()
    written = tomllib.loads((tmp_path / "forestay.toml").read_text())["models"]
    assert written["entries"]["mine"]["model"] == "gemma-3-12b"
