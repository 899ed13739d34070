"""Two processes read what one would read (A1 to A3)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forestay.extensions.compiler import build as building
from forestay.extensions.compiler.scan import ahead, reading
from forestay.extensions.compiler.scan.reading import Reading, Text, is_kept
from forestay.extensions.compiler.source import source

Write = Callable[[dict[str, str]], Path]
TEXTS = [Text(f"{at}.ts", f"eval('x' + {at}); fetch('http://h{at}')".encode() * 20, "ts") for at in range(6)]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What this process itself reads; two processors, and nothing read before."""
    names: list[str] = []
    make = reading._read

    def noted(name: str, text: bytes, dialect: reading.Dialect) -> Reading:
        names.append(name)
        return make(name, text, dialect)

    def copied() -> int:
        pids.append(fork())
        return pids[-1]

    pids: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", copied)
    monkeypatch.setattr(reading, "_read", noted)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    reading.forget()
    yield names
    reading.forget()
    for pid in pids:
        with pytest.raises(ChildProcessError):  # it is gone, also as a remnant
            os.waitpid(pid, os.WNOHANG)


def _ahead(program: Callable[[], object] = lambda: None, *, may_copy: bool = True) -> None:
    ahead.read_ahead(TEXTS, program, 100, may_copy=may_copy, worth=0)


def test_a1_half_of_the_texts_is_read_by_the_copy(here: list[str]) -> None:
    _ahead()
    assert all(is_kept(text) for text in TEXTS)
    assert 0 < len(here) < len(TEXTS)
    told = [reading.read(text.name, text.contents, text.dialect) for text in TEXTS]
    assert len(here) < len(TEXTS)
    reading.forget()
    assert told == [reading.read(text.name, text.contents, text.dialect) for text in TEXTS]
    assert all(one.findings and one.uses for one in told)


def test_a1_a_copy_that_fails_leaves_its_texts_to_whoever_asks(
    here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "_answer", lambda texts, into: os._exit(1))
    _ahead()
    assert not all(is_kept(text) for text in TEXTS)
    assert all(reading.read(text.name, text.contents, text.dialect).findings for text in TEXTS)
    assert sorted(here) == [text.name for text in TEXTS]


def test_a2_the_copy_ends_when_this_process_is_interrupted() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _ahead(interrupted)


def test_a3_nothing_is_copied_beside_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it was copied"))
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        _ahead(may_copy=False)
    finally:
        done.set()
        thread.join()
    assert not any(is_kept(text) for text in TEXTS)


def test_an_artifact_is_the_same_with_a_copy(
    extension: Write, here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{at}.js": f"export const v{at} = (pi) => eval('x' + pi + {at});\n" for at in range(5)}
    files["index.js"] = "".join(f"import {{ v{at} }} from './{at}.js';\n" for at in range(5))
    files["index.js"] += "export default (pi) => [v0, v1, v2, v3, v4].map((v) => v(pi));"
    found = source(extension(files))
    alone = building.compile_source(found)
    reading.forget()
    monkeypatch.setattr(ahead.read_ahead, "__kwdefaults__", {"may_copy": False, "worth": 0})
    here.clear()
    assert building.compile_source(found, may_copy=True) == alone
    assert 0 < len(here) < len(files)
