"""An extension that floods its interface, in a real browser: bounded, told apart, never in the way of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Visit
from tests.console.hostile import ALIKE, hostile
from tests.console.served import Served, served

pytestmark = pytest.mark.sweep
_MARKED = ".dialog, .place, .notices li"
_ALIKES = """([words, marked]) => [...document.querySelectorAll("main :not(#questions *)")]
  .filter((item) => [...item.childNodes].some((node) => node.nodeType === 3 && node.textContent.includes(words)))
  .filter((item) => !item.closest(marked)?.textContent.includes("extension approval")
                 && !item.closest(marked)?.querySelector(".eyebrow")?.textContent.includes("extension approval asks"))
  .map((item) => item.outerHTML)"""
_REACHED = """(button) => {
  const box = button.getBoundingClientRect();
  const found = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return found === button;
}"""
_WATCH_QUESTIONS = """() => {
  window.fresh = [];
  const areOff = () => [...document.querySelectorAll("#questions button")].every((item) => item.disabled);
  new MutationObserver(() => window.fresh.push(areOff()))
    .observe(document.getElementById("questions"), { childList: true });
}"""
_LOOKS = """() => performance.getEntriesByType("resource")
  .filter((item) => item.initiatorType === "fetch" && new URL(item.name).pathname === location.pathname)
  .map((item) => ({ began: item.startTime, ended: item.responseEnd, size: item.decodedBodySize,
                    isPart: item.name.endsWith("only=interface") }))"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return hostile(tmp_path)


@pytest.fixture
def host(folder: Path) -> Iterator[Served]:
    with served(folder, "--trust") as running:
        yield running


def test_a_flood_is_bounded_told_apart_and_leaves_the_answers_to_the_person(visit: Visit, folder: Path) -> None:
    page = visit.page
    page.set_default_timeout(60_000)
    visit.begin()
    page.fill("#message", "/drown")
    page.press("#message", "Enter")
    page.locator(".dialog").wait_for()
    page.locator("#stop button").wait_for(state="detached")
    floods(page, 5)
    bounded(page)
    visit.accessible()
    page.fill("#message", "half a sen")
    floods(page, 3)
    page.locator("#message").press_sequentially("tence")
    assert page.input_value("#message") == "half a sentence", "what a person types stays while the page is drawn"

    page.evaluate(_WATCH_QUESTIONS)
    page.fill("#message", "Write it.")
    page.press("#message", "Enter")
    approve = page.locator('.question button[value="accept"]')
    approve.wait_for()
    assert page.evaluate("window.fresh")[0] is True, "a click that was on its way is no answer to a new question"
    page.wait_for_function("button => !button.disabled", arg=approve.element_handle())
    for scroll in ("0", "document.body.scrollHeight"):
        page.evaluate(f"window.scrollTo(0, {scroll})")
        assert approve.evaluate(_REACHED), "the host's question is in sight, and nothing covers it"
    floods(page, 3)
    assert "extension" not in page.locator(".question .eyebrow").inner_text()
    bounded(page)
    approve.click()
    page.wait_for_selector('.line.assistant:has-text("Written.")')
    assert (folder / "log.md").read_text() == "moored"

    for _ in range(3):
        asked = page.locator(".dialog").get_attribute("id")
        page.locator('.dialog button:text-is("No")').click()
        page.locator(f".dialog:not(#{asked})").wait_for()
    bounded(page)


def floods(page: Any, times: int) -> None:
    """The page follows the flood: its footer changes so often."""
    for _ in range(times):
        tide = page.locator(".place.footer").inner_text()
        page.wait_for_function("before => document.querySelector('.place.footer').innerText !== before", arg=tide)


def bounded(page: Any) -> None:
    shown = page.locator("main").inner_text()
    assert len(shown) < 50_000 and "\x1b" not in shown and "\u202e" not in shown
    assert "\u202e" not in page.locator("#draft").text_content()
    assert page.locator(".dialog").count() == 1 and page.locator(".place").count() <= 20
    assert page.locator(".notices li").count() <= 8
    assert page.locator(".place button, .place img, .dialog img").count() == 0, "what an extension writes is text"
    assert page.evaluate("document.querySelectorAll('*').length") < 1_000
    assert page.evaluate(_ALIKES, [ALIKE, _MARKED]) == [], "the host's own questions stand in #questions"
    looks = page.evaluate(_LOOKS)
    ends = [0.0, *(look["ended"] for look in looks)]
    assert looks and all(look["began"] >= end for look, end in zip(looks, ends, strict=False)), "one look at a time"
    assert max(look["size"] for look in looks) < 300_000
