"""Watches a file or a folder by polling, and emits its changes as a stream of events."""

from __future__ import annotations

import os
import posixpath
import stat

from forestay.extensions.connectors.contract import Call, Output
from forestay.extensions.connectors.paths import Place

INTERVAL = 0.1
MAX_WATCHED = 10_000

State = dict[str, tuple[int, int, int]]


def watch(call: Call, place: Place, *, recursive: bool) -> Output:
    """Check every tenth of a second until the call is cancelled; emit each change as a chunk {event, name}."""
    before = look(place, recursive=recursive)
    call.emit({"event": "ready"})
    while not call.cancelled.wait(INTERVAL):
        after = look(place, recursive=recursive)
        for event, name in changes(before, after):
            call.emit({"event": event, "name": name})
        before = after
    return {"event": "close"}


def look(place: Place, *, recursive: bool) -> State:
    """Return inode, change time and size of each watched file, by name relative to the watched folder."""
    found: State = {}
    try:
        own = os.stat(place.name or ".", dir_fd=place.folder, follow_symlinks=False)
        if not stat.S_ISDIR(own.st_mode):
            return {place.name: (own.st_ino, own.st_mtime_ns, own.st_size)}
        folder = os.open(place.name or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place.folder)
    except OSError:
        return found
    try:
        _look_into(folder, "", found, recursive)
    finally:
        os.close(folder)
    return found


def _look_into(folder: int, prefix: str, found: State, recursive: bool) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(found) >= MAX_WATCHED:
                return
            name = posixpath.join(prefix, entry.name)
            try:
                facts = entry.stat(follow_symlinks=False)
                is_folder = stat.S_ISDIR(facts.st_mode)
                # A folder's time changes with its entries, which are reported themselves.
                found[name] = (facts.st_ino, 0 if is_folder else facts.st_mtime_ns, 0 if is_folder else facts.st_size)
                if recursive and is_folder:
                    inner = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                    try:
                        _look_into(inner, name, found, recursive)
                    finally:
                        os.close(inner)
            except OSError:
                continue


def changes(before: State, after: State) -> list[tuple[str, str]]:
    """Return the events between two states, as in Node: `rename` for added and removed, `change` for new content."""
    events = [("rename", name) for name in sorted(before.keys() ^ after.keys())]
    events.extend(
        ("rename" if before[name][0] != after[name][0] else "change", name)
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    )
    return events
