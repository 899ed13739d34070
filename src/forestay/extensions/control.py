"""What an extension does to its session, with the events that pi fires about it: replace, fork, move, compact, choose.

V1  A listener to `session_before_…` may cancel; then nothing has changed and nothing else is told.
V2  A session is replaced between `session_shutdown` and `session_start`; what a person granted for it ends there.
V3  A change that an extension waits for on its own thread is told afterwards, so the two never wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from forestay.extensions.live_session import LiveSession
from forestay.extensions.model_catalogue import LEVELS, ModelCatalogue
from forestay.kernel import Problem
from forestay.sessions import Entry, SessionTree, role_of, text_of

Emit = Callable[[dict[str, Any]], Awaitable[Any]]
Summarise = Callable[[Sequence[Any], str | None], Awaitable[str]]
KEPT = 2  # entries at the end of a branch that a compaction leaves as they are


class Control:
    """Answers the `session` connector: what changes a session here, everything else by the session itself."""

    def __init__(
        self,
        session: LiveSession,
        emit: Emit,
        models: ModelCatalogue,
        *,
        summarise: Summarise | None = None,
        ended: Callable[[], None] = lambda: None,
        asked: Callable[[str], None] = lambda _what: None,
    ) -> None:
        """`summarise` writes a summary where no extension gives one; without it, a compaction is refused. `ended` hears
        that a session was replaced, `asked` that the agent is to `abort` or extensions to `reload`."""
        self._session = session
        self._emit = emit
        self._models = models
        self._summarise = summarise
        self._ended = ended
        self._asked = asked
        self.telling: set[asyncio.Task[Any]] = set()

    async def request(self, operation: str, params: Mapping[str, Any]) -> Any:
        perform = _OPERATIONS.get(operation)
        if perform is None:
            return await self._session.request(operation, params)
        named = {"place": params.get("place")} if operation in _PLACED else {}
        try:
            return await perform(self, *(params.get("args") or ()), **named)
        except TypeError as error:
            raise Problem("invalid_request", f"{operation} was called with the wrong arguments.") from error

    async def settled(self) -> None:
        """Until everything that was to be told afterwards has been told (V3)."""
        while self.telling:
            await asyncio.wait(self.telling)

    # Replacing the session (V1, V2)

    async def _new(self, options: Any = None) -> dict[str, Any]:
        if await self._cancelled({"type": "session_before_switch", "reason": "new"}):
            return {"cancelled": True}
        parent = options.get("parentSession") if isinstance(options, Mapping) else None
        await self._leave("new", self._session.made(parent=parent))
        return {"cancelled": False}

    async def _switch(self, target: str, _options: Any = None) -> dict[str, Any]:
        if await self._cancelled({"type": "session_before_switch", "reason": "resume", "targetSessionFile": target}):
            return {"cancelled": True}
        await self._session.save()
        await self._leave("resume", await self._session.opened(target))
        return {"cancelled": False}

    async def enter(self, tree: SessionTree) -> None:
        """Live in the session of a turn: nobody is asked, because the turn was begun in it; everybody is told (V2)."""
        if tree is not self._session.tree:
            await self._replace("resume", tree)

    async def _fork(self, target: str, options: Any = None) -> dict[str, Any]:
        position = options.get("position", "before") if isinstance(options, Mapping) else "before"
        if await self._cancelled({"type": "session_before_fork", "entryId": target, "position": position}):
            return {"cancelled": True}
        path, text = self._session.tree.fork_point(target, position)
        await self._leave("fork", self._session.made(path, parent=self._session.id))
        return {"cancelled": False, **({"selectedText": text} if text is not None else {})}

    async def _leave(self, reason: str, tree: SessionTree) -> None:
        """Replace the session because a person or an extension chose to: what was wished for in it is dropped."""
        self._session.tree.drop_wishes()
        await self._replace(reason, tree)

    async def _replace(self, reason: str, tree: SessionTree) -> None:
        await self._emit({"type": "session_shutdown", "reason": reason})
        await self._session.place(tree)
        await self.restore()
        self._ended()
        await self._emit({"type": "session_start", "reason": reason})

    # Moving in it

    async def _navigate(self, target: str, options: Any = None) -> dict[str, Any]:
        session, wish = self._session.tree, options if isinstance(options, Mapping) else {}
        old = session.leaf
        if target == old:
            return {"cancelled": False}
        entry = session.entry(target)
        left, common = session.abandoned(target)
        keys = ("customInstructions", "replaceInstructions", "label")
        preparation = {
            "targetId": target, "oldLeafId": old, "commonAncestorId": common, "entriesToSummarize": left,
            "userWantsSummary": wish.get("summarize") is True, **{key: wish[key] for key in keys if key in wish},
        }  # fmt: skip
        answer = await self._emit({"type": "session_before_tree", "preparation": preparation})
        said = answer if isinstance(answer, Mapping) else {}
        if said.get("cancel"):
            return {"cancelled": True}
        summary = said.get("summary") if preparation["userWantsSummary"] else None
        if preparation["userWantsSummary"] and left and not isinstance(summary, Mapping):
            raise _no_summary("session_before_tree")
        draft = role_of(entry) == "user" or entry["type"] == "custom_message"
        session.move(entry["parentId"] if draft else entry["id"])
        made = self._summarised(session.leaf, summary) if isinstance(summary, Mapping) else None
        label = said.get("label", wish.get("label"))
        if label:
            session.label(made["id"] if made else target, str(label))
        await self._session.save()
        await self._emit({"type": "session_tree", "newLeafId": session.leaf, "oldLeafId": old, **_told(made)})
        result: dict[str, Any] = {"cancelled": False}
        if draft:
            content = entry["message"].get("content") if entry["type"] == "message" else entry.get("content")
            result["editorText"] = text_of(content)
        return {**result, **({"summaryEntry": made} if made else {})}

    def _summarised(self, leaf: str | None, summary: Mapping[str, Any]) -> Entry:
        fields: dict[str, Any] = {
            "fromId": leaf or "root",
            "summary": str(summary.get("summary", "")),
            "fromHook": True,
        }
        if summary.get("details") is not None:
            fields["details"] = summary["details"]
        tree = self._session.tree
        return tree.entry(tree.append("branch_summary", **fields))

    async def _compact(self, options: Any = None) -> dict[str, Any]:
        """Put a summary in place of what is old; who listens hears when that fails."""
        try:
            return await self._compacted(options)
        except Problem as problem:
            about = {"aborted": problem.key == "cancelled", "willRetry": False, "fromExtension": False}
            failed = {"type": "session_compact_failed", "reason": "manual", "errorMessage": problem.message}
            self.tell({**failed, **about})
            raise

    async def _compacted(self, options: Any = None) -> dict[str, Any]:
        tree = self._session.tree
        branch = tree.branch()
        if branch and branch[-1]["type"] == "compaction":
            raise Problem("state_conflict", "Already compacted")
        if len(branch) <= KEPT:
            raise Problem("state_conflict", "Nothing to compact (session too small)")
        instructions = options.get("customInstructions") if isinstance(options, Mapping) else None
        cut = len(branch) - KEPT
        while cut > 1 and role_of(branch[cut]) == "toolResult":  # a result stays with its call
            cut -= 1
        first, old = branch[cut], branch[:cut]
        preparation = {
            "firstKeptEntryId": first["id"],
            "messagesToSummarize": [entry["message"] for entry in old if entry["type"] == "message"],
            "turnPrefixMessages": [],
            "isSplitTurn": False,
            "tokensBefore": sum(len(str(entry)) for entry in branch) // 4,
        }
        event = {"type": "session_before_compact", "preparation": preparation, "branchEntries": branch}
        if instructions is not None:
            event["customInstructions"] = instructions
        answer = await self._emit(event)
        if isinstance(answer, Mapping) and answer.get("cancel"):
            raise Problem("cancelled", "Compaction cancelled")
        made = answer.get("compaction") if isinstance(answer, Mapping) else None
        is_theirs = isinstance(made, Mapping) and isinstance(made.get("summary"), str)
        given = made if isinstance(made, Mapping) and is_theirs else await self._own_summary(old[-1], instructions)
        keys = ("summary", "firstKeptEntryId", "tokensBefore", "details")
        result = {key: given.get(key, preparation.get(key)) for key in keys}
        entry = tree.entry(tree.append("compaction", **result, fromHook=is_theirs))
        await self._session.save()
        await self._emit({"type": "session_compact", "compactionEntry": entry, "fromExtension": is_theirs})
        return result

    async def _own_summary(self, last: Entry, instructions: Any) -> dict[str, Any]:
        """The host's own summary of what a model would be shown up to an entry."""
        if self._summarise is None:
            raise _no_summary("session_before_compact")
        wish = str(instructions) if instructions else None
        return {"summary": await self._summarise(self._session.tree.messages(last["id"]), wish)}

    async def _rename(self, name: Any, *, place: str | None = None) -> None:
        self._session.tree.rename(str(name), place=place)
        await self._session.save()
        self.tell({"type": "session_info_changed", "name": self._session.name})

    # Choosing a model and how much it thinks

    async def _set_model(self, model: Mapping[str, Any], *, place: str | None = None) -> bool:
        """False when nobody here can reach that model, as in pi when there is no key for it."""
        wanted, before = (model.get("provider"), model.get("id")), self._session.model
        if wanted not in [(known.get("provider"), known.get("id")) for known in await self._models.reachable()]:
            return False
        self._session.choose_model(model, place)
        await self._session.save()
        if before is None or (before.get("provider"), before.get("id")) != wanted:
            event = {"type": "model_select", "model": dict(model), "source": "set"}
            await self._emit({**event, **({"previousModel": before} if before else {})})
        return True

    async def restore(self) -> None:
        """Have the model that was chosen in the session, where it is still there."""
        chosen = self._session.tree.model
        for known in await self._models.reachable() if chosen is not None else ():
            if (known.get("provider"), known.get("id")) == chosen:
                self._session.model = dict(known)

    async def _scoped(self) -> list[dict[str, Any]]:
        return await self._models.scoped()

    async def _provider_count(self) -> int:
        return len({model.get("provider") for model in await self._models.reachable()})

    async def _set_thinking(self, level: str) -> None:
        if level not in LEVELS:
            raise Problem("invalid_request", f"There is no thinking level {str(level)[:40]!r}.", levels=list(LEVELS))
        before = self._session.thinking
        self._session.choose_thinking(level)
        await self._session.save()
        if level != before:
            self.tell({"type": "thinking_level_select", "level": level, "previousLevel": before})

    async def _abort(self) -> None:
        self._asked("abort")

    async def _reload(self) -> None:
        self._asked("reload")

    async def _idle(self) -> None:
        await self._session.idled.wait()

    # Telling

    async def _cancelled(self, event: dict[str, Any]) -> bool:
        answer = await self._emit(event)
        return isinstance(answer, Mapping) and answer.get("cancel") is True

    def tell(self, event: dict[str, Any]) -> None:
        """Tell extensions, without waiting for them (V3)."""
        task = asyncio.ensure_future(self._emit(event))
        self.telling.add(task)
        task.add_done_callback(self.telling.discard)


def _no_summary(event: str) -> Problem:
    return Problem(
        "state_conflict",
        "Nobody here writes a summary: no extension gave one.",
        fix=f"Answer {event} with a summary.",
    )


def _told(made: Entry | None) -> dict[str, Any]:
    return {"summaryEntry": made, "fromExtension": True} if made else {}


_OPERATIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "newSession": Control._new,
    "switchSession": Control._switch,
    "fork": Control._fork,
    "navigateTree": Control._navigate,
    "compact": Control._compact,
    "setSessionName": Control._rename,
    "setModel": Control._set_model,
    "setThinkingLevel": Control._set_thinking,
    "getScopedModels": Control._scoped,
    "getProviderCount": Control._provider_count,
    "abort": Control._abort,
    "reload": Control._reload,
    "waitForIdle": Control._idle,
}
_PLACED = ("setSessionName", "setModel")
"""Operations that add an entry: once for each place."""
