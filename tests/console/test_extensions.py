"""The extensions' pages as HTML: what each registered, may do and did; decisions hold for the next call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.conftest import Console
from tests.console.page import Node, parse
from tests.console.served import QUESTION, harbour, served, workflow

XSS = "<img src=x onerror=alert(1)>"
HOSTILE = """
import { Type } from "typebox";
const bad = "<img src=x onerror=alert(1)>";
export default function (pi: any) {
  pi.registerTool({ name: "shout", label: bad, description: bad,
    parameters: Type.Object({ [bad]: Type.String({ description: bad }) }),
    async execute() { return { content: [{ type: "text", text: bad }] }; } });
  pi.registerCommand("loud", { description: bad, handler: async () => {} });
  pi.registerShortcut("ctrl+x", { description: bad, handler: async () => {} });
  pi.registerFlag("very", { type: "boolean", default: true, description: bad });
  pi.registerMessageRenderer("plain", () => undefined);
  pi.on("session_start", () => { throw new Error(bad); });
}
"""


def row(page: Node, capability: str) -> list[str]:
    """A line of the matrix: declared, inferred, granted, used."""
    for line in page.one("table.matrix").one("tbody").all("tr"):
        if line.one("th").text.split(" ")[0] == capability:
            return [cell.text for cell in line.all("td")]
    raise AssertionError(f"no line for {capability}")


def test_the_list_says_where_each_extension_stands(console: Console, finished: str) -> None:
    cells = {cell["data-label"]: cell.text for cell in console.page("/extensions").one("tbody").all("td")}
    assert cells["Extension"] == "ext.tally extensions/tally"
    assert (cells["State"], cells["Code"], cells["Needs"]) == ("loaded", "compatible", "accepted")
    assert (cells["Tools"], cells["Commands"], cells["Last trouble"]) == ("1", "0", "none")
    assert cells["Host calls"].endswith("refused)")


def test_an_extension_shows_declared_inferred_granted_and_used(console: Console, finished: str) -> None:
    page = console.page("/extensions/ext.tally")
    declared, inferred, granted, used = row(page, "read")
    assert declared == "yes"
    assert "index.ts:2:23 fs.readFileSync" in inferred
    assert granted == "allow notes/** config"
    assert " allowed " in used
    declared, inferred, granted, used = row(page, "http")
    assert (declared, granted) == ("no", "no rule: a person is asked")
    assert inferred == "not declared index.ts:22:11 collector.example"
    assert " refused " in f" {used}"
    assert "Neither declared, inferred, granted nor used: write, exec, env, model, tool." in page.text
    tool = page.one("details.registration")
    assert tool.one("summary").text.startswith("tool tally Tally each berth")
    assert '"type": "object"' in tool.one("pre").text


def test_host_calls_are_shown_with_decision_outcome_and_hash(console: Console, finished: str) -> None:
    page = console.page("/extensions/ext.tally?only=refused")
    calls = page.one("table.calls").one("tbody").all("tr")
    cells = {cell["data-label"]: cell for cell in calls[0].all("td")}
    assert cells["Capability"].text == "http http"
    assert cells["On"].text == "collector.example"
    assert (cells["Decision"].text, cells["Outcome"].text) == ("deny person-deny", "denied")
    assert len(cells["Parameters"].one("code")["title"]) == 64
    assert calls[1].text == "A person denied http to ext.tally. not there"
    allowed = console.page("/extensions/ext.tally?only=allowed").one("table.calls")
    assert {cell.text for cell in allowed.all("td[data-label=Decision]")} == {"allow subject-allow"}
    assert "collector.example" not in allowed.text
    console.page("/extensions/ext.tally?start=x", 400)


def test_a_grant_and_a_revocation_hold_for_the_next_call(console: Console, finished: str) -> None:
    """The prompt is asked, then a denial answers in its place, then it is asked again."""
    console.send(
        "/extensions/ext.tally/decide", capability="http", scope="collector.example", expiry="hour", effect="deny"
    )
    page = console.page("/extensions/ext.tally?done=denied")
    assert row(page, "http")[2].startswith("deny collector.example until ")
    assert "http deny collector.example" in page.one("section#decisions").one("tbody").text
    run = console.running.start("harbour", question=QUESTION)
    console.running.until(run, "interrupt.requested")
    titles = [item.one("h3").text for item in console.page(f"/runs/{run}").all("article.question")]
    assert titles == ["May the agent call write?"]  # tally was refused the network, and nobody was asked

    console.send("/extensions/ext.tally/revoke", capability="http")
    assert row(console.page("/extensions/ext.tally"), "http")[2] == "no rule: a person is asked"
    again = console.running.start("harbour", question=QUESTION)
    console.running.until(again, "interrupt.requested")
    titles = [item.one("h3").text for item in console.page(f"/runs/{again}").all("article.question")]
    assert titles == ["May ext.tally talk to hosts on the network? (collector.example)"]
    console.send("/extensions/ext.tally/revoke", 404, capability="http")


@pytest.mark.parametrize(
    "fields",
    [
        {"capability": "everything"},
        {"capability": ""},
        {"capability": "read", "scope": "../up"},
        {"capability": "exec", "scope": "ls"},
        {"capability": "http", "scope": "https://x/y"},
        {"capability": "read", "expiry": "soon"},
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(console: Console, fields: dict[str, str]) -> None:
    console.send("/extensions/ext.tally/decide", 400, effect="allow", **fields)


def test_an_unknown_extension_is_not_found(console: Console) -> None:
    for name in ("none", "a/b", "agent:none", "%3Cscript%3E"):
        console.page(f"/extensions/{name}", 404)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A project whose extension writes markup into everything it can fill."""
    folder = harbour(tmp_path_factory.mktemp("hostile"))
    (folder / "extensions" / "loud").mkdir()
    (folder / "extensions" / "loud" / "index.ts").write_text(HOSTILE)
    (folder / "workflows" / "loud.json").write_text(
        json.dumps(workflow("loud", ("gate", "core.approvalGate", {"title": XSS, "description": XSS})))
    )
    with served(folder, "--trust") as running:
        visitor = Console(running)
        yield visitor
        visitor.http.close()


