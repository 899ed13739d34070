"""Short names, servers of this machine, and keys from a file or a command."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from forestay import models
from forestay.kernel import ManualClock, ModelEntry, Problem
from forestay.models import Message
from forestay.models.services import address_of
from tests.models.local_servers import LLAMA_CPP, LM_STUDIO, OLLAMA, SOMETHING_ELSE, answering
from tests.models.wire import Reply, serving

HELLO = [Message("user", "Say hello.")]


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:9000", "http://127.0.0.1:9000/v1"),
        ("gpu.lan", "http://gpu.lan:11434/v1"),
        ("https://gpu.lan:443", "https://gpu.lan:443/v1"),
        ("[::1]:9000", "http://[::1]:9000/v1"),
    ],
)
def test_ollama_is_where_its_own_variable_says(said: str, address: str) -> None:
    assert address_of("ollama", {"OLLAMA_HOST": said}) == address


async def test_a_short_name_asks_its_server_and_sends_no_key(clock: ManualClock) -> None:
    async with serving(Reply(("Hello.",))) as server:
        server.keyless = True
        environ = {"OLLAMA_HOST": f"127.0.0.1:{server.port}", "OPENAI_API_KEY": "no"}
        model = models.open("ollama:qwen3:4b", clock=clock, environ=environ)
        answer = await models.fold(model.stream(HELLO))
        await model.aclose()
    assert (answer.text, model.name) == ("Hello.", "ollama:qwen3:4b")
    assert server.requests[0]["model"] == "qwen3:4b"
    assert "authorization" not in server.headers[0]


def test_openrouter_wants_its_own_key() -> None:
    with pytest.raises(Problem) as caught:
        models.open("openrouter:vendor/model", environ={"OPENAI_API_KEY": "another"})
    assert caught.value.details["variable"] == "OPENROUTER_API_KEY"
    assert "https://openrouter.ai/api/v1" in caught.value.message


@pytest.mark.parametrize(
    ("service", "documents", "offered"),
    [
        ("ollama", OLLAMA, {"qwen3:4b": 4096}),
        ("lmstudio", LM_STUDIO, {"qwen2.5-7b-instruct": 16384, "gemma-3-12b": None}),
        ("llamacpp", LLAMA_CPP, {"ggml-model.gguf": 12288}),
    ],
)
def test_a_server_of_this_machine_is_found_with_its_models_and_windows(
    service: str, documents: Mapping[str, Any], offered: dict[str, int | None]
) -> None:
    with answering(documents) as address:
        (found,) = asyncio.run(models.find_servers({}, {service: address}))
    assert (found.service, found.address) == (service, address)
    assert {item.name: item.context_window for item in found.models} == offered


def test_what_is_no_model_server_is_not_taken_for_one() -> None:
    with answering(SOMETHING_ELSE) as another, answering({"/v1/models": ["x"]}) as odd, answering({}) as empty:
        places = [{"llamacpp": another}, {"ollama": odd, "lmstudio": empty}]
        assert [asyncio.run(models.find_servers({}, place)) for place in places] == [[], []]
    assert asyncio.run(models.find_servers({}, {"ollama": empty})) == []


def test_k1_a_list_of_models_needs_the_key_that_the_server_wants() -> None:
    with answering(OLLAMA, key="sk-own") as address:
        assert [item.name for item in asyncio.run(models.served_models(address, "sk-own"))] == ["qwen3:4b"]
        with pytest.raises(Problem) as caught:
            asyncio.run(models.served_models(address, "sk-other"))
    assert address in caught.value.message
    assert "sk-other" not in f"{caught.value.message} {caught.value.details}"


def keyed(address: str, clock: ManualClock, **source: Any) -> models.OpenModel:
    entry = ModelEntry(model="m", base_url=address, **source)
    return models.open("mine", clock=clock, entries={"mine": entry}, environ={})


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_k2_a_key_is_read_from_a_file_and_again_when_it_was_renewed(
    wire: str, clock: ManualClock, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("sk-first\n")
    async with serving(*[Reply(("Hello.",))] * 3) as server:
        model = keyed(getattr(server, wire), clock, provider=wire, api_key_file=str(file))
        for expected in ("sk-first", "sk-first", "sk-second"):
            server.key = expected
            await models.fold(model.stream(HELLO))
            file.write_text("sk-second\n")
            clock.advance(200)
        await model.aclose()
    assert len(server.requests) == 3


async def test_k2_a_key_is_what_a_command_prints(clock: ManualClock) -> None:
    async with serving(Reply(("Hello.",))) as server:
        server.key = "sk-printed"
        command = [sys.executable, "-c", "print('sk-' + 'printed')"]
        model = keyed(server.openai, clock, api_key_command=command)
        await models.fold(model.stream(HELLO))
        await model.aclose()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"api_key_command": [sys.executable, "-c", "print('half-a-secret'); raise SystemExit(3)"]}, "ended with 3"),
        ({"api_key_command": [sys.executable, "-c", "print('half-a-secret\\nmore')"]}, "cannot be sent as a key"),
        ({"api_key_command": [sys.executable, "-c", ""]}, "is empty"),
        ({"api_key_command": ["no-such-program-here"]}, "cannot be started"),
        ({"api_key_file": "/no/such/file"}, "cannot be read"),
    ],
)
async def test_k1_a_key_that_is_not_there_is_told_before_anything_is_sent(
    source: dict[str, Any], told: str, clock: ManualClock
) -> None:
    async with serving(Reply(("Hello.",))) as server:
        model = keyed(server.openai, clock, **source)
        with pytest.raises(Problem) as caught:
            await models.fold(model.stream(HELLO))
        await model.aclose()
        assert server.requests == []
    assert caught.value.key == "provider_unauthenticated"
    assert told in caught.value.message
    assert "half-a-secret" not in caught.value.message.replace(str(source), "").split("`")[-1]


def test_a_key_is_named_once() -> None:
    entry = ModelEntry(model="m", base_url="https://h/v1", api_key_env="A", api_key_file="b")
    with pytest.raises(Problem) as caught:
        models.open("x", entries={"x": entry}, environ={"A": "k"})
    assert caught.value.key == "config_invalid"
