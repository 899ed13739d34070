"""What a person does with the console, in a real browser, from the first sign-in to the verified ledger."""

from __future__ import annotations

import pytest

from tests.browser.conftest import INPUTS, Visit

PROMPT = "May ext.tally talk to hosts on the network? (collector.example)"


def test_a_run_is_watched_live_and_its_questions_are_answered(visit: Visit) -> None:
    page = visit.page
    run = visit.start("harbour", INPUTS)
    page.evaluate("window.untouched = true")  # gone when the page is loaded anew

    visit.card(PROMPT).wait_for()  # the question comes by itself
    assert page.evaluate("window.untouched") is True
    types = page.locator("#timeline .type").all_inner_texts()
    assert (types[0], types.count("interrupt.requested")) == ("run.started", 1)

    visit.go("/inbox")  # the capability prompt, with its reasoning, is denied
    card = visit.card(PROMPT).filter(has=page.locator(f'a[href="/runs/{run}"]'))
    assert "a person must decide" in card.inner_text()
    card.locator("details.arithmetic summary").click()
    assert "loss(grant)" in card.locator("details.arithmetic pre").inner_text()
    card.locator('input[name="value"]').fill("counts stay here")
    card.locator('button:text-is("Deny")').click()
    page.wait_for_url(visit.url + "/inbox")

    visit.go(f"/runs/{run}")  # the approval is given where the run is watched
    visit.card("May the agent call write?").locator('button:text-is("Approve")').click()
    page.wait_for_selector("#status .badge.good")
    page.wait_for_selector('#timeline .type:text-is("run.completed")')
    assert "The Aurora lies at berth 7." in page.locator(".answer").inner_text()
    assert "counts stay here" not in page.locator(".agent").inner_text()  # turns are folded
    page.locator(".agent details").evaluate_all("turns => turns.forEach(turn => { turn.open = true; })")
    assert "counts stay here" in page.locator(".agent").inner_text()

    page.locator('a:text-is("What the model saw")').last.click()
    page.wait_for_selector('.note:has-text("hash to what was recorded")')

    visit.go("/extensions/ext.tally")  # the evidence of the denied call
    denied = page.locator("table.calls tbody tr", has_text="collector.example").first
    assert "person-deny" in denied.inner_text()
    assert "denied" in denied.inner_text()
    assert page.locator("tr.why", has_text="counts stay here").count() >= 1


@pytest.mark.sweep
def test_a_run_is_followed_to_its_end_without_a_reload(visit: Visit) -> None:
    page = visit.page
    run = visit.start("review")
    visit.card("Publish the draft?").wait_for()
    page.evaluate("window.untouched = true")
    visit.host.resolve(run, "approve", action="accept")  # by somebody else
    page.wait_for_selector("#status .badge.good")
    assert page.locator(".question").count() == 0
    page.locator("#live").wait_for(state="detached")
    assert page.locator(".graph g.completed").count() == 3
    assert page.evaluate("window.untouched") is True


def test_what_somebody_types_is_not_taken_away(visit: Visit) -> None:
    page = visit.page
    run = visit.start("review")
    comment = visit.card("Publish the draft?").locator("textarea")
    comment.fill("half a thou")
    visit.host.api.post(f"/v1/runs/{run}/signals/nudge", json={"payload": {}})
    page.evaluate("refresh(false)")
    page.wait_for_load_state("networkidle")
    assert comment.input_value() == "half a thou"
    comment.fill("half a thought, finished")
    visit.card("Publish the draft?").locator('button:text-is("Reject")').click()
    page.wait_for_selector("#status .badge.bad")


def test_a_decision_is_made_and_taken_back(visit: Visit) -> None:
    page = visit.page
    visit.host.finished()
    visit.go("/extensions")
    page.click('td a:text-is("ext.tally")')
    page.select_option("#capability", "exec")
    page.click('button:text-is("Deny")')
    page.wait_for_selector('.note:has-text("Denied.")')
    assert "deny" in page.locator("#decisions tbody").inner_text()
    page.click('button:text-is("Take back")')
    page.wait_for_selector('.note:has-text("Taken back.")')
    assert page.locator("#decisions tbody").count() == 0


@pytest.mark.sweep
def test_a_run_is_replayed_and_forked(visit: Visit) -> None:
    page = visit.page
    source = visit.host.finished()
    for button in ("Replay", "Fork"):
        visit.go(f"/runs/{source}")
        page.click(f'button:text-is("{button}")')
        page.wait_for_selector("#status:has-text('fork of')")
        assert not page.url.endswith(source)
        if button == "Replay":
            page.wait_for_selector("#status .badge.good")
        else:
            visit.card(PROMPT).wait_for()  # it does the work anew, so it asks anew
            page.click('button:text-is("Cancel this run")')
            page.wait_for_selector('#status .badge:text-is("cancelled")')


