"""The pictures of the documentation are made here, from a real host, by `make screenshots`.

Without FORESTAY_SCREENSHOTS they go to a temporary folder, and only their names and sizes are compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import SIZES, Visit
from tests.console.served import QUESTION, Served, served
from tests.console.served import harbour as brought

pytestmark = pytest.mark.sweep
IMAGES = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES = 200_000


class Harbour:
    """Runs to take pictures of."""

    def __init__(self, host: Served) -> None:
        self.done = host.finished()
        self.written = host.asked_to_write()
        self.asked = host.start("harbour", question=QUESTION)
        host.until(self.asked, "interrupt.requested")
        events = host.api.get(f"/v1/runs/{self.done}/events/poll", params={"lastSequence": -1}).json()["events"]
        answered = next(event["payload"] for event in events if event["type"] == "forestay.relay.answered")
        self.session = str(answered["sessionId"])


@pytest.fixture(scope="module")
def harbour(host: Served) -> Harbour:
    return Harbour(host)


def _open_arithmetic(page: Any) -> None:
    page.locator("details.arithmetic summary").first.click()


def _open_files(page: Any) -> None:
    page.locator(".files summary").last.click()


def _verify(page: Any) -> None:
    page.click('button:text-is("Verify every chain")')
    page.wait_for_selector(".note")


Picture = tuple[str, str, Callable[[Harbour], str], int, Callable[[Any], None] | None]
# Name, size and scheme, path, height, and what is done first.
PICTURES: list[Picture] = [
    ("console-overview", "desktop dark", lambda h: "/", 760, None),
    ("console-run", "desktop light", lambda h: f"/runs/{h.done}", 820, None),
    ("console-turn", "desktop light", lambda h: f"/runs/{h.done}/turns/0/1", 760, None),
    ("console-prompt", "desktop light", lambda h: f"/runs/{h.asked}", 800, _open_arithmetic),
    ("console-extension", "desktop light", lambda h: "/extensions/ext.tally", 900, None),
    ("console-session", "desktop light", lambda h: f"/relay/{h.session}", 860, None),
    ("console-ledger", "desktop light", lambda h: "/ledger", 620, _verify),
    ("console-phone-run", "phone light", lambda h: f"/runs/{h.done}", 844, None),
    ("console-phone-inbox", "phone dark", lambda h: f"/runs/{h.written}", 844, None),
]


@pytest.mark.parametrize("picture", PICTURES, ids=[item[0] for item in PICTURES])
def test_a_picture_is_made_and_small(
    picture: Picture, browser: Any, host: Served, harbour: Harbour, tmp_path: Path
) -> None:
    name, look, path, height, first = picture
    _take(name, look, host, browser, path(harbour), height, first, tmp_path)


def test_a_picture_of_a_folder_that_nobody_trusts_yet(browser: Any, tmp_path: Path) -> None:
    with served(brought(tmp_path / "harbour")) as host:
        _take("console-trust", "desktop light", host, browser, "/trust", 760, _open_files, tmp_path)


def _take(
    name: str,
    look: str,
    host: Served,
    browser: Any,
    path: str,
    height: int,
    first: Callable[[Any], None] | None,
    folder: Path,
) -> None:
    size, scheme = look.split()
    viewport = {**SIZES[size], "height": height}
    context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    visit = Visit(context.new_page(), host)
    visit.sign_in()
    visit.go(path)
    if first is not None:
        first(visit.page)
    made = Path(os.environ.get("FORESTAY_SCREENSHOTS") or folder) / f"{name}.png"
    visit.page.screenshot(path=made)
    context.close()
    assert visit.troubles == []
    assert made.stat().st_size < MOST_BYTES


def test_the_pictures_are_those_of_the_documentation() -> None:
    assert {"console-trust", *(item[0] for item in PICTURES)} == {path.stem for path in IMAGES.glob("console-*.png")}
