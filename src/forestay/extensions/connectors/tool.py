"""The `tool` method: the built-in tools, with pi's parameter names and result shapes.

`read`, `write`, `edit`, `ls` and `bash` are here; the search tools are in `search_tools.py`. Long output is cut to
whole lines, within a number of lines and bytes, and the result says so.
"""

from __future__ import annotations

import base64
import difflib
import itertools
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from forestay.extensions.connectors.contract import Call, Output, number, text
from forestay.extensions.connectors.exec import ExecConnector
from forestay.extensions.connectors.fs import FsConnector
from forestay.kernel import Problem
from forestay.tools import BUILT_IN, prepared

Tool = Callable[[FsConnector, Call, Mapping[str, Any]], Output]

MAX_LINES = 2000
MAX_BYTES = 50 * 1024
MAX_GREP_LINE = 500
LS_LIMIT = 500
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)  # fmt: skip


class ToolConnector:
    """Calls a built-in tool by its name."""

    method = "tool"

    def __init__(self, fs: FsConnector, exec: ExecConnector, more: Mapping[str, Tool]) -> None:
        """`more` are the tools that this file does not have, by name."""
        self._fs = fs
        self._exec = exec
        self._tools: dict[str, Tool] = {"read": read, "write": write, "edit": edit, "ls": ls, **more}

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        name = text(params, "name")
        given = params.get("input", {})
        if not isinstance(given, Mapping):
            raise Problem("schema_mismatch", "A tool's input is an object.", at="$.params.input")
        known = BUILT_IN.get(name)
        if known is None:
            raise Problem("method_not_found", f"There is no tool {name[:80]!r}.", at="$.params.name")
        fit = known.tool.fit(prepared(name, given) if known.tool.prepares else given)
        return self._bash(call, fit) if name == "bash" else self._tools[name](self._fs, call, fit)

    def _bash(self, call: Call, params: Mapping[str, Any]) -> Output:
        """`command`, `timeout` in seconds. Output and errors together, the end kept when it is long."""
        command, seconds = text(params, "command"), number(params, "timeout", 0)
        # One pipe for both, so that lines keep the order in which the command wrote them.
        shell = ["-c", "exec 2>&1\n" + command]
        outcome = self._exec.run(
            call, {"command": "bash", "args": shell, "timeout": seconds * 1000, "cwd": params.get("cwd")}
        )
        cut = tail(outcome["stdout"].rstrip("\n"))
        output = cut["content"] or "(no output)"
        details: dict[str, Any] = {}
        if cut["truncated"] or outcome["truncated"]:
            details["truncation"] = cut
            first = cut["totalLines"] - cut["outputLines"] + 1
            output += f"\n\n[Showing lines {first}-{cut['totalLines']} of {cut['totalLines']}.]"
        if outcome.get("note"):
            output += f"\n\n[{outcome['note']}]"
        if outcome["timed_out"]:
            raise Problem("timeout", f"{output}\n\nCommand timed out after {seconds} seconds")
        if outcome["code"] != 0:
            raise Problem(
                "io_failed", f"{output}\n\nCommand exited with code {outcome['code']}", exit_code=outcome["code"]
            )
        return result(output, details)


def result(content: str, details: Mapping[str, Any] | None = None) -> Output:
    output: Output = {"content": [{"type": "text", "text": content}]}
    if details:
        output["details"] = dict(details)
    return output