def test_an_agent_is_asked_on_the_overview(visit: Visit) -> None:
    page = visit.page
    visit.go("/")
    page.fill("#question", "In which year was the old lighthouse rebuilt in brick?")
    page.select_option("#agent", "local.harbour.master")
    page.click('button:text-is("Ask")')
    page.wait_for_selector("#status .badge.good")
    assert "The old lighthouse burned down in 1954" in page.locator(".answer").inner_text()


def test_a_node_is_opened_from_the_graph_and_json_folds_and_copies(visit: Visit) -> None:
    page = visit.page
    run = visit.host.finished()
    visit.go(f"/runs/{run}")
    larger = page.locator('button[aria-label="Larger: the graph"]')
    before = page.locator("svg.graph").bounding_box()["width"]
    larger.click()
    assert page.locator("svg.graph").bounding_box()["width"] > before
    event = page.locator(".event", has=page.locator("pre.json details details")).first
    event.locator("> details > summary").click()
    fold = event.locator("pre.json details details").first
    assert fold.get_attribute("open") is not None
    fold.locator("summary").first.click()
    assert fold.get_attribute("open") is None
    page.locator("svg.graph a").first.click()
    page.wait_for_selector('h2:text-is("Attempts")')
    assert "ago" in page.locator("td time").first.inner_text() or "now" in page.locator("td time").first.inner_text()


@pytest.mark.sweep
def test_shortcuts_open_pages_and_say_what_they_are(visit: Visit) -> None:
    page = visit.page
    visit.go("/")
    page.keyboard.press("?")
    page.locator("dialog[open] h2").wait_for()
    visit.accessible()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_selector("h1:text-is('Runs')")
    page.wait_for_load_state()  # the page's script hears the next key
    page.keyboard.press("/")
    page.keyboard.type("lighthouse g i")  # what is typed is no shortcut
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?q=lighthouse**")


@pytest.mark.sweep
def test_choosing_a_workflow_brings_its_inputs(visit: Visit) -> None:
    page = visit.page
    visit.go("/")
    page.select_option("#workflow", "harbour")
    assert page.input_value("#inputs") == '{"question":""}'
    page.select_option("#workflow", "review")
    assert page.input_value("#inputs") == ""
    page.fill("#inputs", '{"mine": 1}')
    page.select_option("#workflow", "harbour")
    assert page.input_value("#inputs") == '{"mine": 1}'


@pytest.mark.sweep
def test_the_inbox_and_the_overview_look_again_by_themselves(visit: Visit) -> None:
    page = visit.page
    visit.go("/inbox")
    page.evaluate("window.untouched = true")
    run = visit.start_elsewhere("review")
    card = page.locator(".question", has=page.locator(f'a[href="/runs/{run}"]'))
    card.wait_for(timeout=20_000)
    card.locator("details.all summary").click()  # what somebody opened stays open
    visit.host.start("review")
    page.wait_for_timeout(4_500)
    assert card.locator("details.all").get_attribute("open") is not None
    visit.host.resolve(run, "approve", action="accept")
    card.wait_for(state="detached", timeout=20_000)
    assert page.evaluate("window.untouched") is True


@pytest.mark.sweep
def test_a_fact_is_found_and_read_in_its_source(visit: Visit) -> None:
    page = visit.page
    visit.host.finished()
    visit.go("/relay")
    page.locator("td.strong a").first.click()
    page.fill("#q", "lighthouse")
    page.click('button:text-is("Search")')
    page.locator("table.facts a").first.click()
    assert "lighthouse" in page.locator("mark").inner_text()
    page.go_back()
    page.fill("#task", "Where does the Petrel lie?")
    page.click('button:text-is("Preview")')
    page.wait_for_selector('h2:text-is("Why each fact is there")')


@pytest.mark.sweep
def test_the_ledger_is_verified_and_its_records_are_shown(visit: Visit) -> None:
    page = visit.page
    visit.host.finished()
    visit.go("/ledger")
    page.click('button:text-is("Verify every chain")')
    page.wait_for_selector('.note:has-text("The ledger holds.")')
    page.click("td a >> nth=0")
    page.wait_for_selector(".timeline li")
    page.locator(".event summary").first.click()
    assert page.locator(".event .hashes").first.is_visible()


def test_signing_out_ends_the_session(visit: Visit) -> None:
    visit.page.click('button:text-is("Sign out")')
    visit.page.wait_for_selector("#key")
    visit.go("/runs")
    visit.page.wait_for_selector("#key")
