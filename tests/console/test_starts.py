"""Workflows, schedules, webhooks and keys: their pages, their actions, and what stands beside a field that is wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.console.conftest import Console
from tests.console.page import Node


def wrong(console: Console, path: str, status: int, **fields: Any) -> Node:
    """The page that answers a form with a mistake."""
    from tests.console.page import parse

    return parse(console.send(path, status, **fields).text)


def test_a_workflow_shows_its_graph_and_starts(console: Console, finished: str) -> None:
    page = console.page("/workflows")
    assert "harbour" in [node.text for node in page.one("section[aria-label=Workflows]").all("a")]
    page = console.page("/workflows/harbour")
    assert page.one("svg.graph").all("g")
    assert "question" in page.text
    assert any(node["href"] == f"/runs/{finished}" for node in page.one("table.runs").all("a"))
    made = console.send("/runs", workflow="review", inputs="{}").headers["location"]
    assert console.page(made).one("h1").text.startswith("review")
    console.page("/workflows/nowhere", 404)


def test_a_schedule_is_made_paused_resumed_and_deleted(console: Console) -> None:
    console.send("/schedules", workflowId="review", cron="0 7 * * 1-5", timezone="Europe/Berlin", inputs='{"a": 1}')
    row = console.page("/schedules").one("tbody").one("tr")
    assert "0 7 * * 1-5 Europe/Berlin" in row.text and "active" in row.text
    paths = [form["action"] for form in row.all("form")]
    assert [path.rsplit("/", 1)[1] for path in paths] == ["pause", "delete"]
    console.send(paths[0])
    assert "paused" in console.page("/schedules").one("tbody").text
    console.send(paths[0].replace("/pause", "/resume"))
    assert "active" in console.page("/schedules").one("tbody").text
    console.send(paths[1])
    assert not console.page("/schedules").all("tbody")
    console.send(paths[1], 404)


@pytest.mark.parametrize(
    ("fields", "status", "at"),
    [
        ({"workflowId": "review", "cron": "every day"}, 400, "cron"),
        ({"workflowId": "review", "cron": "0 7 * * *", "timezone": "Mars/Olympus"}, 400, "timezone"),
        ({"workflowId": "review", "cron": "0 7 * * *", "inputs": "{"}, 400, "inputs"),
        ({"workflowId": "review", "cron": "0 7 * * *", "inputs": "[1]"}, 400, "inputs"),
    ],
)
def test_what_is_wrong_stands_beside_the_field_and_nothing_is_lost(
    console: Console, fields: dict[str, str], status: int, at: str
) -> None:
    page = wrong(console, "/schedules", status, **fields)
    field = next(node for node in page.walk() if node.attributes.get("name") == at)
    assert field["aria-invalid"] == "true"
    assert page.one(f"#{field['aria-describedby']}").text
    assert page.one("input#cron")["value"] == fields["cron"]
    assert not page.all("tbody")


def test_a_webhook_is_registered_and_its_secret_is_shown_once(console: Console) -> None:
    page = wrong(console, "/webhooks", 200, url="https://example.com/hook", events="run.completed, run.failed")
    secret = page.one(".note").one("code").text
    assert len(secret) > 20
    listed = console.page("/webhooks")
    assert secret not in listed.text
    row = listed.one("tbody").one("tr")
    assert "run.completed, run.failed" in row.text
    assert "Everything was delivered." in console.page(row.one("a")["href"]).text
    rotate, remove = [form["action"] for form in row.all("form")]
    assert wrong(console, rotate, 200).one(".note").one("code").text != secret
    console.send(remove)
    assert not console.page("/webhooks").all("tbody")
    page = wrong(console, "/webhooks", 400, url="ftp://example.com", events="run.completed")
    assert page.one("input#url")["aria-invalid"] == "true"
    assert page.one("input#events")["value"] == "run.completed"


def test_a_key_is_made_with_some_scopes_shown_once_and_revoked(console: Console) -> None:
    page = wrong(console, "/keys", 200, name="phone", lasts="week", **{"scope-runs:read": "yes"})
    text = page.one(".note").one("code").text
    listed = console.page("/keys")
    assert text not in listed.text
    row = next(row for row in listed.one("tbody").all("tr") if row.text.startswith("phone"))
    assert "runs:read" in row.one("details").text and "until" in row.text
    phone = Console(console.running, text)
    phone.page("/runs")
    phone.page("/keys", 403)
    console.send(row.one("form")["action"])
    assert phone.http.get("/runs").status_code == 303
    phone.http.close()
    page = wrong(console, "/keys", 400, name="phone two", **{"scope-runs:read": "yes"})
    assert page.one("input#name")["aria-invalid"] == "true"
    assert "at least one scope" in wrong(console, "/keys", 400, name="none").text
    assert re.search("lasts a day", wrong(console, "/keys", 400, name="x", lasts="forever").text)
