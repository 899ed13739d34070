"""Exact counts where somebody has them."""

from __future__ import annotations

import hashlib
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given

from forestay import models
from forestay.kernel import ManualClock, Problem
from forestay.models import Message, ToolSpec
from forestay.models.most_tokens import most_tokens
from forestay.models.tokens import Estimator, ExactCounter, counter_for, tokenizer_data
from tests.models.any_text import any_text
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
        ("1234567890", 3, 10),
        ("def f(x):\n    return x + 1\n", 8, 20),
    ],
)
def test_an_untaught_estimate_is_of_the_right_size(text: str, low: int, high: int) -> None:
    assert low <= Estimator().count(text) <= high


def test_the_estimator_learns_scripts_apart() -> None:
    """A provider that spends 1.5 tokens a unit of English and 0.6 a Chinese character is learned from mixed texts, with
    a little room above; the Chinese ones are not counted below what they can be."""
    english, chinese = "some ordinary english words here " * 10, "漢字" * 50
    estimator = Estimator()
    base_english, base_chinese = estimator.count(english), estimator.count(chinese)
    for _ in range(40):
        estimator.learn(english, round(1.5 * base_english))
        estimator.learn(chinese, round(0.6 * base_chinese))
    assert estimator.count(english) == pytest.approx(1.03 * 1.5 * base_english, rel=0.03)
    assert 0.6 * base_chinese <= estimator.count(chinese) <= base_chinese


# The most tokens that one of six real tokenizers makes of each (`test_real_tokenizers.py` asks them again).
MEASURED = {
    "jvqx wkzj qpvx zzkq xjwv": 19,
    "xjzkkqqvxxwjvjkxkwj": 14,
    "QzXvJkWp rKtVbN": 14,
    "\ufdfa\ufdfa\ufdfa\ufdfa": 60,
    "\u023e\u0243\u01ee\u019f": 8,
    "\ua66e\ua683\ua66d": 9,
    "\uacdf\uac50\uac95": 9,
    "\U00013000\U00013080\U000130f0": 12,
    "\u16a0\u16c7\u16bb": 9,
    "\u4eda\u4efa\u4f04": 9,
    "3141592653589793": 16,
    "e\u0301\u0302\u0323o\u0308": 9,
}


@pytest.mark.parametrize("text", MEASURED)
def test_c19_gibberish_is_not_counted_below_the_real_tokenizers(text: str) -> None:
    estimator = Estimator()
    assert MEASURED[text] <= estimator.count(text)
    for _ in range(20):  # a provider of cheap prose before it
        estimator.learn("the people of the house and the time of the day " * 20, 240)
    assert MEASURED[text] <= estimator.count(text)


@given(any_text(surrogates=True))
def test_b3_no_text_counts_more_tokens_than_bytes(text: str) -> None:
    """Of the form that is longer, where Unicode has two."""
    forms = [text, unicodedata.normalize("NFKC", text)]
    assert max(most_tokens(text)) <= max(len(form.encode("utf-8", "surrogatepass")) for form in forms)
