"""A settings file that a command changes keeps what a person wrote into it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from forestay.cli.init import TEMPLATE
from forestay.cli.settings_file import SettingsFile
from forestay.kernel import Problem

ENTRY = ("models", "entries", "mine")
ODD = """\
# mine
[http]   # the port
port = 9000

[models.entries.a]
model = "x"     # a comment behind

[output]
format = "json"

[models.entries.b]
# a comment before
model = "y"
"""


@pytest.mark.parametrize("text", ["", TEMPLATE, ODD, "models.default = 'local'\n"])
def test_w1_what_was_written_stays_and_adding_can_be_taken_back(text: str, tmp_path: Path) -> None:
    path = tmp_path / "forestay.toml"
    path.write_text(text)
    before = tomllib.loads(text)
    SettingsFile(path).change({ENTRY: {"model": "m", "headers": {"X-Title": "a b"}}})
    added = path.read_text()
    assert set(text.splitlines()) <= set(added.splitlines())
    assert SettingsFile(path).get(*ENTRY) == {"model": "m", "headers": {"X-Title": "a b"}}
    SettingsFile(path).change({ENTRY: None})
    left = tomllib.loads(path.read_text())
    assert {name: table for name, table in left.items() if table} == {
        name: item for name, item in before.items() if item
    }
    assert set(text.splitlines()) <= set(path.read_text().splitlines())


def test_w2_a_file_that_cannot_be_changed_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "forestay.toml"
    dotted = "[models]\nentries.a.model = 'x'\n"
    for text in ("[models\n", "[models]\ndefualt = 'x'\n", "[models]\nentries = 3\n", dotted):
        path.write_text(text)
        with pytest.raises(Problem) as caught:
            SettingsFile(path).change({ENTRY: {"model": "m"}})
        assert caught.value.key == "config_invalid"
        assert path.read_text() == text
    assert [item.name for item in tmp_path.iterdir()] == ["forestay.toml"]


def test_a_link_stays_a_link_and_the_mode_stays(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("# mine\n")
    real.chmod(0o600)
    (tmp_path / "forestay.toml").symlink_to(real)
    SettingsFile(tmp_path / "forestay.toml").change({ENTRY: {"model": "m"}})
    assert (tmp_path / "forestay.toml").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert real.read_text().startswith("# mine\n")


def _filled(tables: dict[str, object]) -> dict[str, object]:
    return {name: table for name, table in tables.items() if table}
