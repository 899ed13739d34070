"""The kit tells a host that does something from one that does not (N1 to N3), and its scenarios can fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import msgspec
import pytest

from forestay.conformance import PROFILES, Report, agent_platform, conform, junit, profiles, scenarios
from forestay.kernel import Problem
from tests.contracts.openwop.conftest import LocalHost
from tests.forked import forestay

Change = Callable[[httpx.Request, httpx.Response], httpx.Response]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHost]:
    running = LocalHost(tmp_path_factory.mktemp("kit") / "data")
    running.start("--sample-seams")
    yield running
    running.stop()


class Without(httpx.BaseTransport):
    """The real host behind something that takes a feature away: its paths, or its name in discovery."""

    def __init__(self, *, paths: str = "", flag: str = "", status: int = 501) -> None:
        self._real = httpx.HTTPTransport()
        self._paths, self._flag, self._status = re.compile(paths) if paths else None, flag, status

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._paths is not None and self._paths.search(request.url.path):
            body = {"error": "capability_not_provided", "message": "It is switched off."}
            return httpx.Response(self._status, json=body, request=request)
        answer = self._real.handle_request(request)
        if self._flag and request.url.path == "/.well-known/openwop":
            document = json.loads(answer.read())
            *path, last = self._flag.split(".")
            at = document
            for name in path:
                at = at[name]
            del at[last]
            return httpx.Response(200, json=document, request=request)
        return answer

    def close(self) -> None:
        self._real.close()


class Changed(httpx.BaseTransport):
    """The real host behind something that breaks one of its answers, or one of the questions."""

    def __init__(self, answer: Change | None = None, question: Callable[[httpx.Request], None] | None = None) -> None:
        self._real = httpx.HTTPTransport()
        self._answer, self._question = answer, question

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._question is not None:
            self._question(request)
        answer = self._real.handle_request(request)
        if self._answer is None:
            return answer
        answer.read()
        answer.request = request
        return self._answer(request, answer)

    def close(self) -> None:
        self._real.close()


def tried(host: LocalHost, *names: str, transport: httpx.BaseTransport | None = None, **options: Any) -> Report:
    key = host.keys["full"]
    return conform(host.url, key, other_key=host.keys["other"], names=names, transport=transport, **options)


OFF = {
    "replay-fork": ("replay", r":fork$"),
    "debugBundle": ("debugBundle", r"/debug-bundle$"),
    "agent-manifest-runtime": ("agents.manifestRuntime", r"^/v1/agents$"),
    "agent-live-invocation-bracket": ("agents.liveRuntime", r"/live-invoke$"),
    "tool-descriptor-shape": ("toolCatalog", r"^/v1/tools"),
    "tool-session-lifecycle": ("toolCatalog.sessionLifecycle", r"/tools/session-run$"),
    "tool-hooks-content-free": ("toolHooks", r"/toolhooks/invoke$"),
    "prompt-list-and-fetch": ("prompts", r"^/v1/prompts"),
    "prompt-render-deterministic": ("prompts", r"^/v1/prompts:render$"),
    "provider-usage": ("providerUsage", r"/live-invoke$"),
    "feedback-record-and-list": ("feedback", r"/annotations$"),
    "memory-forget": ("memory", r"/sample/memory/.+$"),
    "agent-eval-run": ("agents.evalSuite", r"/eval-run$|/eval-summary$"),
    "agent-deployment-lifecycle": ("agents.deployment", r"/deployment-transition$"),
    "budget-enforcement": ("budget", r"/budget/run$"),
    "trigger-bridge-delivery": ("triggerBridge", r"/trigger-bridge/deliver$"),
    "trigger-bridge-shape": ("triggerBridge", r"^/v1/trigger-subscriptions"),
    "agent-roster-attribution": ("agents.roster", r"/roster/fire$"),
    "agent-roster-shape": ("agents.roster", r"^/v1/agents/roster"),
    "agent-org-chart-shape": ("agents.orgChart", r"^/v1/agents/org-chart"),
    "agent-org-chart-scoping": ("agents.orgChart", r"^/v1/agents/org-chart"),
    "agentMemoryRoundTrip": ("memory", r"^/v1/runs$"),
    "agentMemoryTtlExpiry": ("memory.ttlSupported", r"^/v1/runs$"),
    "agentMemoryCrossTenantIsolation": ("memory", r"/sample/memory$"),
    "fixtures": ("fixtures", r"^/v1/workflows/"),
    "x-openwop-form-pack-manifest": ("", r"^/v1/workflows/"),
    "runtime-requires-install-gate": ("", r"/packs/install-gate$"),
    "audit-log-integrity": ("auth.auditLogIntegrity", r"^/v1/audit/verify$"),
    "audit-checkpoint-signature": ("auth.auditLogIntegrity", r"^/v1/audit/verify$"),
    "safefetch-behavior": ("httpClient.safeFetch", r"/http/safe-fetch$"),
    "safefetch-live-audit": ("httpClient.safeFetch", r"/http/safe-fetch-run$"),
    "egress-audience-binding": ("httpClient.egressPolicy", r"/egress/decide$"),
    "oauth-authorization-code-roundtrip": ("oauth", r"/oauth/authorize-code-roundtrip$"),
    "stream-modes": ("", r"/events$"),
    "interrupt-approval": ("", r"^/v1/interrupts/|/interrupts$"),
    "cancellation": ("", r"/cancel$"),
    "auth": ("", r"^/v1/runs"),
    "tenant-isolation": ("", r"^/v1/runs"),
    "runs-lifecycle": ("", r"^/v1/runs$"),
    "configurable-schema": ("", r"^/v1/runs$"),
    "interrupt-clarification": ("", r"/interrupts"),
    "agent-live-structured-output": ("agents.liveRuntime.structuredOutput", r"/live-invoke$"),
    "agent-live-allowlist-enforced": ("agents.liveRuntime", r"/live-invoke$"),
    "prompt-mutable-lifecycle": ("prompts.mutableLibrary", r"^/v1/prompts"),
    "prompt-end-to-end-events": ("prompts", r"^/v1/runs$"),
    "prompt-all-four-kinds-events": ("prompts", r"^/v1/runs$"),
    "feedback-on-terminal-run": ("feedback", r"/annotations$"),
    "feedback-cross-tenant-isolation": ("feedback", r"/annotations$"),
    "feedback-correction-redaction": ("feedback", r"/annotations$"),
    "feedback-fork-not-copied": ("feedback", r"/annotations$"),
    "tool-catalog-projection": ("toolCatalog", r"^/v1/tools"),
    "tool-hooks-secret-redaction": ("toolHooks.prePostEvents", r"/toolhooks/invoke$"),
    "memory-degraded-projection": ("agents.manifestRuntime", r"^/v1/agents$"),
    "agent-channel-dispatch": ("agents.deployment", r"/deployment-transition$"),
    "budget-policy-shape": ("budget", r"^/v1/runs$"),
    "org-position-no-authority-escalation": ("agents.orgChart", r"^/v1/agents/org-chart"),
    "egress-decision-content-free": ("httpClient.egressPolicy", r"/egress/decide$"),
    "runtime-requires-shape": ("", r"/packs/install-gate$"),
}


@pytest.mark.parametrize("name", OFF)
def test_n3_what_is_claimed_and_switched_off_fails(host: LocalHost, name: str) -> None:
    flag, paths = OFF[name]
    assert tried(host, name).results[0].outcome == "pass"
    off = tried(host, name, transport=Without(paths=paths))
    assert (off.ok, off.results[0].outcome) == (False, "fail"), off.results
    if flag:
        unclaimed = tried(host, name, transport=Without(paths=paths, flag=flag))
        assert (unclaimed.ok, unclaimed.results[0].outcome) == (True, "not-applicable"), unclaimed.results


CLAIMED = sorted({item.needs for item in scenarios() if item.needs is not None})


@pytest.mark.parametrize("flag", CLAIMED)
def test_n2_a_host_without_a_feature_fails_when_everything_is_asked_for(host: LocalHost, flag: str) -> None:
    asking = [item.name for item in scenarios() if item.needs == flag]
    report = tried(host, *asking, transport=Without(flag=flag), strict=True)
    assert not report.ok and {item.outcome for item in report.results} == {"fail"}, report.results
    assert all(flag in str(item.reason) for item in report.results)


def _without_second(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
    if not request.url.path.endswith("/events/poll"):
        return answer
    page = answer.json()
    page["events"] = [event for event in page["events"] if event["sequence"] != 1]
    return httpx.Response(answer.status_code, json=page, request=request)


def _in_its_own_words(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
    if answer.status_code < 400:
        return answer
    return httpx.Response(answer.status_code, json={"detail": "no"}, request=request)


def _told_content(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
    if not request.url.path.endswith("/events/poll"):
        return answer
    page = answer.json()
    for event in page["events"]:
        event["payload"]["prompt"] = "You are a helpful agent."
    return httpx.Response(answer.status_code, json=page, request=request)


def _everything_succeeds(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
    return httpx.Response(answer.status_code, content=answer.content.replace(b'"failed"', b'"completed"'))


def _signed_by_another(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
    if request.url.path != "/v1/audit/verify":
        return answer
    found = answer.json()
    for item in found["checkpoints"]:
        item["merkleRoot"] = item["merkleRoot"][::-1]
    return httpx.Response(200, json=found, request=request)


def _without_key(request: httpx.Request) -> None:
    request.headers.pop("Idempotency-Key", None)


def _found(name: str, value: Any) -> httpx.BaseTransport:
    """A host whose memory gives something else to the node that asks it."""

    def change(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
        run = answer.json() if re.fullmatch(r"/v1/runs/[^/]+", request.url.path) else {}
        if name not in run.get("variables", {}):
            return answer
        run["variables"][name] = value
        return httpx.Response(answer.status_code, json=run, request=request)

    return Changed(change)


def _told(path: str, value: Any) -> httpx.BaseTransport:
    """A host whose discovery document says something else at `path`."""

    def change(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if request.url.path != "/.well-known/openwop":
            return answer
        document = at = answer.json()
        *names, last = path.split(".")
        for name in names:
            at = at[name]
        at[last] = value
        return httpx.Response(200, json=document, request=request)

    return Changed(change)


def _without_hints(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
    if request.method != "GET" or not request.url.path.startswith("/v1/workflows/"):
        return answer
    return httpx.Response(200, content=answer.content.replace(b"x-openwop-form", b"x-form"), request=request)


def _one_chart() -> httpx.BaseTransport:
    """A host with one chart for everybody: the last one with departments is shown to all."""
    seen: list[Any] = []

    def change(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if request.url.path != "/v1/agents/org-chart":
            return answer
        if answer.json()["departments"]:
            seen.append(answer.json())
        return httpx.Response(200, json=seen[-1], request=request) if seen else answer

    return Changed(change)


_ENTRY = {"id": "m", "content": "c", "tags": [], "createdAt": "2026-01-01T00:00:00Z"}
_GONE = {**_ENTRY, "expiresAt": "2025-01-01T00:00:00Z"}


BROKEN: dict[str, tuple[str, httpx.BaseTransport]] = {
    "a root that was not signed": ("audit-checkpoint-signature", Changed(_signed_by_another)),
    "a gap in the log": ("append-ordering", Changed(_without_second)),
    "errors in other words": ("errors", Changed(_in_its_own_words)),
    "a failure that is none": ("failure-path", Changed(_everything_succeeds)),
    "content in an agent's events": ("agent-live-invocation-bracket", Changed(_told_content)),
    "a key that counts for nothing": ("idempotency", Changed(question=_without_key)),
    "a memory that keeps nothing": ("agentMemoryRoundTrip", _found("memoryReadback", None)),
    "an entry with more than it may say": ("agentMemoryRoundTrip", _found("memoryReadback", {**_ENTRY, "tenant": "t"})),
    "an entry that never expires": ("agentMemoryTtlExpiry", _found("memoryList", [_ENTRY, _GONE])),
    "the entry that has expired": ("agentMemoryTtlExpiry", _found("memoryList", [_GONE])),
    "an entry of another tenant": ("agentMemoryCrossTenantIsolation", _found("crossTenantProbe", [_ENTRY])),
    "a chart for everybody": ("agent-org-chart-scoping", _one_chart()),
    "a schema that loses its hints": ("x-openwop-form-pack-manifest", Changed(_without_hints)),
    "a fixture that is not there": ("fixtures", _told("fixtures", ["conformance-nobody-has-it"])),
    "a protocol of tomorrow": ("discovery", _told("protocolVersion", "2.0")),
    "a live runtime from nowhere": ("agent-live-runtime-shape", _told("agents.liveRuntime.sources", ["dream"])),
    "a signal that is none": ("feedback-capability-shape", _told("feedback.signals", ["applause"])),
    "a hook that is none": ("tool-hooks-shape", _told("toolHooks.mindReading", True)),
    "a search that is none": ("memory-capability-model-shape", _told("memory.search.modes", ["guess"])),
    "a mode that is none": ("agent-eval-suite-shape", _told("agents.evalSuite.modes", ["applause"])),
    "a state that is none": ("agent-deployment-shape", _told("agents.deployment.states", ["asleep"])),
    "no guard of the own network": ("http-client-ssrf", _told("httpClient.ssrfGuard", False)),
    "a decision that is none": ("egress-provenance-shape", _told("httpClient.egressPolicy.decisions", ["perhaps"])),
    "a level that does not follow": ("agent-platform-profile", _told("extensions.forestay.agentPlatform", "none")),
}


def test_every_scenario_passes_and_fails_where_a_host_claims_all_and_does_nothing(host: LocalHost) -> None:
    """Those that only read the discovery document have a wrong one in `BROKEN`."""
    found = tried(host)
    assert {item.name: item.reason for item in found.results if item.outcome != "pass"} == {}
    assert (found.agent_platform.level, found.ok) == ("full", True)
    nothing = tried(host, transport=Without(paths=r"^/(?!\.well-known/openwop$)"))
    still = {item.name for item in nothing.results if item.outcome != "fail"}
    assert still <= {name for name, _ in BROKEN.values()}
    assert len(still) <= 10, "the others ask the host for something"


def test_every_scenario_is_switched_off_or_answered_wrongly() -> None:
    assert {item.name for item in scenarios()} == OFF.keys() | {name for name, _ in BROKEN.values()}


@pytest.mark.parametrize("what", BROKEN)
def test_a_host_that_does_it_wrong_fails(host: LocalHost, what: str) -> None:
    name, transport = BROKEN[what]
    (result,) = tried(host, name, transport=transport).results
    assert result.outcome == "fail" and result.reason, what


def test_a_host_that_lets_everybody_in_fails(host: LocalHost) -> None:
    def admitted(request: httpx.Request) -> None:
        request.headers["Authorization"] = f"Bearer {host.keys['full']}"

    names = ("auth", "tenant-isolation", "memory-forget", "agentMemoryCrossTenantIsolation", "agent-org-chart-scoping")
    for name in names:
        assert tried(host, name, transport=Changed(question=admitted)).results[0].outcome == "fail"


@pytest.mark.parametrize("profile", ["core", "interrupts", "replay-fork"])
def test_n2_a_profile_that_the_host_has_holds(host: LocalHost, profile: str) -> None:
    report = tried(host, profile=profile)
    assert report.ok, report.failed
    assert [item.outcome for item in report.results] == ["pass"] * len(report.results)
    assert len(report.results) == len(scenarios(profile)) + 1


def test_n2_under_a_profile_nothing_is_left_out(host: LocalHost) -> None:
    report = tried(host, profile="memory", transport=Without(flag="agents.memoryBackends"))
    assert not report.ok and report.results[0].name == "profile-memory"
    assert "memory" not in report.profiles and report.results[0].outcome == "fail"
    platform = tried(host, profile="agent-platform-full", transport=Without(flag="memory"))
    assert not platform.ok and "memory" in platform.agent_platform.missing_terms


def test_the_report_counts_and_is_read_by_build_servers(host: LocalHost) -> None:
    names = ("discovery", "agentMemoryTtlExpiry", "tool-descriptor-shape")
    report = tried(host, *names, transport=Without(paths=r"^/v1/tools", flag="memory.ttlSupported"))
    assert {item.name: item.outcome for item in report.results} == dict(
        zip(names, ("pass", "not-applicable", "fail"), strict=True)
    )
    assert sum(item.passed + item.failed + item.not_applicable for item in report.coverage) == 3
    suite = ElementTree.fromstring(junit(report))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    told = {case.get("name"): [part.tag for part in case] for case in suite}
    assert told == dict(zip(names, ([], ["skipped"], ["failure"]), strict=True))


def test_what_is_not_there_is_said() -> None:
    for options in ({"profile": "best"}, {"names": ["no-such-scenario"]}):
        with pytest.raises(Problem) as caught:
            scenarios(**options)  # type: ignore[arg-type]
        assert caught.value.key == "invalid_usage"
    answers = httpx.MockTransport(lambda request: httpx.Response(404))
    with pytest.raises(Problem, match="no discovery document"):
        conform("http://nowhere.invalid", "k", transport=answers)


def test_a_host_that_does_not_answer_is_a_problem_with_its_address() -> None:
    with pytest.raises(Problem, match=r"The host at http://127\.0\.0\.1:9 does not answer") as refused:
        conform("http://127.0.0.1:9", "key")
    assert refused.value.key == "unavailable"


def test_each_scenario_has_a_sentence_and_known_profiles() -> None:
    for item in scenarios():
        assert item.summary.endswith(".") and set(item.profiles) <= PROFILES.keys(), item.name


def test_the_platform_has_sixteen_terms() -> None:
    on = {"supported": True}
    document: dict[str, Any] = {
        "agents": {"manifestRuntime": on, "liveRuntime": on},
        "httpClient": {"safeFetch": on},
        **dict.fromkeys(("toolCatalog", "toolHooks", "providerUsage", "prompts", "memory", "feedback", "replay"), on),
    }
    assert "agent-platform" in profiles(document) and "agent-platform-full" not in profiles(document)
    for name in ("toolHooks", "memory", "replay"):
        assert "agent-platform" not in profiles({**document, name: {"supported": "yes"}})
    document["agents"]["manifestRuntime"] = {**on, "installScope": "tenant"}
    document["memory"] = {**on, "attribution": on}
    document["httpClient"]["egressPolicy"] = on
    document |= dict.fromkeys(("authorization", "debugBundle", "triggerBridge"), on)
    assert "agent-platform-full" in profiles(document)


def _without(document: dict[str, Any], term: str) -> dict[str, Any]:
    """A document that does not say one of the platform's terms."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    paths = {
        "replay | nondeterminismPolicy": "replay.supported",
        "agents.manifestRuntime.installScope = tenant": "agents.manifestRuntime.installScope",
    }
    *path, last = paths.get(term, f"{term}.supported").split(".")
    at = copy
    for name in path:
        at = at[name]
    del at[last]
    return copy


