"""The warm state of a session: nothing but a fold over its records (C8).

Invariants:

- S1  `apply` depends on the state and the record alone: a restarted process folds itself to the same state.
- S2  A fact is never deleted: it is superseded, quarantined, folded into its copy, or its confidence changes.
- S3  Tokens of a window that was begun and never finished stay counted as sent.
"""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Callable
from functools import cached_property
from itertools import groupby
from typing import Any

import msgspec

from forestay.models import STOP, joined, words
from forestay.relay.drift import rate
from forestay.relay.extract import claim, dates
from forestay.relay.facts import GENESIS, TAKEN_BACK, Batch, Fact, facts_of, mark_talk
from forestay.relay.guard import Role
from forestay.relay.index import Index
from forestay.relay.types import SessionConfig

# Who sets an attribute of a subject in a source, and to which value; None where it has several values.
Claims = dict[tuple[str, str, str], tuple[list[int], str] | None]
Sources = dict[str, tuple[int, int]]  # by the digest of a text: its first fact and how many it has

INGEST = "ingest:"
WINDOW = "window:"
_RATES = 64


class Dispatch(msgspec.Struct):
    """A dispatch under way: enough to continue it after a crash."""

    id: str
    kind: str
    system_prompt: str
    task_input: str
    max_windows: int | None
    max_output_tokens: int | None
    flags: str
    output: str = ""
    windows: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    used: list[tuple[int, int]] = []  # tokens in and out of each window
    seams: list[dict[str, Any]] = []
    facts_before: int = 0
    envelope_facts: list[int] = []
    saturation: float = 0.0
    window_id: str = ""
    auto_ingested: bool = False
    overhead: int = 0
    extracted: int = 0  # characters of the output that have been read for facts
    turns: list[dict[str, Any]] = []  # messages of tool turns
    tool_calls: int = 0
    continuations: int = 0
    goal: str = ""
    query: str = ""
    degradation: float = 0.0  # of the chain since its envelope was chosen
    since_grounding: int = 0
    reground: bool = False
    regroundings: int = 0
    remember: bool = False  # whether what the model writes becomes facts
    model: str = ""  # the model that began the answer and continues it (C18)
    served_by: str = ""  # what its provider calls it
    fallbacks: list[dict[str, str]] = []  # models that failed before it
    key: str = ""  # of the turn that it is, where the caller gave one
    calls: list[dict[str, Any]] = []  # tool calls of its last window

    @classmethod
    def begun(cls, payload: dict[str, Any], facts: int = 0) -> Dispatch:
        return cls(
            id=payload["dispatch_id"],
            kind=payload["kind"],
            system_prompt=payload["system_prompt"],
            task_input=payload["task_input"],
            max_windows=payload["max_windows"],
            max_output_tokens=payload["max_output_tokens"],
            flags=payload["flags"],
            facts_before=facts,
            auto_ingested=payload["auto_ingested"],
            goal=payload["goal"],
            query=payload["query"],
            remember=payload.get("remember", True),  # earlier versions always did
            key=payload.get("key", ""),
        )

    def shown(self, payload: dict[str, Any]) -> None:
        """The next window is built."""
        if not self.windows:
            self.envelope_facts = list(payload["facts"])
            self.saturation = payload["saturation"]
        self.window_id = payload["window_id"]
        self.reground = False

    def said(self, payload: dict[str, Any]) -> None:
        """The model has answered the window."""
        self.windows += 1
        self.model = self.model or payload["model"]
        self.served_by = self.served_by or payload.get("served_by", "")
        self.continuations += 1 if payload["continuation"] else 0
        self.input_tokens += payload["input_tokens"]
        self.output_tokens += payload["output_tokens"]
        self.used = [*self.used, (payload["input_tokens"], payload["output_tokens"])]
        self.calls = payload.get("calls", [])
        if not payload["visible"]:
            self.overhead += 1
            return
        self.output = joined(self.output, unpack_text(payload["output"])[payload["removed"] :])
        self.extracted = payload["extracted"]
        if payload["removed"]:
            self.seams.append(
                {
                    "window": self.windows,
                    "removed_characters": payload["removed"],
                    "ambiguous": payload["ambiguous"],
                    "other_length": payload["other"],
                }
            )


