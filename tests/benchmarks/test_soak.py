"""The soak's verdict says what is wrong, and only that; a short soak goes through a real host."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks.soak import project
from benchmarks.soak.load import KINDS, MIX
from benchmarks.soak.picture import _rounded, panels, picture
from benchmarks.soak.report import findings, table
from benchmarks.soak.verdict import LOG_MIB, NOISE_MIB, SLOPE_MIB, Done, Restart, Sample, Soak, faults, slope

MINUTES = 6


def soak(*, taken: float = 0.01, last: float = 0.01, growth: float = 0.0, error: str | None = None) -> Soak:
    """Six minutes at ten operations a second; in the last third they take `last`, memory grows by `growth` a minute."""
    done = [
        Done(KINDS[number % len(KINDS)], number / 10, last if number >= MINUTES * 400 else taken, None)
        for number in range(MINUTES * 600)
    ]
    if error:
        done[7] = done[7]._replace(error=error)
    samples = [Sample(float(second), 200 + growth * second / 60, 100 + growth * second / 60) for second in range(360)]
    return Soak(0.0, MINUTES * 60.0, 12.5, 10.0, done, samples, 0, True, 100)


def test_a_soak_that_held_has_no_fault() -> None:
    assert faults(soak()) == []


def test_s1_one_error_fails_it() -> None:
    assert faults(soak(error="run: broken")) == ["S1 1 times run: broken"]


def test_s1_operations_that_could_not_begin_fail_it() -> None:
    assert "could not begin" in faults(soak()._replace(behind=3))[0]


def test_s2_memory_that_grows_fails_it() -> None:
    grown = soak(growth=SLOPE_MIB * 1.1)
    assert slope(grown.samples) == pytest.approx(SLOPE_MIB * 1.1)
    assert faults(grown)[0].startswith("S2")
    assert faults(soak(growth=SLOPE_MIB * 0.9)) == []


def test_s2_a_short_soak_is_not_judged_by_noise() -> None:
    steep = soak(growth=NOISE_MIB * 2)
    assert faults(steep)
    assert faults(steep._replace(seconds=20.0, samples=steep.samples[:20])) == []


def test_s3_a_p99_that_doubles_fails_it() -> None:
    assert [fault[:2] for fault in faults(soak(last=0.021))] == ["S3"] * len(KINDS)
    assert faults(soak(last=0.019)) == []


def test_s1_an_operation_is_repeated_only_when_it_met_a_restart() -> None:
    held = soak()
    done = [item._replace(repeats=1) if item.due == 60.0 else item for item in held.done]
    repeated = held._replace(done=done)
    assert [fault[:2] for fault in faults(repeated)] == ["S1"]
    assert faults(repeated._replace(restarts=[Restart(59.0, "SIGKILL", 1.5)])) == []
    assert faults(repeated._replace(restarts=[Restart(60.5, "SIGKILL", 1.5)])) != []


def test_s2_a_restart_hides_no_growth() -> None:
    """Each life begins at its own level: what counts is how memory moves within one."""
    held = soak()
    lives = [
        Sample(float(second), 200, 100 + SLOPE_MIB * 1.5 * (second % 120) / 60, 0, second // 120)
        for second in range(360)
    ]
    assert slope(lives) == pytest.approx(SLOPE_MIB * 1.5)
    assert [fault[:2] for fault in faults(held._replace(samples=lives))] == ["S2"]
    steps = [item._replace(private=100 + 5 * item.life) for item in lives]
    assert slope(steps) == pytest.approx(0)


def test_s3_what_met_a_restart_is_not_compared() -> None:
    held = soak()
    slow = [item._replace(seconds=2.0) if 300 <= item.due < 310 else item for item in held.done]
    assert {fault[:2] for fault in faults(held._replace(done=slow))} == {"S3"}
    assert faults(held._replace(done=slow, restarts=[Restart(300.0, "SIGTERM", 10.0)])) == []


def test_s6_files_that_are_not_bounded_fail_it() -> None:
    held = soak()

    def files(**grown: Callable[[float], float]) -> list[str]:
        samples = [
            item._replace(**{name: size(item.at / 360) for name, size in grown.items()}) for item in held.samples
        ]
        return [fault.partition(" ")[0] for fault in faults(held._replace(samples=samples))]

    assert files(ledger=lambda share: 600 * share) == []
    assert files(ledger=lambda share: 600 * share**2) == ["S6"]
    assert files(log=lambda share: LOG_MIB) == []
    assert files(log=lambda share: LOG_MIB * 3 * share) == ["S6"]
    assert files(other=lambda share: 20 * share) == ["S6"]


def test_s4_a_ledger_that_does_not_verify_fails_it() -> None:
    assert faults(soak()._replace(ledger_ok=False)) == ["S4 the ledger does not verify"]


def test_the_table_has_a_row_a_minute() -> None:
    head, _, *rows = table(soak())
    assert len(rows) == MINUTES
    assert all(row.count("|") == head.count("|") for row in rows)
    assert rows[0].startswith("| 1 | 600 | 0 |  | ")
    away = soak()._replace(restarts=[Restart(30.0, "SIGKILL", 1.0)])
    assert table(away)[2].startswith("| 1 | 600 | 0 | 11 (0.0 s) | ")
    assert findings(away)[0].startswith("- restarts: 1 SIGKILL, away for at most 1.0 s; 11 operations met one")


def test_the_mix_is_as_it_is_told() -> None:
    assert {kind: MIX.count(kind) for kind in KINDS} == {"run": 10, "tool": 4, "agent": 3, "relay": 3}


def test_s5_files_that_stay_open_fail_it() -> None:
    held = soak()
    leaking = [item._replace(files=10 + number) for number, item in enumerate(held.samples)]
    assert [fault[:2] for fault in faults(held._replace(samples=leaking))] == ["S5"]
    steady = [item._replace(files=10 + number % 60) for number, item in enumerate(held.samples)]
    assert faults(held._replace(samples=steady)) == []


def test_the_picture_has_a_line_for_everything_that_was_watched() -> None:
    held = soak(growth=1.0)
    shown = {panel.title: {line.name: line.points for line in panel.lines} for panel in panels(held)}
    assert shown.keys() == {"memory, MiB", "open files", "files on disk, MiB", "latency p99, ms"}
    assert shown["latency p99, ms"].keys() == {*KINDS}
    assert shown["memory, MiB"]["own"][0] == (0.0, 100.0)
    assert all(value == pytest.approx(10) for _, value in shown["latency p99, ms"]["run"])
    root = ElementTree.fromstring(picture(held, "six minutes & more"))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 6 + len(KINDS)
    for line in lines:
        places = [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
        assert all(0 <= x <= 720 and 0 <= y <= float(root.attrib["height"]) for x, y in places)


@pytest.mark.parametrize(("value", "axis"), [(0.0, 1), (1, 1), (1.1, 2), (47, 50), (51, 100), (100, 100), (101, 200)])
def test_an_axis_ends_at_a_number_that_people_can_read(value: float, axis: float) -> None:
    assert _rounded(value) == axis


@pytest.mark.sweep
def test_a_short_soak_of_a_real_host_finds_nothing(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """Twenty seconds: errors, repeats and an unverified ledger fail it; memory, times and whether the host keeps up are
    for a quiet machine."""
    import sys

    from benchmarks.soak.__main__ import main

    monkeypatch.setattr(sys, "argv", ["soak", "20", "--no-report"])
    main()
    said = capsys.readouterr().out
    assert ", 0 failed" in said and ", verified" in said
    wrong = [line for line in said.splitlines() if "S1" in line or "S4" in line]
    assert [line for line in wrong if "could not begin" not in line] == []


def test_the_project_is_whole(tmp_path: Path) -> None:
    project.write(tmp_path)
    assert json.loads((tmp_path / "workflows" / "tool.json").read_text())["nodes"][0]["typeId"] == "core.tool"
    assert len((tmp_path / "notes" / "berths.md").read_text().split()) == project.WORDS
