"""Exact counts where somebody has them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from forestay import models
from forestay.kernel import ManualClock, Problem
from forestay.models import Message, ToolSpec
from forestay.models.tokens import Estimator, ExactCounter, counter_for, tokenizer_data
from tests.models.wire import serving


async def test_the_provider_counts_a_request(clock: ManualClock) -> None:
    async with serving() as server:
        model = models.open(f"anthropic:claude-x@{server.anthropic}", api_key="k", clock=clock)
        count = model.count_request  # type: ignore[attr-defined]
        assert await count([Message("user", "one two three")], tools=[ToolSpec("t", "d", {"type": "object"})]) > 3
        assert server.requests[0]["tools"][0]["name"] == "t"
        await model.aclose()


async def test_a_wire_without_counting_says_so(clock: ManualClock) -> None:
    model = models.open("openai:m@http://127.0.0.1:9/v1", clock=clock)
    with pytest.raises(Problem, match="does not count"):
        await model.count_request([])  # type: ignore[attr-defined]
    await model.aclose()


def test_without_tokenizer_data_nothing_is_fetched_and_the_count_is_an_estimate(tmp_path: Path) -> None:
    counter = counter_for("gpt-4o", {"TIKTOKEN_CACHE_DIR": str(tmp_path)})
    assert isinstance(counter, Estimator)
    assert list(tmp_path.iterdir()) == []


def test_tokenizer_data_is_looked_for_where_tiktoken_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken itself reads the file at the place we look at, and finds it."""
    load = pytest.importorskip("tiktoken.load")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    place = tokenizer_data("o200k_base")
    place.write_bytes(b"IQ== 0\n")
    source = Path(pytest.importorskip("tiktoken_ext.openai_public").__file__).read_text()
    address = next(line.strip().strip('",') for line in source.splitlines() if "/o200k_base.tiktoken" in line)
    assert load.read_file_cached(address, hashlib.sha256(b"IQ== 0\n").hexdigest()) == b"IQ== 0\n"


def test_a_real_tokenizer_counts_exactly_and_special_words_are_text() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
    encoding = tiktoken.Encoding("tiny", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|end|>": 257})
    counter = ExactCounter(encoding)
    assert counter.count("abab c") == 4
    assert counter.count("<|end|>") == 7


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", 0, 0),
        ("hello", 1, 2),
        ("The quick brown fox jumps over the lazy dog.", 9, 14),
        ("漢字漢字漢字", 4, 12),
        ("1234567890", 3, 5),
        ("def f(x):\n    return x + 1\n", 8, 20),
    ],
)
def test_an_untaught_estimate_is_of_the_right_size(text: str, low: int, high: int) -> None:
    assert low <= Estimator().count(text) <= high


def test_the_estimator_learns_scripts_apart() -> None:
    """A provider that spends 1.5 tokens a unit of English and 0.6 a Chinese character is learned from mixed texts."""
    english, chinese = "some ordinary english words here " * 10, "漢字" * 50
    estimator = Estimator()
    base_english, base_chinese = estimator.count(english), estimator.count(chinese)
    for _ in range(40):
        estimator.learn(english, round(1.5 * base_english))
        estimator.learn(chinese, round(0.6 * base_chinese))
    assert estimator.count(english) == pytest.approx(1.5 * base_english, rel=0.03)
    assert estimator.count(chinese) == pytest.approx(0.6 * base_chinese, rel=0.03)
