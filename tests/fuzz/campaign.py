"""One search of each target in a process of its own, and what came of it as a table."""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import msgspec

from tests.fuzz.corpus import keep, kept
from tests.fuzz.coverage import lines_in, reached
from tests.fuzz.report import Defect, Report
from tests.fuzz.target import Target

ROOT = Path(__file__).parents[2]
_GRACE = 240  # seconds to import everything, and to end, on a machine that does other things as well


class Row(msgspec.Struct, frozen=True):
    """What a search of one target came to."""

    target: Target
    report: Report
    lines: int
    of: int
    corpus: int

    def __str__(self) -> str:
        report = self.report
        rate = report.executions / report.seconds if report.seconds else 0
        modules = ", ".join(name.removeprefix("forestay.") for name in self.target.modules)
        covered = f"{100 * self.lines // self.of} % of {self.of}" if self.of else "types only"
        return (
            f"| {self.target.name} | {modules} | {report.executions:,} | {rate:,.0f} | {covered} | {self.corpus} "
            f"| {len(report.defects)} |"
        )


def search(target: Target, seconds: int) -> Row:
    """Search one target, and keep the inputs that reach something new."""
    with tempfile.TemporaryDirectory(prefix="forestay-fuzz-") as name:
        folder = Path(name)
        (folder / "inputs").mkdir()
        for number, data in enumerate(kept(target)):
            (folder / "inputs" / str(number)).write_bytes(data)
        (folder / "words").write_text("".join(f'"{_escaped(word)}"\n' for word in target.words), "ascii")
        command = [sys.executable, "-m", "tests.fuzz.search", target.name, str(seconds), name]
        try:
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=seconds + _GRACE)
            told, code = ended.stderr.decode("utf-8", "replace"), ended.returncode
        except subprocess.TimeoutExpired:
            told, code = "The search did not end.", 1
        file = folder / "report.json"
        report = msgspec.json.decode(file.read_bytes(), type=Report) if file.is_file() else Report(defects={})
        if code:
            broken = [path for path in folder.glob("*-*") if path.is_file()]
            data = broken[0].read_bytes() if broken else b""
            report.defects["process"] = Defect("process", told[-400:], data)
        keep(target, [path.read_bytes() for path in (folder / "inputs").iterdir()])
    pool = kept(target)
    modules = target.measured()
    lines = reached(modules, lambda: list(map(target.holds_on, pool)))
    return Row(target, report, len(lines), len(lines_in(modules)), len(pool))


def _escaped(word: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02X}" for byte in word)


def table(rows: Sequence[Row], seconds: int) -> str:
    """The page that `make fuzz` writes."""
    of, lines = sum(row.of for row in rows), sum(row.lines for row in rows)
    executions = sum(row.report.executions for row in rows)
    head = [
        "# Fuzzing",
        "",
        f"Written by `make fuzz`: {len(rows)} targets, {seconds} s each in a process of its own, guided by the",
        "branches that inputs take (atheris). `lines` are those inside the functions of the target's modules that its",
        "corpus reaches; a module has more in it than what reads foreign bytes. `defects` counts places where an input",
        "raised something that is no Problem, broke an assertion of its target, or took more than its share of time.",
        "",
        f"{date.today()}, {platform.system()} {platform.machine()}, Python {platform.python_version()}: "  # noqa: DTZ011
        f"{executions:,} executions, {lines:,} of {of:,} lines, {sum(len(row.report.defects) for row in rows)} defects",
        "",
        "| target | modules | executions | a second | lines | corpus | defects |",
        "|---|---|---|---|---|---|---|",
    ]
    found = [
        f"- {row.target.name}: {defect.what} ({defect.where}), input `{bytes(defect.input)[:80]!r}`"
        for row in rows
        for defect in row.report.defects.values()
    ]
    return "\n".join([*head, *map(str, rows), *(["", *found] if found else []), ""])
