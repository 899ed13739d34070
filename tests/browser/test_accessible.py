"""Every page, at both sizes, in light and dark: axe finds nothing serious, and nothing is wider than the window."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.conftest import SIZES, Visit
from tests.console.served import QUESTION, Served, review, served
from tests.console.staffing import staffed
from tests.console.test_servers import drifted


@pytest.fixture(scope="module")
def paths(host: Served) -> list[str]:
    """Every page of the harbour, with something on it."""
    done = host.finished()
    asked = host.start("harbour", question=QUESTION)
    host.until(asked, "interrupt.requested")
    clarify, gate = host.start("clarify"), host.start("review")
    for run in (clarify, gate):
        host.until(run, "interrupt.requested")
    events = host.api.get(f"/v1/runs/{done}/events/poll", params={"lastSequence": -1}).json()["events"]
    answered = next(event["payload"] for event in events if event["type"] == "forestay.relay.answered")
    session = f"/relay/{answered['sessionId']}"
    return [
        "/",
        "/runs",
        f"/runs/{done}",
        f"/runs/{gate}",
        f"/runs/{done}/turns/0/1",
        f"/runs/{done}/nodes/master",
        f"/runs/{done}/diff?against={gate}",
        "/charts",
        "/workflows",
        "/workflows/review",
        "/schedules",
        "/webhooks",
        "/keys",
        "/inbox",
        "/extensions",
        "/extensions/ext.tally",
        "/trust",
        "/servers",
        "/relay",
        session,
        f"{session}/facts/1",
        f"{session}/preview?task=Where+does+the+Aurora+lie%3F",
        f"{session}/windows/{answered['windowId']}",
        "/ledger",
        "/api",
        "/ledger/ext/ext.tally",
        *staffed(host),
    ]


@pytest.mark.sweep
def test_every_page_is_accessible(visit: Visit, paths: list[str]) -> None:
    for path in paths:
        visit.go(path)
        visit.accessible()
        visit.page.emulate_media(color_scheme="dark" if visit.scheme == "light" else "light")
        visit.accessible("color-contrast")  # what the other scheme can change
        visit.page.emulate_media(color_scheme=visit.scheme)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host on which nothing ever happened."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "flows").mkdir()
    (folder / "flows" / "review.json").write_text(json.dumps(review("Publish?")))
    with served(folder, "--workflows", "flows") as running:
        yield running


@pytest.mark.sweep
@pytest.mark.parametrize("size", list(SIZES))
def test_empty_pages_say_what_to_do_and_are_accessible(browser: Any, bare: Served, size: str) -> None:
    context = browser.new_context(viewport=SIZES[size])
    visit = Visit(context.new_page(), bare)
    visit.go("/login")
    visit.accessible()
    visit.sign_in()
    for path in ("/", "/runs", "/inbox", "/extensions", "/servers", "/relay"):
        visit.go(path)
        assert visit.page.locator(".empty strong").count() == 1, path
        visit.accessible()
    assert visit.troubles == []
    context.close()


def test_a_problem_is_accessible(browser: Any, host: Served) -> None:
    context = browser.new_context(viewport=SIZES["phone"])
    visit = Visit(context.new_page(), host)
    visit.sign_in()
    visit.go("/runs/" + "none" * 40)
    visit.accessible()
    assert visit.page.locator("h1").count() == 1
    assert all("404" in trouble for trouble in visit.troubles)
    context.close()


@pytest.mark.sweep
@pytest.mark.parametrize("size", list(SIZES))
def test_servers_with_pins_and_differences_are_accessible(browser: Any, drift: Served, size: str) -> None:
    context = browser.new_context(viewport=SIZES[size])
    visit = Visit(context.new_page(), drift)
    visit.go("/login")
    visit.sign_in()
    visit.go("/servers")
    visit.page.locator("summary").first.click()
    visit.accessible()
    assert visit.troubles == []
    context.close()


@pytest.fixture(scope="module")
def drift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host whose MCP server changed a tool."""
    with drifted(tmp_path_factory.mktemp("drift")) as running:
        yield running
