"""The search tools: grep and find, over a walk that never leaves the roots and never follows a link."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from forestay.extensions.connectors.contract import Call, Output, number, text
from forestay.extensions.connectors.fs import FsConnector
from forestay.extensions.connectors.tool import MAX_BYTES, MAX_GREP_LINE, cut_line, head, result, size_of
from forestay.kernel import Problem, check_path_pattern, match_path

GREP_LIMIT = 100
FIND_LIMIT = 1000
MAX_FILES = 50_000
MAX_FILE_BYTES = 4 * 1024 * 1024
_SKIPPED = {".git", "node_modules"}


def grep(files: FsConnector, call: Call, params: Mapping[str, Any]) -> Output:
    """`pattern`, `path`, `glob`, `ignoreCase`, `literal`, `context`, `limit`."""
    match = _matcher(params)
    path, limit = text(params, "path", "."), number(params, "limit", GREP_LIMIT, least=1)
    around = number(params, "context", 0, most=100)
    glob = text(params, "glob", "") or None
    found, cut_lines, lines = 0, False, list[str]()
    for name, content in _contents(files, call, path, glob):
        for index, hit in _hits(content, match, around, limit - found):
            found += hit
            shown, was_cut = cut_line(content[index].rstrip("\r"))
            cut_lines = cut_lines or was_cut
            lines.append(f"{name}:{index + 1}: {shown}" if hit else f"{name}-{index + 1}- {shown}")
        if found >= limit:
            break
    if not found:
        return result("No matches found")
    details, notices = dict[str, Any](), []
    if found >= limit:
        notices.append(f"{limit} matches limit reached. Use limit={limit * 2} for more, or refine pattern")
        details["matchLimitReached"] = limit
    cut = head("\n".join(lines), max_lines=2**53)
    if cut["truncated"]:
        notices.append(f"{size_of(MAX_BYTES)} limit reached")
        details["truncation"] = cut
    if cut_lines:
        notices.append(f"Some lines truncated to {MAX_GREP_LINE} chars. Use read tool to see full lines")
        details["linesTruncated"] = True
    return result(cut["content"] + (f"\n\n[{'. '.join(notices)}]" if notices else ""), details)


def find(files: FsConnector, call: Call, params: Mapping[str, Any]) -> Output:
    """`pattern` (a glob; without a slash it matches at any depth), `path`, `limit`."""
    pattern, path = _glob(text(params, "pattern")), text(params, "path", ".")
    limit = number(params, "limit", FIND_LIMIT, least=1)
    names: list[str] = []
    for name, kind in walk(files, call, path):
        if match_path(pattern, name):
            names.append(name + ("/" if kind == "directory" else ""))
            if len(names) >= limit:
                break
    if not names:
        return result("No files found matching pattern")
    cut = head("\n".join(names), max_lines=2**53)
    details, notices = dict[str, Any](), []
    if len(names) >= limit:
        notices.append(f"{limit} results limit reached. Use limit={limit * 2} for more, or refine pattern")
        details["resultLimitReached"] = limit
    if cut["truncated"]:
        notices.append(f"{size_of(MAX_BYTES)} limit reached")
        details["truncation"] = cut
    return result(cut["content"] + (f"\n\n[{'. '.join(notices)}]" if notices else ""), details)


def walk(files: FsConnector, call: Call, path: str) -> Iterator[tuple[str, str]]:
    """Yield everything below `path` as relative name and kind, a folder before its contents; follow no links."""
    queue, seen = [""], 0
    while queue:
        here = queue.pop()
        call.check()
        try:
            entries = files.run(call, {"op": "list", "path": posixpath.join(path, here)})["entries"]
        except Problem:
            if not here:
                raise
            continue
        folders = []
        for entry in entries:
            seen += 1
            if seen > MAX_FILES:
                return
            if entry["name"] in _SKIPPED:
                continue
            name = posixpath.join(here, entry["name"])
            yield name, entry["kind"]
            if entry["kind"] == "directory":
                folders.append(name)
        queue += reversed(folders)


def _contents(files: FsConnector, call: Call, path: str, glob: str | None) -> Iterator[tuple[str, list[str]]]:
    if files.run(call, {"op": "stat", "path": path})["kind"] != "directory":
        yield posixpath.basename(path), _lines(files, call, path) or []
        return
    pattern = _glob(glob) if glob else None
    for name, kind in walk(files, call, path):
        if kind == "file" and (pattern is None or match_path(pattern, name)):
            lines = _lines(files, call, posixpath.join(path, name))
            if lines is not None:
                yield name, lines


def _lines(files: FsConnector, call: Call, path: str) -> list[str] | None:
    """Return the lines of a text file; None for a file that is binary or may not be read."""
    try:
        data = base64.b64decode(files.run(call, {"op": "read", "path": path, "length": MAX_FILE_BYTES})["base64"])
    except Problem:
        return None
    return None if b"\0" in data[:8192] else data.decode("utf-8", "replace").split("\n")


def _hits(lines: list[str], match: Any, around: int, limit: int) -> Iterator[tuple[int, bool]]:
    """Yield each line to show once, in order, with whether it is a hit."""
    hits = []
    for index, line in enumerate(lines):
        if match(line):
            hits.append(index)
            if len(hits) >= limit:
                break
    wanted = set(hits)
    last = -1
    for index in hits:
        for shown in range(max(last + 1, index - around), min(len(lines), index + around + 1)):
            yield shown, shown in wanted
            last = shown


def _matcher(params: Mapping[str, Any]) -> Any:
    """Return a search function that takes linear time for every pattern (RE2)."""
    import re2

    pattern = text(params, "pattern")
    options = re2.Options()
    options.case_sensitive = params.get("ignoreCase") is not True
    options.literal = params.get("literal") is True
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        return re2.compile(pattern, options).search
    except re2.error as error:
        raise Problem("pattern_invalid", f"The pattern cannot be used: {error}", at="$.params.pattern") from error


def _glob(pattern: str) -> str:
    plain = check_path_pattern(pattern.removeprefix("./").lstrip("/") or "*")
    return plain if "/" in plain else f"**/{plain}"
