"""Signing in at a server, against a real authorization server: the invariants of `sign_in.py` and `tokens.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.extensions.mcp.oauth_server import Authority, consent, guarded
from tests.extensions.mcp.world import TOOL, configured, said, used

from forestay.extensions.connectors.ui import HOST_ASKS, NoUi, Recorded
from forestay.extensions.extensions import Extensions
from forestay.extensions.mcp.definitions import Definition
from forestay.extensions.mcp.guest import McpGuest
from forestay.extensions.mcp.tokens import FOLDER, TokenFiles, Tokens
from forestay.kernel import Problem

ECHO = Definition(
    "echo",
    "Says it again.",
    {
        "type": "object",
        "properties": {"text": {"title": "Text", "type": "string"}},
        "required": ["text"],
        "title": "echoArguments",
    },
)


class Person(Recorded):
    """Answers a question of the host's own with what `says` makes of the address that it shows."""

    interactive = True

    def __init__(self, says: Callable[[str], str | None] = consent) -> None:
        super().__init__()
        self._says = says
        self.asked: list[dict[str, Any]] = []

    async def request(self, extension: str, operation: str, params: Any) -> Any:
        assert (extension, operation) == ("mcp:probe", "sign_in")
        self.asked.append(dict(params))
        address = self._says(params["facts"]["open"])
        return None if address is None else {"action": "accept", "content": {"address": address}}


@pytest.fixture
def server() -> Iterator[tuple[str, Authority]]:
    with guarded() as found:
        yield found


def reached(folder: Path, url: str, ui: Any, work: Any = None, **entry: Any) -> Any:
    async def call(suite: Extensions, _guest: McpGuest) -> None:
        assert said(await suite.call_tool(TOOL, {"text": "seven"})) == "seven"

    given = {"command": "", "args": [], "url": url, "pinned": [ECHO], "ui": ui, "data": folder / "data", **entry}
    return used(folder, "good", work or call, **given)


def test_a_person_is_asked_when_the_server_first_asks_and_never_again(
    tmp_path: Path, server: tuple[str, Authority]
) -> None:
    url, authority = server
    person = Person()
    reached(tmp_path, url, person)
    reached(tmp_path, url, person)
    (asked,) = person.asked
    assert asked["title"] == "Sign in at 127.0.0.1 for the MCP server probe"
    assert authority.given == ["code"] and len(authority.clients) == 1


def test_nobody_is_asked_by_a_server_that_is_only_configured(tmp_path: Path, server: tuple[str, Authority]) -> None:
    async def work(suite: Extensions, _guest: McpGuest) -> None:
        assert [tool.name for tool in suite.tools()] == [TOOL]

    person = Person()
    reached(tmp_path, server[0], person, work)
    assert person.asked == []


def test_what_is_on_disk_holds_no_token_and_opens_for_no_other_server(
    tmp_path: Path, server: tuple[str, Authority]
) -> None:
    url, authority = server
    reached(tmp_path, url, Person())
    (file,) = (tmp_path / "data" / FOLDER).iterdir()
    (access,) = authority.access
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert access.encode() not in kept
    project = tmp_path / "project"
    files = TokenFiles(tmp_path / "data", project)
    own = configured(project, "good", command="", args=[], url=url)
    assert (files.read(own).token or {})["access_token"] == access
    other = configured(project, "good", command="", args=[], url=url + "/")
    (tmp_path / "data" / FOLDER / files._name(other)).write_bytes(file.read_bytes())
    assert files.read(other) == Tokens()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert files.read(own) == Tokens()


def test_a_token_that_ended_is_renewed_without_a_word(tmp_path: Path, server: tuple[str, Authority]) -> None:
    url, authority = server
    person = Person()
    reached(tmp_path, url, person)
    files = TokenFiles(tmp_path / "data", tmp_path / "project")
    own = configured(tmp_path / "project", "good", command="", args=[], url=url)
    kept = files.read(own)
    files.write(own, msgspec.structs.replace(kept, expires_at=1.0))
    reached(tmp_path, url, person)
    assert len(person.asked) == 1 and authority.given == ["code", "refresh"]


