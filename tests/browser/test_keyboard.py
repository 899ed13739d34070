"""The console with the keyboard alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import SIZES, Visit
from tests.console.served import KEY, Served


def test_a_person_signs_in_approves_and_sees_the_end_without_a_mouse(browser: Any, host: Served) -> None:
    run = host.start("review")
    host.until(run, "interrupt.requested")
    context = browser.new_context(viewport=SIZES["desktop"], reduced_motion="reduce")
    visit = Visit(context.new_page(), host)
    page = visit.page
    visit.go("/")
    page.wait_for_function("document.activeElement.id === 'key'")  # given when the page is first drawn
    page.keyboard.type(KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text-is('Overview')")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"

    visit.go(f"/runs/{run}")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Approve":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#status .badge.good")
    assert visit.troubles == []
    context.close()


@pytest.mark.sweep
def test_whatever_has_the_focus_shows_it(visit: Visit) -> None:
    """Tab through pages: each stop has an outline that can be seen, and none is a trap."""
    page = visit.page
    visit.host.finished()
    for path in ("/", "/inbox", "/extensions/ext.tally", "/relay", "/ledger"):
        visit.go(path)
        stops: list[str] = []
        for _ in range(25):
            page.keyboard.press("Tab")
            stop, style = page.evaluate(
                "(() => { const e = document.activeElement, s = getComputedStyle(e);"
                " return [e.outerHTML.slice(0, 120), s.outlineStyle + ' ' + s.outlineWidth]; })()"
            )
            if stop.startswith("<body"):
                break
            assert style == "solid 3px", (path, stop, style)
            stops.append(stop)
        assert len(stops) > 6, path
        assert not any(one == two == three for one, two, three in zip(stops, stops[1:], stops[2:], strict=False)), path
