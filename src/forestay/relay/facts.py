"""A fact, its integrity, and the batch in which the ledger keeps it.

Invariants:

- F1  A fact's bytes are the bytes `start` to `end` of its source in UTF-8, made clean where the source was not (NFC,
      no controls).
- F2  `hash` is BLAKE3 over text, entity, relation and confidence; `signature` is HMAC-SHA256 of it and the hash of the
      fact before it, under the session's key (CRP §1.10).
- F3  A batch says everything about its facts: reading it again gives the same facts.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterator, Sequence
from typing import Any

import blake3
import msgspec

from forestay.models import words
from forestay.relay.extract import Kind, first_entity, relation, units
from forestay.relay.guard import clean

GENESIS = bytes(32)
BATCH_CHARACTERS = 96 * 1024
QUARANTINE_FACTOR = 0.7
TAKEN_BACK = 1 << 40  # what supersedes a fact that its source no longer says; no fact has this number
_COPIES = 1000
# Only the opening words of a sentence relate it to the one before it.
_OPENING = 60
_OPENING_WORDS = 4
# A line of a chat's export begins with a time of day, with a date before it or without: [8/5/25, 10:01:22] Mara: Hello.
_STAMPS_BEGIN = frozenset("[0123456789\u200e")
_SAID_AT = re.compile(
    r"\u200e?\[?(?:\d[\d./-]*[,T]?\s+)?\d{1,2}:\d{2}(?::\d{2})?(?:\s?[AaPp]\.?[Mm]\.?)?\]?\s*(?:[-–]\s*)?"
    r"(?:<([^<>\n]{1,48})>\s|([^\W\d_][^:<>\n]{0,47}):\s)"
)


class Origin(msgspec.Struct, frozen=True):
    """What the facts of one batch have in common, kept once for all of them."""

    source: str
    window: int
    first: int
    confidence: float  # with which they were made and signed
    signatures: bytes


class Fact(msgspec.Struct, gc=False):
    """One thing that is known. Only confidence, standing and use change after it was made.

    A session may hold a million of them: what can be derived is not kept, and what is shared is kept once.
    """

    number: int
    text: str
    kind: Kind
    origin: Origin
    start: int
    size: int  # in the source, in bytes
    context: str
    entity: str
    relation: str
    confidence: float
    digest: bytes = b""  # the hash, once it was needed
    shown: int = 0
    superseded_by: int = -1
    folded_into: int = -1
    quarantined: bool = False
    talk: bool = False  # a line of a conversation; derived from the text around it

    @property
    def id(self) -> str:
        return f"f{self.number}"

    @property
    def source(self) -> str:
        return self.origin.source

    @property
    def window(self) -> int:
        return self.origin.window

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def hash(self) -> bytes:
        """F2."""
        if not self.digest:
            self.digest = fact_hash(self.text, self.entity, self.relation, self.origin.confidence)
        return self.digest

    @property
    def signature(self) -> bytes:
        at = 32 * (self.number - self.origin.first)
        return self.origin.signatures[at : at + 32]

    @property
    def stands(self) -> bool:
        """Whether it may be shown: nothing corrected it, its source did not take it back, and it is not held back."""
        return self.superseded_by < 0 and not self.quarantined


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts as one record: start, end (bytes), kind, context, entity, relation; cut out of `text`, or given."""

    source: str
    window: int
    first: int
    rows: list[tuple[int, int, Kind, int, str, str]]
    contexts: list[str]
    signatures: str
    text: str = ""
    base: int = 0
    texts: list[str] | None = None
    confidence: float = 1.0
    quarantined: bool = False
    since: int = -1  # the first fact of the whole text that this is a part of
    corrects: list[str] = []  # the sources whose statements this text replaces, its own among them


def fact_id(text: str) -> int | None:
    """The number in a fact's id; None when it is none."""
    return int(text[1:]) if text[:1] == "f" and text[1:].isascii() and text[1:].isdigit() and len(text) < 12 else None