def test_a_token_that_was_taken_back_asks_again(tmp_path: Path, server: tuple[str, Authority]) -> None:
    url, authority = server
    person = Person()
    reached(tmp_path, url, person)
    authority.forget_everybody()
    reached(tmp_path, url, person)
    assert len(person.asked) == 2 and authority.given == ["code", "code"]


def test_a_host_that_moved_registers_again_before_it_asks(tmp_path: Path, server: tuple[str, Authority]) -> None:
    url, authority = server
    person = Person()
    reached(tmp_path, url, person)
    authority.forget_everybody()
    reached(tmp_path, url, person, back="http://127.0.0.1:9999/signed-in")
    assert len(authority.clients) == 2 and "9999" in person.asked[1]["facts"]["open"]


def test_an_answer_to_another_question_is_asked_about_again(tmp_path: Path, server: tuple[str, Authority]) -> None:
    answers = iter(["http://127.0.0.1:8787/signed-in?code=stolen&state=another", None])

    def says(question: str) -> str | None:
        return next(answers) or consent(question)

    person = Person(says)
    reached(tmp_path, server[0], person)
    assert len(person.asked) == 2 and server[1].given == ["code"]


REFUSALS: dict[str, tuple[Callable[[str], str | None], str, str]] = {
    "declined": (lambda _: None, "consent_required", "Nobody signed in"),
    "refused": (
        lambda question: f"http://x/?error=access_denied&state={question.split('state=')[1].split('&')[0]}",
        "consent_required",
        "access_denied",
    ),
    "wrong code": (
        lambda question: f"http://x/?code=guessed&state={question.split('state=')[1].split('&')[0]}",
        "server_failed",
        "Token exchange failed",
    ),
    "never fits": (
        lambda _: "http://x/?code=a&state=b",
        "consent_required",
        "None of the answers belongs to this sign-in",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_without_consent_the_server_is_not_used(tmp_path: Path, server: tuple[str, Authority], case: str) -> None:
    says, key, words = REFUSALS[case]

    async def work(suite: Extensions, _guest: McpGuest) -> None:
        with pytest.raises(Problem) as problem:
            await suite.call_tool(TOOL, {"text": "seven"})
        assert problem.value.key == key and words in problem.value.message

    reached(tmp_path, server[0], Person(says), work)
    assert server[1].access == {}


def test_without_a_person_the_problem_says_where_to_sign_in(tmp_path: Path, server: tuple[str, Authority]) -> None:
    async def work(suite: Extensions, _guest: McpGuest) -> None:
        with pytest.raises(Problem) as problem:
            await suite.call_tool(TOOL, {"text": "seven"})
        assert problem.value.key == "consent_required"
        assert "forestay mcp trust probe" in str(problem.value.details["fix"])

    reached(tmp_path, server[0], NoUi(), work)


def test_a_key_in_the_entry_is_used_instead_of_a_person(tmp_path: Path, server: tuple[str, Authority]) -> None:
    person = Person()

    async def work(suite: Extensions, _guest: McpGuest) -> None:
        with pytest.raises(Problem):
            await suite.call_tool(TOOL, {"text": "seven"})

    reached(tmp_path, server[0], person, work, headers={"authorization": "Bearer old"})
    assert person.asked == []


def test_an_extension_cannot_ask_in_the_name_of_the_host(tmp_path: Path) -> None:
    async def work(suite: Extensions, guest: McpGuest) -> None:
        for operation in HOST_ASKS:
            with pytest.raises(Problem) as problem:
                await guest._host_call("ui", {"op": operation, "title": "Sign in", "facts": {"open": "http://evil"}})
            assert problem.value.key == "invalid_request"

    used(tmp_path, "good", work, grants=["tool", "ui"], ui=Person())