def test_the_profile_is_a_function_of_discovery_and_each_of_its_terms_counts(host: LocalHost) -> None:
    document = httpx.get(f"{host.url}/.well-known/openwop", trust_env=False).json()
    found = agent_platform(document)
    assert document["extensions"]["forestay"]["agentPlatform"] == msgspec.to_builtins(found)
    assert set(found.missing_terms) <= {"httpClient.safeFetch", "httpClient.egressPolicy"}
    assert len(found.satisfied_terms) + len(found.missing_terms) == 16
    order = ["none", "partial", "full"]
    for term in found.satisfied_terms:
        less = agent_platform(_without(document, term))
        assert term in less.missing_terms and order.index(less.level) <= order.index(found.level)
        assert less.level != "full" and "agent-platform-full" not in profiles(_without(document, term))


@pytest.mark.parametrize("flag", ["toolHooks", "providerUsage", "prompts", "feedback", "memory", "debugBundle"])
def test_n2_a_host_without_one_family_does_not_have_the_profile(host: LocalHost, flag: str) -> None:
    report = tried(host, "tool-descriptor-shape", profile="agent-platform-full", transport=Without(flag=flag))
    assert not report.ok and flag in str(report.results[0].reason), report.results


def test_the_kit_needs_no_pytest_and_no_host() -> None:
    code = (
        "import sys; from forestay.conformance import conform; "
        "print(*sorted(name for name in sys.modules if name in ('pytest', 'forestay.host', 'forestay.runs')))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_command_tells_and_its_exit_code_counts(host: LocalHost, tmp_path: Path) -> None:
    command = ["conform", "openwop", "--url", host.url, "--key", host.keys["full"], "--only", "discovery"]
    command += ["--junit", str(tmp_path / "junit.xml")]
    good = forestay(tmp_path, *command, "--json")
    assert good.returncode == 0 and json.loads(good.stdout)["result"]["results"][0]["outcome"] == "pass"
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().get("tests") == "1"
    bad = forestay(tmp_path, *command, "--profile", "secrets", "--human")
    assert bad.returncode != 0 and "FAIL  profile-secrets" in bad.stdout + bad.stderr
