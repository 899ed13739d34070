"""Lines that show sessions and their entries to a person."""

from __future__ import annotations

from typing import Any

from forestay.kernel import one_line

_WIDTH = 100


def session_line(item: dict[str, Any]) -> str:
    """Return the line of a session in a list."""
    title = item["name"] or item["first"] or "(nothing said yet)"
    when = item["changed"][:16].replace("T", " ")
    return f"{item['sessionId'][:8]}  {when}  {item['entries']:>4} entries  {one_line(title)[:_WIDTH]}"


def entry_line(entry: dict[str, Any], leaf: str | None) -> str:
    """Return the line of an entry; the leaf has a mark."""
    mark = "*" if entry["id"] == leaf else " "
    who, text = _said(entry)
    return f"{mark} {entry['id']}  {who:<10} {one_line(text)[:_WIDTH]}"


def _said(entry: dict[str, Any]) -> tuple[str, str]:
    kind = entry["type"]
    if kind == "message":
        message = entry["message"]
        role = str(message.get("role"))
        text = _text(message.get("content"))
        if role == "toolResult":
            return "tool", f"{message.get('toolName')}: {text}"
        calls = [part["name"] for part in _blocks(message.get("content")) if part.get("type") == "toolCall"]
        return role, " ".join([text, *(f"[calls {name}]" for name in calls)]).strip() or str(
            message.get("errorMessage")
        )
    others = {
        "custom_message": ("extension", f"{entry.get('customType')}: {_text(entry.get('content'))}"),
        "custom": ("kept", str(entry.get("customType"))),
        "compaction": ("compacted", str(entry.get("summary"))),
        "branch_summary": ("branch", str(entry.get("summary"))),
        "label": ("label", f"{entry.get('label')} on {entry.get('targetId')}"),
        "session_info": ("name", str(entry.get("name"))),
        "model_change": ("model", f"{entry.get('provider')}/{entry.get('modelId')}"),
        "thinking_level_change": ("thinking", str(entry.get("thinkingLevel"))),
    }
    return others.get(kind, (kind, ""))


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(str(part["text"]) for part in _blocks(content) if "text" in part)
