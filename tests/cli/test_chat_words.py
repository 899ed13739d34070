"""What a line of a chat may be beside text: keys, files and commands for the shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay.cli.chat_keys import bindings, pressed, sequence
from forestay.cli.file_words import file_words
from forestay.extensions import shell_line


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("ctrl+g", r"\C-g"),
        ("Alt+P", r"\ep"),
        ("ctrl+shift+p", r"\e[112;6u"),
        ("f1", r"\eOP"),
        ("f12", r"\e[24~"),
        ("shift+tab", r"\e[Z"),
        ("ctrl+c", None),
        ("ctrl+m", None),
        ("f13", None),
        ("enter", None),
        ('ctrl+"', None),
    ],
)
def test_a_key_is_bound_as_a_terminal_sends_it_and_never_one_of_the_terminals_own(key: str, sent: str | None) -> None:
    assert sequence(key) == sent


def test_a_key_keeps_what_was_typed() -> None:
    assert bindings(["ctrl+g", "ctrl+c"]) == [r'"\C-g": "\C-a/key ctrl+g -- \C-e\C-m"']
    assert pressed("ctrl+g -- half a line") == ("ctrl+g", "half a line")
    assert pressed("ctrl+g --") == ("ctrl+g", "")
    assert pressed("ctrl+g") == ("ctrl+g", "")


def test_files_are_completed_inside_the_project_alone(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    for name in ("src/one.py", "src/other.py", "read me.md", ".hidden", "so\x1bsly"):
        (root / name).write_text("")
    assert file_words(root, "@") == ["@read me.md", "@src/"]
    assert file_words(root, "@src/o") == ["@src/one.py", "@src/other.py"]
    assert file_words(root, "@.h") == ["@.hidden"]
    for outside in ("@../", "@/etc/", "@src/../../", "@nowhere/", "src", "@a\0b"):
        assert file_words(root, outside) == []


def test_a_line_for_the_shell() -> None:
    assert shell_line(" !ls -l ") == ("ls -l", False)
    assert shell_line("!! ls") == ("ls", True)
    assert shell_line("!") is None and shell_line("!!") is None and shell_line("ls!") is None
