"""The way of a request (D1 to D4), over operations made for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from msgspec import Meta
from starlette.responses import Response

from forestay.kernel import HttpRates as Rates
from forestay.kernel import Ids, Ledger, ManualClock, Problem, Rate
from forestay.runs import Idempotency
from forestay.surface.auth import Keys, KeyTable
from forestay.surface.dispatch import Dispatch
from forestay.surface.limits import Load, RateLimits
from forestay.surface.openwop.off import unmatched
from forestay.surface.operations import Body, Call, Operation, Query


class Numbers(Query, frozen=True):
    how_many: Annotated[int, Meta(ge=1, le=60)] = 30
    flag: bool = False
    names: list[str] = []  # noqa: RUF012 - msgspec copies it


class Thing(Body, frozen=True):
    size: int
    note: str | None = None


class Surface:
    """A few operations that count how often they really ran."""

    def __init__(self) -> None:
        self.ran = 0
        self.gate: asyncio.Event | None = None
        self.outcomes: list[Problem | int] = []

    async def make(self, call: Call) -> Response:
        self.ran += 1
        if self.gate is not None:
            await self.gate.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else 201
        if isinstance(outcome, Problem):
            raise outcome
        body = {"number": self.ran, "size": call.body.size, "tenant": call.caller.tenant, "reserved": call.reserved}
        return call.answer(body, outcome, {"Location": "/v1/things/1"})

    async def look(self, call: Call) -> Response:
        return call.answer({"path": dict(call.path), "query": call.query})

    async def act(self, call: Call) -> Response:
        self.ran += 1
        return call.answer({"path": dict(call.path)}, 202)

    async def breaks(self, call: Call) -> Response:
        raise ZeroDivisionError("inner text")

    def operations(self) -> list[Operation]:
        def one(name: str, method: Any, path: str, perform: Any, **more: Any) -> Operation:
            return Operation(
                name=name, method=method, path=path, perform=perform, summary=name, answers={200: None}, **more
            )

        return [
            one("make", "POST", "/v1/things", self.make, scopes=("runs:create",), body=Thing),
            one("look", "GET", "/v1/things/{thingId}", self.look, scopes=("runs:read",), query=Numbers),
            one("act", "POST", "/v1/things/{thingId}:act", self.act, scopes=("runs:cancel",)),
            one("open", "GET", "/v1/open", self.look, auth="none"),
            one("breaks", "GET", "/v1/breaks", self.breaks),
            one("secret", "POST", "/v1/secrets", self.act, sensitive=True),
        ]


class Client:
    def __init__(self, http: httpx.AsyncClient, keys: Keys, load: Load) -> None:
        self.http = http
        self.keys = keys
        self.load = load

    async def key(self, **options: Any) -> dict[str, str]:
        _, text = await self.keys.create("test", **options)
        return {"Authorization": f"Bearer {text}"}


@asynccontextmanager
async def opened(
    surface: Surface, tmp_path: Path, clock: ManualClock, ids: Ids, rates: Rates | None = None
) -> AsyncIterator[Client]:
    async with Ledger.open(tmp_path / "ledger.db", projections=[KeyTable()], clock=clock, ids=ids) as ledger:
        keys = Keys(ledger, clock, ids)
        load = Load()
        app = Dispatch(
            surface.operations(),
            lambda request: keys.authenticate(request.headers.get("authorization")),
            RateLimits(rates or Rates(), clock),
            load,
            Idempotency(ledger, clock, ids, owner="boot", key=b"k" * 32),
            clock=clock,
            ids=ids,
            unmatched=unmatched,
        )
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://host") as http:
            yield Client(http, keys, load)


PATHS = [
    ("GET", "/v1/things/x", 200),
    ("GET", "/v1/nowhere", 404),
    ("DELETE", "/v1/things/x", 405),
    ("GET", "/v1/things/%2e%2e%00", 404),
    ("GET", "/v1/a2a", 501),
    ("GET", "/v1/mcp/x", 501),
    ("GET", "/v1/packs-test/a/b", 501),
    ("POST", "/v1/things", 400),
]


@pytest.mark.parametrize(("method", "path", "status"), PATHS)
async def test_d1_401_comes_before_everything(
    method: str, path: str, status: int, tmp_path: Path, clock: ManualClock, ids: Ids
) -> None:
    async with opened(Surface(), tmp_path, clock, ids) as client:
        without = await client.http.request(method, path)
        assert (without.status_code, without.json()["error"]) == (401, "unauthenticated")
        assert without.headers["www-authenticate"].startswith("Bearer")
        found = await client.http.request(method, path, headers=await client.key())
        assert found.status_code == status
        if status == 405:
            assert found.headers["allow"] == "GET, HEAD"
        if status == 501:
            assert found.json()["error"] == "capability_not_provided"


async def test_d2_rate_limits_come_before_scopes(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(Surface(), tmp_path, clock, ids, Rates(key=Rate(1, 1))) as client:
        key = await client.key(scopes=[])
        assert (await client.http.get("/v1/things/x", headers=key)).status_code == 403
        second = await client.http.get("/v1/things/x", headers=key)
        assert (second.status_code, second.json()["details"]["scope"]) == (429, "key")
        assert second.headers["retry-after"] == "1"
        unmatched_too = await client.http.get("/v1/nowhere", headers=key)
        assert unmatched_too.status_code == 429


async def test_a_missing_scope_is_403_before_the_body_is_read(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(Surface(), tmp_path, clock, ids) as client:
        key = await client.key(scopes=["runs:read"])
        found = await client.http.post("/v1/things", content=b"not json", headers=key)
        assert (found.status_code, found.json()["error"]) == (403, "forbidden")


async def test_an_open_operation_needs_no_key(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(Surface(), tmp_path, clock, ids) as client:
        assert (await client.http.get("/v1/open")).status_code == 200
        assert (await client.http.head("/v1/open")).status_code == 200


async def test_the_longest_path_wins(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(Surface(), tmp_path, clock, ids) as client:
        key = await client.key()
        found = await client.http.post("/v1/things/x:act", headers=key)
        assert (found.status_code, found.json()) == (202, {"path": {"thingId": "x"}})
        other = await client.http.get("/v1/things/x:other", headers=key)
        assert other.json()["path"] == {"thingId": "x:other"}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("howMany=1", 200),
        ("howMany=60&unknown=1", 200),
        ("howMany=0", 400),
        ("howMany=61", 400),
        ("howMany=1.5", 400),
        ("howMany=", 400),
        ("howMany=%D9%A3", 400),
        ("howMany=1&howMany=2", 400),
        ("flag=true", 200),
        ("flag=maybe", 400),
        ("flag=null", 400),
        ("howMany=null", 400),
        ("names=a,b&names=c", 200),
    ],
)
async def test_query_values_are_checked_never_clamped(
    query: str, status: int, tmp_path: Path, clock: ManualClock, ids: Ids
) -> None:
    async with opened(Surface(), tmp_path, clock, ids) as client:
        found = await client.http.get(f"/v1/things/x?{query}", headers=await client.key())
        assert found.status_code == status, found.text
        if query.startswith("names"):
            assert found.json()["query"]["names"] == ["a", "b", "c"]
        if status == 400:
            assert found.json()["error"] == "validation_error"


async def test_d3_a_keyed_request_is_executed_once(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    surface = Surface()
    async with opened(surface, tmp_path, clock, ids) as client:
        key = {**await client.key(), "Idempotency-Key": "k1"}
        first = await client.http.post("/v1/things", json={"size": 1, "note": "a"}, headers=key)
        again = await client.http.post("/v1/things", content=b'{ "note":"a", "size":1 }', headers=key)
        assert (first.status_code, again.status_code, surface.ran) == (201, 201, 1)
        assert first.content == again.content
        assert again.headers["openwop-idempotent-replay"] == "true"
        assert "openwop-idempotent-replay" not in first.headers
        assert again.headers["location"] == "/v1/things/1"
        assert again.headers["x-request-id"] != first.headers["x-request-id"]
        for name in ("content-type", "cache-control", "x-content-type-options"):
            assert again.headers[name] == first.headers[name]
        other = await client.http.post("/v1/things", json={"size": 2}, headers=key)
        assert (other.status_code, other.json()["error"]) == (409, "idempotency_key_mismatch")
        elsewhere = await client.http.post("/v1/things/x:act", headers=key)
        assert elsewhere.status_code == 202
        another_path = await client.http.post("/v1/things/y:act", headers=key)
        assert another_path.json()["error"] == "idempotency_key_mismatch"
        stranger = {**await client.key(tenant="other"), "Idempotency-Key": "k1"}
        assert (await client.http.post("/v1/things", json={"size": 9}, headers=stranger)).json()["tenant"] == "other"


async def test_d3_the_key_of_somebody_else_is_another_request(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    surface = Surface()
    async with opened(surface, tmp_path, clock, ids) as client:
        ada, bob, ada_again = [
            {**await client.key(principal=name), "Idempotency-Key": "k1"} for name in ("ada", "bob", "ada")
        ]
        assert (await client.http.post("/v1/things/x:act", headers=ada)).status_code == 202
        refused = await client.http.post("/v1/things/x:act", headers=bob)  # a vote of bob's would be lost
        assert (refused.status_code, refused.json()["error"]) == (409, "idempotency_key_mismatch")
        assert (await client.http.post("/v1/things/x:act", headers=ada_again)).status_code == 202
        assert surface.ran == 1


async def test_d3_a_secret_is_shown_again_to_the_key_that_asked_alone(
    tmp_path: Path, clock: ManualClock, ids: Ids
) -> None:
    surface = Surface()
    async with opened(surface, tmp_path, clock, ids) as client:
        asked, other = [{**await client.key(), "Idempotency-Key": "k1"} for _ in range(2)]
        assert (await client.http.post("/v1/secrets", headers=asked)).status_code == 202
        refused = await client.http.post("/v1/secrets", headers=other)
        assert (refused.status_code, refused.json()["error"]) == (409, "idempotency_key_mismatch")
        again = await client.http.post("/v1/secrets", headers=asked)
        assert (again.status_code, again.headers["openwop-idempotent-replay"]) == (202, "true")


async def test_d3_concurrent_duplicates_run_once(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    surface = Surface()
    surface.gate = asyncio.Event()
    async with opened(surface, tmp_path, clock, ids) as client:
        key = {**await client.key(), "Idempotency-Key": "k1"}
        calls = [
            asyncio.ensure_future(client.http.post("/v1/things", json={"size": 1}, headers=key)) for _ in range(20)
        ]
        while sum(call.done() for call in calls) < 19:
            await asyncio.sleep(0.01)
        (waiting,) = [call for call in calls if not call.done()]
        for call in calls:
            if call is waiting:
                continue
            refused = call.result()
            assert (refused.status_code, refused.json()["error"]) == (409, "idempotency_in_flight")
            assert refused.headers["retry-after"] == "1"
        surface.gate.set()
        assert (await waiting).status_code == 201
        assert surface.ran == 1


@pytest.mark.parametrize("key", ["schema_mismatch", "permission_denied", "rate_limited", "internal", "unavailable"])
async def test_d3_passing_failures_are_not_kept(key: str, tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    surface = Surface()
    surface.outcomes = [Problem(key, "No.")]
    async with opened(surface, tmp_path, clock, ids) as client:
        headers = {**await client.key(), "Idempotency-Key": "k1"}
        first = await client.http.post("/v1/things", json={"size": 1}, headers=headers)
        second = await client.http.post("/v1/things", json={"size": 1}, headers=headers)
        assert (first.status_code, second.status_code, surface.ran) == (Problem(key, "").row.http, 201, 2)


async def test_d3_final_refusals_are_kept(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    surface = Surface()
    surface.outcomes = [Problem("not_found", "No."), ZeroDivisionError()]  # type: ignore[list-item]
    async with opened(surface, tmp_path, clock, ids) as client:
        headers = {**await client.key(), "Idempotency-Key": "k1"}
        first = await client.http.post("/v1/things", json={"size": 1}, headers=headers)
        second = await client.http.post("/v1/things", json={"size": 1}, headers=headers)
        assert (first.status_code, second.status_code, surface.ran) == (404, 404, 1)
        assert second.headers["openwop-idempotent-replay"] == "true"


@pytest.mark.parametrize("key", ["", "with space", "x" * 256, "tab\t"])
async def test_a_malformed_key_is_refused(key: str, tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    surface = Surface()
    async with opened(surface, tmp_path, clock, ids) as client:
        headers = {**await client.key(), "Idempotency-Key": key}
        found = await client.http.post("/v1/things", json={"size": 1}, headers=headers)
        assert (found.status_code, surface.ran) == (400, 0)
        assert (
            await client.http.get("/v1/things/x", headers=headers)
        ).status_code == 200  # reading does not look at it


async def test_d4_unexpected_errors_are_answers_too(
    tmp_path: Path, clock: ManualClock, ids: Ids, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(Surface(), tmp_path, clock, ids) as client:
        found = await client.http.get("/v1/breaks", headers=await client.key())
        assert (found.status_code, found.json()["error"]) == (500, "internal_error")
        assert "inner text" not in found.text
        assert found.json()["details"]["correlationId"] in caplog.text


async def test_a_draining_host_sends_callers_away(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    async with opened(Surface(), tmp_path, clock, ids) as client:
        client.load.draining = True
        found = await client.http.get("/v1/things/x", headers=await client.key())
        assert (found.status_code, found.json()["error"]) == (503, "service_unavailable")
        assert found.headers["retry-after"] == str(found.json()["details"]["retryAfter"])
