"""A session's entries: a tree with a leaf, in the words of pi's session format 3.

- S1  An entry is appended under the leaf and becomes the leaf; entries are never changed.
- S2  Ids are eight hex characters from the injected randomness, unique within the session.
- S3  What the ledger does not have yet stands in `unsaved`, in its order.
- S4  An entry that has a `place` stands once: a turn that is played again after a crash finds its own entries.
- S5  A turn that an extension wishes for, or a message that waits for the agent, is on record until a turn begins with
      it or the agent hears it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec

from forestay.kernel import Clock, Draft, Ids, Problem, Record, iso

VERSION = 3
Entry = dict[str, Any]
_SENT = ("customType", "content", "display", "details")


class TurnStart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A turn of the session: the run that performs it, what that run was given, and the model that a person chose."""

    run_id: str
    inputs: dict[str, Any]
    model: str | None = None
    wishes: list[str] = []
    """The wishes that it begins with."""
    attended_life: str = ""
    """The life of the host in which it began with a person there."""
    session_model: str = ""
    """The model that was chosen in the session, `PROVIDER/ID`, where the person did not name another for this turn."""


class Wish(msgspec.Struct, frozen=True, omit_defaults=True):
    """A turn that an extension wishes for; one without a text goes on with what the session ends with."""

    id: str
    text: str | None = None
    message: dict[str, Any] | None = None
    """The message of an extension that the turn begins with."""
    steers: bool = False
    """Whether an agent that is at work hears it before its next answer."""
    turn: bool = True
    """Whether it is answered; a message that is not stands in the session when the agent has heard it, or ended."""
    expands: bool = False
    """Whether the text may be a command, a prompt template or a skill."""


