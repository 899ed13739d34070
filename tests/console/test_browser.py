"""The console in a real browser: a person signs in, starts a run, approves it, forks it and verifies the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import CHROMIUM, FLAGS, KEY

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: the browser tests are left out"),
]

SIZES = {"desktop": {"width": 1200, "height": 850}, "phone": {"width": 390, "height": 844}}


class Visit:
    """A page that remembers what went wrong while it was used."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.troubles: list[str] = []
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.troubles.append(f"{kind}: {text}")

    def _asked(self, address: str) -> None:
        if not address.startswith((self.url, "data:")):
            self.troubles.append(f"a request left the host: {address}")

    def sign_in(self) -> None:
        self.page.goto(self.url + "/")
        self.page.fill("#key", KEY)
        self.page.click("button.main")
        self.page.wait_for_url(self.url + "/")

    def start(self, inputs: str = "{}") -> str:
        self.page.goto(self.url + "/")
        self.page.select_option("#workflow", "review")
        self.page.fill("#inputs", inputs)
        self.page.click('button:text-is("Start")')
        self.page.wait_for_selector("#timeline li")
        return str(self.page.url)

    def accessible(self) -> None:
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page)
        serious = [item["id"] for item in found.response["violations"] if item["impact"] in ("serious", "critical")]
        assert serious == [], found.generate_report()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(params=list(SIZES))
def visit(request: pytest.FixtureRequest, browser: Any, host: str) -> Iterator[Visit]:
    scheme = "light" if request.param == "desktop" else "dark"
    context = browser.new_context(viewport=SIZES[request.param], color_scheme=scheme)
    visit = Visit(context.new_page(), host)
    yield visit
    context.close()
    assert visit.troubles == []


def test_a_run_is_started_watched_approved_and_forked(visit: Visit, tmp_path: Path) -> None:
    visit.sign_in()
    visit.accessible()
    run = visit.start('{"text": "<script>alert(1)</script>"}')
    page = visit.page
    page.wait_for_selector('.question h3:has-text("Publish <img src=x onerror=alert(1)> the draft?")')
    assert page.locator("main img, main script").count() == 0  # shown as text, not as markup
    visit.accessible()
    page.click('button:text-is("Approve")')
    page.wait_for_selector("#status .good")  # the page follows the run to its end by itself
    types = page.locator("#timeline .type").all_inner_texts()
    assert types[0] == "run.started"
    assert types[-1] == "run.completed"
    page.screenshot(path=tmp_path / "run.png", full_page=True)
    page.click('button:text-is("Replay")')
    page.wait_for_selector(".eyebrow:has-text('fork of')")
    assert page.url != run
    page.wait_for_selector("#status .good")


def test_the_inbox_lists_what_waits_and_takes_a_rejection(visit: Visit) -> None:
    visit.sign_in()
    run = visit.start()
    visit.page.goto(visit.url + "/inbox")
    visit.accessible()
    card = visit.page.locator(".question", has_text=run.rsplit("/", 1)[1])
    card.locator("textarea").fill("not yet")
    card.locator('button:text-is("Reject")').click()
    visit.page.goto(run)
    visit.page.wait_for_selector("#status .bad")


def test_the_ledger_is_verified_and_its_records_are_shown(visit: Visit) -> None:
    visit.sign_in()
    visit.start()
    page = visit.page
    page.goto(visit.url + "/ledger")
    page.click('button:text-is("Verify every chain")')
    page.wait_for_selector('.note:has-text("hold")')
    visit.accessible()
    page.click("td a >> nth=0")
    page.wait_for_selector(".timeline li")
    visit.accessible()


def test_it_works_with_the_keyboard_alone(visit: Visit) -> None:
    visit.sign_in()
    page = visit.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").startswith("Skip")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
