"""C1 to C5: where a credential may go, against a plain model."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from forestay.governance.credential import Credential, Use, checked, decide, within
from forestay.kernel import Place, Problem, place_of

NOW = 1_000_000
STRIPE = Credential(credential_id="stripe", audiences=("api.stripe.com", "*.stripe.dev:8443"))
HOSTS = [
    "api.stripe.com",
    "stripe.com",
    "evil.com",
    "a.stripe.dev",
    "stripe.dev",
    "xstripe.dev",
    "api.stripe.com.evil.com",
]


def place(url: str) -> Place:
    return place_of(url)


def use(url: str, **more: object) -> Use:
    return msgspec.structs.replace(Use("stripe", place(url)), **more)


def test_c1_what_nobody_knows_goes_nowhere() -> None:
    told = decide(None, use("https://api.stripe.com/v1/charges?key=1"), NOW)
    assert msgspec.to_builtins(told) == {
        "decision": "denied",
        "destination": "api.stripe.com",
        "credentialId": "stripe",
        "reason": "provenance-unevaluable",
    }


def test_c2_c5_the_first_rule_that_applies_decides() -> None:
    strict = msgspec.structs.replace(STRIPE, expires_ms=NOW, workflows=("pay-*",), approval=True)
    inside, outside = "https://api.stripe.com/", "https://evil.com/"
    assert decide(strict, use(inside), NOW).reason == "expired"
    assert decide(strict, use(outside), NOW - 1).reason == "out-of-audience"
    assert decide(strict, use(inside), NOW - 1).reason == "scope-denied"
    asked = decide(strict, use(inside, workflow_id="pay-all"), NOW - 1)
    assert (asked.decision, asked.reason) == ("approval-required", None)
    agreed = decide(strict, use(inside, workflow_id="pay-all", approved=True), NOW - 1)
    assert (agreed.decision, agreed.reason) == ("allowed", "ok")


def test_c3_outside_a_request_is_refused_or_goes_without() -> None:
    relaxed = msgspec.structs.replace(STRIPE, outside="downgrade")
    assert decide(STRIPE, use("https://evil.com/"), NOW).decision == "denied"
    assert decide(relaxed, use("https://evil.com/"), NOW).decision == "downgraded"
    assert decide(STRIPE, use("https://evil.com/", redirected=True), NOW).decision == "downgraded"
    assert decide(STRIPE, use("https://evil.com/", approved=True), NOW).decision == "denied"


@pytest.mark.parametrize(
    ("url", "covered"),
    [
        ("https://api.stripe.com/", True),
        ("https://API.stripe.com./x", True),
        ("https://api.stripe.com:8443/", False),
        ("https://stripe.com/", False),
        ("https://api.stripe.com.evil.com/", False),
        ("https://a.stripe.dev:8443/", True),
        ("https://a.b.stripe.dev:8443/", True),
        ("https://a.stripe.dev/", False),
        ("https://stripe.dev:8443/", False),
        ("https://xstripe.dev:8443/", False),
    ],
)
def test_an_audience_is_a_host_or_what_lies_below_a_domain(url: str, covered: bool) -> None:
    assert within(STRIPE.audiences, place(url)) is covered


@given(
    some.sampled_from(HOSTS),
    some.sampled_from([80, 443, 8443]),
    some.lists(some.sampled_from([*HOSTS, "*.stripe.dev", "evil.com:8443", "*.com:80"]), min_size=1, max_size=3),
    some.booleans(),
    some.booleans(),
)
def test_c3_a_value_is_attached_only_inside(
    host: str, port: int, audiences: list[str], approved: bool, hop: bool
) -> None:
    """`allowed` is the one decision with which a value is attached, and it needs an audience that names the place."""
    held = Credential(credential_id="stripe", audiences=tuple(audiences), outside="downgrade")
    told = decide(held, Use("stripe", Place(host, port, "https"), "", approved, hop), NOW)
    meant = False
    for audience in audiences:
        name, _, named = audience.partition(":")
        same = host.endswith(name[1:]) if name.startswith("*.") else host == name
        meant |= same and port == int(named or 443)
    assert (told.decision == "allowed") is meant


@pytest.mark.parametrize(
    ("about", "value", "at"),
    [
        ({"credential_id": "Stripe"}, "x" * 8, "$.credentialId"),
        ({"audiences": ()}, "x" * 8, "$.audiences"),
        ({"audiences": ("*.com",)}, "x" * 8, "$.audiences[0]"),
        ({"audiences": ("https://api.stripe.com",)}, "x" * 8, "$.audiences[0]"),
        ({"audiences": ("api.stripe.com", "a.b:70000")}, "x" * 8, "$.audiences[1]"),
        ({"header": "Host"}, "x" * 8, "$.header"),
        ({"header": "a\r\nb"}, "x" * 8, "$.header"),
        ({"prefix": "a\r\n"}, "x" * 8, "$.prefix"),
        ({}, "short", "$.value"),
        ({}, "line\r\nbreak", "$.value"),
        ({}, "x" * 9000, "$.value"),
    ],
)
def test_what_cannot_be_kept_is_said_without_its_value(about: dict[str, object], value: str, at: str) -> None:
    with pytest.raises(Problem) as caught:
        checked(msgspec.structs.replace(STRIPE, **about), value)
    assert caught.value.details["at"] == at
    assert value not in str(caught.value.as_lafs()) or value == "short"


def test_its_provenance_has_the_contracts_shape(reference: Path) -> None:
    schema = json.loads((reference / "schemas" / "credential-provenance.schema.json").read_text())
    jsonschema.validate(STRIPE.provenance, schema)
    jsonschema.validate(msgspec.structs.replace(STRIPE, scopes=("a",), expires_ms=NOW).provenance, schema)