def fact_hash(text: str, entity: str, relation: str, confidence: float) -> bytes:
    """F2. The parts are joined by a character that no clean text holds."""
    sure = "1.0000" if confidence == 1.0 else f"{confidence:.4f}"
    return blake3.blake3(f"{text}\x1f{entity}\x1f{relation}\x1f{sure}".encode()).digest()


def sign(key: bytes, own: bytes, parent: bytes) -> bytes:
    return hmac.digest(key, own + parent, "sha256")


def batches(
    text: str,
    source: str,
    *,
    window: int,
    first: int,
    key: bytes,
    parent: bytes,
    base: int = 0,
    confidence: float = 1.0,
    corrects: Sequence[str] = (),
) -> Iterator[Batch]:
    """The facts of `text`, which begins `base` bytes into its source, in batches of bounded size, signed in order."""
    since = first
    rows: list[tuple[int, int, Kind, int, str, str]] = []
    texts: list[str] = []
    contexts: dict[str, int] = {}
    signatures: list[bytes] = []
    plain = text.isascii()
    at = at_byte = 0
    size = 0
    begin, begin_byte = 0, 0
    dirty = False
    for unit in units(text):
        raw = text[unit.start : unit.end]
        content, removed = clean(raw)
        if not content:
            continue
        if not rows:
            begin = unit.start
        start = unit.start if plain else at_byte + len(text[at : unit.start].encode())
        end = unit.end if plain else start + len(raw.encode())
        at, at_byte = unit.end, end
        if not rows:
            begin_byte = start
        dirty = dirty or removed
        entity = first_entity(content)
        link = relation(words(content[:_OPENING])[:_OPENING_WORDS]) if unit.kind in ("sentence", "item") else ""
        own = fact_hash(content, entity, link, confidence)
        signatures.append(sign(key, own, parent))
        parent = own
        rows.append(
            (
                start - begin_byte,
                end - begin_byte,
                unit.kind,
                contexts.setdefault(unit.context, len(contexts)),
                entity,
                link,
            )
        )
        texts.append(content)
        size += len(raw)
        if size >= BATCH_CHARACTERS:
            yield _batch(
                source,
                window,
                first,
                rows,
                contexts,
                signatures,
                text[begin : unit.end],
                base + begin_byte,
                texts,
                confidence,
                dirty,
                since,
                corrects,
            )
            first += len(rows)
            rows, texts, contexts, signatures, size, dirty = [], [], {}, [], 0, False
    if rows:
        yield _batch(
            source,
            window,
            first,
            rows,
            contexts,
            signatures,
            text[begin:at],
            base + begin_byte,
            texts,
            confidence,
            dirty,
            since,
            corrects,
        )


def copies(facts: Sequence[Fact], source: str, *, window: int, first: int, key: bytes, parent: bytes) -> list[Batch]:
    """`facts` of another session as batches of this one."""
    made: list[Batch] = []
    for begin in range(0, len(facts), _COPIES):
        group = facts[begin : begin + _COPIES]
        contexts: dict[str, int] = {}
        signatures: list[bytes] = []
        rows: list[tuple[int, int, Kind, int, str, str]] = []
        for fact in group:
            own = fact_hash(fact.text, fact.entity, fact.relation, 1.0)
            signatures.append(sign(key, own, parent))
            parent = own
            place = contexts.setdefault(fact.context, len(contexts))
            rows.append((fact.start, fact.end, fact.kind, place, fact.entity, fact.relation))
        made.append(
            _batch(
                source,
                window,
                first + begin,
                rows,
                contexts,
                signatures,
                "",
                0,
                [fact.text for fact in group],
                1.0,
                True,
            )
        )
    return made


