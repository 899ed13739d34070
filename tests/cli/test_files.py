"""Every file that cannot be read is named, with the reason and what to do."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from forestay.cli.files import decoded, fix_of, read_bytes, read_text, write_file
from forestay.kernel import Problem


def refused(path: Path, **options: object) -> Problem:
    with pytest.raises(Problem) as caught:
        read_text(path, **options)  # type: ignore[arg-type]
    assert path.name in caught.value.message
    assert fix_of(caught.value)
    return caught.value


def test_a_missing_file_a_folder_and_one_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(tmp_path / "gone.txt").key == "file_missing"
    assert "folder" in refused(tmp_path).message
    (tmp_path / "shut.txt").write_text("x")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)  # root may read everything
    problem = refused(tmp_path / "shut.txt")
    assert (problem.key, problem.exit_code) == ("file_unreadable", 5)
    assert "chmod" in fix_of(problem)


@pytest.mark.parametrize(
    ("content", "says", "fix"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary", "text file"),
        (b"caf\xe9 is open\n", "byte 3 (0xe9) cannot be read. It may be latin-1", "--encoding latin-1"),
        (b"caf\xe9 \x93quoted\x94", "byte 3 (0xe9)", "--encoding cp1252"),
        ("hallo alle".encode("utf-16-le"), "It may be utf-16-le", "--encoding utf-16-le"),
        ("hallo alle".encode("utf-16-be"), "It may be utf-16-be", "--encoding utf-16-be"),
        (b"\xff\xfea", "is not utf-16", "UTF-8"),
    ],
)
def test_what_is_not_text_says_why(tmp_path: Path, content: bytes, says: str, fix: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    problem = refused(path)
    assert problem.key == "file_not_text"
    assert says in problem.message
    assert fix in fix_of(problem)


def test_the_size_and_the_limit_are_told(tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    path.write_bytes(b"x" * 11)
    assert read_bytes(path, 11) == b"x" * 11
    problem = refused(path, limit=10)
    assert problem.key == "payload_too_large"
    assert "11 bytes; the limit is 10" in problem.message


def test_byte_order_marks_and_encodings_that_are_named() -> None:
    for how in ("utf-8-sig", "utf-16", "utf-32"):
        assert decoded("café".encode(how), "a.txt") == "café"
    assert decoded(b"caf\xe9", "a.txt", "latin-1") == "café"
    assert decoded("hallo".encode("utf-16-le"), "a.txt", "utf-16-le") == "hallo"
    with pytest.raises(Problem, match="no encoding"):
        decoded(b"x", "a.txt", "klingon")


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("through a pipe"))
    writer.start()
    assert read_text(pipe, 100) == "through a pipe"
    writer.join()


def test_an_endless_device_stops_at_the_limit() -> None:
    with pytest.raises(Problem, match="more than 1,000 bytes"):
        read_bytes(Path("/dev/zero"), 1000)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    target = tmp_path / "none" / "report.xml"
    with pytest.raises(Problem) as refused:
        write_file(target, "text")
    assert refused.value.key == "io_failed" and str(target) in refused.value.message
    write_file(target, "text", with_folders=True)
    assert target.read_text() == "text"
