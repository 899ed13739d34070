"""Opening models by name, and the small parts of the providers."""

from __future__ import annotations

import builtins
import subprocess
import sys
from email.utils import formatdate
from typing import Any

import pytest

from forestay import models
from forestay.kernel import ManualClock, Problem
from forestay.models import ToolCall
from forestay.models.assemble import ToolCallFragments
from forestay.models.faults import Endpoint, retry_after_ms, status_problem
from tests.models.wire import Reply, serving


@pytest.mark.parametrize(
    "spec", ["gpt", "", "openai", "openai:", "anthropic:", "scripted:", "local:big", "openai:m@nope"]
)
def test_an_unknown_model_is_a_problem_with_the_list(spec: str) -> None:
    with pytest.raises(Problem) as caught:
        models.open(spec, environ={})
    assert caught.value.key == "model_unknown"
    assert caught.value.details["known"] == list(models.KNOWN)


@pytest.mark.parametrize(("kind", "variable"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")])
def test_a_missing_key_names_the_variable(kind: str, variable: str) -> None:
    with pytest.raises(Problem) as caught:
        models.open(f"{kind}:m", environ={})
    assert (caught.value.key, caught.value.details["variable"]) == ("provider_unauthenticated", variable)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_the_environments_key_goes_to_its_provider_only(
    kind: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither we nor the official package send it to a server of one's own."""
    for name in ("OPENAI_ORG_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "sk-secret")
    async with serving(Reply(("x",))) as server:
        server.keyless = True
        model = models.open(f"{kind}:m@{getattr(server, kind)}", clock=clock)
        await models.fold(model.stream([models.Message("user", "hi")]))
        await model.aclose()
    assert not any("sk-secret" in value for value in server.headers[0].values())
    assert not {"authorization", "x-api-key", "openai-organization"} & server.headers[0].keys()


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(Problem) as caught:
        models.open("openai:m", api_key="k")
    assert (caught.value.key, caught.value.details["extra"]) == ("package_missing", "openai")


async def test_limits_are_known_or_given() -> None:
    known = models.open("anthropic:claude-opus-4-1", api_key="k")
    assert (known.context_window, known.max_output_tokens) == (200_000, 32_000)
    given = models.open("openai:mine@http://127.0.0.1:1/v1", context_window=1_000, max_output_tokens=100)
    assert (given.context_window, given.max_output_tokens) == (1_000, 100)
    await known.aclose()
    await given.aclose()


def test_importing_models_imports_no_provider() -> None:
    heavy = ("openai", "anthropic", "tiktoken", "httpx2")
    code = f"import sys, forestay.models; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_open_does_not_hide_the_builtin() -> None:
    assert builtins.open is not models.open


@pytest.mark.parametrize(
    ("headers", "ms"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2_500),
        ({"retry-after-ms": "40", "retry-after": "9"}, 40),
        ({"retry-after": formatdate(1_767_225_600 + 30, usegmt=True)}, 30_000),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-4"}, 0),
        ({"retry-after": "inf"}, None),
    ],
)
def test_retry_hints(headers: dict[str, str], ms: int | None, clock: ManualClock) -> None:
    assert retry_after_ms(headers, clock) == ms


def test_an_empty_account_is_not_a_rate_limit(clock: ManualClock) -> None:
    body: Any = {"error": {"code": "insufficient_quota"}}
    assert status_problem(Endpoint("X", "http://x"), 429, {}, body, "pay", clock).key == "provider_rejected"


def test_fragments_without_an_index_follow_their_ids() -> None:
    fragments = ToolCallFragments()
    for part in (
        (None, "a", "one", '{"x"'),
        (None, None, None, ":1}"),
        (None, "b", "two", None),
        (None, "b", None, "{}"),
    ):
        fragments.add(*part)
    assert fragments.finished("tool_calls") == (ToolCall("a", "one", {"x": 1}), ToolCall("b", "two", {}))


def test_fragments_out_of_order_are_sorted_by_index() -> None:
    fragments = ToolCallFragments()
    fragments.add(1, "b", "two", "{}")
    fragments.add(0, None, "one", '{"x":')
    fragments.add(0, None, None, "2}")
    assert fragments.finished("stop") == (ToolCall("call_0", "one", {"x": 2}), ToolCall("b", "two", {}))
