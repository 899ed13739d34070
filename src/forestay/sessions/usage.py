"""The usage of the model's context window: the provider's last count, and an estimate of later entries."""

from __future__ import annotations

from typing import Any

from forestay.sessions.tree import SessionTree, role_of

_CHARACTERS_PER_TOKEN = 4


def context_usage(tree: SessionTree, window: int) -> dict[str, Any] | None:
    """Return pi's `{tokens, contextWindow, percent}`; after a compaction, tokens are None until the next answer."""
    if window <= 0:
        return None
    branch = tree.branch()
    compacted = max((at for at, entry in enumerate(branch) if entry["type"] == "compaction"), default=-1)
    counted = [at for at, entry in enumerate(branch) if role_of(entry) == "assistant" and _total(entry)]
    if compacted >= 0 and (not counted or counted[-1] < compacted):
        return {"tokens": None, "contextWindow": window, "percent": None}
    since = counted[-1] if counted else -1
    tokens = _total(branch[since]) if counted else 0
    tokens += sum(_estimated(entry) for entry in branch[since + 1 :])
    return {"tokens": tokens, "contextWindow": window, "percent": tokens / window * 100}


def estimated_tokens(tree: SessionTree, coming: str = "") -> int:
    """Estimate the tokens of the branch for a model, including the `coming` message."""
    shown = [message.get("content") or message.get("summary") for message in tree.messages()]
    return sum(_tokens(content) for content in [*shown, coming])


def _total(entry: dict[str, Any]) -> int:
    usage = entry["message"].get("usage")
    total = usage.get("totalTokens") if isinstance(usage, dict) else None
    return total if isinstance(total, int) else 0


def _estimated(entry: dict[str, Any]) -> int:
    shown = entry.get("message") or entry.get("content") if entry["type"] in ("message", "custom_message") else None
    if isinstance(shown, dict):
        shown = shown.get("content")
    return _tokens(shown)


def _tokens(content: Any) -> int:
    return -(-len(content if isinstance(content, str) else str(content or "")) // _CHARACTERS_PER_TOKEN)
