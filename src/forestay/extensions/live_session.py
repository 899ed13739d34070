"""The session that extensions live in now: its tree, what was chosen for it, and what waits for an agent.

`control.Control` does what extensions must hear of: replace a session, move in it, choose for it.

S1  What an extension changes is kept before its call is answered.
S2  A turn that an extension wants is a wish of the session; an abort, an end and a reload are kept in `requests` for
    the caller that runs an agent. `asked` is set then.
S3  Extensions live in one session at a time; one that was left is opened again by its id.
S4  A request that has a `place` changes the session once, however often it is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forestay.kernel import Clock, Ids, Problem, SystemClock
from forestay.sessions import (
    Entry,
    MemorySessions,
    SessionKeeper,
    SessionTree,
    context_usage,
    estimated_tokens,
    sent_message,
    text_of,
)

RESERVE = 16_384
"""Tokens that stay free for the answer, as in pi; of a small window, a fifth."""
_SENT = ("customType", "content", "display", "details")


class LiveSession:
    """Answers the `session` connector. `tools` and `commands` list what is registered when they are asked."""

    def __init__(
        self,
        cwd: str,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        tree: SessionTree | None = None,
        keeper: SessionKeeper | None = None,
        tools: Callable[[], Sequence[Mapping[str, Any]]] = list,
        commands: Callable[[], Sequence[Mapping[str, Any]]] = list,
        servers: Callable[[], Sequence[Mapping[str, Any]]] = list,
    ) -> None:
        clock = clock or SystemClock()
        self._cwd = cwd
        self._keeper = keeper or MemorySessions(cwd, clock, ids or Ids(clock))
        self._tools = tools
        self._commands = commands
        self._servers = servers
        self.chosen: list[str] | None = None  # the tools that an agent is offered; None: all
        self._seen: set[str] = set()  # the tools that were there when they were chosen
        self._next_turn: list[Mapping[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.asked = asyncio.Event()
        self.system_prompt = ""
        self.model: dict[str, Any] | None = None
        self.idled = asyncio.Event()
        self._agents = 0
        self.begins = False
        """Whether an agent is about to begin: what is said to it then, it hears first."""
        self.ends = False
        """Whether an agent has just ended: what is said to it then is answered only when that is asked for."""
        self._place: str | None = None  # of the request that is performed (S4)
        self.tree = tree or self.made()
        self.working(0)

    @property
    def id(self) -> str:
        return self.tree.id

    @property
    def entries(self) -> list[Entry]:
        return self.tree.entries

    @property
    def leaf(self) -> str | None:
        return self.tree.leaf

    @property
    def name(self) -> str | None:
        return self.tree.name

    @property
    def idle(self) -> bool:
        return self._agents == 0

    def working(self, change: int) -> None:
        """One agent more, or one less, is at work in this session."""
        self._agents = max(0, self._agents + change)
        (self.idled.clear if self._agents else self.idled.set)()

    def hear(self, event: str) -> None:
        """An event of an agent's work is about to be told."""
        self.begins = event == "before_agent_start" or (self.begins and event != "agent_start")
        self.ends = event == "agent_end"

    # The tree

    def made(self, path: Sequence[Entry] = (), parent: str | None = None) -> SessionTree:
        """A new session: empty, or with the entries of a branch of another one."""
        return self._keeper.new(path=path, parent=parent)

    async def opened(self, id: str) -> SessionTree:
        """A session that was left (S3)."""
        return await self._keeper.open(id)

    async def place(self, tree: SessionTree) -> None:
        """Live in this session from now on."""
        await self.save()
        self.tree, self._next_turn = tree, []
        await self.save()

    async def save(self) -> None:
        await self._keeper.save(self.tree)

    async def request(self, operation: str, params: Mapping[str, Any]) -> Any:
        """Perform `operation` with its `args`; what it changed is kept when this returns (S1)."""
        perform = _OPERATIONS.get(operation)
        if perform is None:
            raise Problem(
                "invalid_request", f"There is no session operation {operation[:40]!r}.", known=sorted(_OPERATIONS)
            )
        arguments = params.get("args") or []
        self._place = params.get("place")
        try:
            answer = perform(self, *arguments)
        except TypeError as error:
            raise Problem("invalid_request", f"{operation} was called with the wrong arguments.") from error
        finally:
            self._place = None
        if self.tree.unsaved:
            await self.save()
        return answer

    def messages(self) -> list[Any]:
        """What a model would be shown of the branch."""
        return self.tree.messages()

    # Operations that change something

    def _append_entry(self, kind: str, data: Any = None) -> str:
        fields = {} if data is None else {"data": data}
        return self.tree.append("custom", place=self._place, customType=str(kind), **fields)

    def _send(self, message: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> None:
        how = options or {}
        if how.get("deliverAs") == "nextTurn":
            self._next_turn.append(message)  # even if it asks for a turn: it waits for the person's own
        elif self.begins or not self.idle:  # between a call and its result a message would part the two
            waits = how.get("triggerTurn") is True if self.ends else how.get("triggerTurn") is not False
            self._wish(None, message=message, steers=waits and how.get("deliverAs") != "followUp", turn=waits)
        else:
            self._add(message)
            if how.get("triggerTurn"):
                self._wish(None)

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
        self.tree.append("custom_message", place=self._place, **sent_message(message))

    def _send_user(self, content: Any, options: Mapping[str, Any] | None = None) -> None:
        """A message in the user's name: an agent at work hears it (`steer`), or a turn begins with it."""
        text = content if isinstance(content, str) else text_of(content)
        how = options or {}
        self._wish(text, steers=how.get("deliverAs") == "steer", expands=how.get("expandPromptTemplates") is True)

    def _wish(self, text: str | None, **how: Any) -> None:
        self.tree.wish(text, place=self._place and f"{self._place}/turn", **how)
        self.asked.set()

    async def end_work(self) -> None:
        """What waited for the end of the agents is in the session, when none is at work."""
        if not self.idle:
            return
        if self.tree.wishes:
            self.tree.end_work()
        tree = self.tree
        if tree.unsaved and (tree.entries or tree.turn or tree.wishes):  # an empty session stays unwritten
            await self.save()

    def boundary(self, error: Any) -> dict[str, Any]:
        """What handlers are told at the end of an agent's work, which ended with `error` or without."""
        outcome = {"cancelled": "aborted", None: "completed"}.get(error, "error")
        shown = {"contextEntries": self.tree.branch(), "contextMessages": self.messages()}
        preview = {**shown, "llmMessages": shown["contextMessages"], "pendingMessages": [], "canContinue": True}
        return {"entries": [], "continue": False, "context": preview, "outcome": outcome}

    async def settle(self, entries: Sequence[Any], goes_on: bool) -> None:
        """Take what handlers leave at the end of an agent's work; `goes_on` asks for a further turn.

        A work that ends again after a crash leaves the same: its last message names it (S4).
        """
        last = next((entry["id"] for entry in reversed(self.tree.branch()) if entry["type"] == "message"), "")
        for number, entry in enumerate(entries):
            self._place = f"settle:{last}:{number}"
            if entry.get("type") == "custom":
                self._append_entry(str(entry.get("customType")), entry.get("data"))
            elif entry.get("type") == "custom_message":
                self._add(entry)
            elif entry.get("type") == "compaction":
                self._compact(entry)
        if goes_on:
            self._place = f"settle:{last}"
            self._wish(None)
        self._place = None
        await self.save()

    def _compact(self, entry: Mapping[str, Any]) -> None:
        """A summary that an extension brings, from one of its entries on or for everything before it."""
        kept, summary = entry.get("firstKeptEntryId"), entry.get("summary")
        if isinstance(summary, str) and (kept is None or kept in {item["id"] for item in self.tree.branch()}):
            fields = {"summary": summary, "firstKeptEntryId": kept, "details": entry.get("details")}
            tokens = estimated_tokens(self.tree)
            self.tree.append("compaction", place=self._place, **fields, tokensBefore=tokens, fromHook=True)

    def ask(self, request: dict[str, Any]) -> None:
        """Keep what waits for an agent (S2)."""
        self.requests.append(request)
        self.asked.set()

    def took(self, kind: str) -> bool:
        """Whether an extension asked for this; it is done with then."""
        asked = [item for item in self.requests if item["kind"] == kind]
        self.requests = [item for item in self.requests if item not in asked]
        return bool(asked)

    def choose_model(self, model: Mapping[str, Any], place: str | None = None) -> None:
        self.model = dict(model)
        self.tree.append("model_change", place=place, provider=model.get("provider"), modelId=model.get("id"))

    @property
    def thinking(self) -> str:
        return self.tree.thinking

    def choose_thinking(self, level: str) -> None:
        if level != self.thinking:
            self.tree.append("thinking_level_change", thinkingLevel=level)

    def _set_active(self, names: Sequence[str]) -> None:
        """Unknown names are left out, as in pi; a tool that is registered later is active."""
        self._seen = {str(tool["name"]) for tool in self._tools()}
        self.chosen = [name for name in names if name in self._seen]

    @property
    def active(self) -> list[str]:
        """The tools that an agent is offered."""
        known = [str(tool["name"]) for tool in self._tools()]
        if self.chosen is None:
            return known
        return [*self.chosen, *(name for name in known if name not in self._seen)]

    def is_full(self, tree: SessionTree, coming: str = "") -> bool:
        """Whether a session, with what is about to be said, leaves too little of the model's window for an answer."""
        window = self.model.get("contextWindow") if self.model else None
        if not isinstance(window, int) or window <= 0:
            return False
        return estimated_tokens(tree, coming) > window - min(RESERVE, window // 5)

    def _usage(self) -> dict[str, Any] | None:
        window = self.model.get("contextWindow") if self.model else None
        return context_usage(self.tree, window) if isinstance(window, int) else None


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "appendEntry": LiveSession._append_entry,
    "sendMessage": LiveSession._send,
    "sendUserMessage": LiveSession._send_user,
    "setSessionName": lambda self, name: self.tree.rename(str(name), place=self._place),
    "getSessionName": lambda self: self.name,
    "setLabel": lambda self, target, label=None: self.tree.label(target, label, place=self._place),
    "getLabel": lambda self, target: self.tree.label_of(target),
    "getCwd": lambda self: self._cwd,
    "getSessionDir": lambda _self: None,
    "getSessionId": lambda self: self.id,
    "getSessionFile": lambda _self: None,
    "getHeader": lambda self: self.tree.header,
    "getLeafId": lambda self: self.leaf,
    "getLeafEntry": lambda self: self.tree.find(self.leaf),
    "getEntry": lambda self, id: self.tree.find(id),
    "getChildren": lambda self, id: [entry for entry in self.entries if entry["parentId"] == id],
    "getEntries": lambda self: self.entries,
    "getBranch": lambda self, start=None: self.tree.branch(start),
    "getTree": lambda self: self.tree.tree(),
    "getState": lambda self: {"id": self.id, "leaf": self.leaf, "entries": len(self.entries), "name": self.name},
    "buildSessionContext": lambda self: {
        "messages": self.messages(),
        "thinkingLevel": self.thinking,
        "model": self.model and {"provider": self.model.get("provider"), "modelId": self.model.get("id")},
    },
    "getModel": lambda self: self.model,
    "getThinkingLevel": lambda self: self.thinking,
    "getActiveTools": lambda self: self.active,
    "setActiveTools": LiveSession._set_active,
    "getAllTools": lambda self: list(self._tools()),
    "getCommands": lambda self: list(self._commands()),
    "getMcpServers": lambda self: list(self._servers()),
    "getSystemPrompt": lambda self: self.system_prompt,
    "getContextUsage": LiveSession._usage,
    "isIdle": lambda self: self.idle,
    "hasPendingMessages": lambda self: bool(self.tree.wishes),
    "shutdown": lambda self: self.ask({"kind": "shutdown"}),
}
