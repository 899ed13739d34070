"""The relay's pages as HTML: sessions, facts in their source, a look ahead, and what a model was shown."""

from __future__ import annotations

import pytest

from tests.console.conftest import Console


@pytest.fixture(scope="module")
def session(console: Console, finished: str) -> str:
    return console.session_of(finished)


def test_sessions_are_listed_with_their_use(console: Console, session: str) -> None:
    page = console.page("/relay")
    line = next(row for row in page.one("tbody").all("tr") if row.one("code")["title"] == session)
    cells = {cell["data-label"]: cell.text for cell in line.all("td")}
    assert cells["State"] == "closed"
    assert int(cells["Facts"]) == 9
    assert int(cells["Windows"]) == 3
    assert int(cells["Tokens in"].replace(",", "")) > int(cells["Tokens out"]) > 0


def test_a_budget_is_shown_beside_its_use(console: Console) -> None:
    made = console.running.api.post("/crp/sessions", json={"app_id": "budget", "config": {"max_windows": 7}})
    assert made.status_code in (200, 201), made.text
    page = console.page("/relay")
    line = next(row for row in page.one("tbody").all("tr") if "budget" in row.text)
    cells = {cell["data-label"]: cell for cell in line.all("td")}
    assert cells["Windows"].text == "0 of 7"
    assert (cells["Windows"].one("meter")["max"], cells["State"].text) == ("7", "open")
    empty = console.page(line.one("a")["href"])
    assert "No model was asked yet." in empty.text
    assert "The session knows nothing yet." in empty.text
    assert "left of the windows" in empty.one(".tiles").text


def test_a_session_shows_facts_and_the_quality_of_its_dispatches(console: Console, session: str) -> None:
    page = console.page(f"/relay/{session}")
    facts = page.one("table.facts").one("tbody").all("tr")
    first = {cell["data-label"]: cell.text for cell in facts[1].all("td")}
    assert first == {
        "Fact": "f1",
        "Text": "The Aurora lies at berth 7.",
        "Source": "notes/berths.md 10–37",
        "Confidence": "1.00",
    }
    dispatches = page.one("table.calls").one("tbody").all("tr")
    assert len(dispatches) == 3
    assert [cell.text for cell in dispatches[0].all("td")][2] == "S"
    assert dispatches[0].all("td")[6].text == "complete"


def test_facts_are_searched_and_paged(console: Console, session: str) -> None:
    found = console.page(f"/relay/{session}?q=lighthouse").one("table.facts").one("tbody").all("tr")
    assert "The old lighthouse burned down in 1954" in found[0].text
    assert "No fact matches." in console.page(f"/relay/{session}?q=zzzz").text
    assert console.page(f"/relay/{session}?start=5").one("table.facts").one("tbody").all("tr")[0].one("a").text == "f5"
    console.page(f"/relay/{session}?start=-1", 400)


def test_a_fact_stands_in_the_text_it_came_from(console: Console, session: str) -> None:
    page = console.page(f"/relay/{session}/facts/1")
    passage = page.one("blockquote")
    assert passage.one("mark").text == "The Aurora lies at berth 7."
    assert passage.text.startswith("# Berths The Aurora lies at berth 7. She sails on Thursday")
    assert page.one("figcaption").text == "ingest:notes/berths.md, bytes 10 to 37"
    console.page(f"/relay/{session}/facts/9999", 404)
    console.page(f"/relay/{session}/facts/x", 400)


def test_a_preview_says_what_would_be_shown_and_why(console: Console, session: str) -> None:
    before = console.page(f"/ledger/relay/{session}").one(".head").text
    page = console.page(f"/relay/{session}/preview?task=old+lighthouse+rebuilt+in+brick")
    best = page.one("table.calls").one("tbody").all("tr")[0]
    assert "The old lighthouse burned down" in best.text
    assert float(best.all("td")[2].text) > 0
    assert "[SOURCE_PASSAGE" in page.all("pre")[-1].text
    assert console.page(f"/ledger/relay/{session}").one(".head").text == before  # looking writes nothing


def test_a_window_shows_what_the_model_was_given_and_proves_it(console: Console, session: str) -> None:
    windows = [a["href"] for a in console.page(f"/relay/{session}").all("a") if "/windows/" in a["href"]]
    assert len(windows) == 3
    page = console.page(windows[0])
    assert page.one(".note").text == "These messages hash to what the ledger recorded before the model was asked."
    assert "The Aurora lies at berth 7." in page.text
    console.page(f"/relay/{session}/windows/none", 404)


def test_a_session_of_a_callers_secret_cannot_be_looked_ahead(console: Console) -> None:
    made = console.running.api.post(
        "/crp/sessions", json={"app_id": "bound", "binding_secret": "a secret of the caller"}
    )
    session = made.json()["session_id"]
    page = console.page(f"/relay/{session}/preview?task=anything", 403)
    assert "can look ahead" in page.one("h1").text


@pytest.mark.parametrize("name", ["none", "%3Cscript%3E", "x" * 300, "0" * 36])
def test_an_unknown_session_is_not_found(console: Console, name: str) -> None:
    assert console.page(f"/relay/{name}", 404).one("h1").text == "There is no such session."
