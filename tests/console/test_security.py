"""The console from outside a browser: who gets in, whose forms count, what the headers say."""

from __future__ import annotations

import html
import re
from pathlib import Path

import httpx
import pytest

from forestay.console import PAGES
from tests.console.page import parse
from tests.console.served import KEY, served


@pytest.fixture
def client(host: str) -> httpx.Client:
    return httpx.Client(base_url=host, trust_env=False)


def signed_in(client: httpx.Client) -> str:
    """Sign in; the CSRF token of the session."""
    assert client.post("/login", data={"key": KEY}).status_code == 303
    found = re.search(r'name="csrf" value="([^"]+)"', client.get("/").text)
    assert found
    return found[1]


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in PAGES])
def test_without_a_session_every_page_leads_to_the_door(client: httpx.Client, method: str, path: str) -> None:
    with client:
        answer = client.request(method, re.sub(r"\{[^}]*\}", "x", path))
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")


@pytest.mark.parametrize("key", ["", "wrong-key-wrong-key", "x" * 10_000, "a\nb", KEY[:-1]])
def test_a_wrong_key_does_not_open(client: httpx.Client, key: str) -> None:
    with client:
        answer = client.post("/login", data={"key": key})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert key not in answer.text or key == ""


def test_the_cookie_is_locked_down_and_holds_no_key(client: httpx.Client) -> None:
    with client:
        cookie = client.post("/login", data={"key": KEY}).headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert KEY not in cookie


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/inbox", "/runs/run_x?cursor=a%2Fb&x=1", "/extensions/ext.tally"])
def test_signing_in_leads_back_to_the_page_that_was_asked_for(client: httpx.Client, path: str) -> None:
    with client:
        door = client.get(path, headers=BROWSER).headers["location"]
        assert door.startswith("/login?next=/")
        page = parse(client.get(door).text)
        wanted = next(field["value"] for field in page.all("input") if field.attributes.get("name") == "next")
        assert wanted == path
        refused = client.post("/login", data={"key": "wrong-key-wrong-key", "next": wanted})
        assert f'value="{html.escape(path)}"' in refused.text  # a slip at the key does not lose it
        assert client.post("/login", data={"key": KEY, "next": wanted}).headers["location"] == path


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "/runs/../..//evil.example\n",
        "/v1/runs",
        "/logout",
        "/login",
        "/nowhere",
        "javascript:alert(1)",
        "/%2Fevil.example",
        "/runs\r\nSet-Cookie: a=b",
        "/" + "x" * 5000,
        "runs",
        "",
    ],
)
def test_signing_in_leads_to_no_other_place(client: httpx.Client, elsewhere: str) -> None:
    with client:
        assert client.post("/login", data={"key": KEY, "next": elsewhere}).headers["location"] == "/"
        assert 'name="next"' not in client.get("/login", params={"next": elsewhere}).text


def test_a_stream_that_needs_a_session_is_no_place_to_come_back_to(client: httpx.Client) -> None:
    with client:
        door = client.get("/runs/run_x/live", headers={"Accept": "text/event-stream"}).headers["location"]
        assert door == "/login"


@pytest.mark.parametrize("path", ["/nowhere", "/nowhere/else", "/favicon.ico"])
def test_a_browser_gets_a_page_where_nothing_is(client: httpx.Client, path: str) -> None:
    with client:
        answer = client.get(path, headers=BROWSER)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "<h1>" in answer.text and "content-security-policy" in answer.headers
        assert client.get(path).status_code == 401  # a program without a key learns nothing
        assert client.post(path, headers=BROWSER).status_code == 401
        assert client.get("/v1/nowhere", headers=BROWSER).headers["content-type"].startswith("application/json")


def test_the_cookie_goes_over_tls_alone_where_the_public_address_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: httpx.Client
) -> None:
    with client:
        forwarded = client.post("/login", data={"key": KEY}, headers={"X-Forwarded-Proto": "https"})
        assert "Secure" not in forwarded.headers["set-cookie"]  # anybody can send that header
    monkeypatch.setenv("FORESTAY_HTTP_PUBLIC_URL", "https://host.example")
    with served(tmp_path) as running, httpx.Client(base_url=running.url, trust_env=False) as other:
        signed = other.post("/login", data={"key": KEY})
        assert "; Secure" in signed.headers["set-cookie"]
        token = signed.headers["set-cookie"].split(";")[0].partition("=")[2]
        left = other.post("/logout", data={}, headers={"Cookie": f"forestay={token}"})
        assert left.headers["location"] == "/"  # without its token the form does nothing


def test_a_forged_cookie_is_no_session(client: httpx.Client) -> None:
    with client:
        signed_in(client)
        body, signature = client.cookies["forestay"].split(".")
        for forged in (f"{body}.{signature[:-2]}xx", f"e30.{signature}", f"{body}.", ".", "x", f"{signature}.{body}"):
            with httpx.Client(base_url=client.base_url, cookies={"forestay": forged}, trust_env=False) as other:
                assert other.get("/").headers["location"] == "/login", forged


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in PAGES if method == "POST"])
@pytest.mark.parametrize("token", [None, "", "forged"])
def test_a_form_without_its_token_does_nothing(client: httpx.Client, method: str, path: str, token: str | None) -> None:
    with client:
        signed_in(client)
        data = {} if token is None else {"csrf": token}
        answer = client.request(method, re.sub(r"\{[^}]*\}", "x", path), data=data)
        assert answer.status_code == 403


def test_a_form_that_cannot_be_read_is_refused(client: httpx.Client) -> None:
    with client:
        signed_in(client)
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = client.post("/ledger/verify", content=b"--b\r\nbroken\r\n\r\n--b--", headers=headers)
        assert answer.status_code == 400 and "<h1>" in answer.text


def test_every_answer_carries_the_headers_that_keep_it_harmless(client: httpx.Client) -> None:
    with client:
        signed_in(client)
        for path in (
            "/",
            "/runs",
            "/inbox",
            "/extensions",
            "/extensions/none",
            "/servers",
            "/relay",
            "/relay/none",
            "/ledger",
            "/api",
            "/login",
            "/static/live.js",
            "/runs/none",
        ):
            headers = client.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"], path
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"


def test_bad_input_gets_a_page_with_the_problem(client: httpx.Client) -> None:
    with client:
        token = signed_in(client)
        for path, status in (
            ("/runs/none", 404),
            ("/runs?start=forged", 400),
            ("/runs?since=forged", 400),
            ("/runs?status=<script>", 200),
            ("/ledger/none", 404),
            ("/ledger/run%2Fx?start=-1", 400),
            ("/static/..%2Fapp.py", 404),
        ):
            answer = client.get(path)
            assert answer.status_code == status, (path, answer.status_code)
            assert "<script>" not in answer.text
        broken = client.post("/runs", data={"csrf": token, "workflow": "review", "inputs": "{"})
        assert (broken.status_code, "Inputs are not valid JSON." in broken.text) == (400, True)
        assert client.post("/runs", data={"csrf": token, "inputs": "x" * 100_000}).status_code == 413


def test_assets_are_sent_again_only_when_they_changed(client: httpx.Client) -> None:
    with client:
        first = client.get("/static/style.css")
        assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
        again = client.get("/static/style.css", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
