"""The soak's verdict says what is wrong, and only that; a short soak goes through a real host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.soak import project
from benchmarks.soak.load import KINDS, MIX, Done
from benchmarks.soak.verdict import NOISE_MIB, SLOPE_MIB, Memory, Soak, faults, slope, table

MINUTES = 6


def soak(*, taken: float = 0.01, last: float = 0.01, growth: float = 0.0, error: str | None = None) -> Soak:
    """Six minutes at ten operations a second; in the last third they take `last`, memory grows by `growth` a minute."""
    done = [
        Done(KINDS[number % len(KINDS)], number / 10, last if number >= MINUTES * 400 else taken, None)
        for number in range(MINUTES * 600)
    ]
    if error:
        done[7] = done[7]._replace(error=error)
    memory = [Memory(float(second), 200 + growth * second / 60, 100 + growth * second / 60) for second in range(360)]
    return Soak(0.0, MINUTES * 60.0, 12.5, 10.0, done, memory, 0, True, 100)


def test_a_soak_that_held_has_no_fault() -> None:
    assert faults(soak()) == []


def test_s1_one_error_fails_it() -> None:
    assert faults(soak(error="run: broken")) == ["S1 1 times run: broken"]


def test_s1_operations_that_could_not_begin_fail_it() -> None:
    assert "could not begin" in faults(soak()._replace(behind=3))[0]


def test_s2_memory_that_grows_fails_it() -> None:
    grown = soak(growth=SLOPE_MIB * 1.1)
    assert slope(grown.memory) == pytest.approx(SLOPE_MIB * 1.1)
    assert faults(grown)[0].startswith("S2")
    assert faults(soak(growth=SLOPE_MIB * 0.9)) == []


def test_s2_a_short_soak_is_not_judged_by_noise() -> None:
    steep = soak(growth=NOISE_MIB * 2)
    assert faults(steep)
    assert faults(steep._replace(seconds=20.0, memory=steep.memory[:20])) == []


def test_s3_a_p99_that_doubles_fails_it() -> None:
    assert [fault[:2] for fault in faults(soak(last=0.021))] == ["S3"] * len(KINDS)
    assert faults(soak(last=0.019)) == []


def test_s4_a_ledger_that_does_not_verify_fails_it() -> None:
    assert faults(soak()._replace(ledger_ok=False)) == ["S4 the ledger does not verify"]


def test_the_table_has_a_row_a_minute() -> None:
    head, _, *rows = table(soak())
    assert len(rows) == MINUTES
    assert all(row.count("|") == head.count("|") for row in rows)
    assert rows[0].startswith("| 1 | 600 | 0 | ")


def test_the_mix_is_as_it_is_told() -> None:
    assert {kind: MIX.count(kind) for kind in KINDS} == {"run": 10, "tool": 4, "agent": 3, "relay": 3}


@pytest.mark.sweep
def test_a_short_soak_of_a_real_host_finds_nothing(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """Twenty seconds: errors and an unverified ledger fail it; times and memory are for a quiet machine."""
    import sys

    from benchmarks.soak.__main__ import main

    monkeypatch.setattr(sys, "argv", ["soak", "20", "--no-report"])
    main()
    said = capsys.readouterr().out
    assert ", 0 failed" in said and ", verified" in said
    assert "S1" not in said and "S4" not in said


def test_the_project_is_whole(tmp_path: Path) -> None:
    project.write(tmp_path)
    assert json.loads((tmp_path / "workflows" / "tool.json").read_text())["nodes"][0]["typeId"] == "core.tool"
    assert len((tmp_path / "notes" / "berths.md").read_text().split()) == project.WORDS
