"""Whose requests are for this host (N1), and whose word on the way of a request counts (N2)."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

from forestay.kernel import Http, Problem
from forestay.surface.host_names import HostNames, TrustedProxies
from tests.console.served import KEY, served


def request(host: str | None = None, client: str = "127.0.0.1", *headers: tuple[str, str]) -> Request:
    sent = [*([("host", host)] if host is not None else []), *headers]
    raw = [(name.encode(), value.encode()) for name, value in sent]
    return Request({"type": "http", "headers": raw, "client": (client, 1)})


def admits(names: HostNames, host: str | None) -> bool:
    try:
        names.check(request(host))
    except Problem as problem:
        assert problem.key == "permission_denied"
        return False
    return True


OURS = [None, "localhost", "localhost:8787", "LOCALHOST:1", "127.0.0.1:8787", "127.9.9.9", "[::1]:8787", "localhost."]
PUBLIC = ["agents.example.org", "agents.example.org:443", "Agents.Example.Org", "inner", "inner:8787"]
OTHERS = [
    "",
    "evil.example",
    "localhost.evil.example",
    "agents.example.org.evil",
    "127.0.0.1.evil",
    "a]b",
    "@localhost.x",
]


def test_n1_loopback_names_and_what_the_settings_name_are_this_hosts() -> None:
    names = HostNames(Http(public_url="https://agents.example.org/x", hosts=["inner"]), "http://127.0.0.1:8787")
    assert [host for host in OURS + PUBLIC if not admits(names, host)] == []
    addresses = ["192.168.1.4:8787", "10.0.0.9", "[fd00::1]"]
    assert [host for host in OTHERS + addresses if admits(names, host)] == []
    plain = HostNames(Http(), "http://127.0.0.1:8787")
    assert [host for host in PUBLIC if admits(plain, host)] == []


def test_n1_a_plain_address_counts_where_the_host_listens_beyond_loopback() -> None:
    names = HostNames(Http(), "http://0.0.0.0:8787")
    assert admits(names, "192.168.1.4:8787") and admits(names, "[fd00::1]:80") and admits(names, "localhost")
    assert [host for host in OTHERS if admits(names, host)] == []


@pytest.mark.parametrize(
    ("client", "headers", "tls"),
    [
        ("10.1.2.3", [("x-forwarded-proto", "https")], True),
        ("::ffff:10.1.2.3", [("x-forwarded-proto", "HTTPS")], True),
        ("10.1.2.3", [("x-forwarded-proto", "http")], False),
        ("10.1.2.3", [], False),
        ("10.1.2.3", [("x-forwarded-proto", "https"), ("x-forwarded-proto", "http")], False),
        ("11.1.2.3", [("x-forwarded-proto", "https")], False),
        ("no address", [("x-forwarded-proto", "https")], False),
    ],
)
def test_n2_only_a_trusted_proxy_says_that_there_is_tls(client: str, headers: list[tuple[str, str]], tls: bool) -> None:
    assert TrustedProxies(["10.0.0.0/8", "::1"]).over_tls(request("localhost", client, *headers)) is tls
    assert TrustedProxies([]).over_tls(request("localhost", client, *headers)) is False


def test_n2_a_network_that_is_none_is_told() -> None:
    with pytest.raises(Problem) as caught:
        TrustedProxies(["10.0.0.0/8", "proxy"])
    assert caught.value.details["at"] == "http.trusted_proxies[1]"


def test_a_served_host_refuses_other_names_and_believes_its_proxy(tmp_path: Path) -> None:
    (tmp_path / "forestay.toml").write_text('[http]\ntrusted_proxies = ["127.0.0.1"]\nhosts = ["inner.test"]\n')
    with served(tmp_path) as host:

        def ask(path: str, name: str) -> httpx.Response:
            return host.api.get(path, headers={"Host": name})

        for path in ("/healthz", "/v1/runs", "/login", "/openai/v1/models", "/mcp", "/static/style.css"):
            refused = ask(path, "rebound.example")
            assert refused.status_code == 403 and "rebound.example" in refused.text, path
        assert ask("/healthz", "inner.test").status_code == ask("/v1/runs", "localhost").status_code == 200
        form = {"key": KEY, "next": "/"}

        def cookie(**headers: str) -> str:
            with httpx.Client(base_url=host.url, trust_env=False) as visitor:
                return visitor.post("/login", data=form, headers=headers).headers["set-cookie"]

        assert "Secure" not in cookie()
        assert "Secure" in cookie(**{"X-Forwarded-Proto": "https"})