class SessionTree:
    """One session: header, entries, leaf."""

    def __init__(self, header: Entry, entries: Iterable[Entry] = (), *, clock: Clock, ids: Ids) -> None:
        self.header = header
        self._clock, self._ids = clock, ids
        self.begin_again()
        for entry in entries:
            self._take(entry)

    def begin_again(self) -> None:
        """Have nothing but the header."""
        self.entries: list[Entry] = []
        self.leaf: str | None = None
        self.turn: TurnStart | None = None
        """The turn that was begun last."""
        self.wishes: list[Wish] = []
        """The turns that extensions wish for, in their order (S5)."""
        self.unsaved: list[Draft] = []
        self.saved = -1
        """The sequence of the last record that the ledger has."""
        self._by_id: dict[str, Entry] = {}
        self._places: dict[str, str] = {}
        self._labels: dict[str, str | None] = {}

    @classmethod
    def new(
        cls,
        cwd: str,
        *,
        clock: Clock,
        ids: Ids,
        tenant: str = "",
        path: Sequence[Entry] = (),
        parent: str | None = None,
        id: str | None = None,
    ) -> Self:
        """A new session: empty, or with the entries of a branch of another one."""
        header = {"type": "session", "version": VERSION, "id": id or ids.uuid4(), "timestamp": iso(clock.now_ms())}
        made = cls({**header, "cwd": cwd, **({"parentSession": parent} if parent else {})}, path, clock=clock, ids=ids)
        made.unsaved = made.drafts(tenant)
        return made

    @classmethod
    def fold(cls, records: Sequence[Record], *, clock: Clock, ids: Ids) -> Self:
        """The session that a stream of the ledger stands for."""
        made = cls(records[0].payload, clock=clock, ids=ids)
        made.take_in(records)
        return made

    def take_in(self, records: Sequence[Record]) -> None:
        """Add what the ledger has after `saved`; nothing may be unsaved."""
        for record in records:
            if record.type == "session.entry":
                self._take(record.payload, record.attrs.get("place"))
            elif record.type == "session.moved":
                self.leaf = record.payload["leaf"]
            elif record.type == "session.turn":
                self._begun(msgspec.convert(record.payload, TurnStart))
            elif record.type == "session.wish":
                self._wished(msgspec.convert(record.payload, Wish), record.attrs.get("place"))
            elif record.type == "session.wishes_met":
                self._met(record.payload["wishes"])
            elif record.type == "session.wishes_dropped":
                self.wishes = []
            self.saved = record.seq

    def drafts(self, tenant: str) -> list[Draft]:
        """The whole session as the records of a new stream."""
        entries = [Draft("session.entry", entry) for entry in self.entries]
        return [Draft("session.created", self.header, {"tenant": tenant}), *entries]

    @property
    def id(self) -> str:
        return str(self.header["id"])

    # Changing it

    def append(self, kind: str, *, place: str | None = None, **fields: Any) -> str:
        """Add an entry under the leaf (S1); its id. One with a `place` that is there already is not added (S4)."""
        if place is not None and place in self._places:
            return self._places[place]
        while (id := self._ids.token(4)) in self._by_id:
            continue
        entry = {"type": kind, **fields, "id": id, "parentId": self.leaf, "timestamp": iso(self._clock.now_ms())}
        self._take(entry, place)
        self.unsaved.append(Draft("session.entry", entry, {"place": place} if place is not None else {}))
        return id

    def _take(self, entry: Entry, place: str | None = None) -> None:
        self.entries.append(entry)
        self._by_id[entry["id"]] = entry
        self.leaf = entry["id"]
        if place is not None:
            self._places[place] = entry["id"]
        if entry["type"] == "label":
            self._labels[entry["targetId"]] = entry.get("label")

    def move(self, leaf: str | None) -> None:
        """Go on from another entry, or from before the first one."""
        if leaf is not None:
            self.entry(leaf)
        if leaf != self.leaf:
            self.leaf = leaf
            self.unsaved.append(Draft("session.moved", {"leaf": leaf}))

    def begin_turn(self, turn: TurnStart) -> None:
        """Note the turn before its run is there: who finds it without its run starts it."""
        self._begun(turn)
        self.unsaved.append(Draft("session.turn", msgspec.to_builtins(turn)))

    def _begun(self, turn: TurnStart) -> None:
        self.turn = turn
        self._met(turn.wishes)

    def _met(self, ids: Sequence[str]) -> None:
        self.wishes = [wish for wish in self.wishes if wish.id not in ids]

    def meet(self, ids: Sequence[str]) -> None:
        """Have these wishes wait no longer: an agent heard them."""
        if met := [wish.id for wish in self.wishes if wish.id in ids]:
            self._met(met)
            self.unsaved.append(Draft("session.wishes_met", {"wishes": met}))

    def wish(
        self,
        text: str | None = None,
        *,
        message: Mapping[str, Any] | None = None,
        steers: bool = False,
        turn: bool = True,
        expands: bool = False,
        place: str | None = None,
    ) -> None:
        """Note that an extension wants a turn (S5); a wish with a `place` that is there already is not noted (S4)."""
        if place is None or place not in self._places:
            sent = sent_message(message) if message is not None else None
            wish = Wish(self._ids.token(8), text, sent, steers, turn, expands)
            self._wished(wish, place)
            attrs = {"place": place} if place is not None else {}
            self.unsaved.append(Draft("session.wish", msgspec.to_builtins(wish), attrs))

    def _wished(self, wish: Wish, place: str | None) -> None:
        self.wishes.append(wish)
        if place is not None:
            self._places[place] = wish.id

    def drop_wishes(self) -> None:
        """Begin none of the turns that are wished for."""
        if self.wishes:
            self.wishes = []
            self.unsaved.append(Draft("session.wishes_dropped", {}))

    def next_wishes(self) -> list[Wish]:
        """The wishes that the next turn begins with; what several wished for without words of their own is one turn."""
        wanted = [wish for wish in self.wishes if wish.turn]
        spoken = [wish for wish in wanted if wish.text is not None or wish.message is not None]
        return spoken[:1] or wanted

    def interjections(self) -> list[Wish]:
        """What an agent that is at work hears next: messages that nobody answers, and one that it answers, as in pi."""
        first = next((wish for wish in self.wishes if wish.steers and wish.turn), None)
        return [wish for wish in self.wishes if not wish.turn or wish is first]

    def put_down(self, wishes: Sequence[Wish]) -> None:
        """Have the messages of these wishes in the session, once each."""
        for wish in wishes:
            if wish.message is not None:
                self.append("custom_message", place=f"wish/{wish.id}", **wish.message)

    def end_work(self) -> None:
        """No agent is at work: what waited for its end stands in the session."""
        if ended := [wish for wish in self.wishes if not wish.turn]:
            self.put_down(ended)
            self.meet([wish.id for wish in ended])

    def rename(self, name: str, *, place: str | None = None) -> str:
        return self.append("session_info", place=place, name=name.strip())

    def label(self, target: str, label: str | None = None, *, place: str | None = None) -> None:
        self.entry(target)
        self.append("label", place=place, targetId=target, label=label)

    # Reading it

    def entry(self, id: Any) -> Entry:
        found = self.find(id)
        if found is None:
            raise Problem("not_found", f"Entry {str(id)[:40]} not found.")
        return found

    def find(self, id: Any) -> Entry | None:
        return self._by_id.get(id) if isinstance(id, str) else None

    def has(self, place: str) -> bool:
        """Whether an entry has this place (S4)."""
        return place in self._places

    def branch(self, start: str | None = None) -> list[Entry]:
        """The entries from the root to `start`, or to the leaf."""
        path: list[Entry] = []
        current = self._by_id.get(start or self.leaf or "")
        while current is not None:
            path.append(current)
            current = self._by_id.get(current["parentId"] or "")
        return path[::-1]

    def abandoned(self, target: str) -> tuple[list[Entry], str | None]:
        """The entries of the present branch that are not on the way to `target`, and where the two part."""
        kept = {entry["id"] for entry in self.branch(target)}
        here = self.branch()
        common = [entry["id"] for entry in here if entry["id"] in kept]
        return [entry for entry in here if entry["id"] not in kept], common[-1] if common else None

    def label_of(self, target: str) -> str | None:
        return self._labels.get(target)

    @property
    def name(self) -> str | None:
        names = [entry["name"] for entry in self.entries if entry["type"] == "session_info"]
        return names[-1] if names else None

    @property
    def model(self) -> tuple[str, str] | None:
        """Provider and id of the model that was chosen last on the branch."""
        chosen = next((entry for entry in reversed(self.branch()) if entry["type"] == "model_change"), None)
        return (str(chosen.get("provider")), str(chosen.get("modelId"))) if chosen is not None else None

    @property
    def thinking(self) -> str:
        levels = [entry["thinkingLevel"] for entry in self.branch() if entry["type"] == "thinking_level_change"]
        return str(levels[-1]) if levels else "off"

    def messages(self, leaf: str | None = None) -> list[Any]:
        """What a model would be shown of the branch: messages of pi, a compaction in place of what it sums up."""
        branch = self.branch(leaf)
        shown: list[Any] = []
        compacted = next((entry for entry in reversed(branch) if entry["type"] == "compaction"), None)
        if compacted is not None:
            told = {name: compacted.get(name) for name in ("summary", "tokensBefore", "timestamp")}
            shown.append({"role": "compactionSummary", **told})
            kept = [at for at, entry in enumerate(branch) if entry["id"] == compacted.get("firstKeptEntryId")]
            branch = branch[kept[0] if kept else branch.index(compacted) :]
        for entry in branch:
            if entry["type"] == "message":
                shown.append(entry["message"])
            elif entry["type"] == "custom_message":
                shown.append({"role": "custom", **{name: entry.get(name) for name in _SENT}})
            elif entry["type"] == "branch_summary":
                shown.append({"role": "branchSummary", "summary": entry["summary"], "fromId": entry["fromId"]})
        return shown

    def tree(self) -> list[dict[str, Any]]:
        nodes: dict[str, dict[str, Any]] = {
            entry["id"]: {"entry": entry, "children": [], "label": self.label_of(entry["id"])} for entry in self.entries
        }
        roots: list[dict[str, Any]] = []
        for entry in self.entries:
            parent = nodes.get(entry["parentId"] or "")
            (parent["children"] if parent else roots).append(nodes[entry["id"]])
        return roots

    def fork_point(self, target: str, position: str) -> tuple[list[Entry], str | None]:
        """The path that a fork takes along, and the text that it leaves out: `at` an entry, or `before` a message of
        the user, whose text is then the draft of another one."""
        entry = self.entry(target)
        if position == "at":
            return self.branch(entry["id"]), None
        if role_of(entry) != "user":
            message = "Invalid entry ID for forking: it is no message of the user."
            raise Problem("invalid_request", message, at="entryId")
        parent = entry["parentId"]
        return self.branch(parent) if parent is not None else [], text_of(entry["message"].get("content"))


def sent_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of an extension, as a session keeps it."""
    return {**{name: message.get(name) for name in _SENT}, "display": message.get("display", True)}


def role_of(entry: Entry) -> str | None:
    """Who says it, when an entry is a message."""
    message = entry.get("message")
    return message.get("role") if entry["type"] == "message" and isinstance(message, Mapping) else None


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or blocks."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping) and "text" in part)