def read(files: FsConnector, call: Call, params: Mapping[str, Any]) -> Output:
    """`path`, `offset` (first line, from 1), `limit` (lines)."""
    path = text(params, "path")
    data = base64.b64decode(files.run(call, {"op": "read", "path": path})["base64"])
    kind = _image(data)
    if kind:
        picture = {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": kind}
        return {"content": [{"type": "text", "text": f"Read image file [{kind}]"}, picture]}
    lines = data.decode("utf-8", "replace").split("\n")
    start = max(0, number(params, "offset", 1) - 1)
    if start >= len(lines):
        raise Problem(
            "out_of_range", f"Offset {start + 1} is beyond end of file ({len(lines)} lines total)", at="$.params.offset"
        )
    limit = params.get("limit")
    end = len(lines) if limit is None else min(len(lines), start + number(params, "limit", 0, least=0))
    cut = head("\n".join(lines[start:end]))
    most = size_of(MAX_BYTES)
    if cut["firstLineExceedsLimit"]:
        length = size_of(len(lines[start].encode("utf-8", "replace")))
        return result(
            f"[Line {start + 1} is {length}, exceeds {most} limit. Read it with bash in parts.]", {"truncation": cut}
        )
    if cut["truncated"]:
        last = start + cut["outputLines"]
        why = "" if cut["truncatedBy"] == "lines" else f" ({most} limit)"
        notice = f"[Showing lines {start + 1}-{last} of {len(lines)}{why}. Use offset={last + 1} to continue.]"
        return result(f"{cut['content']}\n\n{notice}", {"truncation": cut})
    if end < len(lines):
        notice = f"[{len(lines) - end} more lines in file. Use offset={end + 1} to continue.]"
        return result(f"{cut['content']}\n\n{notice}")
    return result(cut["content"])


def write(files: FsConnector, call: Call, params: Mapping[str, Any]) -> Output:
    """`path`, `content`; folders on the way are made."""
    path, content = text(params, "path"), params.get("content")
    if not isinstance(content, str):
        raise Problem("schema_mismatch", "`content` must be a string.", at="$.params.content")
    written = {"op": "write", "path": path, "text": content}
    try:
        files.run(call, written)
    except Problem as problem:
        parent = posixpath.dirname(path)
        if problem.details.get("errno") != "ENOENT" or not parent:
            raise
        files.run(call, {"op": "mkdir", "path": parent, "recursive": True})
        files.run(call, written)
    return result(f"Successfully wrote {len(content)} bytes to {path}")


def edit(files: FsConnector, call: Call, params: Mapping[str, Any]) -> Output:
    """`path`, `edits` [{oldText, newText}], each matching exactly once in the original; all or none."""
    path = text(params, "path")
    edits = params.get("edits") or [params]
    call.policy.permit("read", call.roots.resource(path))
    original = base64.b64decode(files.run(call, {"op": "read", "path": path})["base64"]).decode("utf-8", "replace")
    body = original.removeprefix("\ufeff")
    windows = "\r\n" in body
    plain = body.replace("\r\n", "\n")
    changed = _apply(plain, edits, path)
    if changed == plain:
        raise Problem("invalid_request", f"No changes made to {path}: the replacement is the same text.", path=path)
    final = changed.replace("\n", "\r\n") if windows else changed
    files.run(call, {"op": "write", "path": path, "text": ("\ufeff" if body != original else "") + final})
    diff, first = _diff(plain, changed)
    return result(f"Successfully replaced {len(edits)} block(s) in {path}.", {"diff": diff, "firstChangedLine": first})


def _apply(content: str, edits: Any, path: str) -> str:
    places: list[tuple[int, str, str]] = []
    for index, item in enumerate(edits):
        old, new = (item.get("oldText"), item.get("newText")) if isinstance(item, Mapping) else (None, None)
        if not isinstance(old, str) or not isinstance(new, str) or not old:
            raise Problem(
                "schema_mismatch", "An edit has `oldText`, not empty, and `newText`.", at=f"$.params.edits[{index}]"
            )
        old = old.replace("\r\n", "\n")
        count = content.count(old)
        if count != 1:
            what = "Could not find the exact text" if count == 0 else f"Found {count} occurrences of the text"
            raise Problem(
                "invalid_request",
                f"{what} in {path}. The old text must match exactly once.",
                at=f"$.params.edits[{index}]",
            )
        places.append((content.index(old), old, new.replace("\r\n", "\n")))
    places.sort()
    for (start, old, _), (after, _, _) in itertools.pairwise(places):
        if start + len(old) > after:
            raise Problem("invalid_request", f"Two edits of {path} overlap.", path=path)
    for start, old, new in reversed(places):
        content = content[:start] + new + content[start + len(old) :]
    return content


def _diff(before: str, after: str) -> tuple[str, int]:
    """Numbered lines with their change, a few lines of context around each."""
    if before.endswith("\n") and after.endswith("\n"):
        before, after = before[:-1], after[:-1]  # the end of the last line is no line of its own
    old, new = before.split("\n"), after.split("\n")
    width = len(str(max(len(old), len(new))))
    lines: list[str] = []
    first = 0
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(4):
        if lines:
            lines.append(f" {'':>{width}} ...")
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                lines += [f" {number_ + 1:>{width}} {old[number_]}" for number_ in range(old_start, old_end)]
                continue
            first = first or new_start + 1
            lines += [f"-{number_ + 1:>{width}} {old[number_]}" for number_ in range(old_start, old_end)]
            lines += [f"+{number_ + 1:>{width}} {new[number_]}" for number_ in range(new_start, new_end)]
    return "\n".join(lines), first


def ls(files: FsConnector, call: Call, params: Mapping[str, Any]) -> Output:
    """`path`, `limit`; folders end in a slash."""
    path, limit = text(params, "path", "."), number(params, "limit", LS_LIMIT, least=1)
    found = files.run(call, {"op": "list", "path": path})["entries"]
    names = [entry["name"] + ("/" if _is_folder(files, call, path, entry) else "") for entry in found]
    names.sort(key=lambda name: (name.rstrip("/").lower(), name))
    if not names:
        return result("(empty directory)")
    cut = head("\n".join(names[:limit]), max_lines=2**53)
    details, notices = dict[str, Any](), list[str]()
    if len(names) > limit:
        notices.append(f"{limit} entries limit reached. Use limit={limit * 2} for more")
        details["entryLimitReached"] = limit
    if cut["truncated"]:
        notices.append(f"{size_of(MAX_BYTES)} limit reached")
        details["truncation"] = cut
    return result(cut["content"] + (f"\n\n[{'. '.join(notices)}]" if notices else ""), details)


def _is_folder(files: FsConnector, call: Call, path: str, entry: Mapping[str, str]) -> bool:
    if entry["kind"] != "symlink":
        return entry["kind"] == "directory"
    try:
        facts = files.run(call, {"op": "stat", "path": posixpath.join(path, entry["name"])})
    except Problem:
        return False
    return bool(facts["kind"] == "directory")


def _image(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if data.startswith(magic)), None)


