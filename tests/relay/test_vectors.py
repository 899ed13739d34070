"""Vectors beside the index: one row for each fact, made once, thrown away when they do not belong (V1 to V3)."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from forestay.kernel import ManualClock
from forestay.models import ToolCall
from forestay.models.embed.hashed import Hashed
from forestay.relay import Relay
from forestay.relay.facts import Fact
from forestay.relay.meaning import Near
from forestay.relay.tools import Toolbox
from forestay.relay.vectors import Vectors, passage
from tests.relay.conftest import Pieces
from tests.relay.test_compact import warm_of


class Meanings:
    """Knows that an unguent is an oil, as no thesaurus here does: texts about either are alike, all others are not."""

    name = "meanings"
    dimension = 3

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        return [
            [1.0, 0.0, 0.0] if "oil" in text.lower() or "unguent" in text.lower() else [0.0, 1.0, 0.0] for text in texts
        ]


TEXT = "# Pump\n\nUse castor oil.\n\n# Press\n\nKeep the cover closed.\n\nCall the service."


def facts(lines: list[str]) -> list[Fact]:
    return warm_of([lines], ("ingest",)).facts


async def test_what_shares_no_word_is_found_by_its_meaning(tmp_path: Path, clock: ManualClock) -> None:
    many = "\n\n".join(f"The suits of sailor {n} are blue." for n in range(300))
    for embedder, wanted in ((None, False), (Meanings(), True)):
        path = tmp_path / f"{wanted}.db"
        async with Relay.open(path, model=Pieces(["Castor oil."]), clock=clock, embedder=embedder) as relay:
            session = await relay.init("app")
            await session.ingest(TEXT, "manual.md")
            await session.ingest(many, "many.md")
            preview = await session.preview_envelope("", "Which unguent suits?")
            assert ("Use castor oil." in preview.envelope_text) is wanted
            reply = await session.dispatch("", "Which unguent suits?")
            sent = session.model.calls[0][-1].content  # type: ignore[attr-defined]
            assert sent.startswith(preview.envelope_text), "P4 holds with vectors"
            assert reply.output == "Castor oil."
            found = await session.facts("unguent", top_k=1)
            assert ([fact.text for fact, _ in found] == ["Use castor oil."]) is wanted


async def test_without_an_embedder_nothing_is_embedded_and_nothing_written(tmp_path: Path, clock: ManualClock) -> None:
    async with Relay.open(tmp_path / "ledger.db", model=Pieces(["Yes."]), clock=clock) as relay:
        session = await relay.init("app")
        await session.ingest(TEXT, "manual.md")
        await session.dispatch("", "Which oil?")
        assert session.vectors is None
    assert not list(tmp_path.glob("*.vectors"))


async def test_rows_are_made_once_and_survive_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    first, second = Meanings(), Meanings()
    path = tmp_path / "ledger.db"
    async with Relay.open(path, model=Pieces(["Yes."]), clock=clock, embedder=first) as relay:
        session = await relay.init("app")
        await session.ingest(TEXT, "manual.md")
        await session.facts("oil")
        await session.facts("oil")
        known = [passage(session.warm.facts, number) for number in range(len(session.warm.facts))]
        assert first.texts == [*known, "oil", "oil"]
    async with Relay.open(path, model=Pieces(["Yes."]), clock=clock, embedder=second) as relay:
        session = await relay.session(session.id)
        await session.ingest("A new sentence.", "more.md")
        await session.facts("oil")
        assert second.texts == ["A new sentence.", "oil"]


async def test_v1_a_row_of_another_fact_goes_with_all_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    one, two = facts(["Alpha runs.", "Beta runs.", "Gamma runs."]), facts(["Alpha runs.", "Delta runs."])
    await Vectors(Meanings(), path).catch_up(one)
    embedder = Meanings()
    vectors = Vectors(embedder, path)
    assert await vectors.catch_up(two) == 1
    assert embedder.texts == ["Delta runs."]
    assert await Vectors(Meanings(), path).catch_up(two) == 0, "the file was cut as well"


async def test_v2_a_torn_row_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    known = facts(["Alpha runs.", "Beta runs."])
    await Vectors(Meanings(), path).catch_up(known)
    whole = path.read_bytes()
    for cut in range(1, 21):
        path.write_bytes(whole[:-cut])
        vectors = Vectors(Meanings(), path)
        assert await vectors.catch_up(known) == (1 if cut <= 20 else 2)
        assert path.read_bytes() == whole


async def test_v3_rows_of_another_embedder_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    known = facts(["Alpha runs.", "Beta runs."])
    await Vectors(Meanings(), path).catch_up(known)
    assert await Vectors(Hashed(16), path).catch_up(known) == 2
    assert await Vectors(Hashed(16), path).catch_up(known) == 0


async def test_v3_rows_of_passages_made_in_another_way_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    known = facts(["Alpha runs.", "Beta runs."])
    await Vectors(Meanings(), path).catch_up(known)
    path.write_bytes(path.read_bytes().replace(b'"passages":2', b'"passages":1'))
    assert await Vectors(Meanings(), path).catch_up(known) == 2
    assert await Vectors(Meanings(), path).catch_up(known) == 0


TALK = (
    "Mara: The bus was late again.\nJonas: Which unguent did you take?\nMara: The green one from the shelf.\n"
    "Jonas: I had no time.\nMara: See you soon.\n"
)


async def test_a_line_of_talk_stands_for_what_it_says_behind_the_line_before_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with Relay.open(tmp_path / "l.db", model=Pieces(["Yes."]), clock=clock, embedder=Meanings()) as relay:
        session = await relay.init("app")
        await session.ingest(f"# 3 May\n\n{TALK}\n# 4 May\n\n{TALK}", "chat.md")
        known = session.warm.facts
        lines = [passage(known, fact.number) for fact in known if fact.talk]
    assert lines[:3] == [
        "The bus was late again.",
        "The bus was late again. Which unguent did you take?",
        "Which unguent did you take? The green one from the shelf.",
    ]
    assert lines[5] == "The bus was late again.", "the day before has ended"


async def test_a_line_that_is_like_nothing_is_found_by_the_question_before_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The nearest are few; an answer without a word of its own to say is not among them."""
    async with Relay.open(tmp_path / "l.db", model=Pieces(["Yes."]), clock=clock) as relay:
        session = await relay.init("app")
        await session.ingest(TALK, "chat.md")
        asked, last = 1, 4
        assert "unguent" in session.warm.facts[asked].text
        relevance: dict[int, float] = {}
        Near({asked: 0.9, last: 0.1}).add_to(session.warm, "Which one?", relevance, 1, False, missing=1.0)
    assert relevance[asked + 1] > relevance[last]


