"""Write the pages of docs/reference that are generated from the code; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.kernel.problem_table import LAFS_CODES, TABLE

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def problems_page() -> str:
    lines = [
        "# Problems",
        "",
        "Every error that holdfast gives is a row of one table. `holdfast problems KEY` explains one of them.",
        "This page is generated from `kernel/problem_table.py` by `make docs`.",
        "",
    ]
    for row in TABLE.values():
        lines += [
            f"## {row.key}",
            "",
            f"{row.title}. **What to do:** {row.remedy}",
            "",
            "| LAFS | category | retryable | agent action | HTTP | gRPC | exit | OpenWOP | Pi | CRP | JSON-RPC |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
            _cells(row.lafs, row.category, row.retryable, row.action, row.http, row.grpc)
            + _cells(row.exit, row.openwop, row.pi, row.crp, row.jsonrpc)[1:],
            "",
        ]
    lines += ["## The LAFS registry", ""]
    lines += ["| code | category | retryable | HTTP | gRPC | exit | agent action |", "|---|---|---|---|---|---|---|"]
    for code in LAFS_CODES.values():
        lines.append(_cells(code.code, code.category, code.retryable, code.http, code.grpc, code.exit, code.action))
    return "\n".join(lines) + "\n"


def _cells(*values: object) -> str:
    words = ("yes" if value is True else "no" if value is False else str(value) for value in values)
    return "| " + " | ".join(words) + " |"


PAGES = {"problems.md": problems_page}


def main() -> int:
    stale = []
    for name, make in PAGES.items():
        path = REFERENCE / name
        if not path.exists() or path.read_text("utf-8") != make():
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(make(), "utf-8")
    if stale and "--check" in sys.argv:
        print("stale:", ", ".join(stale))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
