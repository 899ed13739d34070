"""Measures retrieval beside plain BM25 on every set, without each signal of the ranking, and with each embedder.

The first set is that of `benchmarks/retrieval.py`. `language` and `ward` were written after the weights of the first
terms were set. `talk` and `handbook` (`benchmarks/talk.py`, `benchmarks/handbook.py`) are older than the weights of
neighbours, speaker and dates, which come from measurements elsewhere and were checked here. They are also older than
the thesaurus, whose author had read a part of the handbook's guide. `leaflets` (`benchmarks/leaflets.py`) was written
after the thesaurus's first half, `notices` (`benchmarks/notices.py`) after all of it.

One weight is newer: the power of relevance was chosen on the first set after `ward` had shown the need for it.

`language` is the reference that CPython includes, with questions written by hand (`benchmarks/questions.py`): each
alone, and three together in one task (`several`). `ward` is another domain made from a seed, thirty people in a
hospital over ten windows, for the terms that need a session's history:

- `newest`    ten rounds measured the temperature, each in one of four wordings; the question names no round
- `round`     the question names one of the rounds, which recency ranks lower
- `unseen`    twelve remarks, seven of them shown three times; the other five are asked for and counted one by one
- `again`     the answer was shown five times already, and no other fact answers
- `story`     the answer begins with `She` or `However`, after the sentence with the name
- `chart`     the answer is a row of a table under the name's heading
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Mapping
from pydoc_data.topics import topics

from benchmarks.handbook import handbook
from benchmarks.leaflets import leaflets
from benchmarks.notices import notices
from benchmarks.questions import LANGUAGE
from benchmarks.retrieval import (
    CUTS,
    Question,
    Row,
    build,
    known_embedders,
    meaning_alone,
    ours,
    plain_bm25,
    recall,
    take,
)
from benchmarks.talk import talk
from forestay.models import Embedder, words
from forestay.relay import Warm
from forestay.relay.index import Index
from forestay.relay.ranking import Terms
from forestay.relay.vectors import Vectors

TERMS = (
    "graph",
    "recency",
    "novelty",
    "aspects",
    "headings",
    "neighbours",
    "speaker",
    "dates",
    "synonyms",
    "related",
    "gist",
)
_PEOPLE = (
    "Okafor Lindqvist Moreau Castellano Ivanova Haddad Nakamura Brandt Silva Kowalska Petersen Achterberg Demir Farkas "
    "Galanis Hoxha Iversen Jansons Kaplan Lehtonen Mbeki Novak Ortega Papadaki Quispe Rasmussen Santos Takacs Urban "
    "Virtanen"
).split()
_NURSES = ("Bea", "Carlo", "Dina", "Emil")
_DRUGS = ("ibuprofen", "penicillin", "latex", "aspirin", "codeine", "sulfa")
_THINGS = ("tea", "a blanket", "the radio", "a priest", "earplugs", "her glasses")
_REMARKS = (
    "{0} reads the newspaper before breakfast.",
    "The daughter of {0} visits on Sundays.",
    "{0} walks to the window without help.",
    "A parcel for {0} is at the desk.",
    "{0} prefers soup to bread.",
    "The left ear of {0} needs a louder voice.",
    "{0} used to drive a tram.",
    "The bed of {0} squeaks.",
    "{0} plays chess with the porter.",
    "Two letters for {0} came from abroad.",
    "{0} hums while eating.",
    "The slippers of {0} are too small.",
)
_MEASURED = (
    "Round {1}: {0} has a temperature of {2} degrees.",
    "Round {1}, temperature of {0}: {2} degrees, says {3}.",
    "In round {1} {3} measured {2} degrees at the bed of {0}.",
    "Round {1}: the thermometer read {2} degrees for {0}.",
)


def language() -> tuple[Warm, list[Question]]:
    """Return the reference's facts, and the questions that this version's wording answers."""
    warm = Warm()
    for name, text in sorted(topics.items()):
        take(warm, text, f"ingest:{name}", 0)
    warm.windows = 1
    texts = [_plain(fact.text) for fact in warm.facts]
    alone = [
        ("alone", question, frozenset(number for number, text in enumerate(texts) if words in text))
        for question, words in LANGUAGE
    ]
    alone = [item for item in alone if item[2]]
    return warm, alone + _together(alone, step=23)


def ward(seed: int = 23) -> tuple[Warm, list[Question]]:
    """Return the facts about the people from ten windows, and the questions."""
    rng = random.Random(seed)
    warm = Warm()
    asked: list[Question] = []

    def told(text: str, source: str, window: int, *kinds: tuple[str, str, str]) -> None:
        first = len(warm.facts)
        take(warm, text, source, window)
        numbers = {fact.text: fact.number for fact in warm.facts[first:]}
        for kind, _, answer in kinds:
            warm.facts[numbers[answer]].shown = 5 if kind == "again" else 0
        asked.extend((kind, question, frozenset({numbers[answer]})) for kind, question, answer in kinds)

    for name in _PEOPLE:
        _chart(name, rng, told)
    for window in range(1, 11):
        for name in _PEOPLE:
            line = rng.choice(_MEASURED).format(name, window, f"{rng.randint(361, 409) / 10}", rng.choice(_NURSES))
            kinds = [("newest", f"What is the temperature of {name}?", line)] if window == 10 else []
            if window in (2, 5):
                kinds.append(("round", f"What was the temperature of {name} in round {window}?", line))
            told(line, f"window:{window}", window, *kinds)
    for name in _PEOPLE:
        remarks = [text.format(name) for text in rng.sample(_REMARKS, len(_REMARKS))]
        first = len(warm.facts)
        kinds = [("unseen", f"What else is there to know about {name}?", text) for text in remarks[7:]]
        told("\n\n".join(remarks), f"ingest:remarks on {name}", 10, *kinds)
        for fact in warm.facts[first : first + 7]:
            fact.shown = 3
    warm.windows = 11
    return warm, asked + _together([item for item in asked if item[0] in ("again", "story", "chart")], step=41)


def _chart(name: str, rng: random.Random, told: Callable[..., None]) -> None:
    drugs = rng.sample(_DRUGS, 3)
    rows = [f"| {drug} | {rng.randint(1, 9) * 50} mg | {rng.choice(['morning', 'noon', 'night'])} |" for drug in drugs]
    allergy = f"{name} is allergic to {rng.choice(_DRUGS)}."
    asked_for = f"She woke at {rng.randint(1, 5)} and asked for {rng.choice(_THINGS)}."
    fever = f"However, the fever was gone by {rng.choice(['dawn', 'breakfast', 'ten'])}."
    text = (
        f"# {name}\n\n{allergy}\n\n## Medication\n\n| drug | dose | time |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"
        f"## Night\n\n{name} slept badly after the visit. {asked_for} {fever}\n"
    )
    told(
        text,
        f"ingest:chart of {name}",
        0,
        ("again", f"What is {name} allergic to?", allergy),
        ("chart", f"Which dose of {drugs[1]} does {name} get?", rows[1]),
        ("story", f"What did {name} ask for in the night?", asked_for),
        ("story", f"When was the fever of {name} gone?", fever),
    )


def _together(questions: list[Question], step: int) -> list[Question]:
    """Join three questions to one task; the task is listed once for each of its answers."""
    made: list[Question] = []
    for number in range(len(questions)):
        parts = [questions[(number + step * place) % len(questions)] for place in range(3)]
        text = " ".join(question for _, question, _ in parts)
        made += [("several", text, answers) for _, _, answers in parts]
    return made


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace('"', "")


def without_headings(warm: Warm) -> Warm:
    """Return the same facts, indexed by their own words only."""
    bare = Warm()
    bare.facts, bare.windows, bare.index = warm.facts, warm.windows, Index()
    for fact in warm.facts:
        own = words(fact.text)
        bare.index.add([*own, fact.entity.lower()] if fact.entity and not fact.entity.isalnum() else own)
    return bare


def without(warm: Warm, term: str) -> Callable[[str], list[int]]:
    return ours(without_headings(warm)) if term == "headings" else ours(warm, Terms(**{term: False}))


SETS = {
    "language": language,
    "ward": ward,
    "talk": talk,
    "handbook": handbook,
    "leaflets": leaflets,
    "notices": notices,
}
ALL = {"machines": build, **SETS}
# The kinds of question that share no word with their answer but a name.
PARAPHRASES = {
    "machines": ("paraphrase",),
    "talk": ("paraphrase",),
    "handbook": ("guide", "reference"),
    "leaflets": ("paraphrase",),
    "notices": ("paraphrase",),
}

Figures = dict[tuple[str, int], float]


def ways(warm: Warm, embedders: Mapping[str, Embedder]) -> dict[str, Callable[[str], list[int]]]:
    """Return every way to search by its name; the facts are embedded here, once for each embedder."""
    found = {"ours": ours(warm), "plain BM25": plain_bm25(warm)}
    found |= {f"without {term}": without(warm, term) for term in TERMS}
    for name, embedder in embedders.items():
        vectors = Vectors(embedder)
        asyncio.run(vectors.catch_up(warm.facts))
        found[f"with {name}"] = ours(warm, vectors=vectors)
        found[f"with {name}, without synonyms"] = ours(warm, Terms(synonyms=False), vectors)
        found[f"{name} alone"] = meaning_alone(vectors)
    return found


Shares = dict[str, list[tuple[int, float]]]  # by way to search: numbers of paraphrases, shares found


def measured(name: str, embedders: Mapping[str, Embedder], pooled: Shares) -> Iterator[Row]:
    """Yield the rows of one set, and add its paraphrases to `pooled`."""
    warm, questions = ALL[name]()
    kinds = list(dict.fromkeys(kind for kind, _, _ in questions))
    mine: Figures = {}
    for way, search in ways(warm, embedders).items():
        found = recall(search, questions)
        mine = mine or found
        size = f" ({len(questions)} questions, {len(warm.facts)} facts)" if way == "ours" else ""
        yield f"recall@5/10/25/50 of {name}: {way}{size}", _at_cuts(found), _beside(found, mine)
        for kind in kinds if way in ("ours", "plain BM25", *(f"with {item}" for item in embedders)) else ():
            yield f"recall@5/10/25/50 of {name}, {kind}: {way}", _at_cuts(found, kind), _beside(found, mine, kind)
        for kind in PARAPHRASES.get(name, ()):
            count = sum(1 for item in questions if item[0] == kind)
            pooled.setdefault(way, []).append((count, found[kind, 10]))


def together(pooled: Shares) -> Iterator[Row]:
    """Yield the rows for the paraphrases of all sets."""
    for way, shares in pooled.items():
        count = sum(size for size, _ in shares)
        found = sum(size * share for size, share in shares) / count
        yield f"paraphrases at 10: {way}", f"{found:.3f}", f"{count} questions"


def run() -> Iterator[Row]:
    embedders, missing = known_embedders()
    embedders.pop("hashed")  # it compares spellings; tests check that it does no harm
    pooled: Shares = {}
    for name in ALL:
        yield from measured(name, embedders, pooled)
    yield from together(pooled)
    for name, reason in missing.items():
        yield f"recall with {name}", "not measured", reason


def _at_cuts(found: Figures, kind: str = "all") -> str:
    return " / ".join(f"{found[kind, cut]:.3f}" for cut in CUTS)


def _beside(found: Figures, mine: Figures, kind: str = "all") -> str:
    return "" if found is mine else f"{found[kind, 10] - mine[kind, 10]:+.3f} at 10"
