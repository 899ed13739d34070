"""What a person finds in the console, item by item, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import SIZES, Visit
from tests.console.served import KEY, Served, workflow

pytestmark = pytest.mark.sweep
FAILS = workflow("fails", ("first", "core.identity", {}), ("second", "core.fail", {"message": "no"}))


def test_counters_are_those_of_the_host_and_the_list_says_what_was_asked(visit: Visit) -> None:
    page, host = visit.page, visit.host
    run = host.finished()
    visit.go("/")
    counted = host.api.get("/host/v1/runs", params={"status": "completed", "limit": 1}).json()["result"]["total"]
    assert page.locator("#tiles .good strong").inner_text().replace(",", "") == str(counted)
    visit.go("/runs")
    row = page.locator("table.runs tbody tr", has=page.locator(f'a[href="/runs/{run}"]'))
    assert "At which berth does the Aurora lie?" in row.inner_text()
    assert row.locator('[data-label="Took"]').inner_text().strip() not in ("", "–")
    assert row.locator('[data-label="Tokens"]').inner_text().strip() not in ("", "–")


def test_runs_are_searched_sorted_and_compared(visit: Visit) -> None:
    page = visit.page
    run = visit.host.finished()
    visit.go("/runs")
    page.fill("#q", "Aurora lie")
    page.select_option("#status", "completed")
    page.select_option("#sort", "longest")
    page.click('form.search button:text-is("Search")')
    page.wait_for_url("**/runs?*sort=longest*")
    assert page.locator("table.runs tbody tr").count() >= 1
    page.fill("#q", "words that nobody said")
    page.click('form.search button:text-is("Search")')
    page.wait_for_selector('strong:text-is("No run matches.")')
    visit.go(f"/runs/{run}/diff?against={run}")
    page.wait_for_selector('strong:text-is("They are the same.")')


def test_the_answer_is_on_top_and_a_node_opens_from_the_picture_of_times(visit: Visit) -> None:
    page = visit.page
    visit.go(f"/runs/{visit.host.finished()}")
    top, turns = page.locator(".answer").bounding_box(), page.locator(".agent").first.bounding_box()
    assert top["y"] < turns["y"]
    page.locator("svg.gantt a").first.click()
    page.wait_for_selector('h2:text-is("Attempts")')
    for heading in ("Inputs", "Outputs"):
        assert page.locator(f'h2:has-text("{heading}")').count() >= 1, heading


def test_a_failed_run_is_tried_again_from_its_node(visit: Visit) -> None:
    page, host = visit.page, visit.host
    assert host.api.put("/v1/workflows/fails", json=FAILS).status_code in (200, 201)
    run = host.start("fails")
    host.until(run, "run.failed", "run.completed")
    visit.go(f"/runs/{run}")
    page.click('button:text-is("Try again from second")')
    page.wait_for_selector("#status:has-text('fork of')")
    assert not page.url.endswith(run)


def test_questions_in_the_same_words_are_answered_together(visit: Visit) -> None:
    page, host = visit.page, visit.host
    runs = [visit.start_elsewhere("review") for _ in range(2)]
    visit.go("/inbox")
    group = page.locator(".group", has_text="Publish the draft?")
    for box in group.locator("input[type=checkbox]").all():
        box.set_checked(any(run in str(box.get_attribute("value")) for run in runs))
    group.locator('button:has-text("those chosen")').first.click()
    page.wait_for_selector('.note:has-text("2 answered")')
    for run in runs:
        host.until(run, "run.completed")


def test_a_link_survives_the_sign_in_and_an_unknown_address_has_a_page(browser: Any, host: Served) -> None:
    context = browser.new_context(viewport=SIZES["desktop"])
    page = context.new_page()
    page.goto(f"{host.url}/charts?over=week")
    page.fill("#key", KEY)
    page.click("button.main")
    page.wait_for_url(f"{host.url}/charts?over=week")
    assert page.locator(".charts figure").count() >= 4
    answer = page.goto(f"{host.url}/nowhere/at/all")
    assert answer.status == 404 and page.locator("h1").count() == 1
    context.close()


def test_workflows_schedules_webhooks_keys_and_agents_have_their_actions(visit: Visit) -> None:
    page = visit.page
    visit.go("/workflows")
    page.click('td a:text-is("review")')
    page.wait_for_selector("svg.graph")
    visit.go("/schedules")
    page.fill("#workflowId", "review")
    page.fill("#cron", "every day")
    page.click('button:text-is("Create")')
    page.wait_for_selector("#wrong-cron")
    assert page.input_value("#cron") == "every day"
    visit.troubles.clear()  # a browser tells of every answer that refuses
    page.fill("#cron", "0 7 * * 1-5")
    page.click('button:text-is("Create")')
    page.wait_for_selector('td:has-text("0 7 * * 1-5")')
    page.locator('td button:text-is("Delete")').first.click()
    visit.go("/webhooks")
    page.fill("#url", "https://example.com/hook")
    page.fill("#events", "run.failed")
    page.click('button:text-is("Register")')
    page.wait_for_selector('text="https://example.com/hook"')
    visit.go("/keys")
    page.fill("#name", "for-a-test")
    page.locator("fieldset.scopes input").first.check()
    page.click('button:text-is("Make the key")')
    page.wait_for_load_state()
    visit.go("/keys")
    assert page.locator('td:has-text("for-a-test")').count() >= 1
    visit.go("/agents")
    assert page.locator('a:has-text("core.forestay.assistant")').count() >= 1


def test_decisions_stand_in_the_ledger_with_their_reason(visit: Visit) -> None:
    page = visit.page
    visit.host.finished()
    visit.go("/ledger/ext/ext.tally")
    if page.locator(".ruled").count() == 0:
        visit.go("/ledger/audit")
    row = page.locator(".event .ruled").first
    row.wait_for()
    assert row.inner_text().strip()


def test_times_are_told_as_people_tell_them(visit: Visit) -> None:
    visit.host.finished()
    visit.go("/runs")
    told = visit.page.locator("table.runs td time").first
    told.wait_for()
    assert "ago" in told.inner_text() or "now" in told.inner_text()
    assert told.get_attribute("datetime").endswith("Z") or "T" in told.get_attribute("datetime")