async def test_a_reset_forgets_rows_and_a_close_deletes_them(tmp_path: Path, clock: ManualClock) -> None:
    async with Relay.open(tmp_path / "l.db", model=Pieces(["Yes."]), clock=clock, embedder=Meanings()) as relay:
        session = await relay.init("app", role="ADMIN")
        await session.ingest(TEXT, "manual.md")
        await session.facts("oil")
        await session.reset_session()
        await session.ingest("The unguent is new.", "new.md")
        assert [fact.text for fact, _ in await session.facts("oil")] == ["The unguent is new."]
        assert session.vectors is not None and len(session.vectors) == 1
        file = tmp_path / "l.db.vectors" / session.id
        assert file.stat().st_mode & 0o777 == 0o600
        exported = await session.export_state("a long export key")
        assert b"meanings" not in exported
        await session.close()
        assert not file.exists()


async def test_the_context_tool_finds_by_meaning_too() -> None:
    warm = warm_of([["Use castor oil.", "Keep the cover closed."]], ("ingest",))
    vectors = Vectors(Meanings())
    await vectors.catch_up(warm.facts)
    call = ToolCall("1", "crp_retrieve_context", {"query": "unguent", "limit": 1})
    assert "castor" in Toolbox(warm, (), vectors).call(call)
    assert "castor" not in Toolbox(warm).call(call)


class Chosen:
    """Gives each text the vector that was drawn for it."""

    name = "chosen"
    dimension = 70

    def __init__(self, seed: int = 3) -> None:
        self._seed = seed

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.one(text) for text in texts]

    def one(self, text: str) -> list[float]:
        rng = random.Random(f"{self._seed} {text}")
        made = [rng.gauss(0, 1) for _ in range(self.dimension)]
        return [value / math.hypot(*made) for value in made]


@pytest.mark.parametrize("numpy", [True, False])
@pytest.mark.parametrize("kept", [True, False])
async def test_q3_the_nearest_are_the_same_with_and_without_numpy(
    numpy: bool, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forestay.relay import vectors

    if numpy:
        pytest.importorskip("numpy")
    else:
        monkeypatch.setattr(vectors.importlib, "import_module", _refuse)
    known = facts([f"Engine {n} runs." for n in range(150)])
    embedder = Chosen()
    made = Vectors(embedder, tmp_path / "rows" if kept else None)
    for size in (100, 150):
        await made.catch_up(known[:size])
        rows = [embedder.one(passage(known, number)) for number in range(size)]
        asked = embedder.one("What runs?")
        scores = {n: sum(map(float.__mul__, row, asked)) for n, row in enumerate(rows) if n != 7}
        wanted = sorted((n for n in scores if scores[n] > 0), key=lambda n: (-scores[n], n))[:20]
        found = made.near("What runs?", 20, frozenset({7}))
        assert list(found) == wanted
        assert [round(score, 5) for score in found.values()] == [round(scores[n], 5) for n in wanted]


async def test_q2_many_rows_are_compared_by_their_signs_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small bounds: what is found is near, in order, none of those that are left out, and new rows are found."""
    pytest.importorskip("numpy")
    from forestay.relay import nearest

    for name, value in (("EXACT", 60), ("_COMPARED", 60), ("_BLOCK", 32)):
        monkeypatch.setattr(nearest, name, value)
    known = facts([f"Engine {n} runs." for n in range(200)])
    embedder = Chosen()
    made = Vectors(embedder, tmp_path / "rows")
    for size in (100, 130, 200):
        await made.catch_up(known[:size])
        for place in (0, size // 2, size - 1):
            found = made.near(passage(known[place]), 10, frozenset({3, 5}))
            assert next(iter(found)) == place, "what is asked for word for word comes first"
            assert list(found.values()) == sorted(found.values(), reverse=True) and not {3, 5} & found.keys()
    other = facts([f"Engine {n} {'runs' if n < 80 else 'stands'}." for n in range(200)])
    assert await made.catch_up(other) == 120
    assert next(iter(made.near(passage(other[150]), 5))) == 150, "signs of rows that went are not used"


def _refuse(name: str) -> Any:
    raise ImportError(name)


def test_importing_the_relay_imports_neither_numpy_nor_an_embedder() -> None:
    script = (
        "import sys, forestay.relay, forestay.models\n"
        "assert 'numpy' not in sys.modules\n"
        "assert not [name for name in sys.modules if name.startswith('forestay.models.embed.')]\n"
        "assert 'forestay.relay.vectors' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
