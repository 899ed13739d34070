"""What people, models and providers say to a host is where the contract puts it, and nowhere else (issue: must show 2).

One host uses every feature of the agent platform once. A different canary stands at each place where content or a
secret is given. Then everything that the host shows to anybody is searched for all of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from forestay.runs import RunEvent
from tests.runs import events as shapes
from tests.security.canaries import CONTENT, NAMES, SECRETS, canary, found
from tests.security.looking import everything, polled, runs
from tests.security.planting import planted

ROOT = Path(__file__).parents[2]
TRIGGERED = {"formanswer", "mailsubject", "mailbody", "queueinput", "webhookinput", "scheduleinput"}
GIVEN = {
    "question",
    "taskinput",
    "memoryseed",
    "toolfixture",
    "failedinput",
    "templateinput",
    "hookargument",
    *TRIGGERED,
}
RESULT = {"answer", "responsebody", "responseheader"}
TOLD = {"reasoning", "approvalcomment", "providererror"}
WHOLE = GIVEN | RESULT | TOLD
PROMPT = {"systemprompt", "toolargument", "toolresult"}
DEFINED = {"requestheader", "requestbody", "hookargument"}
SUITE = {"taskinput", "expectedanswer", "criterion", "memoryseed", "toolfixture"}
ASKED = {"question", "taskinput", "systemprompt"}

# Where content stands because the contract, or the page's purpose, puts it there: what, and why. Nothing else has any.
EVENTS: dict[str, tuple[set[str], str]] = {
    "run.started": (GIVEN, "`inputs`: what the run was given"),
    "run.completed": (RESULT, "`outputs` of the run"),
    "run.failed": ({"providererror"}, "`error.details.said`: the model server's words, without what it was asked"),
    "node.completed": (RESULT | {"approvalcomment"}, "`outputs` of the node"),
    "node.failed": ({"providererror"}, "`error.details.said`"),
    "node.resumed": ({"approvalcomment"}, "`resumeValue`: what the person answered"),
    "interrupt.resolved": ({"approvalcomment"}, "`resumeValue`"),
    "approval.received": ({"approvalcomment"}, "`comment`"),
    "output.chunk": ({"answer", "reasoning"}, "`chunk`: the text as it comes"),
    "agent.reasoned": ({"reasoning"}, "`reasoning`"),
}
RECORDS: dict[str, tuple[set[str], str]] = {
    **EVENTS,
    "workflow.put": (DEFINED, "the definition of a workflow"),
    "agents.installed": ({"systemprompt"}, "the manifest of an agent"),
    "prompt.stored": ({"templatetext"}, "a prompt template"),
    "evaluation.suite": (SUITE, "a suite of tasks"),
    "run.annotated": ({"correction"}, "what somebody thinks of a run"),
    "trigger.received": (TRIGGERED, "an event that came in, from which its run is started"),
    "trigger.subscription": ({"scheduleinput"}, "what a schedule gives its runs"),
    "crp.dispatch.start": (ASKED, "what the relay was asked, from which a session is resumed"),
    "crp.window.complete": ({"answer", "reasoning", "toolargument"}, "what the model said"),
}
KEPT = GIVEN | RESULT | TOLD | PROMPT | {"templatetext"}
BY_FILE: dict[str, tuple[set[str], str]] = {
    # What only who has the data folder sees: the private part of a run's records, from which it is resumed.
    **RECORDS,
    "forestay.effect.recorded": (KEPT, "the result of an effect"),
    "node.started": (GIVEN | {"approvalcomment"}, "the inputs of a node"),
    "node.dispatched": (GIVEN | RESULT, "the inputs and the outputs of a child"),
}
PLACES: dict[str, tuple[set[str], str]] = {
    "stream messages": ({"answer", "reasoning"}, "the text as it comes"),
    "stream values": (WHOLE, "the state of a run"),
    "GET /v1/runs/{runId}": (WHOLE, "a snapshot has inputs, outputs and the error"),
    "GET /v1/runs/{runId}/debug-bundle": (WHOLE | {"correction"}, "inputs, events and annotations, without secrets"),
    "GET /v1/runs/{runId}/annotations": ({"correction"}, "what people think of a run"),
    "GET /v1/workflows/{workflowId}": (DEFINED, "the definition of a workflow"),
    "GET /v1/prompts": ({"templatetext"}, "the library of templates"),
    "GET /v1/prompts/{templateId}": ({"templatetext"}, "a template"),
    "GET /host/v1/runs": (GIVEN, "a run's title: the first words that it was given"),
    "GET /host/v1/agents/{agentId}": ({"systemprompt"}, "the manifest of an agent"),
    "GET /v1/packs/export": ({"systemprompt"}, "manifests of agents, to install elsewhere"),
    "GET /host/v1/eval-suites/{name}": (SUITE, "a suite of tasks"),
    "GET /host/v1/memory": ({"memorycontent", "question", "answer"}, "the memory itself"),
    "GET /host/v1/memory/{memoryId}": ({"memorycontent", "question", "answer"}, "the memory itself"),
    "page /": (GIVEN, "titles of runs"),
    "page /runs": (GIVEN, "titles of runs"),
    "page /workflows/{workflowId}": (GIVEN | DEFINED, "the definition, and titles of runs"),
    "page /runs/{runId}": (WHOLE | PROMPT, "a run, for who may read it"),
    "page /runs/{runId}/nodes/{nodeId}": (WHOLE | DEFINED, "a node of a run"),
    "page /runs/{runId}/turns/{work}/{turn}": (WHOLE | PROMPT, "what a model was shown, and said"),
    "page /relay/{sessionId}": (ASKED, "what a session was asked"),
    "page /relay/{sessionId}/windows/{windowId}": (ASKED | {"answer", "reasoning"}, "what a model was shown, and said"),
    "page /prompts": ({"templatetext"}, "the library of templates"),
    "page /memory": ({"memorycontent", "question", "answer"}, "the memory itself"),
}
ALLOWED = {
    **{f"event {name}": row for name, row in EVENTS.items()},
    **{f"record {name}": row for name, row in RECORDS.items()},
    **{f"line {name}": row for name, row in BY_FILE.items()},
    **PLACES,
}
# These came to the outside, and so they were really used.
TO_THE_MODEL = {
    "modelkey", "systemprompt", "templatetext", "templateinput", "question", "toolresult", "toolfixture", "memoryseed",
    "taskinput", "criterion", "failedinput", "responsebody",
}  # fmt: skip
TO_THE_API = {"credentialvalue", "toolargument", "requestheader", "requestbody"}


class Sweep(msgspec.Struct):
    """What was found where; which events there were; what came to the outside."""

    found: dict[str, set[str]]
    made_up: dict[str, set[str]]
    places: set[str]
    events: list[list[RunEvent]]
    model: set[str]
    api: set[str]
    tokens: int


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    with planted(tmp_path_factory.mktemp("canaries")) as there:
        told = [msgspec.convert(polled(there, run_id), list[RunEvent]) for run_id in runs(there)]
        canaries, made_up, places = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set), set[str]()
        for place, data in everything(there):
            text = data if isinstance(data, bytes) else data.encode()
            places.add(place)
            canaries[place] |= found(text)
            made_up[place] |= {name for name, secret in there.secrets.items() if secret.encode() in text}
        api = there.outside.all("api")
        tokens = api.count(there.secrets["oauth access token"].encode())
        yield Sweep(canaries, made_up, places, told, found(there.outside.all("model")), found(api), tokens)


def test_a_secret_is_shown_to_nobody(sweep: Sweep) -> None:
    shown = {place: names & set(SECRETS) for place, names in sweep.found.items()}
    assert {place: names for place, names in shown.items() if names} == {}
    assert {place: names for place, names in sweep.made_up.items() if names} == {}


def test_content_is_where_the_contract_puts_it_and_nowhere_else(sweep: Sweep) -> None:
    nothing: set[str] = set()
    astray = {place: names - ALLOWED.get(place, (nothing, ""))[0] for place, names in sweep.found.items()}
    assert {place: names for place, names in astray.items() if names} == {}


def test_each_row_of_the_table_is_needed(sweep: Sweep) -> None:
    assert [place for place in ALLOWED if not sweep.found.get(place)] == []


def test_every_canary_was_used_and_every_surface_was_read(sweep: Sweep) -> None:
    assert sweep.model >= TO_THE_MODEL and sweep.api >= TO_THE_API and sweep.tokens == 1
    shown = {name for names in sweep.found.values() for name in names}
    assert set(CONTENT) - shown - sweep.model - sweep.api == {"forgedbody"}  # refused with its signature
    kinds = {place.split()[0] for place in sweep.places}
    assert {"event", "record", "line", "GET", "page", "refusal", "traces", "webhook", "/metrics"} <= kinds
    answered = {place.removeprefix("GET ") for place in sweep.places if place.startswith("GET ")}
    assert answered >= {
        "/v1/runs", "/v1/agents", "/v1/agents/roster", "/v1/agents/org-chart", "/v1/tools", "/v1/audit/verify",
        "/v1/runs/{runId}/eval-summary", "/v1/agents/{agentId}/deployments", "/v1/trigger-subscriptions",
        "/host/v1/credentials", "/host/v1/budgets", "/host/v1/trigger-deliveries", "/host/v1/keys", "/v1/webhooks",
    }  # fmt: skip


def test_every_event_has_the_contracts_shape(sweep: Sweep) -> None:
    for told in sweep.events:
        shapes.check_events(told)
    types = {event.type for told in sweep.events for event in told}
    elsewhere = {name for names in ELSEWHERE.values() for name in names.split()}
    assert sorted(_documented() - types - elsewhere) == [], "no event of these types is validated anywhere"


# Types that this host has no occasion for, by the test that validates events of them.
ELSEWHERE: dict[str, str] = {
    "tests/contracts/openwop/test_fixtures.py": (
        "agent.handoff agent.reasoning.delta envelope.nlToFormat.engaged variable.changed"
    ),
    "tests/runs/test_node_http.py": ("approval.rejected"),
    "tests/runs/test_events.py": (
        "artifact.created channel.written clarification.requested clarification.resolved conversation.closed "
        "conversation.exchanged conversation.opened envelope.recovery.applied envelope.refusal "
        "envelope.retry.attempted envelope.retry.exhausted envelope.truncated forestay.approval.asked "
        "forestay.run.forked forestay.signal.received forestay.timer.fired forestay.timer.set lease.acquired "
        "log.appended node.cancelled node.retried node.skipped run.cancelled run.paused run.resumed "
        "runOrchestrator.decided"
    ),
    "tests/runs/test_handoff.py": (
        "core.workflowChain.confidence-escalated core.workflowChain.event model.capability.insufficient"
    ),
    "tests/host/test_oauth.py": ("connector.auth_expired"),
    "tests/runs/test_fork.py": ("replay.diverged replay.divergedAtRefusal"),
    "tests/runs/test_engine.py": ("version.pinned"),
    "tests/runs/test_downtime.py": ("forestay.clock.jumped"),
    "tests/runs/test_pausing.py": ("forestay.pause.requested"),
}


def _documented() -> set[str]:
    """The types of a run's events, as the page tells them; `tests/docs/test_reference.py` keeps it true."""
    page = (ROOT / "docs/reference/events.md").read_text().partition("## Other streams")[0]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_each_type_of_event_has_a_shape() -> None:
    assert _documented() == set(shapes.REQUIRED)
    assert not (shapes.CONTRACT / "schemas").is_dir() or all(
        shapes._contract(name) is not None for name in shapes.REQUIRED if not name.startswith("forestay.")
    )
    for file, names in ELSEWHERE.items():
        assert "check_events(" in (ROOT / file).read_text() and set(names.split()) <= _documented(), file


@pytest.mark.parametrize("name", NAMES)
def test_the_eye_sees_a_canary_however_it_is_written(name: str) -> None:
    import base64

    for shift in range(3):
        around = b"x" * shift + canary(name).encode() + b" and more"
        for written in (around, around.hex().encode(), base64.b64encode(around), around.upper()):
            assert name in found(written)
    assert found("heron") == set()