def test_what_is_not_loaded_is_told_and_loaded_by_a_form(hostile: Console) -> None:
    page = hostile.page("/extensions")
    assert "This project brings 2: extensions/loud, extensions/tally." in page.one(".hint").text
    hostile.send("/extensions")
    names = [cell.text for cell in hostile.page("/extensions").all("td.strong")]
    assert names == ["loud extensions/loud", "ext.tally extensions/tally"]


def test_what_an_extension_writes_is_text(hostile: Console) -> None:
    hostile.send("/extensions")
    page = hostile.page("/extensions/loud")
    assert page.all("img") == []
    kinds = [node.text for node in page.all(".kind")]
    assert kinds == ["tool", "command", "handler", "shortcut", "flag", "renderer"]
    assert page.text.count(XSS) >= 6
    assert XSS in page.one(".alert").text  # the handler that failed


def test_an_untrusted_folder_is_named_and_not_executed(tmp_path_factory: pytest.TempPathFactory) -> None:
    with served(harbour(tmp_path_factory.mktemp("untrusted"))) as running:
        visitor = Console(running)
        page = visitor.page("/extensions")
        assert "Nobody trusts what this project brings yet." in page.one(".hint").text
        assert page.all(".empty") == [], "there is one: it is named, and leads to its files"
        assert page.one("a.button")["href"] == "/trust"
        visitor.http.close()


def test_a_folder_is_trusted_as_it_was_looked_at(tmp_path: Path) -> None:
    folder = harbour(tmp_path)
    source = folder / "extensions" / "tally" / "index.ts"
    with served(folder) as running:
        visitor = Console(running)
        hint = visitor.page("/extensions").one(".hint")
        assert "Nobody trusts what this project brings yet." in hint.text
        assert "extensions/tally" in hint.text
        page = visitor.page("/trust")
        digest = page.one(".digest").text
        assert digest.startswith("sha256:")
        assert [item.one("strong").text for item in page.one(".files").all("li")] == [
            "extensions/tally/extension.json",
            "extensions/tally/index.ts",
        ]
        assert "collector.example" in page.one(".files").text  # the code stands there to be read

        assert visitor.http.post("/trust", data={"digest": digest, "csrf": "no"}).status_code == 403
        assert "untrusted" in visitor.page("/extensions").one(".head").text
        source.write_text(source.read_text() + "// changed\n")
        assert "changed since it was reviewed" in parse(visitor.send("/trust", 409, digest=digest).text).one("h1").text
        visitor.send("/trust", 400)

        run = running.start("forestay-ask", question="Where does the Aurora lie?")
        running.until(run, "run.completed")  # the suite is open now, and empty
        again = visitor.page("/trust").one(".digest").text
        assert again != digest
        assert visitor.send("/trust", digest=again).headers["location"] == "/extensions?done=trusted"
        page = visitor.page("/extensions?done=trusted")
        assert page.one(".note").text == "Trusted. It is loaded."
        assert page.one("tbody").all("td")[0].text.startswith("ext.tally")
        given = running.api.get("/host/v1/ledger/records", params={"stream": "trust"}).json()["result"]
        assert [item["payload"]["digest"] for item in given["records"]] == [again]

        source.write_text(source.read_text() + "// once more\n")
        visitor.send("/trust", digest=visitor.page("/trust").one(".digest").text)
        assert "start it again to run this" in visitor.page("/extensions?done=trusted").one(".note").text
        visitor.http.close()


def test_trust_is_the_operators_to_give(tmp_path: Path) -> None:
    with served(harbour(tmp_path)) as running:
        made = running.api.post("/host/v1/keys", json={"name": "reader", "scopes": ["runs:read", "audit:read"]})
        assert made.status_code == 201, made.text
        reader = Console(running, made.json()["result"]["apiKey"])
        digest = reader.page("/trust").one(".digest").text
        reader.send("/trust", 403, digest=digest)
        assert reader.http.post("/trust", data={"digest": digest}).status_code == 403
        reader.http.close()
