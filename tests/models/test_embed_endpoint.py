"""The embedder behind OpenAI's `/embeddings`: vectors by their index, or a Problem that says what was wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forestay.kernel import Problem
from forestay.models import embed
from forestay.models.embed.endpoint import EndpointEmbedder

Answer = Callable[[list[str]], Any]


def server(answer: Answer, seen: list[httpx.Request], status: int = 200) -> httpx.MockTransport:
    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, json=answer(json.loads(request.content)["input"]))

    return httpx.MockTransport(handle)


def lengths(texts: list[str]) -> Any:
    """A vector for each text, the last one first, as servers may answer."""
    items = [
        {"object": "embedding", "index": at, "embedding": [3.0 * len(text), 4.0 * len(text)]}
        for at, text in enumerate(texts)
    ]
    return {"object": "list", "data": items[::-1], "model": "any"}


def opened(answer: Answer, seen: list[httpx.Request] | None = None, **options: Any) -> EndpointEmbedder:
    transport = server(answer, [] if seen is None else seen, options.pop("status", 200))
    return EndpointEmbedder("nomic", "http://127.0.0.1:11434/v1/", transport=transport, **options)


def test_e1_vectors_come_by_their_index_and_have_length_one() -> None:
    seen: list[httpx.Request] = []
    found = opened(lambda texts: {"data": [{"index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [5, 0]}]}, seen)
    assert found.embed(["quay", "boat"]) == [[1.0, 0.0], [0.0, 1.0]]
    assert found.dimension == 2
    (request,) = seen
    assert str(request.url) == "http://127.0.0.1:11434/v1/embeddings"
    assert json.loads(request.content) == {"model": "nomic", "input": ["quay", "boat"]}


def test_many_texts_go_in_groups_and_none_is_empty() -> None:
    seen: list[httpx.Request] = []
    found = opened(lengths, seen).embed(["", *("x" * (at + 1) for at in range(150))])
    assert len(found) == 151
    assert [len(json.loads(request.content)["input"]) for request in seen] == [64, 64, 23]
    assert json.loads(seen[0].content)["input"][0] == " "


def test_the_dimension_is_asked_for_where_nothing_was_embedded() -> None:
    assert opened(lengths).dimension == 2


def test_e2_only_a_key_of_the_caller_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-person")
    seen: list[httpx.Request] = []
    opened(lengths, seen).embed(["quay"])
    opened(lengths, seen, key="sk-given").embed(["quay"])
    assert [request.headers.get("Authorization") for request in seen] == [None, "Bearer sk-given"]


@pytest.mark.parametrize(
    "answer",
    [
        {"data": []},
        {"data": [{"index": 0, "embedding": [1.0]}] * 2},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]},
        {"data": [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}]},
        {"error": "no such model"},
        [1, 2],
    ],
    ids=["none", "one twice", "two lengths", "no numbers", "an error", "a list"],
)
def test_e1_an_answer_that_does_not_fit_is_a_problem(answer: Any) -> None:
    with pytest.raises(Problem) as caught:
        opened(lambda _: answer).embed(["quay", "boat"])
    assert caught.value.key == "provider_error"
    assert caught.value.details["embedder"] == "nomic@http://127.0.0.1:11434/v1"


def test_e1_a_later_answer_of_another_length_is_a_problem() -> None:
    sizes = iter([2, 3])
    found = opened(lambda texts: {"data": [{"index": 0, "embedding": [1.0] * next(sizes)}]})
    found.embed(["quay"])
    with pytest.raises(Problem, match="different lengths"):
        found.embed(["quay"])


def test_a_refusal_names_the_status() -> None:
    with pytest.raises(Problem) as caught:
        opened(lengths, status=401).embed(["quay"])
    assert caught.value.details["status"] == 401


def test_a_server_that_is_not_there_is_a_problem_with_what_to_do() -> None:
    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    found = EndpointEmbedder("nomic", "http://127.0.0.1:1/v1", transport=httpx.MockTransport(gone))
    with pytest.raises(Problem) as caught:
        found.embed(["quay"])
    assert caught.value.key == "provider_error" and "Start its server" in str(
        caught.value.details.get("fix", caught.value)
    )


def test_settings_name_a_model_and_its_address() -> None:
    found = embed.open("hub/nomic@v2@http://user:word@127.0.0.1:11434/v1")
    assert found.name == "hub/nomic@v2@http://127.0.0.1:11434/v1", "a password is shown nowhere"
    for wrong in ("@http://127.0.0.1", "nomic@ftp://127.0.0.1", "nomic@"):
        with pytest.raises(Problem):
            embed.open(wrong)
