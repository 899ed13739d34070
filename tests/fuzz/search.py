"""`python -m tests.fuzz.search TARGET SECONDS FOLDER`: one target, guided by the branches that inputs take.

Runs in a process of its own. A defect does not end the search: the first input that shows it is kept, by the place
where it was raised. What was found stands in `FOLDER/report.json`, the inputs of the search in `FOLDER/inputs`.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import atheris
import msgspec

from tests.fuzz.report import Defect, Report
from tests.fuzz.targets import SLOW_SECONDS, TARGETS

_INSTRUMENTED = 8.0  # how much longer an input may take while its branches are counted
_MOST_DEFECTS = 20


class Search:
    """Runs a target on what the engine brings, and writes the report as it changes."""

    def __init__(self, name: str, folder: Path) -> None:
        self._target = TARGETS[name]
        self._file = folder / "report.json"
        self._report = Report(defects={})
        self._began = time.monotonic()
        self._written = 0.0

    def __call__(self, data: bytes) -> None:
        began = time.process_time()
        try:
            self._target.try_on(data)
        except Exception as error:
            self._note(_place(error), f"{type(error).__name__}: {error}"[:300], data)
        spent = time.process_time() - began
        self._report.slowest = max(self._report.slowest, spent)
        if spent > SLOW_SECONDS * _INSTRUMENTED:
            self._note("slow", f"{spent:.2f} s", data)
        self._report.executions += 1
        if time.monotonic() - self._written > 0.5:
            self._write()

    def _note(self, where: str, what: str, data: bytes) -> None:
        known = self._report.defects.get(where)
        if len(self._report.defects) < _MOST_DEFECTS and (known is None or len(data) < len(known.input)):
            self._report.defects[where] = Defect(where, what, data)
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        self._report.seconds = self._written - self._began
        self._file.write_bytes(msgspec.json.encode(self._report))


def _place(error: Exception) -> str:
    """The innermost line of ours, and the kind of the error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/forestay/" in frame.filename or "fuzz_targets" in frame.filename]
    last = (ours or frames)[-1]
    return f"{Path(last.filename).parent.name}/{Path(last.filename).name}:{last.lineno} {type(error).__name__}"


def _functions(holder: object, module: str) -> Iterator[FunctionType]:
    """The functions of a module, and those of its classes. The rest of the house is left as it is: to instrument all of
    it on import takes longer than most searches."""
    for item in list(vars(holder).values()):
        item = getattr(item, "__func__", getattr(item, "fget", item))
        if isinstance(item, FunctionType) and item.__module__ == module:
            yield item
        elif isinstance(item, type) and item.__module__ == module and item is not holder:
            yield from _functions(item, module)


def main() -> None:
    name, seconds, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    for module in TARGETS[name].measured():
        for function in _functions(module, module.__name__):
            atheris.instrument_func(function)
    options = [f"-max_total_time={seconds}", f"-max_len={TARGETS[name].longest}", "-timeout=20", "-rss_limit_mb=2048"]
    options += ["-verbosity=0", f"-artifact_prefix={folder}/", f"-dict={folder / 'words'}"]
    atheris.Setup([sys.argv[0], *options, str(folder / "inputs")], Search(name, folder))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
