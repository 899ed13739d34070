"""Documents are read by a process apart: bounded, confined, and with a reason where they cannot be read."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import docx
import pytest

from forestay.cli.documents import answered, document_text, read_source
from forestay.extensions import Sandbox
from forestay.kernel import Problem

from ..relay.test_documents import PAGE, pdf_of, word_of

LIMIT = 1_000_000


async def test_every_kind_is_read_by_its_marks_and_text_stays_text(tmp_path: Path) -> None:
    files = {
        "rules.pdf": pdf_of("The basin is deep."),
        "rules.docx": word_of(),
        "page.html": PAGE.replace("twelve", "zwölf").encode("latin-1"),
        "notes.md": b"# <html> is a tag\n",
    }
    found = {}
    for name, content in files.items():
        await asyncio.to_thread((tmp_path / name).write_bytes, content)
        found[name] = await read_source(tmp_path / name, LIMIT)
    assert found["rules.pdf"] == "# Page 1\n\nThe basin is deep.\n"
    assert "A berth costs 120 crowns." in found["rules.docx"]
    assert "It holds zwölf boats & a crane." in found["page.html"]
    assert found["notes.md"] == "# <html> is a tag\n"


async def test_a_damaged_document_is_named_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "half.pdf"
    await asyncio.to_thread(path.write_bytes, pdf_of("Text.")[:60])
    with pytest.raises(Problem) as caught:
        await read_source(path, LIMIT)
    assert caught.value.key == "file_not_text"
    assert "half.pdf" in caught.value.message
    assert caught.value.details["fix"]


async def test_a_document_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(Problem) as caught:
        await document_text(b"<p>" * 2_000_000, "html", "deep.html", LIMIT, seconds=0.01)
    assert caught.value.key == "timeout"


@pytest.mark.skipif(Sandbox.detect().kind == "none", reason="this system confines nothing")
async def test_the_reader_sees_no_file_of_yours_and_no_network(tmp_path: Path) -> None:
    path = tmp_path / "diary.txt"
    await asyncio.to_thread(path.write_text, "mine")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        tries = f"""
import socket
def tried(what):
    try:
        return what() and "done"
    except OSError:
        return "refused"
print(tried(lambda: open({str(path)!r}).read()), tried(lambda: open({str(tmp_path / "new")!r}, "w")),
      tried(lambda: socket.create_connection({server.sockets[0].getsockname()!r}, 2)),
      tried(lambda: open({docx.__file__!r}).read()))
"""
        said = await asyncio.to_thread(answered, [sys.executable, "-P", "-B", "-c", tries], b"", 1000, 60)
    assert said is not None and said.decode().split() == ["refused", "refused", "refused", "done"]
