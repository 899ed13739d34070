"""No text that a model, an extension, a caller or a webhook wrote is ever more than text on a page."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest

from forestay.console import PAGES
from forestay.surface import Serving
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.security.page import Page
from tests.security.world import ALL, MARK, PAYLOADS, run

MOST_PAGES = 250
# Where a payload was put and must be seen on a page: without this, a page that shows nothing would pass.
SEEN = (
    "workflow title message input tag metadata question failure prompt reasoning answer nodedraft literaldraft "
    "hook schedule scope fact objective subject description argument result error command"
).split()


async def crawl(http: httpx.AsyncClient, start: str = "/", refused: tuple[int, ...] = ()) -> dict[str, Page]:
    """Every page that links lead to, each kind of page a few times, whatever pages there will be."""
    waiting, pages, kinds = deque([start]), {}, {}
    while waiting and len(pages) < MOST_PAGES:
        path = waiting.popleft()
        kind = re.sub(r"(run|ext|relay|context|key|webhook|schedule|wf)[/_][^/?]+", r"\1:x", urlsplit(path).path)
        kinds[kind] = kinds.get(kind, 0) + 1
        if path in pages or kinds[kind] > 12:
            continue
        answer = await http.get(path)
        if not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        assert "default-src 'none'" in answer.headers["content-security-policy"], path
        assert answer.status_code in (200, *refused), (path, answer.status_code)
        pages[path] = Page(answer.text)
        waiting.extend(sorted(pages[path].links - set(pages)))
    return pages


def test_no_payload_is_anything_but_text_on_any_page_that_links_lead_to(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        pages = await crawl(http)
        for item in (await http.get("/v1/runs?limit=200")).json()["runs"]:
            if item["status"] in ("completed", "failed"):  # a stream that ends: what the page's script adds
                live = f"/runs/{item['runId']}/live"
                lines = (await http.get(live)).text.splitlines()
                pages[live] = Page("\n".join(line[6:] for line in lines if line[:6] == "data: "))
        faults = {path: page.faults for path, page in pages.items() if page.faults}
        assert not faults, faults
        text = "".join(page.text for page in pages.values())
        assert not [name for name in SEEN if f"{MARK}at{name} " not in text], "every field is shown somewhere"
        for payload in PAYLOADS[:8]:
            assert payload in text, "a payload is shown as it was written"
        patterns = {re.sub(r"\{[^}]+\}", "", path).rstrip("/") for method, path, _ in PAGES if method == "GET"}
        walked = {re.sub(r"/(run_|ext|relay)[^/]*", "", urlsplit(path).path).rstrip("/") for path in pages}
        assert {"", "/runs", "/inbox", "/ledger"} <= walked & patterns | {""}

    run(tmp_path, story)


def test_what_a_request_says_is_text_on_the_page_that_answers(tmp_path: Path) -> None:
    """Reflected: addresses, queries and forms with a payload in every value."""

    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        for payload in (*PAYLOADS, ALL):
            value = quote(payload, safe="")
            for path in (
                f"/runs?status={value}&workflow={value}&tag={value}&cursor={value}",
                f"/runs/{value}",
                f"/ledger?prefix={value}&after={value}",
                f"/ledger/{value}?start={value}",
                f"/inbox?x={value}",
                f"/static/{value}",
                f"/{value}",
                f"/login?next={value}",
            ):
                _harmless(await http.get(path), path)
            for path in sorted({path for method, path, _ in PAGES if method == "POST"} | {"/login", "/logout"}):
                address = re.sub(r"\{[^}]+\}", value, path)
                fields = dict.fromkeys(
                    ("csrf", "key", "workflow", "inputs", "value", "action", "from_seq", "mode"), payload
                )
                _harmless(await http.post(address, data=fields), address)

    run(tmp_path, story, filled=False)


def _harmless(answer: httpx.Response, path: str) -> None:
    assert answer.status_code < 500, (path, answer.status_code, answer.text[:300])
    if answer.headers.get("content-type", "").startswith("text/html"):
        assert not Page(answer.text).faults, (path, Page(answer.text).faults)
        assert "default-src 'none'" in answer.headers["content-security-policy"], path
    else:
        assert answer.headers.get("x-content-type-options") == "nosniff" or not answer.content, path


FOUND = """() => [...document.querySelectorAll("*")].filter(item => item.tagName.toLowerCase().includes("zqx")
  || [...item.attributes].some(at => at.name.includes("zqx") || at.name.startsWith("on")
       || (["href", "src", "action", "xlink:href"].includes(at.name) && /^\\s*(javascript|data):/i.test(at.value)))
  || (item.tagName === "IMG" && !item.getAttribute("src").startsWith("/static/"))
  || ["IFRAME", "OBJECT", "EMBED"].includes(item.tagName)).map(item => item.outerHTML.slice(0, 200))"""


@pytest.mark.sweep
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_no_payload_runs_in_a_real_browser(tmp_path: Path) -> None:
    from playwright.async_api import async_playwright

    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        paths = sorted(await crawl(http))
        hostile = [f"/runs?tag={quote(ALL)}&status={quote(ALL)}", f"/ledger?prefix={quote(ALL)}", f"/runs/{quote(ALL)}"]
        async with async_playwright() as play:
            browser = await play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            context = await browser.new_context(base_url=serving.url)
            cookie = {"name": "forestay", "value": http.cookies["forestay"], "url": serving.url}
            await context.add_cookies([cookie])  # type: ignore[list-item]
            await context.add_init_script(f"window.{MARK} = () => {{ window.hits = (window.hits || 0) + 1 }}")
            page = await context.new_page()
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.on("dialog", lambda dialog: asked.append("dialog"))
            for path in [*paths, *hostile]:
                await page.goto(path, wait_until="domcontentloaded")
                await page.evaluate("() => document.querySelectorAll('details').forEach(item => item.open = true)")
                assert await page.evaluate(FOUND) == [], path
                assert await page.evaluate("() => window.hits") is None, path
            away = [url for url in asked if not url.startswith(serving.url + "/")]
            assert not away, "no page makes the browser ask anybody else"
            await browser.close()

    run(tmp_path, story)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_eye_sees_what_it_is_for(payload: str) -> None:
    """The test of the test: each payload, unescaped, is found in the places where a template could put it."""
    places = (
        f"<p>{payload}</p>",
        f'<a href="{payload}">x</a>',
        f'<i title="{payload}">x</i>',
        f"<i title='{payload}'>x</i>",
    )
    assert any(Page(place).faults for place in places), payload
