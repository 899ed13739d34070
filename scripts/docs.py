"""Write the pages of docs/reference that are generated from the code; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import typer.main

from forestay.cli.commands import COMMANDS, GROUPS
from forestay.cli.program import build
from forestay.extensions import CAPABILITIES
from forestay.extensions.api_table import GRANT_SCOPES, METHODS, NODE_MODULES
from forestay.kernel import LAFS_CODES, TABLE
from forestay.surface.crp.app import api as crp
from forestay.surface.hostapi import operations as host_operations
from forestay.surface.openwop import operations as openwop_operations

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.interface import interface_page

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"


def problems_page() -> str:
    lines = [
        "# Problems",
        "",
        "Every error of forestay is a row of one table. `forestay problems KEY` explains one of them.",
        "`make docs` generates this page from `kernel/problem_table.py`.",
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


def commands_page() -> str:
    lines = [
        "# Commands",
        "",
        "Every command, with the text of `--help`. `make docs` generates this page from the commands.",
        "",
        "Each also takes `--json` (one LAFS envelope), `--human`, `--quiet`, `--field NAME` (one plain value),",
        "`--fields A,B` and `--mvi LEVEL`, at any place of the line. The default is text for people on a terminal, and",
        "one envelope in a pipe. The exit code is the problem's own, as in [the table](problems.md). 0 is success, 130",
        "an interruption by the keyboard.",
        "",
    ]
    for name, entry in sorted({**COMMANDS, **GROUPS}.items()):
        lines += [f"## forestay {name}", "", entry.help, ""]
        for path, command in _commands(name, typer.main.get_command(build([name])).commands[name]):
            if path != name:
                lines += [f"### {path}", "", _sentence(command.help), ""]
            lines += _parameters(path, command)
    return "\n".join(lines).rstrip("\n") + "\n"


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the commands below `command`, depth first, without the groups."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, item in inner.items():
        yield from _commands(f"{path} {name}", item)


def _parameters(path: str, command: Any) -> list[str]:
    shown = [item for item in command.params if not item.hidden and item.name != "help"]
    arguments = [_argument(item) for item in shown if item.param_type_name == "argument"]
    usage = " ".join(["forestay", path, *(["[OPTIONS]"] if len(shown) > len(arguments) else []), *arguments])
    lines = [f"`{usage}`", ""]
    if shown:
        lines += ["| | meaning | default |", "|---|---|---|"]
        lines += [_cells(_named(item), _meaning(item), _default(item)) for item in shown]
        lines.append("")
    return lines


def _argument(item: Any) -> str:
    name = item.name.upper() + ("…" if item.nargs == -1 else "")
    return name if item.required else f"[{name}]"


def _named(item: Any) -> str:
    if item.param_type_name == "argument":
        return f"`{item.name.upper()}`"
    value = "" if item.is_flag else f" {item.name.upper()}"
    return ", ".join(f"`{option}{value}`" for option in (*item.opts, *item.secondary_opts))


def _meaning(item: Any) -> str:
    """Return the help of a parameter; an argument without one is described by its name."""
    named = f"The {item.name.replace('_', ' ')}." if item.param_type_name == "argument" else ""
    return _sentence(item.help) or named


def _default(item: Any) -> str:
    if item.required:
        return "needed"
    if item.default is None or item.default == () or item.default is False:
        return ""
    return f"`{item.default}`"


def operations_page() -> str:
    services = MagicMock()
    services.sample_seams = True
    lines = [
        "# HTTP operations",
        "",
        "Every operation of the host. `make docs` generates this page from the rows that route and check requests.",
        "`GET /v1/openapi.json` and `GET /crp/openapi.json` describe the parameters and answers.",
        "How they behave: [HTTP](http.md), [relay](relay.md).",
        "",
    ]
    by_tag: dict[str, list[str]] = {}
    for item in [*openwop_operations(services, []), *host_operations(services)]:
        need = " ".join(f"`{scope}`" for scope in item.scopes) or {"none": "nothing", "token": "a token"}.get(
            item.auth, "a key"
        )
        by_tag.setdefault(item.tag, []).append(_cells(f"`{item.method} {item.path}`", _sentence(item.summary), need))
    for tag, rows in by_tag.items():
        lines += [f"## {tag}", "", "| operation | what it does | needs |", "|---|---|---|", *rows, ""]
    lines += ["## relay, under `/crp`", "", "| operation | what it does | needs |", "|---|---|---|"]
    for row in crp.declared:
        need = "nothing" if row.auth == "none" else "`runs:read`" if row.method == "GET" else "`runs:create`"
        lines.append(_cells(f"`{row.method} /crp{row.path}`", _sentence(row.summary), need))
    return "\n".join(lines) + "\n"


def capabilities_page() -> str:
    """Return the existing page with the parts between its markers generated again."""
    text = (REFERENCE / "capabilities.md").read_text("utf-8")
    for name, rows in (("capabilities", _capability_rows()), ("node-modules", _module_rows())):
        begin, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + "\n".join(rows) + "\n" + end + rest.partition(end)[2]
    return text


def _capability_rows() -> list[str]:
    rows = ["| capability | lets an extension | scope in a grant | derived from |", "|---|---|---|---|"]
    for name, meaning in CAPABILITIES.items():
        found = []
        for method, row in METHODS.items():
            values = [value for value, needed in row.choices.items() if needed == name]
            if values:
                found.append(f"`{method}` with `{' '.join(values)}`")
            elif row.capability == name:
                found.append(f"`{method}` with any other name" if method == "tool" else f"`{method}`")
        rows.append(_cells(f"`{name}`", meaning, GRANT_SCOPES.get(name, "none"), "; ".join(found)))
    return rows


def _module_rows() -> list[str]:
    rows = ["| module | what it needs |", "|---|---|"]
    for name, row in sorted(NODE_MODULES.items()):
        needs = sorted({capability for needed in row.members.values() for capability in needed})
        told = " and ".join(f"`{capability}`" for capability in needs) or "nothing"
        if not row.stub:
            told = "is missing: an import finds nothing"
        if row.forbidden:
            told = f"stops the build: {row.forbidden[0].lower()}{row.forbidden[1:]}"
        rows.append(_cells(f"`{name}`" if row.package else f"`node:{name}`", told))
    return rows


def _sentence(text: str | None) -> str:
    """Return a text as one line that ends with a full stop and fits a table's cell."""
    line = " ".join((text or "").split()).replace("|", "\\|")
    return line if not line or line.endswith((".", "!", "?")) else line + "."


def _cells(*values: object) -> str:
    words = ("yes" if value is True else "no" if value is False else str(value) for value in values)
    return "| " + " | ".join(words) + " |"


PAGES = {
    "problems.md": problems_page,
    "commands.md": commands_page,
    "operations.md": operations_page,
    "capabilities.md": capabilities_page,
    "extension-interface.md": interface_page,
}


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
