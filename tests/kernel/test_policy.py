"""The order of the rules (P1 to P5), expiry, names, and words that a person understands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel.ambient import ManualClock
from forestay.kernel.policy import Decision, Grant, Mode, Policy, Request, SubjectRules, scope_policy, scope_request
from forestay.kernel.problems import Problem

EXEC = Request("ext.a", "exec", "exec")


def test_p1_a_denial_for_the_subject_beats_everything() -> None:
    policy = (
        Policy("permissive", defaults=[Grant("exec")]).allowing("ext.a", Grant("exec")).denying("ext.a", Grant("exec"))
    )
    assert (policy.decide(EXEC).effect, policy.decide(EXEC).rule) == ("deny", "subject-deny")
    assert policy.decide(Request("ext.b", "exec")).effect == "allow"


def test_p2_a_denial_for_everybody_beats_a_grant_for_the_subject() -> None:
    policy = Policy("permissive", denials=[Grant("exec")]).allowing("ext.a", Grant("exec"))
    assert (policy.decide(EXEC).effect, policy.decide(EXEC).rule) == ("deny", "global-deny")


def test_p3_a_grant_for_the_subject_beats_the_mode() -> None:
    policy = Policy("strict").allowing("ext.a", Grant.parse("write:src/**"))
    assert policy.decide(Request("ext.a", "write", "fs", "src/x")).rule == "subject-allow"
    assert policy.decide(Request("ext.a", "write", "fs", "etc/x")).effect == "deny"
    assert policy.decide(Request("ext.b", "write", "fs", "src/x")).effect == "deny"


def test_p4_a_default_grant_beats_the_mode() -> None:
    assert Policy("strict", defaults=[Grant("read")]).decide(Request("x", "read")).rule == "default"


@pytest.mark.parametrize(("mode", "effect"), [("strict", "deny"), ("prompt", "prompt"), ("permissive", "allow")])
def test_p5_the_mode_decides_what_no_rule_speaks_about(mode: Mode, effect: str) -> None:
    decision = Policy(mode).decide(EXEC)
    assert (decision.effect, decision.rule) == (effect, f"mode-{mode}")
    overridden = Policy("permissive", subjects={"ext.a": SubjectRules(mode=mode)})
    assert overridden.decide(EXEC).effect == effect


_grants = st.builds(Grant, st.sampled_from(["read", "write", "exec"]))


@given(
    st.lists(_grants, max_size=2),
    st.lists(_grants, max_size=2),
    st.lists(_grants, max_size=2),
    st.lists(_grants, max_size=2),
    st.sampled_from(["strict", "prompt", "permissive"]),
    st.sampled_from(["read", "write", "exec"]),
)
def test_the_first_rule_that_speaks_decides(
    denied: list[Grant], denials: list[Grant], allowed: list[Grant], defaults: list[Grant], mode: Mode, capability: str
) -> None:
    policy = Policy(
        mode, defaults=defaults, denials=denials, subjects={"s": SubjectRules(tuple(allowed), tuple(denied))}
    )
    speaks = [any(grant.capability == capability for grant in rules) for rules in (denied, denials, allowed, defaults)]
    expected = next(
        (effect for spoken, effect in zip(speaks, ("deny", "deny", "allow", "allow"), strict=True) if spoken),
        {"strict": "deny", "prompt": "prompt", "permissive": "allow"}[mode],
    )
    assert policy.decide(Request("s", capability)).effect == expected


def test_a_grant_expires(clock: ManualClock) -> None:
    policy = Policy("strict", clock=clock).allowing("ext.a", Grant("exec", expires_ms=clock.now_ms() + 60_000))
    assert policy.decide(EXEC).allowed
    clock.advance(60)
    decision = policy.decide(EXEC)
    assert not decision.allowed
    assert "expired" in decision.reason


def test_methods_limit_a_grant() -> None:
    policy = Policy("strict").allowing("ext.a", Grant("read", methods=("tool",)))
    assert policy.decide(Request("ext.a", "read", "tool")).allowed
    assert "only tool" in policy.decide(Request("ext.a", "read", "fs")).reason


@pytest.mark.parametrize("mode", ["strict", "prompt", "permissive"])
def test_what_must_be_named_is_allowed_by_its_name_and_by_nothing_else(mode: Mode) -> None:
    secret = Request("ext.a", "env", "env", "GITHUB_TOKEN", by_name_only=True)
    assert (
        Policy(mode, defaults=[Grant("env")]).allowing("ext.a", Grant.parse("env:GITHUB_*")).decide(secret).effect
        == "deny"
    )
    assert Policy(mode).allowing("ext.a", Grant.parse("env:GITHUB_TOKEN")).decide(secret).allowed


def test_a_scoped_denial_also_denies_what_cannot_be_known_beforehand() -> None:
    policy = Policy("permissive").denying("ext.a", Grant.parse("read:secret/**"))
    assert policy.decide(Request("ext.a", "read", "fs", "secret/key")).effect == "deny"
    assert policy.decide(Request("ext.a", "read", "fs", "public")).effect == "allow"
    assert policy.decide(Request("ext.a", "read", "fs", None)).effect == "deny"


def test_a_decision_names_the_grant_that_it_rests_on() -> None:
    policy = Policy("strict").allowing("ext.a", Grant.parse("write:src/**", source="person"), Grant("exec"))
    found = policy.decide(Request("ext.a", "write", "fs", "src/x.ts"))
    asked = {"subject": "ext.a", "capability": "write", "method": "fs", "resource": "src/x.ts"}
    assert found.evidence == {**asked, "source": "person", "scope": ["src/**"]}
    assert "scope" not in policy.decide(EXEC).evidence
    refused = policy.decide(Request("ext.a", "write", "fs", "etc"))
    assert refused.evidence == {**asked, "resource": "etc"}


def test_a_policy_is_not_changed_by_what_is_made_of_it() -> None:
    policy = Policy("prompt")
    assert policy.allowing("ext.a", Grant("exec")).decide(EXEC).effect == "allow"
    assert policy.decide(EXEC).effect == "prompt"


def test_a_downgrading_grant_says_so() -> None:
    policy = Policy().allowing("ext.a", Grant("http", effect="downgrade"))
    decision = policy.decide(Request("ext.a", "http", "http", "example.com"))
    assert (decision.effect, decision.allowed) == ("downgrade", True)


def test_reasons_name_who_what_and_why() -> None:
    decision = (
        Policy("strict")
        .allowing("ext.todo", Grant.parse("read:src/**"))
        .decide(Request("ext.todo", "read", "fs", "/etc/passwd"))
    )
    assert decision.reason == (
        "ext.todo has no grant for read on /etc/passwd, and the mode is strict. A grant covers only src/**."
    )
    assert decision.evidence == {
        "subject": "ext.todo",
        "capability": "read",
        "method": "fs",
        "resource": "/etc/passwd",
    }


def test_require_raises_the_problem_of_the_decision() -> None:
    with pytest.raises(Problem) as denied:
        Policy("strict").decide(EXEC).require()
    assert (denied.value.key, denied.value.as_pi()["code"]) == ("capability_denied", "denied")
    with pytest.raises(Problem) as asked:
        Policy("prompt").decide(EXEC).require()
    assert asked.value.key == "consent_required"
    Decision("allow", "r", "because", {}).require()


@pytest.mark.parametrize("text", ["", ":", "read:", "exec:rm", "http:*", "read:../x"])
def test_malformed_grants(text: str) -> None:
    with pytest.raises(Problem) as caught:
        Grant.parse(text)
    assert caught.value.key == "pattern_invalid"


def test_a_grant_may_have_several_scopes() -> None:
    assert Grant.parse("http:a.example,*.b.example").scope.hosts == ("a.example", "*.b.example")


def test_a_key_has_its_scopes_in_its_own_tenant_and_nothing_else() -> None:
    policy = scope_policy("key_1", ["runs:read", "runs:create"], "acme")
    decision = policy.decide(scope_request("key_1", "runs:read", "acme"))
    assert (decision.effect, decision.rule, decision.evidence["source"]) == ("allow", "subject-allow", "key")
    for request in (
        scope_request("key_1", "keys:manage", "acme"),
        scope_request("key_1", "runs:read", "other"),
        scope_request("key_2", "runs:read", "acme"),
    ):
        assert policy.decide(request).effect == "deny"
    with pytest.raises(Problem) as refused:
        policy.decide(scope_request("key_1", "keys:manage", "acme")).require(
            "permission_denied", "This key lacks the scope keys:manage.", missingScopes=["keys:manage"]
        )
    assert refused.value.key == "permission_denied"
    assert refused.value.details["missingScopes"] == ["keys:manage"]
    assert refused.value.details["rule"] == "mode-strict"
