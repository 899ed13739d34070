"""A session as extensions see it: a tree of entries with a leaf, kept in memory (pi's session, format 3).

What replaces a session, moves in it or chooses for it, and has to be told, is `control.Control`'s.

S1  An entry is appended under the leaf and becomes the leaf; entries are never changed.
S2  Ids are eight hex characters from the injected randomness, unique within the session.
S3  What waits for an agent (a user message, an abort) is kept in `requests` for whoever runs one.
S4  A session that was replaced is kept, as long as this process lives, and can be gone back to by its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forestay.kernel import Clock, Ids, Problem, SystemClock, iso

VERSION = 3
Entry = dict[str, Any]
_SENT = ("customType", "content", "display", "details")


class SessionTree:
    """Answers the `session` connector. `tools` and `commands` list what is registered when they are asked."""

    def __init__(
        self,
        cwd: str,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        model: Mapping[str, Any] | None = None,
        tools: Callable[[], Sequence[Mapping[str, Any]]] = list,
        commands: Callable[[], Sequence[Mapping[str, Any]]] = list,
    ) -> None:
        self._clock = clock or SystemClock()
        self._ids = ids or Ids(self._clock)
        self._cwd = cwd
        self._tools = tools
        self._commands = commands
        self._chosen: list[str] | None = None  # the tools that an agent is offered; None: all
        self._seen: set[str] = set()  # the tools that were there when they were chosen
        self._next_turn: list[Mapping[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.system_prompt = ""
        self.model = dict(model) if model else None
        self.idled = asyncio.Event()
        self._agents = 0
        self.others: dict[str, tuple[Entry, list[Entry], str | None, str]] = {}
        self.id = ""
        self.header: Entry = {}
        self.entries: list[Entry] = []
        self._by_id: dict[str, Entry] = {}
        self.leaf: str | None = None
        self.thinking = "off"
        self.working(0)
        self.begin()

    @property
    def idle(self) -> bool:
        return self._agents == 0

    def working(self, change: int) -> None:
        """One agent more, or one less, is at work in this session."""
        self._agents = max(0, self._agents + change)
        (self.idled.clear if self._agents else self.idled.set)()

    def begin(self, path: Sequence[Entry] = (), parent: str | None = None) -> None:
        """A new session: empty, or with the entries of a branch of another one."""
        self._keep()
        self.id = self._ids.uuid4()
        header = {"type": "session", "version": VERSION, "id": self.id, "timestamp": self._now(), "cwd": self._cwd}
        self.header = {**header, **({"parentSession": parent} if parent else {})}
        self._place(list(path), path[-1]["id"] if path else None, "off")

    def resume(self, id: str) -> None:
        """Go back to a session that was replaced (S4)."""
        header, entries, leaf, thinking = self.others.pop(id)
        self._keep()
        self.id, self.header = id, header
        self._place(entries, leaf, thinking)

    def _keep(self) -> None:
        if self.id:
            self.others[self.id] = self.header, self.entries, self.leaf, self.thinking

    def _place(self, entries: list[Entry], leaf: str | None, thinking: str) -> None:
        self.entries, self.leaf, self.thinking, self._next_turn = entries, leaf, thinking, []
        self._by_id = {entry["id"]: entry for entry in entries}

    def entry(self, id: str) -> Entry:
        found = self._by_id.get(id) if isinstance(id, str) else None
        if found is None:
            raise Problem("not_found", f"Entry {str(id)[:40]} not found.")
        return found

    def abandoned(self, target: str) -> tuple[list[Entry], str | None]:
        """The entries of the present branch that are not on the way to `target`, and where the two part."""
        kept = {entry["id"] for entry in self.branch(target)}
        here = self.branch()
        common = [entry["id"] for entry in here if entry["id"] in kept]
        return [entry for entry in here if entry["id"] not in kept], common[-1] if common else None

    async def request(self, operation: str, params: Mapping[str, Any]) -> Any:
        """Perform `operation` with its `args`."""
        perform = _OPERATIONS.get(operation)
        if perform is None:
            raise Problem(
                "invalid_request", f"There is no session operation {operation[:40]!r}.", known=sorted(_OPERATIONS)
            )
        arguments = params.get("args") or []
        try:
            return perform(self, *arguments)
        except TypeError as error:
            raise Problem("invalid_request", f"{operation} was called with the wrong arguments.") from error

    def append(self, kind: str, **fields: Any) -> str:
        """Add an entry under the leaf (S1)."""
        while (id := self._ids.token(4)) in self._by_id:
            continue
        entry = {"type": kind, **fields, "id": id, "parentId": self.leaf, "timestamp": self._now()}
        self.entries.append(entry)
        self._by_id[id] = entry
        self.leaf = id
        return id

    def branch(self, start: str | None = None) -> list[Entry]:
        """The entries from the root to `start`, or to the leaf."""
        path: list[Entry] = []
        current = self._by_id.get(start or self.leaf or "")
        while current is not None:
            path.append(current)
            current = self._by_id.get(current["parentId"] or "")
        return path[::-1]

    def label_of(self, target: str) -> str | None:
        labels = [entry for entry in self.entries if entry["type"] == "label" and entry["targetId"] == target]
        return labels[-1].get("label") if labels else None

    @property
    def name(self) -> str | None:
        names = [entry["name"] for entry in self.entries if entry["type"] == "session_info"]
        return names[-1] if names else None

    def messages(self) -> list[Any]:
        """What a model would be shown of the branch."""
        shown: list[Any] = []
        branch = self.branch()
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

    # Operations that change something

    def _append_entry(self, kind: str, data: Any = None) -> str:
        fields = {} if data is None else {"data": data}
        return self.append("custom", customType=str(kind), **fields)

    def label(self, target: str, label: str | None = None) -> None:
        self.entry(target)
        self.append("label", targetId=target, label=label)

    def _send(self, message: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> None:
        if options and options.get("deliverAs") == "nextTurn":
            self._next_turn.append(message)  # even if it asks for a turn: it waits for the person's own
            return
        self._add(message)
        if options and options.get("triggerTurn"):
            self.requests.append({"kind": "turn"})

    @property
    def waiting(self) -> bool:
        """Whether a message waits for the next turn (`deliverAs: "nextTurn"`)."""
        return bool(self._next_turn)

    def turn(self) -> list[dict[str, Any]]:
        """A turn begins: the messages that waited for it, now in the session."""
        waited, self._next_turn = self._next_turn, []
        for message in waited:
            self._add(message)
        return [{"role": "custom", **{name: message.get(name) for name in _SENT}} for message in waited]

    def _add(self, message: Mapping[str, Any]) -> None:
        self.append(
            "custom_message",
            customType=message.get("customType"),
            content=message.get("content"),
            display=message.get("display", True),
            details=message.get("details"),
        )

    def _send_user(self, content: Any, options: Mapping[str, Any] | None = None) -> None:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        self.append("message", message={"role": "user", "content": parts, "timestamp": self._clock.now_ms()})
        self.requests.append({"kind": "turn", **({"options": dict(options)} if options else {})})

    def choose_model(self, model: Mapping[str, Any]) -> None:
        self.model = dict(model)
        self.append("model_change", provider=model.get("provider"), modelId=model.get("id"))

    def choose_thinking(self, level: str) -> None:
        if level != self.thinking:
            self.thinking = level
            self.append("thinking_level_change", thinkingLevel=level)

    def _set_active(self, names: Sequence[str]) -> None:
        """Unknown names are left out, as in pi; a tool that is registered later is active."""
        self._seen = {str(tool["name"]) for tool in self._tools()}
        self._chosen = [name for name in names if name in self._seen]

    @property
    def active(self) -> list[str]:
        """The tools that an agent is offered."""
        known = [str(tool["name"]) for tool in self._tools()]
        if self._chosen is None:
            return known
        return [*self._chosen, *(name for name in known if name not in self._seen)]

    def _ask(self, kind: str) -> Callable[..., None]:
        return lambda *_rest: self.requests.append({"kind": kind})

    def _now(self) -> str:
        return iso(self._clock.now_ms())


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "appendEntry": SessionTree._append_entry,
    "sendMessage": SessionTree._send,
    "sendUserMessage": SessionTree._send_user,
    "setSessionName": lambda self, name: self.append("session_info", name=str(name).strip()),
    "getSessionName": lambda self: self.name,
    "setLabel": SessionTree.label,
    "getLabel": SessionTree.label_of,
    "getCwd": lambda self: self._cwd,
    "getSessionDir": lambda _self: None,
    "getSessionId": lambda self: self.id,
    "getSessionFile": lambda _self: None,
    "getHeader": lambda self: self.header,
    "getLeafId": lambda self: self.leaf,
    "getLeafEntry": lambda self: self._by_id.get(self.leaf or ""),
    "getEntry": lambda self, id: self._by_id.get(id),
    "getChildren": lambda self, id: [entry for entry in self.entries if entry["parentId"] == id],
    "getEntries": lambda self: self.entries,
    "getBranch": SessionTree.branch,
    "getTree": SessionTree.tree,
    "getState": lambda self: {"id": self.id, "leaf": self.leaf, "entries": len(self.entries), "name": self.name},
    "buildSessionContext": lambda self: {
        "messages": self.messages(),
        "thinkingLevel": self.thinking,
        "model": self.model and {"provider": self.model.get("provider"), "modelId": self.model.get("id")},
    },
    "getModel": lambda self: self.model,
    "getThinkingLevel": lambda self: self.thinking,
    "getActiveTools": lambda self: self.active,
    "setActiveTools": SessionTree._set_active,
    "getAllTools": lambda self: list(self._tools()),
    "getCommands": lambda self: list(self._commands()),
    "getSystemPrompt": lambda self: self.system_prompt,
    "getContextUsage": lambda _self: None,
    "isIdle": lambda self: self.idle,
    "hasPendingMessages": lambda self: any(item["kind"] == "turn" for item in self.requests),
    "shutdown": lambda self: self._ask("shutdown")(),
}
