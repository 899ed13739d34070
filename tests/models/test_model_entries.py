"""Models that the settings name: an address, a key's variable, a window, headers; and what a failing endpoint says."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from forestay import models
from forestay.kernel import ManualClock, ModelEntry, Problem
from forestay.models import Message
from tests.models.wire import Reply, Server, serving

HELLO = [Message("user", "Say hello.")]
WIRES = ("openai", "anthropic")


def entry(server: Server, wire: str, **more: Any) -> ModelEntry:
    return ModelEntry(model="vendor/some-model", provider=wire, base_url=getattr(server, wire), **more)  # type: ignore[arg-type]


def opened(found: ModelEntry, clock: ManualClock, name: str = "mine", **environ: str) -> models.OpenModel:
    return models.open(name, clock=clock, entries={name: found}, environ=environ)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_keyed_endpoint_gets_its_key_and_headers(wire: str, clock: ManualClock) -> None:
    async with serving(Reply(("Hello.",))) as server:
        server.key = "sk-of-the-router"
        found = entry(
            server,
            wire,
            api_key_env="ROUTER_KEY",
            context_window=32_000,
            max_output_tokens=900,
            headers={"X-Title": "harbour"},
        )
        model = opened(found, clock, ROUTER_KEY=" sk-of-the-router\n", OPENAI_API_KEY="no", ANTHROPIC_API_KEY="no")
        answer = await models.fold(model.stream(HELLO))
        await model.aclose()
    assert answer.text == "Hello."
    assert model.name == "mine:vendor/some-model"
    assert (model.context_window, model.max_output_tokens) == (32_000, 900)
    assert server.headers[0]["x-title"] == "harbour"
    assert server.requests[0]["model"] == "vendor/some-model"


@pytest.mark.parametrize("wire", WIRES)
async def test_without_a_key_none_is_sent(wire: str, clock: ManualClock) -> None:
    async with serving(Reply(("Hello.",))) as server:
        server.keyless = True
        model = opened(entry(server, wire), clock, OPENAI_API_KEY="no", ANTHROPIC_API_KEY="no")
        await models.fold(model.stream(HELLO))
        await model.aclose()
    assert not {"authorization", "x-api-key"} & server.headers[0].keys()


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refused_key_names_the_address_and_the_variable_and_never_the_key(
    wire: str, clock: ManualClock
) -> None:
    async with serving() as server:
        server.key = "the right one"
        found = entry(server, wire, api_key_env="ROUTER_KEY")
        model = opened(found, clock, ROUTER_KEY="my-own-secret-key")
        with pytest.raises(Problem) as caught:
            await models.fold(model.stream(HELLO))
        await model.aclose()
    problem = caught.value
    assert problem.key == "provider_unauthenticated"
    assert f"http://127.0.0.1:{server.port}" in problem.message
    assert "ROUTER_KEY" in problem.details["fix"]
    assert "my-own-secret-key" not in f"{problem.message} {problem.details}"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_server_that_wants_a_key_and_gets_none_says_what_to_set(wire: str, clock: ManualClock) -> None:
    async with serving() as server:
        server.key = "the right one"
        model = opened(entry(server, wire), clock)
        with pytest.raises(Problem) as caught:
            await models.fold(model.stream(HELLO))
        await model.aclose()
    assert caught.value.key == "provider_unauthenticated"
    assert "wants a key" in caught.value.message
    assert "api_key_env" in caught.value.details["fix"]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_server_that_is_down_is_one_problem_with_its_address_and_no_log_line(
    wire: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server:
        pass
    caplog.set_level(logging.WARNING)
    address = f"{getattr(server, wire)}".replace("http://", "http://me:hidden-word@")
    model = models.open(f"{wire}:m@{address}", clock=clock)
    with pytest.raises(Problem) as caught:
        await models.fold(model.stream(HELLO))
    await model.aclose()
    problem = caught.value
    assert problem.key == "provider_error"
    assert f"http://127.0.0.1:{server.port}" in problem.message
    assert "server runs" in problem.details["fix"]
    assert "hidden-word" not in f"{problem.message} {problem.details}"
    assert caplog.records == []


async def test_a_missing_variable_is_named_before_anything_is_sent(clock: ManualClock) -> None:
    found = ModelEntry(model="m", base_url="https://router.example/v1", api_key_env="ROUTER_KEY")
    for environ in ({}, {"ROUTER_KEY": "  "}, {"OPENAI_API_KEY": "another"}):
        with pytest.raises(Problem) as caught:
            opened(found, clock, **environ)
        assert caught.value.key == "provider_unauthenticated"
        assert caught.value.details["variable"] == "ROUTER_KEY"
        assert "https://router.example/v1" in caught.value.message


async def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(clock: ManualClock) -> None:
    found = ModelEntry(model="m", base_url="https://router.example/v1", api_key_env="ROUTER_KEY")
    with pytest.raises(Problem) as caught:
        opened(found, clock, ROUTER_KEY="half\nother half")
    assert "half" not in f"{caught.value.message} {caught.value.details}"


async def test_the_providers_own_address_takes_its_own_key_or_the_one_that_is_named(clock: ManualClock) -> None:
    found = ModelEntry(model="gpt-x", api_key_env="SECOND_ACCOUNT")
    model = opened(found, clock, SECOND_ACCOUNT="k2", OPENAI_API_KEY="k1")
    await model.aclose()
    with pytest.raises(Problem) as caught:
        opened(ModelEntry(model="gpt-x"), clock)
    assert caught.value.details["variable"] == "OPENAI_API_KEY"


async def test_a_name_with_an_at_sign_is_a_models_name(clock: ManualClock) -> None:
    async with serving(Reply(("Hello.",))) as server:
        found = ModelEntry(model="@cf/vendor/model", base_url=server.openai)
        model = opened(found, clock)
        await models.fold(model.stream(HELLO))
        await model.aclose()
    assert server.requests[0]["model"] == "@cf/vendor/model"


@pytest.mark.parametrize(
    ("name", "found", "at"),
    [
        ("local", ModelEntry(model="m"), "models.entries.local"),
        ("openai", ModelEntry(model="m"), "models.entries.openai"),
        ("a b", ModelEntry(model="m"), "models.entries.a b"),
        ("a:b", ModelEntry(model="m"), "models.entries.a:b"),
        ("x", ModelEntry(model=""), "models.entries.x.model"),
        ("x", ModelEntry(model="m", base_url="router.example/v1"), "models.entries.x.base_url"),
        ("x", ModelEntry(model="m", base_url="http://h:99999999/v1"), "models.entries.x.base_url"),
        ("x", ModelEntry(model="m", base_url="http://me:hidden-word@h/v1"), "models.entries.x.base_url"),
        ("x", ModelEntry(model="m", base_url="ftp://me:hidden-word@h/v1"), "models.entries.x.base_url"),
        ("x", ModelEntry(model="m", base_url="http://h", headers={"Authorization": "k"}), "models.entries.x.headers"),
        ("x", ModelEntry(model="m", base_url="http://h", headers={"A": "1\r\nB: 2"}), "models.entries.x.headers"),
        ("x", ModelEntry(model="m", base_url="http://h", headers={"A B": "1"}), "models.entries.x.headers"),
    ],
)
def test_an_entry_with_a_mistake_is_refused(name: str, found: ModelEntry, at: str) -> None:
    with pytest.raises(Problem) as caught:
        models.open(name, entries={name: found}, environ={"OPENAI_API_KEY": "k"})
    assert caught.value.key == "config_invalid"
    assert caught.value.details["at"].startswith(at)
    assert "hidden-word" not in f"{caught.value.message} {caught.value.details}"


def test_a_name_that_nobody_knows_lists_the_entries() -> None:
    with pytest.raises(Problem) as caught:
        models.open("rooter", entries={"router": ModelEntry(model="m")})
    assert caught.value.key == "model_unknown"
    assert caught.value.details["known"][0] == "router"
