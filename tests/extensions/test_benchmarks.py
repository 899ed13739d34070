"""The benchmarks of the extension runtime do what they say, in small; and say what they left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import extension_corpus, extensions, pi_runtime


async def test_the_soak_looks_five_times() -> None:
    what, figure, beside = await extensions._soak(80)
    assert what == "soak: 80 calls, at 0, 25, 50, 75 and 100 %"
    process, inside = figure.split("; ")
    assert len(process.split(", ")) == len(inside.split(", ")) == 5
    assert "6 plain calls, 2 with a synchronous host call, 2 events" in beside


async def test_without_the_corpus_the_rows_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entries = pi_runtime.examples()
    real = pi_runtime.measure(entries)
    assert (entries, real) == ([], pi_runtime.HOW_TO_GET)
    artifacts = extension_corpus.compiled(entries)
    rows = [await extension_corpus.memory(artifacts), *await extension_corpus.cold_loads(artifacts, real)]
    rows += extension_corpus.real_calls(real)
    assert {(figure, beside) for _, figure, beside in rows} == {("not measured", pi_runtime.HOW_TO_GET)}


async def test_an_extension_is_loaded_and_its_memory_measured(tmp_path: Path) -> None:
    entry = tmp_path / "own" / "index.js"
    entry.parent.mkdir()
    entry.write_text(pi_runtime.SOURCE)
    artifacts = extension_corpus.compiled([entry])
    _, figure, beside = await extension_corpus.memory(artifacts)
    assert figure.endswith(" MB")
    assert beside.startswith("1 at once")
    [ours, theirs] = await extension_corpus.cold_loads(artifacts, "not here")
    assert ours[1].startswith("p50 ")
    assert f"{extension_corpus.PASSES} loads of 1 extensions" in ours[2]
    assert theirs[1:] == ("not measured", "not here")
