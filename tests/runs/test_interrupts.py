"""Questions and answers: tokens, quorum, timeouts, refine, ask, races (I1-I3, W7)."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from forestay.kernel import Problem, iso
from forestay.runs.service import Runs
from tests.runs.conftest import Host
from tests.runs.documents import edge, finish, kinds, node, start, waiting, when, workflow
from tests.runs.patient import PatientClock


def gate(**config: Any) -> dict[str, Any]:
    return workflow("gated", [node("gate", "core.approvalGate", config=config), node("after")], [edge("gate", "after")])


async def refused(call: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        await call
    return caught.value


def value(action: str, **more: Any) -> dict[str, Any]:
    return {"resumeValue": {"action": action, **more}}


async def test_i1_no_token_in_the_log_or_the_snapshot(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate())
        token = (await runs.interrupts(run_id, "acme"))[0].token
        shown = f"{await runs.get_run(run_id, 'acme')}{await runs.events(run_id, 'acme')}"
        assert token not in shown
        assert token.split(".")[1] not in shown
        view = await runs.inspect_token(token)
        assert (view.run_id, view.node_id, view.status) == (run_id, "gate", "open")


async def test_a_token_is_its_claims_and_their_seal(host: Host, clock: PatientClock) -> None:
    async with host() as runs:
        run_id = await start(runs, gate())
        (asked,) = await runs.interrupts(run_id, "acme", "ann")
        body, seal = asked.token.split(".")
        said = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        assert set(said) == {"runId", "nodeId", "interruptId", "expiresAt", "intent", "approver"}
        assert said["approver"] == "ann"
        assert (said["runId"], said["nodeId"], said["interruptId"]) == (run_id, "gate", asked.interrupt_id)
        assert 0 < said["expiresAt"] - clock.now_ms() <= 30 * 60 * 1000 and asked.expires_at == iso(said["expiresAt"])
        assert len(base64.urlsafe_b64decode(seal + "=")) == 32


async def test_a_token_resolves_once(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate())
        token = (await runs.interrupts(run_id, "acme"))[0].token
        assert (await runs.resolve_by_token(token, value("accept"))).resumed
        assert (await finish(runs, run_id)).status == "completed"
        assert (await refused(runs.resolve_by_token(token, value("accept")))).row.http == 409
        assert await kinds(runs, run_id) == [
            "run.started", "node.started", "node.suspended", "interrupt.requested", "approval.requested",
            "approval.granted", "approval.received", "interrupt.resolved", "node.resumed", "node.completed",
            "node.started", "node.completed", "run.completed",
        ]  # fmt: skip


@pytest.mark.parametrize("damage", ["", "x", "a.b", "head", "tail"])
async def test_a_token_that_we_did_not_sign_is_not_found(host: Host, damage: str) -> None:
    async with host() as runs:
        run_id = await start(runs, gate())
        token = (await runs.interrupts(run_id, "acme"))[0].token
        bad = {"head": "A" + token[1:], "tail": token[:-2] + "xx"}.get(damage, damage)
        assert (await refused(runs.inspect_token(bad))).row.http == 404
        assert (await refused(runs.resolve_by_token(bad, value("accept")))).row.http == 404


async def test_an_expired_token_is_gone_and_a_fresh_one_is_to_be_had(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate())
        token = (await runs.interrupts(run_id, "acme"))[0].token
        await asyncio.sleep(31 * 60)
        assert (await refused(runs.resolve_by_token(token, value("accept")))).row.http == 410
        fresh = (await runs.interrupts(run_id, "acme"))[0].token
        await runs.resolve_by_token(fresh, value("accept"))
        assert (await finish(runs, run_id)).status == "completed"


async def test_i2_of_many_answers_exactly_one_wins(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate(actions=["accept", "reject"]))
        answers = [value("accept" if i % 2 else "reject") for i in range(20)]
        results = await asyncio.gather(
            *(runs.resolve_by_node(run_id, "gate", "acme", body, f"p{i}") for i, body in enumerate(answers)),
            return_exceptions=True,
        )
        won = [result for result in results if not isinstance(result, BaseException)]
        assert len(won) == 1
        assert all(r.row.http in (409, 422) for r in results if isinstance(r, Problem))
        assert (await kinds(runs, run_id)).count("interrupt.resolved") == 1


async def test_i3_an_answer_must_fit_the_question(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate(actions=["accept"]))
        for body in (value("reject"), value("maybe"), {"resumeValue": 3}, {}):
            problem = await refused(runs.resolve_by_node(run_id, "gate", "acme", body))
            assert problem.row.http == 400
        assert (await refused(runs.resolve_by_node(run_id, "nowhere", "acme", value("accept")))).row.http == 404
        assert (await refused(runs.resolve_by_node(run_id, "after", "acme", value("accept")))).row.http == 404


async def test_reject_without_an_edge_fails_the_run_and_with_one_takes_it(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate())
        await runs.resolve_by_node(run_id, "gate", "acme", value("reject"), "bob")
        run = await finish(runs, run_id)
        assert run.error is not None and run.error.code == "approval_rejected"
        document = gate()
        document["id"] = "routed"
        document["nodes"].append(node("sorry"))
        document["edges"] = [
            edge("gate", "after", condition=when("output.approved")),
            edge("gate", "sorry", condition={"type": "equals", "left": "action", "right": "reject"}),
        ]
        run_id = await start(runs, document)
        await runs.resolve_by_node(run_id, "gate", "acme", value("reject"), "bob")
        run = await finish(runs, run_id)
        assert run.status == "completed"
        assert run.node_states["sorry"]["status"] == "completed"
        assert run.node_states["after"]["status"] == "skipped"


async def test_ask_does_not_exit_and_refine_asks_again(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate(actions=["accept", "refine", "ask"]))
        asked = await runs.resolve_by_node(run_id, "gate", "acme", value("ask", question="why?"), "bob")
        assert not asked.resumed
        assert asked.status == "waiting-approval"
        refined = await runs.resolve_by_node(run_id, "gate", "acme", value("refine", feedback="shorter"), "bob")
        assert refined.resumed
        assert (await runs.get_run(run_id, "acme")).status == "waiting-approval"
        assert len(await runs.interrupts(run_id, "acme")) == 1
        await runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "bob")
        assert (await finish(runs, run_id)).status == "completed"
        assert (await kinds(runs, run_id)).count("approval.requested") == 2


async def test_a_quorum_needs_its_votes_and_counts_each_voter_once(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate(requiredApprovals=3, rejectionPolicy="majority"))
        first = await runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "ann")
        assert not first.resumed and first.votes == {"granted": 1, "rejected": 0, "required": 3}
        assert (await refused(runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "ann"))).row.http == 409
        await runs.resolve_by_node(run_id, "gate", "acme", value("reject"), "ben")
        await runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "cas")
        assert (await runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "dee")).resumed
        assert (await finish(runs, run_id)).status == "completed"
        run_id = await start(runs, gate(requiredApprovals=3, rejectionPolicy="majority"))
        await runs.resolve_by_node(run_id, "gate", "acme", value("reject"), "ann")
        assert (await runs.resolve_by_node(run_id, "gate", "acme", value("reject"), "ben")).resumed
        assert (await finish(runs, run_id)).status == "failed"


async def test_w18_one_caller_has_one_vote_whatever_they_call_themselves(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate(requiredApprovals=3))
        for name in ("voter", "approverId", "voterId"):
            body = {"resumeValue": {"action": "accept", name: "ben"}}
            problem = await refused(runs.resolve_by_node(run_id, "gate", "acme", body, "ann"))
            assert (problem.row.http, problem.details["requiredScopes"]) == (403, ["approvals:delegate"])
        await runs.resolve_by_node(run_id, "gate", "acme", {**value("accept"), "voter": "ann"}, "ann")
        assert (await refused(runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "ann"))).row.http == 409
        token = (await runs.interrupts(run_id, "acme", "ann"))[0].token
        assert (await refused(runs.resolve_by_token(token, value("accept")))).row.http == 409, "the same voter"
        problem = await refused(runs.resolve_by_token(token, {**value("accept"), "voter": "ben"}))
        assert problem.row.http == 403, "a token speaks for nobody else"


async def test_w18_who_may_speak_for_others_names_each_voter_once(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate(requiredApprovals=3))
        for name in ("ann", "ben"):
            vote = {**value("accept"), "voter": name}
            assert not (await runs.resolve_by_node(run_id, "gate", "acme", vote, "root", delegate=True)).resumed
            again = await refused(runs.resolve_by_node(run_id, "gate", "acme", vote, "root", delegate=True))
            assert again.row.http == 409
        assert (await runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "root", delegate=True)).resumed
        await finish(runs, run_id)
        events = await runs.events(run_id, "acme")
        assert [e.payload["principal"] for e in events if e.type == "approval.granted"] == ["ann", "ben", "root"]
        assert [e.payload["decidedBy"] for e in events if e.type == "approval.received"] == ["root"]
        for bad in (5, "", ["ann"], None):
            problem = await refused(
                runs.resolve_by_node(await start(runs, gate()), "gate", "acme", {**value("accept"), "voter": bad}, "a")
            )
            assert problem.row.http == 400


async def test_w18_an_approvers_own_token_names_its_approver(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate(requiredApprovals=2, approversList=["ann", "ben"]))
        (plain,) = await runs.interrupts(run_id, "acme", "cas")
        assert plain.approver_tokens is None, "only for who may speak for others"
        assert (await refused(runs.resolve_by_token(plain.token, value("accept")))).row.http == 403
        (asked,) = await runs.interrupts(run_id, "acme", "root", delegate=True)
        assert asked.approver_tokens is not None and set(asked.approver_tokens) == {"ann", "ben"}
        await runs.resolve_by_token(asked.approver_tokens["ann"], value("accept"))
        assert (await refused(runs.resolve_by_token(asked.approver_tokens["ann"], value("accept")))).row.http == 409
        assert (await runs.resolve_by_token(asked.approver_tokens["ben"], value("accept"))).resumed


@pytest.mark.parametrize("end", ["timeout", "cancel", "default", "withdrawn"])
async def test_w19_a_question_whose_timeout_has_passed_is_gone(host: Host, end: str) -> None:
    """Whatever became of the run: it failed, was cancelled, went on with the default."""
    async with host() as runs:
        document = gate(timeoutMs=5000, **({"onTimeout": "accept"} if end == "default" else {}))
        if end == "withdrawn":
            document = workflow("w", [node("gate", "core.interrupt", config={"timeoutMs": 5000})])
        run_id = await start(runs, document)
        token = (await runs.interrupts(run_id, "acme"))[0].token
        if end == "cancel":
            await runs.cancel(run_id, "acme")
            assert (await refused(runs.resolve_by_token(token, value("accept")))).row.http == 422, "not yet"
        await finish(runs, run_id)
        await asyncio.sleep(6)
        for deed in (
            runs.inspect_token(token),
            runs.resolve_by_token(token, value("accept")),
            runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "ann"),
        ):
            problem = await refused(deed)
            assert (problem.row.http, problem.as_openwop()["error"]) == (410, "interrupt_expired")


async def test_w19_an_answer_in_time_stays_an_answer(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate(timeoutMs=5000))
        await runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "ann")
        await asyncio.sleep(60)
        assert (await refused(runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "ann"))).row.http == 409


async def test_only_listed_approvers_may_answer(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate(approversList=["ann"]))
        assert (await refused(runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "ben"))).row.http == 403
        assert (await runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "ann")).resumed


@pytest.mark.parametrize(("default", "status"), [("accept", "completed"), ("reject", "failed"), (None, "failed")])
async def test_an_approval_that_nobody_gives_takes_its_default(host: Host, default: str | None, status: str) -> None:
    async with host() as runs:
        config = {"timeoutMs": 5000, **({"onTimeout": default} if default else {})}
        run_id = await start(runs, gate(**config))
        run = await finish(runs, run_id)
        assert run.status == status
        received = [e for e in await runs.events(run_id, "acme") if e.type == "approval.received"]
        assert [event.payload["action"] for event in received] == ["timeout"]


async def test_clarifications_take_an_object_by_question_id(host: Host) -> None:
    async with host() as runs:
        questions = [
            {"id": "q1", "question": "Colour?"},
            {"id": "q2", "question": "Count?", "schema": {"type": "integer"}},
        ]
        document = workflow("w", [node("ask", "core.clarificationGate", config={"questions": questions})])
        run_id = await start(runs, document)
        assert (await runs.get_run(run_id, "acme")).status == "waiting-input"
        for bad in ({"answers": {"q1": "red"}}, {"answers": {"q1": "red", "q2": "two"}}, "red", {"answers": []}):
            assert (await refused(runs.resolve_by_node(run_id, "ask", "acme", {"resumeValue": bad}))).row.http == 400
        await runs.resolve_by_node(run_id, "ask", "acme", {"resumeValue": {"answers": {"q1": "red", "q2": 2}}})
        assert (await finish(runs, run_id)).outputs == {"answers": {"q1": "red", "q2": 2}}


async def test_an_external_event_must_correlate(host: Host) -> None:
    async with host() as runs:
        data = {"eventType": "paid", "correlation": {"order": 1}}
        document = workflow("w", [node("x", "core.interrupt", config={"kind": "external-event", "data": data})])
        run_id = await start(runs, document)
        assert (await runs.get_run(run_id, "acme")).status == "waiting-external"
        token = (await runs.interrupts(run_id, "acme"))[0].token
        assert (await refused(runs.resolve_by_token(token, {"resumeValue": {"order": 2}}))).row.http == 422
        await runs.resolve_by_token(token, {"resumeValue": {"order": 1, "sum": 5}})
        assert (await finish(runs, run_id)).outputs == {"order": 1, "sum": 5}


async def test_a_gate_that_needs_authentication_takes_no_token(host: Host) -> None:
    async with host() as runs:
        run_id = await start(runs, gate(profile="openwop-interrupt-auth-required"))
        token = (await runs.interrupts(run_id, "acme"))[0].token
        assert (await refused(runs.resolve_by_token(token, value("accept")))).row.http == 401
        assert (await runs.resolve_by_node(run_id, "gate", "acme", value("accept"), "ann")).resumed


async def test_a_key_is_asked_once_for_the_life_of_the_run(host: Host) -> None:
    async with host() as runs:
        ask = {"kind": "custom", "key": "same", "data": {"customKind": "x"}}
        document = workflow(
            "w", [node("a", "core.interrupt", config=ask), node("b", "core.interrupt", config=ask)], [edge("a", "b")]
        )
        run_id = await start(runs, document)
        await runs.resolve_by_node(run_id, "a", "acme", {"resumeValue": {"n": 1}})
        run = await finish(runs, run_id)
        assert run.outputs == {"n": 1}
        assert (await kinds(runs, run_id)).count("interrupt.requested") == 1


async def test_a_conversation_survives_a_restart_between_its_turns(host: Host) -> None:
    document = workflow(
        "w",
        [node("talk", "core.conversationGate", config={"turnCount": 2})],
        channels={"conversation": {"reducer": "message"}},
    )

    async def turn(runs: Runs, run_id: str, text: str) -> None:
        await runs.resolve_by_node(run_id, "talk", "acme", {"resumeValue": {"text": text}})

    async with host() as runs:
        run_id = await start(runs, document)
        await turn(runs, run_id, "one")
        await waiting(runs, run_id, "conversation.exchanged")
    async with host() as runs:
        await turn(runs, run_id, "two")
        run = await finish(runs, run_id)
        assert [item["content"] for item in run.channels["conversation"]][1:] == [{"text": "one"}, {"text": "two"}]
        types = [kind for kind in await kinds(runs, run_id) if kind.startswith("conversation.")]
        assert types == [
            "conversation.opened", "conversation.exchanged", "conversation.exchanged", "conversation.closed"
        ]  # fmt: skip
