"""R25 to R31: the context ledger, in the store and over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forestay.envelope import (
    ContextStore,
    Entry,
    Envelope,
    Follower,
    chain,
    conform,
    decode,
    no_page,
    offset_page,
    project_context,
    read_query,
)
from forestay.kernel import LAFS_CODES, Ids, Ledger, ManualClock, Problem
from tests.contracts.lafs.support import KEY

# 1.5 Context


async def opened(path: Path, clock: ManualClock, ids: Ids, **options: Any) -> tuple[Ledger, ContextStore, str]:
    ledger = Ledger.open(path / "ledger.db", clock=clock, ids=ids)
    store = ContextStore(ledger, clock, ids)
    held = await store.open("Ship it", owner="ann", constraints=[{"id": "c1", "text": "no weekends"}], **options)
    return ledger, store, held.ledger_id


async def test_r25_a_context_keeps_what_a_multi_step_operation_needs(
    tmp_path: Path, clock: ManualClock, ids: Ids
) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids)
    async with ledger:
        await store.mutate(
            key,
            "plan.make",
            {
                "set": {"objective": "Ship it well"},
                "append": {"references": ["doc1"], "decisions": [{"id": "d1"}], "openIssues": ["i1", "i2"]},
                "update": {"state.step": 2, "state.files.readme": "done"},
            },
            owner="ann",
            version=0,
        )
        held = await store.mutate(key, "issue.close", {"remove": {"openIssues": "i1"}}, owner="ann", version=1)
        context = msgspec.to_builtins(held.context)
        assert context == {
            "objective": "Ship it well",
            "constraints": [{"id": "c1", "text": "no weekends"}],
            "references": ["doc1"],
            "decisions": [{"id": "d1"}],
            "openIssues": ["i2"],
            "state": {"step": 2, "files": {"readme": "done"}},
            "version": 2,
        }
        again = ContextStore(ledger, clock, ids)  # from disk alone
        assert (await again.get(key, owner="ann")).document() == held.document()


async def test_r26_the_version_rises_by_exactly_one_per_accepted_mutation(
    tmp_path: Path, clock: ManualClock, ids: Ids
) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids)
    async with ledger:
        for version in range(5):
            held = await store.mutate(key, "step", {"update": {"state.n": version}}, owner="ann", version=version)
            assert held.context.version == version + 1
        for wrong, code in (
            (3, "E_CONTEXT_STALE"),
            (9, "E_CONTEXT_VERSION_INVALID"),
            (-1, "E_CONTEXT_VERSION_INVALID"),
        ):
            with pytest.raises(Problem) as caught:
                await store.mutate(key, "step", {"update": {"state.n": 0}}, owner="ann", version=wrong)
            assert caught.value.row.lafs == code
        with pytest.raises(Problem):
            await store.mutate(key, "step", {"explode": {}}, owner="ann", version=5)
        assert (await store.fail(key, "step", Problem("timeout", "Slow."), owner="ann")).context.version == 5
        assert (await store.get(key, owner="ann")).context.version == 5


async def test_r26_of_two_mutations_at_once_one_wins(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids)
    async with ledger:
        others = [ContextStore(ledger, clock, ids) for _ in range(8)]
        done = await asyncio.gather(
            *(
                one.mutate(key, "step", {"update": {"state.who": n}}, owner="ann", version=0)
                for n, one in enumerate(others)
            ),
            return_exceptions=True,
        )
        lost = [item for item in done if isinstance(item, Problem)]
        assert len(lost) == 7
        assert {problem.row.lafs for problem in lost} <= {"E_CONTEXT_VERSION_CONFLICT", "E_CONTEXT_STALE"}
        for problem in lost:
            assert problem.row.retryable is True
        assert (await store.get(key, owner="ann")).context.version == 1


async def test_r27_constraints_are_not_removed_silently(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids)
    async with ledger:
        for delta in (
            {"set": {"constraints": []}},
            {"set": {"constraints": [{"id": "c2"}]}},
            {"remove": {"constraints": "c1"}},
        ):
            with pytest.raises(Problem) as caught:
                await store.mutate(key, "step", delta, owner="ann", version=0)
            assert caught.value.key == "state_conflict" and caught.value.details["constraint"]["id"] == "c1"
        reasoned = {"remove": {"constraints": "c1"}, "append": {"decisions": "The weekend is free now."}}
        held = await store.mutate(key, "step", reasoned, owner="ann", version=0)
        assert held.context.constraints == []
        told = project_context(held, read_query({"mode": "delta", "sinceVersion": "0"}), KEY)
        assert told.result["removedConstraints"] == ["c1"]


async def test_r28_decisions_are_in_the_ledger(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids)
    async with ledger:
        decision = {"id": "d1", "chose": "sqlite"}
        held = await store.mutate(key, "decide", {"append": {"decisions": decision}}, owner="ann", version=0)
        assert held.document().entries[0].context_delta["append"]["decisions"] == decision
        records = await ledger.read(f"context/{key}")
        assert records[-1].payload["contextDelta"]["append"]["decisions"] == decision
        assert (await ledger.verify("context/")).ok


async def test_r29_a_mutation_without_its_context_fails_structured(
    tmp_path: Path, clock: ManualClock, ids: Ids
) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids)
    async with ledger:
        for ledger_id, version, missing in ((None, 0, ["ledgerId"]), (key, None, ["version"])):
            with pytest.raises(Problem) as caught:
                await store.mutate(ledger_id, "step", {"update": {"state.a": 1}}, owner="ann", version=version)
            error = caught.value.as_lafs()
            assert error["code"] == "E_CONTEXT_MISSING" and error["details"]["missing"] == missing
            assert caught.value.exit_code == 6


async def test_r30_the_three_modes(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids)
    async with ledger:
        checksum = (await store.get(key, owner="ann")).checksum
        for version in range(7):
            clock.advance(1)
            name = ("task.add", "task.close", "note")[version % 3]
            held = await store.mutate(key, name, {"update": {"state.n": version}}, owner="ann", version=version)

        def ask(**parameters: str) -> Any:
            return project_context(held, read_query(parameters), KEY)

        full = ask(limit="3", offset="2")
        assert [entry["version"] for entry in full.result["entries"]] == [3, 4, 5]
        assert full.page == offset_page(limit=3, offset=2, has_more=True, total=7)
        assert {"ledgerId", "mode", "version", "checksum", "entryCount", "createdAt", "updatedAt"} <= set(full.result)

        seen: list[int] = []
        parameters = {"mode": "delta", "sinceVersion": "2", "limit": "2"}
        while True:
            delta = ask(**parameters)
            seen += [entry["version"] for entry in delta.result["entries"]]
            assert (delta.result["fromVersion"], delta.result["toVersion"]) == (2, 7)
            assert delta.result["deltaFormat"] == {"type": "append-only", "baseVersion": 2, "targetVersion": 7}
            if not delta.page.has_more:
                break
            parameters["cursor"] = delta.page.next_cursor
        assert seen == [3, 4, 5, 6, 7]

        summary = ask(mode="summary", limit="1")
        assert summary.page == no_page()
        assert set(summary.result) == {"ledgerId", "mode", "version", "entryCount", "updatedAt", "checksum"}
        assert len(msgspec.json.encode(summary.result)) < 1024
        assert "checksum" not in ask(mode="summary", includeChecksum="false").result

        def operations(filter: str) -> list[str]:
            return [entry["operation"] for entry in ask(filterByOperation=filter).result["entries"]]

        assert set(operations("task.*")) == {"task.add", "task.close"}
        assert set(operations("task.*,!task.close")) == {"task.add"}
        assert set(operations("note,task.add")) == {"note", "task.add"}
        assert set(operations("!note")) == {"task.add", "task.close"}

        for entry in ask().result["entries"]:  # a follower can check what it got
            checksum = chain(checksum, msgspec.convert(entry, Entry))
        assert checksum == held.checksum


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"mode": "everything"}, "E_CONTEXT_MODE_INVALID"),
        ({"mode": "delta"}, "E_CONTEXT_VERSION_INVALID"),
        ({"mode": "delta", "sinceVersion": "x"}, "E_CONTEXT_VERSION_INVALID"),
        ({"mode": "delta", "sinceVersion": "99"}, "E_CONTEXT_VERSION_INVALID"),
        ({"mode": "delta", "sinceVersion": "0"}, "E_CONTEXT_COMPACTED"),
        ({"mode": "delta", "sinceVersion": "4", "cursor": "AAAA"}, "E_VALIDATION_SCHEMA"),
        ({"mode": "delta", "sinceVersion": "4", "offset": "1"}, "E_VALIDATION_SCHEMA"),
        ({"cursor": "x"}, "E_VALIDATION_SCHEMA"),
        ({"limit": "0"}, "E_VALIDATION_SCHEMA"),
        ({"limit": "1001"}, "E_VALIDATION_SCHEMA"),
        ({"includeChecksum": "maybe"}, "E_VALIDATION_SCHEMA"),
        ({"filterByOperation": "a b"}, "E_VALIDATION_SCHEMA"),
        ({"surprise": "1"}, "E_VALIDATION_SCHEMA"),
        ({"_budget": '{"maxTokens":60}'}, "E_MVI_BUDGET_EXCEEDED"),
    ],
)
async def test_r30_bad_questions_get_their_codes(
    parameters: dict[str, str], code: str, tmp_path: Path, clock: ManualClock, ids: Ids
) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids, max_entries=4)
    async with ledger:
        for version in range(6):
            await store.mutate(key, "step", {"update": {"state.n": version}}, owner="ann", version=version)
        answer = await get_context(store, key, clock, ids, parameters)
        assert answer["success"] is False and answer["error"]["code"] == code


async def get_context(
    store: ContextStore, key: str, clock: ManualClock, ids: Ids, parameters: dict[str, str], owner: str = "ann"
) -> dict[str, Any]:
    """Ask the real route, in process."""
    import httpx
    from starlette.applications import Starlette
    from starlette.requests import Request

    from forestay.envelope import context_routes

    async def whoever(_request: Request) -> str:
        return owner

    app = Starlette(routes=context_routes(store, whoever, cursor_key=KEY, clock=clock, ids=ids))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        response = await client.get(f"/_lafs/context/{key}", params=parameters)
    body: dict[str, Any] = response.json()
    if not body["success"]:
        assert response.status_code == LAFS_CODES[body["error"]["code"]].http
    return body


async def test_r30_over_http_the_version_stands_in_the_meta(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids)
    async with ledger:
        await store.mutate(key, "step", {"update": {"state.n": 1}}, owner="ann", version=0)
        body = await get_context(store, key, clock, ids, {"mode": "full"})
        assert body["_meta"]["contextVersion"] == 1 == body["result"]["version"]
        assert conform(msgspec.json.encode(body)).ok
        small = await get_context(store, key, clock, ids, {"mode": "summary", "_mvi": "minimal"})
        assert small["result"]["entryCount"] == 1 and "timestamp" not in small["_meta"]


async def test_r30_a_context_that_is_too_large_says_so(tmp_path: Path, clock: ManualClock, ids: Ids) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids)
    async with ledger:
        held = await store.mutate(key, "step", {"update": {"state.text": "x" * 5000}}, owner="ann", version=0)
        with pytest.raises(Problem) as caught:
            project_context(held, read_query({}), KEY, max_bytes=4000)
        assert caught.value.row.lafs == "E_CONTEXT_TOO_LARGE" and caught.value.row.retryable is True


async def test_r31_a_context_is_not_seen_by_others_nor_after_its_time(
    tmp_path: Path, clock: ManualClock, ids: Ids
) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids, lifetime_ms=10_000)
    async with ledger:
        stranger = await get_context(store, key, clock, ids, {}, owner="bob")
        assert stranger["error"]["code"] == "E_CONTEXT_UNAUTHORIZED" and "Ship" not in json.dumps(stranger)
        for absent in ("ctx_nothing", "..%2Faudit", "a b"):
            missing = await get_context(store, absent, clock, ids, {})
            assert missing["error"]["code"] == "E_CONTEXT_NOT_FOUND"
        clock.advance(10)
        late = await get_context(store, key, clock, ids, {})
        assert late["error"]["code"] == "E_CONTEXT_EXPIRED"


async def test_r31_a_follower_starts_with_the_whole_and_then_asks_for_what_changed(
    tmp_path: Path, clock: ManualClock, ids: Ids
) -> None:
    ledger, store, key = await opened(tmp_path, clock, ids, max_entries=20)
    asked: list[str] = []

    async def fetch(parameters: dict[str, str]) -> Envelope:
        asked.append(parameters["mode"])
        if parameters["mode"] == "delta":
            parameters = {**parameters, "limit": "2"}
        return decode(msgspec.json.encode(await get_context(store, key, clock, ids, parameters)))

    async def step(version: int) -> Any:
        return (await store.mutate(key, "s", {"update": {"state.n": version}}, owner="ann", version=version)).context

    async with ledger:
        follower = Follower(fetch)
        assert (await follower.current()).version == 0 and asked == ["full"]
        assert (await follower.current()).version == 0 and asked == ["full", "summary"]
        for version in range(5):
            expected = await step(version)
        asked.clear()
        assert await follower.current() == expected and asked == ["summary", "delta", "delta", "delta"]
        await store.fail(key, "s", Problem("timeout", "Slow."), owner="ann")
        expected = await step(5)
        asked.clear()
        assert await follower.current() == expected and asked == ["summary", "delta", "full"]  # W2
        for version in range(6, 40):
            expected = await step(version)
        asked.clear()
        assert await follower.current() == expected and asked == ["summary", "delta", "full"]  # compacted
