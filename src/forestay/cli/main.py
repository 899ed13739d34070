"""The entry point: writes the overview at once, and loads the program for everything else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from forestay.cli import overview


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its exit code."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # its command line costs 0.1 s of imports
    sys.exit(run(list(sys.argv[1:] if argv is None else argv)))


def run(arguments: list[str]) -> int:
    try:
        if overview.is_asked_for(arguments):
            sys.stdout.write(overview.page())
            return 0
        from forestay.cli import program  # typer and the kernel take four times as long as the page

        return program.run(arguments)
    except BrokenPipeError:
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    main()
