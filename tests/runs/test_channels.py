"""Channels: seven reducers, age, size, access, schema versions."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.kernel import Problem
from forestay.runs.channels import check_write, open_channel, read, write
from forestay.runs.definition import Access, Channel
from tests.runs.conftest import Host
from tests.runs.documents import finish, node, start, workflow


@pytest.mark.parametrize(
    ("reducer", "values", "result"),
    [
        ("replace", [1, 2], 2),
        ("append", [1, 2], [1, 2]),
        ("merge", [{"a": 1, "b": 1}, {"b": 2}], {"a": 1, "b": 2}),
        ("counter", [1, 2.5, None], 4.5),
        ("votes", [{"userId": "x", "v": 1}, {"userId": "y", "v": 2}, {"userId": "x", "v": 3}],
         [{"userId": "y", "v": 2}, {"userId": "x", "v": 3}]),
        ("feedback", ["a", "b"], ["a", "b"]),
        ("message", [{"messageId": "1", "t": 1}, {"messageId": "1", "t": 2}, {"messageId": "2"}],
         [{"messageId": "1", "t": 1}, {"messageId": "2"}]),
    ],
)  # fmt: skip
def test_reducers(reducer: str, values: list[Any], result: Any) -> None:
    state = open_channel(Channel(reducer=reducer))
    for index, value in enumerate(values):
        write(state, value, index)
    assert read(state, 10) == result


def test_old_entries_are_gone_on_read_and_on_write() -> None:
    state = open_channel(Channel(reducer="append", ttl_ms=100))
    for ts in (0, 50, 90):
        write(state, ts, ts)
    assert read(state, 120) == [{"value": 50, "_ts": 50}, {"value": 90, "_ts": 90}]
    write(state, 200, 200)
    assert [entry.value for entry in state.entries] == [200]


def test_a_channel_keeps_its_newest_entries() -> None:
    state = open_channel(Channel(reducer="append", max_size=2))
    for value in range(5):
        write(state, value, value)
    assert read(state, 9) == [3, 4]


def test_defaults_are_where_a_channel_begins() -> None:
    assert read(open_channel(Channel(reducer="counter", default=5)), 0) == 5
    assert read(open_channel(Channel(reducer="append", default=[1])), 0) == [1]
    assert read(open_channel(Channel(reducer="merge")), 0) == {}


def refused(declared: Channel, value: Any = 1, version: int | None = None) -> str:
    with pytest.raises(Problem) as caught:
        check_write("c", declared, declared.reducer, value, "me", "core.ai.x", version)
    return caught.value.key


def test_writes_are_checked() -> None:
    assert refused(Channel(reducer="counter"), "x") == "schema_mismatch"
    assert refused(Channel(reducer="replace", schema={"type": "string"})) == "schema_mismatch"
    assert refused(Channel(reducer="replace", access="private")) == "channel_access_denied"
    assert (
        refused(Channel(reducer="replace", access=Access(writers=["other", "core.http*"]))) == "channel_access_denied"
    )
    assert refused(Channel(reducer="replace", schema_version=3, compatible_with=[2]), 1, 1) == (
        "channel_schema_breaking_change"
    )
    for access in (Access(writers=["me"]), Access(writers=["core.ai.*"]), Access(writers=["*"])):
        check_write("c", Channel(reducer="replace", access=access), "replace", 1, "me", "core.ai.x", None)
    check_write("c", Channel(reducer="replace", schema_version=3, compatible_with=[2]), "replace", 1, "me", "x", 2)


async def test_a_write_that_is_not_allowed_fails_its_node(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w",
            [node("a", "core.channelWrite", config={"channelName": "c", "value": 1})],
            channels={"c": {"reducer": "replace", "access": {"writers": ["somebody"]}}},
        )
        run = await finish(runs, await start(runs, document))
        assert run.error is not None and run.error.code == "channel_access_denied"


async def test_a_sensitive_channel_is_masked_outside_and_works_inside(host: Host) -> None:
    async with host() as runs:
        document = workflow(
            "w",
            [node("a", "core.channelWrite", config={"channelName": "c", "value": "hunter22"})],
            channels={"c": {"reducer": "replace", "sensitive": True}},
        )
        run_id = await start(runs, document)
        assert (await runs.get_run(run_id, "acme")).channels == {"c": "[REDACTED]"}
        assert "hunter22" not in str(await runs.events(run_id, "acme"))
