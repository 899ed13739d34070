"""Reads sources for ingestion: text directly, documents by a confined process that converts them to text.

D1  Only another process reads the bytes of a document: bounded in memory and time, without a network and without
    files where the system offers a sandbox.
D2  A document that cannot be read is a Problem that names it, the reason, and what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from forestay.cli.files import decoded, read_bytes, shown
from forestay.extensions import Confinement, Launch, Sandbox
from forestay.kernel import Problem
from forestay.relay import Converted, DocumentKind, charset_of, document_kind

SECONDS = 60
_CHILD = "forestay.relay.documents.child"
_ENVIRON = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_INSTALLED = str(Path(__file__).parents[2])
_ESCAPED = 6  # the most bytes of a character in the answer


async def read_source(path: Path, limit: int, encoding: str | None = None) -> str:
    """Return the text of a file or document; more than `limit` bytes are a Problem."""
    content, name = await asyncio.to_thread(read_bytes, path, limit), shown(path)
    kind = document_kind(content, name)
    if kind is None:
        return decoded(content, name, encoding)
    if kind == "html":
        content = decoded(content, name, encoding or charset_of(content)).encode()
    return await document_text(content, kind, name, limit)


async def document_text(content: bytes, kind: DocumentKind, name: str, most: int, *, seconds: float = SECONDS) -> str:
    """Return the text of a document, at most `most` characters (D1)."""
    command = [sys.executable, "-P", "-B", "-m", _CHILD, kind, str(math.ceil(seconds)), str(most)]
    answer = await asyncio.to_thread(answered, command, content, _ESCAPED * most, seconds)
    if answer is None:
        raise Problem(
            "timeout", f"{name} was not read within {seconds:g} seconds.", at=name, seconds=seconds, fix="Split it."
        )
    return _text(answer, kind, name)


def answered(command: list[str], content: bytes, most: int, seconds: float) -> bytes | None:
    """Return what a program of this installation answers to `content`, at most `most` bytes; None if it takes too long.

    The program can read only the installation, and is killed when the call ends. This blocks: call it on a thread.
    """
    launch = _confined(command)
    try:
        child = subprocess.Popen(
            launch.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_ENVIRON,
            cwd="/",
            pass_fds=(launch.descriptor,),
            start_new_session=True,
        )
    finally:
        os.close(launch.descriptor)
    late = threading.Event()

    def give_up() -> None:
        late.set()
        _end(child)

    watch = threading.Timer(seconds, give_up)
    with child:
        watch.start()
        try:
            assert child.stdin is not None and child.stdout is not None
            with contextlib.suppress(BrokenPipeError), child.stdin:
                child.stdin.write(content)
            answer = child.stdout.read(most)
        finally:
            watch.cancel()
            _end(child)
    return None if late.is_set() else answer


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _confined(command: list[str]) -> Launch:
    sandbox = Sandbox.detect()
    own = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path} - {str(Path.cwd())} | {_INSTALLED}
    limits = Confinement(read=tuple(sorted(place for place in own if place.startswith("/"))))
    return sandbox.wrap(command, "/", sandbox.prepare(limits), _ENVIRON, search="")


def _text(answer: bytes, kind: DocumentKind, name: str) -> str:
    try:
        found = msgspec.json.decode(answer, type=Converted)
    except msgspec.DecodeError:
        found = Converted(refused="could not be read within its bounds of time and memory", fix="Split it.")
    if found.package:
        raise Problem(
            "package_missing",
            f"{name} is a {kind.upper()} file; the package {found.package} that reads it is not installed.",
            at=name,
            extra="documents",
            fix="Install the extra `documents` with the package.",
        )
    if found.refused:
        raise Problem("file_not_text", f"{name} {found.refused}.", at=name, kind=kind, fix=found.fix)
    return found.text