class Contradiction(msgspec.Struct, frozen=True):
    old: int
    new: int


class Warm:
    """Facts, counters and the dispatch under way."""

    def __init__(self) -> None:
        self.app_id = ""
        self.role: Role = "OPERATOR"
        self.bound = False
        self.nonce = b""
        self.proof = ""
        self.created_ms = 0
        self.expires_ms = 0
        self.closed = False
        self.closed_by: str | None = None  # the request that closed it, where that can be repeated
        self.failed = False  # closed by a caller who may try again in another session
        self.expired = False
        self.config = SessionConfig()
        self.sealed: str | None = None  # the binding secret, for other processes of the relay
        self.binding: str | None = None  # of an imported session: what its key derives from, sealed
        self.providers: list[str] = []  # the names of those that callers registered
        self.violations = 0
        self._forget()

    def _forget(self) -> None:
        self.facts: list[Fact] = []
        self.speakers: set[str] = set()  # words of the names of those who talk
        for made in ("index", "cold"):
            self.__dict__.pop(made, None)
        self.copies: dict[int, list[int]] = {}  # by the fact that stands for them
        self.verified: set[int] = set()  # facts whose signature was found right since they were read
        self.out: set[int] = set()  # facts that do not stand: superseded, taken back or quarantined
        self._claims: Claims | Callable[[], Claims] = {}
        self.corrects: dict[str, list[str]] = {}  # by a source: those whose statements it replaces
        self.open_contradictions: list[Contradiction] = []
        self._sources: Sources | Callable[[], Sources] = {}
        self.kept = 0  # so many facts are in a snapshot, of which every byte was checked
        self.kept_to = -1  # the record up to which the snapshot goes
        self.rates: deque[float] = deque(maxlen=_RATES)  # facts a kilobyte of the last extractions
        self.windows = 0
        self.productive = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.reserved = 0  # input tokens of the window under way
        self.dispatch: Dispatch | None = None
        self.answered: set[str] = set()  # the keys of turns that the stream holds

    @cached_property
    def index(self) -> Index:
        """The facts that a question finds; a session without facts needs none."""
        return Index()

    @cached_property
    def cold(self) -> Index:
        """Superseded facts and copies, after a compaction."""
        return Index()

    @property
    def claims(self) -> Claims:
        if callable(self._claims):
            self._claims = self._claims()
        return self._claims

    @property
    def sources(self) -> Sources:
        if callable(self._sources):
            self._sources = self._sources()
        return self._sources

    def keep_for_later(self, claims: Callable[[], Claims], sources: Callable[[], Sources]) -> None:
        """Claims and sources are read when they are first needed: a question needs neither."""
        self._claims, self._sources = claims, sources

    def read_all(self) -> None:
        """Reads what was kept for later."""
        _ = self.claims, self.sources

    @property
    def parent(self) -> bytes:
        return self.facts[-1].hash if self.facts else GENESIS

    @property
    def overhead_ratio(self) -> float:
        """C4: windows without visible output for one productive window."""
        return (self.windows - self.productive) / self.productive if self.productive else 0.0

    def apply(self, type: str, payload: Any) -> None:
        """Fold one record; types that change nothing are not looked at (S1)."""
        step = getattr(self, "_on_" + type.removeprefix("crp.").replace(".", "_"), None)
        if step is not None:
            step(payload)

    # Sessions

    def _on_session_init(self, payload: dict[str, Any]) -> None:
        self.app_id = payload["app_id"]
        self.role = payload["role"]
        self.bound = payload["bound"]
        self.sealed = payload.get("sealed")
        self.nonce = bytes.fromhex(payload["nonce"])
        self.proof = payload["proof"]
        self.created_ms = payload["created_ms"]
        self.expires_ms = payload["expires_ms"]
        self.config = msgspec.convert(payload["config"], SessionConfig)

    def _on_session_configure(self, payload: dict[str, Any]) -> None:
        self.config = msgspec.convert(payload["config"], SessionConfig)
        self.expires_ms = payload["expires_ms"]

    def _on_session_reset(self, payload: dict[str, Any]) -> None:
        self._forget()
        self.nonce = bytes.fromhex(payload["nonce"])
        self.proof = payload["proof"]

    def _on_session_close(self, payload: dict[str, Any]) -> None:
        self.closed = True
        self.closed_by = payload.get("request")
        self.failed = payload.get("failed", False)
        self._forget()

    def _on_session_expire(self, payload: dict[str, Any]) -> None:
        self.expired = True

    def _on_session_import(self, payload: dict[str, Any]) -> None:
        self.binding = payload["binding"]

    def _on_session_provider(self, payload: dict[str, Any]) -> None:
        self.providers.append(payload["provider"])

    # Facts

    def _on_extraction_complete(self, payload: dict[str, Any] | Batch) -> None:
        batch = payload if isinstance(payload, Batch) else msgspec.convert(payload, Batch)
        dated = dates(batch.source)
        contexts = [
            [*(word for word in words(text) if word not in STOP), *(dates(text) or dated)] for text in batch.contexts
        ]
        if batch.corrects:
            self.corrects[batch.source] = batch.corrects
        if found := rate(batch):
            self.rates.append(found)
        facts = facts_of(batch)
        self.speakers.update(word for name in mark_talk(facts) for word in words(name))
        for context, run in groupby(zip(facts, batch.rows, strict=True), key=lambda item: item[1][3]):
            self.index.add_run([_terms(fact) for fact, _ in run], contexts[context])
        self.facts += facts
        if batch.corrects:
            for fact in facts:
                if fact.kind == "pair" or (fact.kind == "sentence" and fact.entity):
                    self._note_claim(fact, batch)

    def _note_claim(self, fact: Fact, batch: Batch) -> None:
        """C16: the same subject and attribute, in the same source or in one that this source supersedes."""
        said = claim(fact.text, fact.kind, alone=len(batch.rows) == 1)
        if said is None:
            return
        attribute, value = said
        own = (fact.source, fact.context, attribute)
        known = self.claims.get(own, ([], value))
        if known is None:
            return
        numbers, before = known
        if not value or (before != value and numbers[-1] >= batch.since):
            self._has_several(own)  # one text gives it two values, or none at all: nothing is corrected
            return
        for source in batch.corrects:
            older = self.claims.get((source, fact.context, attribute))
            if older is not None and older[1] != value:
                del self.claims[source, fact.context, attribute]
                self.open_contradictions += [Contradiction(number, fact.number) for number in older[0]]
        if own in self.claims:
            numbers.append(fact.number)
        else:
            self.claims[own] = ([fact.number], value)

    def _has_several(self, attribute: tuple[str, str, str]) -> None:
        known = self.claims.get(attribute)
        self.claims[attribute] = None
        if known is not None:
            wrong = set(known[0])
            self.open_contradictions = [item for item in self.open_contradictions if item.new not in wrong]

    def _on_ingest_complete(self, payload: dict[str, Any]) -> None:
        self.sources[payload["digest"]] = (payload["first"], payload["count"])

    def _on_facts_superseded(self, payload: dict[str, Any]) -> None:
        pairs = [(old, new) for old, new in payload["pairs"]]
        self._supersede(dict(pairs))
        done = set(pairs)
        self.open_contradictions = [item for item in self.open_contradictions if (item.old, item.new) not in done]

    def _on_facts_taken_back(self, payload: dict[str, Any]) -> None:
        """A source no longer says these: they are kept, marked, and set nothing any more."""
        gone = set(payload["facts"])
        self._supersede(dict.fromkeys(gone, TAKEN_BACK))
        for number in gone:
            fact = self.facts[number]
            said = claim(fact.text, fact.kind) if fact.kind in ("pair", "sentence") else None
            own = (fact.source, fact.context, said[0]) if said is not None else None
            known = self.claims.get(own) if own is not None else None
            if own is not None and known is not None and gone.issuperset(known[0]):
                del self.claims[own]
        self.open_contradictions = [item for item in self.open_contradictions if item.old not in gone]

    def _supersede(self, marks: dict[int, int]) -> None:
        """Each fact by what supersedes it. A copy that another source said still stands."""
        for number, by in marks.items():
            self.facts[number].superseded_by = by
            self.out.add(number)
        for number in marks:
            fact = self.facts[number]
            if number in (copies := self.copies.get(fact.folded_into, [])):
                copies.remove(number)
            fact.folded_into = -1
            self._unfold(number)

    def _on_facts_compacted(self, payload: dict[str, Any]) -> None:
        """Copies and superseded facts go to the cold part; each copy is listed with the fact that stands for it."""
        for number, stands in payload["folded"]:
            fact = self.facts[number]
            fact.folded_into, fact.text = stands, self.facts[stands].text  # the same words, held once
            mine = [number, *self.copies.pop(number, ())]
            for copy in mine[1:]:
                self.facts[copy].folded_into = stands
            self.copies.setdefault(stands, []).extend(mine)
        self.index.move([*(number for number, _ in payload["folded"]), *payload["archived"]], self.cold)

    def _unfold(self, number: int) -> None:
        """The fact can no longer stand for its copies: the newest of them does."""
        copies = sorted(copy for copy in self.copies.pop(number, ()) if self.facts[copy].stands)
        if not copies:
            return
        stands = copies.pop()
        self.facts[stands].folded_into = -1
        self.cold.move([stands], self.index)
        for copy in copies:
            self.facts[copy].folded_into = stands
        if copies:
            self.copies[stands] = copies

    def _hold_back(self, number: int) -> None:
        """The fact is in quarantine: it is not shown, and stands for no copy."""
        self.facts[number].quarantined = True
        self.out.add(number)
        self._unfold(number)

    def _on_facts_feedback(self, payload: dict[str, Any]) -> None:
        fact = self.facts[payload["fact"]]
        fact.confidence = payload["confidence"]
        if payload["action"] == "reject":
            self._hold_back(fact.number)

    def _on_security_batch_quarantined(self, payload: dict[str, Any]) -> None:
        """A record of earlier versions, which held back a whole ingest for its contradictions."""
        first, count = payload["first"], payload["count"]
        for fact in self.facts[first : first + count]:
            self._hold_back(fact.number)
        self.open_contradictions = [item for item in self.open_contradictions if not first <= item.new < first + count]

    def _on_security_facts_quarantined(self, payload: dict[str, Any]) -> None:
        held = set(payload["facts"])
        for number in held:
            self._hold_back(number)
        self.open_contradictions = [item for item in self.open_contradictions if item.new not in held]

    def _on_facts_restored(self, payload: dict[str, Any]) -> None:
        """Quarantine and the mark of a correction are lifted; what was said beside it then has several values."""
        for number in payload["facts"]:
            fact = self.facts[number]
            fact.quarantined = False
            said = claim(fact.text, fact.kind) if fact.superseded_by >= 0 else None
            if said is not None:
                self._has_several((fact.source, fact.context, said[0]))
                if fact.superseded_by != TAKEN_BACK:
                    self._has_several((self.facts[fact.superseded_by].source, fact.context, said[0]))
            for own in (number, *self.copies.get(number, ())):
                self.facts[own].superseded_by = -1
                if self.facts[own].stands:
                    self.out.discard(own)
            if fact.folded_into < 0:
                self.cold.move([number], self.index)

    def _on_security_integrity_violation(self, payload: dict[str, Any]) -> None:
        for number in payload["facts"]:
            self._hold_back(number)
        self.violations += len(payload["facts"])

    # Dispatches

    def _on_dispatch_start(self, payload: dict[str, Any]) -> None:
        self.dispatch = Dispatch.begun(payload, len(self.facts))

    def _on_envelope_build_complete(self, payload: dict[str, Any]) -> None:
        self.input_tokens += self.reserved  # a window that was begun and never finished (S3)
        self.reserved = payload["input_tokens"]
        for number in payload["facts"]:
            self.facts[number].shown += 1
        if self.dispatch is not None:
            self.dispatch.shown(payload)

    def _on_window_complete(self, payload: dict[str, Any]) -> None:
        self.reserved = 0
        self.windows += 1
        self.productive += 1 if payload["visible"] else 0
        self.input_tokens += payload["input_tokens"]
        self.output_tokens += payload["output_tokens"]
        if self.dispatch is not None:
            self.dispatch.said(payload)

    def _on_dispatch_fallback(self, payload: dict[str, Any]) -> None:
        if self.dispatch is not None:
            self.dispatch.fallbacks.append({"model": payload["model"], "problem": payload["problem"]})

    def _on_dispatch_continuation(self, payload: dict[str, Any]) -> None:
        state = self.dispatch
        if state is None:
            return
        state.reground = payload.get("reground", False)
        state.regroundings += 1 if state.reground else 0
        state.degradation = 0.0 if state.reground else payload.get("degradation", 0.0)
        state.since_grounding = 0 if state.reground else state.since_grounding + 1

    def _on_tools_complete(self, payload: dict[str, Any]) -> None:
        if self.dispatch is not None:
            self.dispatch.turns.extend(payload["messages"])
            self.dispatch.tool_calls += payload["calls"]

    def _on_dispatch_overhead(self, payload: dict[str, Any]) -> None:
        self.productive = max(0, self.productive - payload["windows"])

    def _on_dispatch_complete(self, payload: dict[str, Any]) -> None:
        if self.dispatch is not None and self.dispatch.key:
            self.answered.add(self.dispatch.key)
        self.dispatch = None

    def _on_dispatch_error(self, payload: dict[str, Any]) -> None:
        if not payload["resumable"]:
            self.dispatch = None
        self.input_tokens += self.reserved
        self.reserved = 0

    # Questions

    def recency(self, fact: Fact) -> float:
        return math.exp(-0.1 * max(0, self.windows - fact.origin.window))

    def left(self) -> tuple[int | None, int | None, int | None]:
        """Windows, input tokens and output tokens that the caps leave; never negative (C10)."""
        config = self.config
        return (
            _left(config.max_windows_per_session or config.max_windows, self.windows),
            _left(config.max_total_input_tokens, self.input_tokens + self.reserved),
            _left(config.max_total_output_tokens, self.output_tokens),
        )


def _terms(fact: Fact) -> list[str]:
    """The words by which a fact is found; what it speaks of is one more where it is not a plain word."""
    terms, entity = words(fact.text), fact.entity
    if entity and not entity.isalnum():
        terms.append(entity.lower())
    return terms


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - used)


def pack_text(text: str) -> str | dict[str, str]:
    """Any text as JSON that the ledger takes: what it refuses (NUL, lone surrogates) goes as bytes."""
    if "\x00" not in text:
        if text.isascii():
            return text
        try:
            text.encode()
            return text
        except UnicodeEncodeError:
            pass
    return {"base64": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()}


def unpack_text(value: str | dict[str, str]) -> str:
    return value if isinstance(value, str) else base64.b64decode(value["base64"]).decode("utf-8", "surrogatepass")
