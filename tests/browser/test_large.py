"""Large things in a real browser: a run of 40 turns and a workflow of 500 nodes are there before any script runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.console import TURNS, long_agent, wide

from tests.browser.conftest import SIZES, Visit
from tests.console.served import Served, served

NODES = 500


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("large")
    long_agent(folder)
    with served(folder) as running:
        yield running


@pytest.fixture
def plain(browser: Any, host: Served) -> Iterator[Visit]:
    """Somebody whose browser runs no script."""
    context = browser.new_context(viewport=SIZES["desktop"], java_script_enabled=False)
    visit = Visit(context.new_page(), host)
    visit.sign_in()
    yield visit
    context.close()
    assert visit.troubles == []


@pytest.fixture(scope="module")
def talked(host: Served) -> str:
    run = host.start("forestay-ask", question="Where does she lie?", agentId="local.bench.patient")
    host.until(run, "run.completed", "run.failed")
    return run


@pytest.mark.sweep
def test_a_run_of_forty_turns_has_its_answer_on_top_and_its_turns_folded(visit: Visit, talked: str) -> None:
    page = visit.page
    visit.go(f"/runs/{talked}")
    answer = page.locator(".answer")
    assert answer.locator("h3").inner_text() == "Found"
    assert answer.locator("strong").inner_text() == "berth 7"
    assert answer.locator("li").count() == 2
    assert page.locator(".agent .step.model").count() == TURNS
    assert page.locator(".agent .step.model details[open]").count() == 0
    assert page.locator("svg.gantt rect.model").count() == TURNS
    page.locator(".agent .step.model summary").last.click()
    visit.accessible("color-contrast", "label", "heading-order")


@pytest.mark.sweep
def test_the_first_content_needs_no_script(plain: Visit, talked: str) -> None:
    made = plain.host.api.put("/v1/workflows/wide-500", json=wide(NODES))
    assert made.status_code in (200, 201), made.text
    run = plain.host.start("wide-500")
    plain.host.until(run, "run.completed", "run.failed")
    for path, there, count in (
        (f"/runs/{talked}", ".agent .step.model", TURNS),
        (f"/runs/{run}", ".graph g.completed", NODES),
        ("/runs", "table.runs tbody tr", 2),
        ("/sessions", "#model option", 2),
    ):
        plain.go(path)
        assert plain.page.locator(there).count() >= count, path
        plain.page.locator("h1").wait_for()
