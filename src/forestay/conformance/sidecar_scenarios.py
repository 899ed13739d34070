"""The requirements of CRP on a sidecar, tried from outside."""

from __future__ import annotations

from functools import partial
from typing import Any

from forestay.conformance.scenario import NotApplicable, Scenario, expect, has, same, scenario
from forestay.conformance.sidecar_target import APP, ASK, TEXT, SidecarTarget, events, refusal, with_model
from forestay.conformance.target import answered

of_sidecars: dict[str, Scenario] = {}
"""Every scenario by its name, in the order in which they are tried."""
_scenario = partial(scenario, among=of_sidecars)
_BOUND = "what a session of the conformance kit is bound to"
_WRONG = (
    b"",
    b"{",
    b"{}",
    b'{"app_id": ""}',
    b'{"app_id": "x", "role": "KING"}',
    b'{"app_id": "x", "surprise": 1}',
)
_KEY = {"export_key": "a key that is long enough"}


@_scenario("health", "service")
def health(sidecar: SidecarTarget) -> None:
    """The sidecar says that it is well, how full it is, and whether it wants a key; that is so."""
    told = answered(sidecar.get("/health"), 200)
    has(told, {"status", "active_sessions", "max_sessions", "auth_required"}, "/health")
    same(told["status"], "ok", "the status")
    without = sidecar.get("/sessions", known=False).status_code
    same(without, 401 if told["auth_required"] else 200, "the answer to a caller without a key")


@_scenario("session-lifecycle", "sessions")
def lifecycle(sidecar: SidecarTarget) -> None:
    """A session is opened, listed, asked for its status and closed; then it is 1005."""
    handle = sidecar.open(role="ADMIN")
    has(handle, {"session_id", "created_at", "expires_at", "nonce"}, "the handle")
    path = f"/sessions/{handle['session_id']}"
    has(answered(sidecar.get(f"{path}/status"), 200), {"windows_completed", "facts_in_warm_state"}, "the status")
    listed = answered(sidecar.get("/sessions"), 200)["sessions"]
    expect(handle["session_id"] in [item["session_id"] for item in listed], "an open session is not listed")
    same(answered(sidecar.post(f"{path}/close"), 200)["closed"], True, "`closed`")
    same(refusal(sidecar.get(f"{path}/status"))["code"], 1005, "the number of a closed session")


@_scenario("bad-requests", "errors")
def bad_requests(sidecar: SidecarTarget) -> None:
    """What is wrong is refused with a number of the contract: unknown session, no JSON, missing and unknown members."""
    same(_status(sidecar, "GET", "/sessions/00000000-0000-4000-8000-000000000000/status"), 404, "an unknown session")
    for body in _WRONG:
        headers = {"Content-Type": "application/json"}
        same(_status(sidecar, "POST", "/sessions", content=body, headers=headers), 400, f"the answer to {body!r}")


def _status(sidecar: SidecarTarget, method: str, path: str, **options: Any) -> int:
    answer = sidecar.ask(method, path, **options)
    refusal(answer)
    return answer.status_code


@_scenario("ingest-and-find", "facts")
def ingest(sidecar: SidecarTarget) -> None:
    """A text becomes facts, and a question finds the one that answers it first."""
    path = sidecar.session()
    taken = answered(sidecar.post(f"{path}/ingest", {"text": TEXT, "source_label": "port"}), 200)
    expect(taken["facts_extracted"] >= 3, f"{taken['facts_extracted']} facts were found in three sentences")
    found = answered(sidecar.get(f"{path}/facts", params={"query": "boats", "top_k": 1}), 200)
    expect("12 boats" in found["facts"][0]["text"], f"the first fact is {found['facts'][0]['text']!r}")


@_scenario("facts-of-two-sources", "facts")
def two_sources(sidecar: SidecarTarget) -> None:
    """Two documents that use the same fields do not contradict each other: both are kept."""
    path = sidecar.session()
    for label, text in (("a", "Ship: Aurora\nBerth: 7\n"), ("b", "Ship: Borealis\nBerth: 9\n")):
        answered(sidecar.post(f"{path}/ingest", {"text": text, "source_label": label}), 200)
    held = " ".join(item["text"] for item in answered(sidecar.get(f"{path}/facts"), 200)["facts"])
    expect(all(word in held for word in ("Aurora", "Borealis", "7", "9")), f"something is lost: {held!r}")


@_scenario("feedback-and-restore", "facts")
def feedback(sidecar: SidecarTarget) -> None:
    """A fact that a person rejects is out of the way, and comes back when it is restored."""
    path = sidecar.taught(role="ADMIN")
    fact = answered(sidecar.get(f"{path}/facts", params={"query": "boats", "top_k": 1}), 200)["facts"][0]["id"]
    rejected = answered(sidecar.post(f"{path}/facts/feedback", {"fact_id": fact, "action": "reject"}), 200)
    same(rejected["quarantined"], True, "a rejected fact's `quarantined`")
    restored = answered(sidecar.post(f"{path}/facts/restore", {"fact_ids": [fact]}), 200)
    same(restored["fact_ids"], [fact], "what was restored")


@_scenario("envelope-preview", "envelope")
def envelope(sidecar: SidecarTarget) -> None:
    """The envelope for a task can be looked at, and holds the fact that answers it."""
    preview = answered(sidecar.get(f"{sidecar.taught()}/envelope", params=ASK), 200)
    expect("12 boats" in preview["envelope_text"], "the envelope does not hold the fact that answers the task")


