"""A conversation in a real browser: words as they come, commands, and the dialogs of an extension."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Visit
from tests.console.served import Served, served
from tests.console.talking import talking

COMPONENT = Path(__file__).parents[1] / "extensions" / "component.ts"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = talking(tmp_path_factory.mktemp("talk"))
    (folder / "component.ts").write_text(COMPONENT.read_text("utf-8"))
    settings = folder / "forestay.toml"
    settings.write_text(settings.read_text("utf-8").replace('["harbour.ts"]', '["harbour.ts", "component.ts"]'))
    with served(folder, "--trust") as running:
        yield running


def test_a_person_talks_and_an_extension_asks(visit: Visit) -> None:
    page = visit.page
    visit.go("/sessions")
    page.fill("#message", "Where does the Aurora lie?")
    page.click('button:text-is("Begin")')
    page.wait_for_selector('.line.assistant:has-text("The Aurora lies at berth 7.")')
    page.evaluate("window.untouched = true")
    page.locator(".line.result summary").click()
    assert "berth 7" in page.locator(".line.result pre").inner_text()

    page.fill("#message", "And the Borealis?")
    page.press("#message", "Enter")
    page.wait_for_selector('.line.assistant:has-text("The Borealis lies at berth 9.")')
    assert page.input_value("#message") == ""
    page.locator("#stream").wait_for(state="hidden")

    page.click('button[data-command="/berth "]')
    page.type("#message", "for two")
    page.press("#message", "Enter")
    dialog = page.locator(".dialog")
    dialog.locator('text="Which berth?"').wait_for()
    assert "harbour asks" in dialog.inner_text() and "\\x1b[31m" in dialog.inner_text()
    dialog.locator('label:has-text("south")').click()
    dialog.locator('button:text-is("Answer")').click()
    dialog.locator('button:text-is("Yes")').click()
    page.locator('.dialog:has-text("Her name?") input[name="value"]').fill("Aurora")
    page.locator('.dialog button:text-is("Answer")').click()
    page.locator(".dialog textarea").wait_for()
    visit.accessible()
    page.locator('.dialog button:text-is("Cancel")').click()
    page.wait_for_selector('.notices li:has-text("Moored")')
    assert "~x~" in page.locator(".place.widget").inner_text()
    assert page.locator(".place.status").inner_text().split() == ["extension", "harbour", "high"]
    page.locator("#stop button").wait_for(state="detached")
    assert page.evaluate("window.untouched") is True, "the page was never loaded anew"
    address = page.url.removeprefix(visit.url)
    entries = visit.host.api.get(f"/host/v1{address}").json()["result"]["entries"]
    told = {"args": "for two", "chosen": "south", "sure": True, "name": "Aurora", "log": None, "ui": True}
    assert entries[-1]["data"] == told


def test_a_turn_is_ended_from_the_page(visit: Visit) -> None:
    page = visit.page
    visit.begin()
    page.fill("#message", "/berth")
    page.press("#message", "Enter")
    page.locator(".dialog").wait_for()
    page.click('#stop button:text-is("End this turn")')
    page.locator(".dialog").wait_for(state="detached")
    page.locator("#stop button").wait_for(state="detached")
    assert "cancelled" in page.locator(".line.failed").inner_text()


def test_a_message_that_is_sent_while_a_turn_works_waits_for_its_end(visit: Visit) -> None:
    page = visit.page
    visit.begin()
    page.fill("#message", "/berth")
    page.press("#message", "Enter")
    page.locator(".dialog").wait_for()
    page.fill("#message", "Where does the Aurora lie?")
    page.press("#message", "Enter")
    page.wait_for_selector('#say .alert:has-text("It is sent when this turn ends.")')
    assert page.input_value("#message") == "Where does the Aurora lie?"
    page.click('#stop button:text-is("End this turn")')
    page.wait_for_selector('li.assistant:has-text("The Aurora lies at berth 7.")')
    assert page.input_value("#message") == "" and page.locator("#say .alert").count() == 0


def test_what_is_typed_before_the_host_has_answered_is_kept(visit: Visit) -> None:
    page = visit.page
    visit.begin()
    page.fill("#message", "Where does the Aurora lie?")
    held: list[Any] = []
    page.route("**/say", lambda route: held.append(route))  # the answer is on its way as long as the test wants
    with page.expect_request("**/say"):
        page.press("#message", "Enter")
    page.fill("#message", "The next")
    with page.expect_response("**/say"):
        held[0].continue_()
    page.wait_for_selector('li.assistant:has-text("The Aurora lies at berth 7.")')
    assert page.input_value("#message") == "The next"


def test_a_message_that_the_host_refuses_comes_back(visit: Visit) -> None:
    page = visit.page
    visit.begin()
    page.fill("#message", "And the Borealis?")
    page.route("**/say", lambda route: route.abort())
    page.press("#message", "Enter")
    page.wait_for_selector('#say .alert:has-text("The host does not answer.")')
    assert page.input_value("#message") == "And the Borealis?"
    assert visit.troubles and all("net::ERR_FAILED" in trouble for trouble in visit.troubles)
    visit.troubles.clear()


@pytest.mark.api("ctx.ui.custom")
def test_a_component_has_the_keys_that_are_pressed_on_it(visit: Visit) -> None:
    page = visit.page
    visit.begin()
    page.fill("#message", "/pick")
    page.press("#message", "Enter")
    place = page.locator(".dialog [data-takes-keys]")
    page.wait_for_selector('[data-takes-keys]:has-text("tide high")')
    wide = page.evaluate("""() => {
      const place = document.querySelector("[data-takes-keys]");
      return place.scrollWidth <= place.clientWidth;
    }""")
    assert wide, "it is drawn for the width of the page"
    columns = int(place.inner_text().split("/")[0])
    place.focus()
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    page.wait_for_selector('[data-takes-keys]:has-text("ship 12")')
    assert page.evaluate("document.activeElement.hasAttribute('data-takes-keys')"), "it keeps the keys"
    visit.accessible()
    page.set_viewport_size({"width": 560, "height": 850})
    page.wait_for_selector(f'[data-takes-keys]:not(:has-text("{columns}/{columns} "))')
    page.keyboard.press("Enter")
    page.wait_for_selector('[data-takes-keys]:has-text("Sure?")')
    page.keyboard.press("y")
    page.wait_for_selector('.notices li:has-text("picked ship 12")')
    page.locator(".dialog").wait_for(state="detached")
