"""Every target holds on its corpus and on mutations of it; the search that looks for more is `make fuzz`."""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from forestay.kernel import Problem
from tests.fuzz.campaign import Row, search, table
from tests.fuzz.corpus import FOLDER, keep, kept
from tests.fuzz.coverage import lines_in, reached
from tests.fuzz.mutation import mutations
from tests.fuzz.report import Defect, Report
from tests.fuzz.target import Target
from tests.fuzz.targets import SLOW_SECONDS, TARGETS

FEW, MANY = 150, 20_000


def hold(target: Target, count: int) -> None:
    pool = kept(target)
    for data in (*pool, *islice(mutations(pool, target.words, 1, target.longest), count)):
        target.try_on(data)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_target_holds_on_its_corpus_and_on_mutations_of_it(name: str) -> None:
    hold(TARGETS[name], FEW)


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_target_holds_on_many_mutations(name: str) -> None:
    hold(TARGETS[name], MANY)


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_no_input_of_the_corpus_takes_long(name: str) -> None:
    """The best of three: what else the machine does only adds."""
    target = TARGETS[name]
    for data in kept(target):
        least = math.inf
        for _ in range(3):
            began = time.process_time()
            target.try_on(data)
            least = min(least, time.process_time() - began)
        assert least < SLOW_SECONDS, data


def test_each_file_of_the_corpus_belongs_to_a_target() -> None:
    assert {file.stem for file in FOLDER.glob("*.txt")} <= TARGETS.keys()


def test_a_target_reaches_its_modules() -> None:
    """A target whose seeds are all refused at the first line proves nothing."""
    for target in TARGETS.values():
        modules = target.measured()
        there = lines_in(modules)
        found = reached(modules, lambda target=target: [target.try_on(data) for data in kept(target)])  # type: ignore[misc]
        assert len(found) > len(there) // 10, target.name


# The search itself


@pytest.fixture
def parser(tmp_path: Path) -> ModuleType:
    """A parser with a defect behind two conditions."""
    file = tmp_path / "fragile_parser.py"
    file.write_text(
        "from forestay.kernel import Problem\n"
        "def read(data):\n"
        "    if not data.startswith(b'ab'):\n"
        "        raise Problem('invalid_json', 'no')\n"
        "    if data[2:3] == b'c':\n"
        "        return data[len(data)]\n"
        "    return None\n"
    )
    spec = importlib.util.spec_from_file_location("fragile_parser", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fragile_parser"] = module
    spec.loader.exec_module(module)
    return module


def test_mutations_find_a_defect_and_the_corpus_keeps_what_reaches_new_lines(
    parser: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("fragile", parser.read, ("fragile_parser",), (b"ab",), (b"c",))
    assert target.holds_on(b"x") and target.holds_on(b"abd") and not target.holds_on(b"abc")
    found = list(islice(mutations([b"ab"], [b"c"], 1, 64), 500))
    assert not all(map(target.holds_on, found)), "the defect is found"
    assert found == list(islice(mutations([b"ab"], [b"c"], 1, 64), 500)), "and found again"
    monkeypatch.setattr("tests.fuzz.corpus.FOLDER", tmp_path)
    keep(target, [b"ab", b"abcc", b"abc", b"x", b"xx"])
    assert kept(target) == [b"ab", b"x", b"abc"], "the shortest that reaches a line, and no seed twice"


def test_lines_of_functions_are_counted_and_others_not(parser: ModuleType) -> None:
    assert {line for _, line in lines_in([parser])} == {3, 4, 5, 6, 7}
    assert {line for _, line in reached([parser], lambda: parser.read(b"abd"))} == {3, 5, 7}


def test_the_table_says_what_was_found() -> None:
    report = Report({"a.py:1 KeyError": Defect("a.py:1 KeyError", "KeyError: 'x'", b"\x00|")}, 3000, 2.0, 0.01)
    page = table([Row(TARGETS["cursor"], report, 30, 40, 7)], 2)
    assert "| cursor | envelope.pages | 3,000 | 1,500 | 75 % of 40 | 7 | 1 |" in page
    assert "- cursor: KeyError: 'x' (a.py:1 KeyError), input `b'\\x00|'`" in page


@pytest.mark.sweep
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="make fuzz installs atheris")
def test_a_guided_search_runs_and_reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.fuzz.corpus.FOLDER", tmp_path)
    row = search(TARGETS["cursor"], 2)
    assert row.report.executions > 100 and not row.report.defects
    assert (tmp_path / "cursor.txt").is_file()


def test_a_refusal_without_words_is_a_defect() -> None:
    def silent(data: bytes) -> None:
        raise Problem("invalid_json", "")

    with pytest.raises(AssertionError):
        Target("silent", silent, (), (), ()).try_on(b"")
