"""OAuth as a client: the address a person opens, and what a provider's answers mean."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from forestay.governance.oauth_client import Provider, authorization_url, challenge, tokens
from forestay.kernel import Problem
from forestay.runs import HttpResponse

REDIRECT = "http://127.0.0.1:8787/host/v1/oauth/callback"
PORTS = Provider(id="ports", auth_url="https://a.example/?x=1", token_url="https://a.example/t", client_id="forestay")


def test_the_address_and_the_answers_of_a_provider() -> None:
    url = authorization_url(PORTS, REDIRECT, "s", "v" * 43, ("a", "b"))
    asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    assert asked == {
        "x": "1", "response_type": "code", "client_id": "forestay", "redirect_uri": REDIRECT, "state": "s",
        "code_challenge": challenge("v" * 43), "code_challenge_method": "S256", "scope": "a b",
    }  # fmt: skip
    # RFC 7636, appendix B
    assert challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    wrong = [
        (400, b'{"error": "invalid_grant", "error_description": "canary"}', "credential_forbidden"),
        (400, b'{"error": "invalid_client"}', "credential_unavailable"),
        (500, b"canary", "credential_unavailable"),
        (200, b'{"access_token": 1}', "credential_unavailable"),
        (200, b'{"access_token": "x", "token_type": "mac"}', "credential_unavailable"),
        (200, b"\xff", "credential_unavailable"),
    ]
    for status, body, key in wrong:
        with pytest.raises(Problem) as caught:
            tokens(PORTS, HttpResponse(status=status, headers={}, body=body), 0)
        assert caught.value.key == key and "canary" not in str(caught.value.as_lafs())
    body = b'{"access_token": "a", "token_type": "bearer", "expires_in": 60, "scope": "use"}'
    secret, granted = tokens(PORTS, HttpResponse(status=200, headers={}, body=body), 1000, "old")
    assert (secret.value, secret.refresh, secret.until_ms, granted) == ("a", "old", 61_000, ("use",))