def _batch(
    source: str,
    window: int,
    first: int,
    rows: list[tuple[int, int, Kind, int, str, str]],
    contexts: dict[str, int],
    signatures: list[bytes],
    span: str,
    base: int,
    texts: list[str],
    confidence: float,
    dirty: bool,
    since: int = -1,
    corrects: Sequence[str] = (),
) -> Batch:
    return Batch(
        source=source,
        window=window,
        first=first,
        rows=rows,
        contexts=list(contexts),
        signatures=base64.b64encode(b"".join(signatures)).decode(),
        text="" if dirty else span,
        base=base,
        texts=texts if dirty else None,
        confidence=confidence,
        since=since,
        corrects=list(corrects),
    )


def facts_of(batch: Batch) -> list[Fact]:
    """F3."""
    confidence, base, contexts, texts = batch.confidence, batch.base, batch.contexts, batch.texts
    origin = Origin(batch.source, batch.window, batch.first, confidence, base64.b64decode(batch.signatures))
    span = batch.text.encode()
    made: list[Fact] = []
    for number, (start, end, kind, context, entity, link) in enumerate(batch.rows, batch.first):
        text = texts[number - batch.first] if texts is not None else span[start:end].decode()
        where = (base + start, end - start, contexts[context])
        made.append(Fact(number, text, kind, origin, *where, entity, link, confidence, quarantined=batch.quarantined))
    return made


def mark_talk(facts: Sequence[Fact]) -> set[str]:
    """Lines are talk where several names take turns and come back: people, not settings. Who they are."""
    turns: dict[str, list[str]] = {}
    for fact in facts:
        if name := speaker(fact.text) if fact.kind == "pair" else _stamped(fact.text):
            turns.setdefault(fact.context, []).append(name)
    spoken = {context for context, names in turns.items() if 1 < len(set(names)) < len(names)}
    for fact in facts if spoken else ():
        fact.talk = fact.context in spoken and (fact.kind == "pair" or bool(_stamped(fact.text)))
    return {name for context in spoken for name in turns[context]}


def speaker(text: str) -> str:
    """Who says a line of talk: `Mara: …`, or as exports of chats write it, `[8/5/25, 10:01] Mara: …`."""
    return _stamped(text) or text.partition(":")[0]


def said(text: str) -> str:
    """What a line of talk says, without who says it and when."""
    stamp = _SAID_AT.match(text) if _stamped(text) else None
    return (text[stamp.end() :] if stamp else text.partition(":")[2]).strip() or text


def _stamped(text: str) -> str:
    """The name behind a time of day; empty where there is none, or where it is the level or the program of a log."""
    found = _SAID_AT.match(text) if text[:1] in _STAMPS_BEGIN else None
    if found is None:
        return ""
    marked, name = found.groups()
    if marked:
        return str(marked)
    return "" if name[0].islower() or (name.isupper() and len(name) > 1) else str(name)


def verify(facts: Sequence[Fact], number: int, key: bytes) -> bool:
    """Whether fact `number` is what was signed, in its place (F2)."""
    fact = facts[number]
    parent = facts[number - 1].hash if number else GENESIS
    return hmac.compare_digest(sign(key, fact.hash, parent), fact.signature)


def view(fact: Fact) -> dict[str, Any]:
    """The fact as the contract's `Fact`, with where it came from."""
    return {
        "id": fact.id,
        "text": fact.text,
        "confidence": round(fact.confidence, 4),
        "extraction_type": fact.kind,
        "source_window_id": fact.source,
        "is_superseded": fact.superseded_by >= 0,
        "source": fact.source,
        "start": fact.start,
        "end": fact.end,
        "context": fact.context,
        "entity": fact.entity,
        "relation": fact.relation,
        "hash": "blake3:" + fact.hash.hex(),
        "superseded_by": f"f{fact.superseded_by}" if 0 <= fact.superseded_by < TAKEN_BACK else None,
        "taken_back": fact.superseded_by == TAKEN_BACK,
        "folded_into": f"f{fact.folded_into}" if fact.folded_into >= 0 else None,
        "quarantined": fact.quarantined,
    }
