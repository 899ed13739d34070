"""The twelve stories in the console, in a real browser; with FORESTAY_SCREENSHOTS, their pictures for the docs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Visit
from tests.cli.pseudo_terminal import PATIENCE
from tests.console.served import served
from tests.stories.stories import STORIES, Step, check_left, project, search_path, serving

pytestmark = pytest.mark.sweep
MOST_BYTES = 150_000
SIZE = {"width": 1200, "height": 960}
_SHOWN = "(text) => document.querySelector('main').textContent.includes(text)"


@pytest.mark.parametrize("name", STORIES)
def test_a_story_in_the_console(name: str, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    monkeypatch.setenv("PATH", search_path(folder, name))
    context = browser.new_context(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
    context.set_default_timeout(PATIENCE * 1000)
    with serving(folder) as address, served(project(folder, name, address), "--trust") as host:
        visit = Visit(context.new_page(), host)
        visit.sign_in()
        visit.begin()
        picture = Path(os.environ.get("FORESTAY_SCREENSHOTS") or tmp_path) / f"story-{name.replace('_', '-')}.png"
        _play(visit.page, STORIES[name].steps, picture)
        context.close()
        assert visit.troubles == [] and picture.stat().st_size < MOST_BYTES
    check_left(folder, name)


def _play(page: Any, steps: Sequence[Step], picture: Path) -> None:
    for at, (word, what) in enumerate(steps):
        match word:
            case "say":
                page.locator("#stop button").wait_for(state="detached")
                _check_new(page, steps[at + 1 :])
                page.fill("#message", what)
                page.press("#message", "Enter")
            case "see" | "stand" | "stood":
                _see(page, what)
            case "choose":
                _check_new(page, steps[at + 1 :])
                page.locator(".dialog label.pick").nth(int(what) - 1).click()
                page.click('.dialog button:text-is("Answer")')
            case "confirm":
                _check_new(page, steps[at + 1 :])
                page.click(f'.dialog button:text-is("{what.title()}")')
            case "picture":
                _take(page, picture)
    page.locator("#stop button").wait_for(state="detached")
    if ("picture", "") not in steps:
        _take(page, picture)


def _see(page: Any, what: str) -> None:
    """The text comes; when it does not, what stands there instead says why."""
    from playwright.sync_api import TimeoutError

    try:
        page.wait_for_function(_SHOWN, arg=what)
    except TimeoutError as late:
        raise AssertionError(f"{what!r} never came. There is:\n{page.inner_text('main')}") from late


def _take(page: Any, picture: Path) -> None:
    """What the person sees; when something is asked, with that in the middle."""
    page.evaluate("document.querySelector('.dialog')?.scrollIntoView({block: 'center'})")
    page.screenshot(path=picture)


def _check_new(page: Any, steps: Sequence[Step]) -> None:
    """What is to be seen next is not on the page already: seeing it then would prove nothing."""
    for word, what in steps:
        if word not in ("see", "stand", "stood", "picture"):
            return
        assert word != "see" or not page.evaluate(_SHOWN, what), what
