"""A real Chromium in front of a real host, at the sizes of a desk and of a phone, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.conftest import CHROMIUM, FLAGS
from tests.console.served import KEY, QUESTION, Served, harbour, served

SIZES = {"desktop": {"width": 1200, "height": 850}, "phone": {"width": 390, "height": 844}}
INPUTS = '{"question": ' + '"' + QUESTION.replace('"', '\\"') + '"}'


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a browser."""
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker(pytest.mark.browser)
            item.add_marker(
                pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: the browser tests are left out")
            )


class Visit:
    """A page that remembers what went wrong while it was used."""

    def __init__(self, page: Any, host: Served, scheme: str = "light") -> None:
        self.page, self.host, self.url, self.scheme = page, host, host.url, scheme
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

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def sign_in(self) -> None:
        self.go("/")
        self.page.fill("#key", KEY)
        self.page.click("button.main")
        self.page.wait_for_url(self.url + "/")

    def begin(self) -> None:
        """Begin a conversation; its page and the page's script are there when this returns."""
        self.go("/sessions")
        self.page.click('button:text-is("Begin")')
        self.page.wait_for_url("**/sessions/*")

    def start(self, workflow: str, inputs: str = "{}") -> str:
        """Start a run with the form of the overview; its id."""
        self.go("/")
        self.page.select_option("#workflow", workflow)
        self.page.fill("#inputs", inputs)
        self.page.click('button:text-is("Start")')
        self.page.wait_for_selector("#timeline li")
        return str(self.page.url).rsplit("/", 1)[1]

    def start_elsewhere(self, workflow: str) -> str:
        """A run that somebody else starts, and that asks something."""
        run = self.host.start(workflow)
        self.host.until(run, "interrupt.requested")
        return run

    def card(self, title: str) -> Any:
        """The question with this title."""
        return self.page.locator(".question", has=self.page.locator("h3", has_text=title))

    def accessible(self, *only: str) -> None:
        """Axe finds nothing serious, and nothing is wider than the window; everything that opens is open.
        With names, only these rules are looked at."""
        from axe_playwright_python.sync_playwright import Axe

        self.page.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })")
        found = Axe().run(self.page, options={"runOnly": list(only)} if only else {})
        serious = [item["id"] for item in found.response["violations"] if item["impact"] in ("serious", "critical")]
        assert serious == [], f"{self.page.url}\n{found.generate_report()}"
        width = self.page.evaluate("document.documentElement.scrollWidth")
        assert width <= self.page.viewport_size["width"], f"{self.page.url} is {width} wide"


@pytest.fixture(scope="module")  # while it is open an event loop runs, and tests of other modules want their own
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The harbour, served."""
    with served(harbour(tmp_path_factory.mktemp("harbour")), "--trust") as running:
        yield running


@pytest.fixture(params=["desktop", pytest.param("phone", marks=pytest.mark.sweep)])
def visit(request: pytest.FixtureRequest, browser: Any, host: Served) -> Iterator[Visit]:
    """Somebody who signed in: at a desk in light, on a phone in dark."""
    scheme = "light" if request.param == "desktop" else "dark"
    context = browser.new_context(viewport=SIZES[request.param], color_scheme=scheme, reduced_motion="reduce")
    visit = Visit(context.new_page(), host, scheme)
    visit.sign_in()
    yield visit
    context.close()
    assert visit.troubles == []