@_scenario("dispatch", "dispatch")
def dispatch(sidecar: SidecarTarget) -> None:
    """A model is asked with the envelope; the answer comes whole, and the session counts its window."""
    path = sidecar.taught()
    answer = answered(with_model(sidecar.post(f"{path}/dispatch", ASK)), 200)
    expect(isinstance(answer["output"], str) and answer["output"], "the answer has no words")
    expect(answered(sidecar.get(f"{path}/status"), 200)["windows_completed"] >= 1, "no window was counted")


@_scenario("dispatch-stream", "dispatch")
def stream(sidecar: SidecarTarget) -> None:
    """A stream ends with `done`, and its tokens are its output."""
    found = events(with_model(sidecar.post(f"{sidecar.taught()}/dispatch/stream", ASK)))
    expect(found, "the stream has no event")
    expect(all(item["named"] == item["event_type"] for item in found), "an event's name is not its type")
    same(found[-1]["event_type"], "done", "the last event")
    tokens = "".join(item["data"] for item in found if item["event_type"] == "token")
    same(tokens, found[-1]["data"]["output"], "the tokens together")


@_scenario("roles", "security")
def roles(sidecar: SidecarTarget) -> None:
    """An observer does not dispatch (1013), and an operator does not export."""
    answer = sidecar.post(f"{sidecar.session(role='OBSERVER')}/dispatch", ASK)
    same((answer.status_code, refusal(answer)["code"]), (403, 1013), "an observer's dispatch")
    answer = sidecar.post(f"{sidecar.session()}/export", _KEY)
    same((answer.status_code, refusal(answer)["code"]), (403, 1013), "an operator's export")


@_scenario("signed-requests", "security")
def signed(sidecar: SidecarTarget) -> None:
    """A session that is bound to a secret takes signed requests only (1012)."""
    handle = sidecar.open(binding_secret=_BOUND)
    path = f"/sessions/{handle['session_id']}"
    for wrong in (None, ("another secret", handle)):
        answer = sidecar.get(f"{path}/status", signed=wrong)
        same((answer.status_code, refusal(answer)["code"]), (401, 1012), "a request without the right signature")
    answered(sidecar.post(f"{path}/ingest", {"text": TEXT}, signed=(_BOUND, handle)), 200)
    answered(sidecar.get(f"{path}/facts?query=boats", signed=(_BOUND, handle)), 200)
    answered(sidecar.post(f"{path}/close", signed=(_BOUND, handle)), 200)


@_scenario("export-and-import", "state")
def moved(sidecar: SidecarTarget) -> None:
    """An administrator exports a session; what is changed on its way is not taken in (1030)."""
    path = sidecar.taught(role="ADMIN")
    state = answered(sidecar.post(f"{path}/export", _KEY), 200)["state"]
    expect(isinstance(state, str) and state, "there is no state")
    middle = len(state) // 2
    changed = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
    answer = sidecar.post(f"{path}/import", {**_KEY, "state": changed})
    same(refusal(answer)["code"], 1030, "the number of a state that was changed")


@_scenario("json-rpc", "rpc")
def rpc(sidecar: SidecarTarget) -> None:
    """The operations are methods: with an id they are answered, without they are not, in a batch each is."""
    opened = answered(sidecar.rpc("crp.init", app_id=APP), 200)["result"]
    session = {"session_id": opened["session_id"]}
    taken = answered(sidecar.rpc("crp.ingest", text=TEXT, **session), 200)["result"]
    expect(taken["facts_extracted"] >= 3, "crp.ingest found no facts")
    same(sidecar.rpc("crp.sessionStatus", None, **session).status_code, 204, "the answer to a notification")
    calls = [{"jsonrpc": "2.0", "id": id, "method": "crp.sessionStatus", "params": session} for id in (1, 2)]
    same({item["id"] for item in answered(sidecar.post("/rpc", calls), 200)}, {1, 2}, "the answers of a batch")
    same(answered(sidecar.rpc("crp.close", **session), 200)["result"]["closed"], True, "`closed`")
    error = sidecar.rpc("crp.sessionStatus", **session).json()["error"]
    same(error["data"]["crp_code"], 1005, "the contract's number in `data`")


@_scenario("json-rpc-errors", "rpc")
def rpc_errors(sidecar: SidecarTarget) -> None:
    """What is no call gets JSON-RPC's own number."""
    wanted = ((b"{", -32700), (b"[]", -32600), (b'{"id": 1}', -32600))
    for body, number in wanted:
        answer = sidecar.ask("POST", "/rpc", content=body, headers={"Content-Type": "application/json"})
        same(answer.json()["error"]["code"], number, f"the number for {body!r}")
    same(sidecar.rpc("crp.nothing").json()["error"]["code"], -32601, "the number of an unknown method")
    same(sidecar.rpc("crp.sessionStatus").json()["error"]["code"], -32602, "the number of missing parameters")


@_scenario("session-limits", "sessions")
def limits(sidecar: SidecarTarget) -> None:
    """A session takes settings of its own, and not those that would break what the contract guarantees."""
    path = sidecar.session(role="ADMIN")
    told = answered(sidecar.post(f"{path}/configure", {"max_continuations": 3}), 200)
    same(told["max_continuations"], 3, "`max_continuations`")
    answer = sidecar.post("/sessions", {"app_id": APP, "config": {"session_timeout": 1}})
    if answer.status_code == 201:
        raise NotApplicable("the sidecar takes a session of one second")
    refusal(answer)
