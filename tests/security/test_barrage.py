"""Hostile requests to every operation of a real `forestay up`: each is answered, none with a 5xx, none takes long."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.security.barrage import attack, target
from tests.security.hostile_request import VALUES, Operation, There, requests

FEW = 1_000
MANY = 100_000
_BODY = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}


def test_a_thousand_hostile_requests_are_answered_and_none_with_a_5xx(tmp_path: Path) -> None:
    with target(tmp_path) as (host, known, there):
        found = attack(host.url, None, requests(known, there, host.keys["full"].encode(), 1), FEW)
    assert found.failures == []
    assert found.operations == {item.name for item in known}
    assert len(known) > 150
    assert {200, 400, 401, 404, 413, 415, 431} <= found.statuses.keys()  # they come as far as that


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="the clock of another process is read as Linux gives it")
def test_a_hundred_thousand_hostile_requests_take_little_time_each(tmp_path: Path) -> None:
    with target(tmp_path) as (host, known, there):
        assert host.process is not None
        made = requests(known, there, host.keys["full"].encode(), 2)
        found = attack(host.url, host.process.pid, made, MANY)
    assert found.failures == []
    assert found.slow == []
    assert found.sent == MANY


def test_a_seed_makes_the_same_requests_and_spoils_every_part_of_them() -> None:
    known = [Operation("POST", "/v1/things/{id}", [{"in": "query", "name": "q"}], _BODY, {})]
    made = list(islice(requests(known, There([b"x"]), b"key", 7), 2000))
    assert made == list(islice(requests(known, There([b"x"]), b"key", 7), 2000))
    assert made != list(islice(requests(known, There([b"x"]), b"key", 8), 2000))
    bodies = {item.body for item in made}
    assert any(body.startswith(b'{"a": "x"') for body in bodies)  # some are whole: something else is wrong with them
    inside = [value for value in VALUES if any(b":" + value in body for body in bodies)]
    assert len(inside) > len(VALUES) * 0.9
    assert any(b"?" in item.target for item in made)
    assert any(item.target.startswith(b"/v1/things/..") for item in made)
    assert any(len(item.headers) > 100 for item in made)