# Cutting long output


def size_of(count: int) -> str:
    if count < 1024:
        return f"{count}B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f}KB"
    return f"{count / (1024 * 1024):.1f}MB"


def head(content: str, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The first lines that fit; nothing when already the first does not."""
    lines = content.split("\n")
    total = len(content.encode("utf-8", "replace"))
    if len(lines) <= max_lines and total <= max_bytes:
        return _cut(content, None, lines, total, len(lines), max_lines, max_bytes)
    kept, reason = _fitting(lines[:max_lines], max_bytes)
    result = _cut("\n".join(lines[:kept]), reason, lines, total, kept, max_lines, max_bytes)
    return {**result, "firstLineExceedsLimit": kept == 0 and reason == "bytes"}


def tail(content: str, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The last lines that fit; of a single line that does not, its end."""
    lines = content.split("\n")
    total = len(content.encode("utf-8", "replace"))
    if len(lines) <= max_lines and total <= max_bytes:
        return _cut(content, None, lines, total, len(lines), max_lines, max_bytes)
    kept, reason = _fitting(reversed(lines[-max_lines:]), max_bytes)
    if kept == 0:
        text = lines[-1].encode("utf-8", "replace")[-max_bytes:].decode("utf-8", "ignore")
        result = _cut(text, reason, lines, total, 1, max_lines, max_bytes)
        return {**result, "lastLinePartial": True}
    return _cut("\n".join(lines[-kept:]), reason, lines, total, kept, max_lines, max_bytes)


def _fitting(lines: Iterable[str], max_bytes: int) -> tuple[int, str]:
    """How many of `lines` fit into `max_bytes`, and what stopped the count."""
    kept, used = 0, -1  # the first line has no line break before it
    for line in lines:
        used += len(line.encode("utf-8", "replace")) + 1
        if used > max_bytes:
            return kept, "bytes"
        kept += 1
    return kept, "lines"


def cut_line(content: str, limit: int = MAX_GREP_LINE) -> tuple[str, bool]:
    return (content[:limit] + "... [truncated]", True) if len(content) > limit else (content, False)


def _cut(
    content: str, reason: str | None, lines: list[str], total: int, kept: int, max_lines: int, max_bytes: int
) -> dict[str, Any]:
    return {
        "content": content,
        "truncated": reason is not None,
        "truncatedBy": reason,
        "totalLines": len(lines),
        "totalBytes": total,
        "outputLines": kept,
        "outputBytes": len(content.encode("utf-8", "replace")),
        "lastLinePartial": False,
        "firstLineExceedsLimit": False,
        "maxLines": max_lines,
        "maxBytes": max_bytes,
    }
