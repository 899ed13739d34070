"""The conformance report: JSON for programs, one page for people."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from forestay.extensions.conform.differential import Result
from forestay.extensions.conform.run import SetResult, totals
from forestay.extensions.conform.scenarios import ScenarioResult
from forestay.kernel import canonical

SCHEMA = "forestay.conform.v1"
NOTES = (
    "The wording of the built-in tools (description, parameter descriptions, prompt texts, label) is data of a host. "
    "Both sides were run with the real host's, read from it for this run; the sandbox has its own words otherwise.",
    "A scenario may leave out a place that cannot be compared; each such place is listed with its reason.",
)
_WORDS = {
    "equal": "equal",
    "different": "different",
    "not_loaded": "not loaded by us",
    "blocked": "blocked by the scanner",
    "no_oracle": "not loadable by the real loader either",
}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1c2530; }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .3rem .6rem; vertical-align: top;
  border-bottom: 1px solid #dde3ea } code { font-size: .9em; overflow-wrap: anywhere }
.equal { color: #116329 } .different, .not_loaded { color: #a40e26 } .blocked { color: #8a4600 }
.no_oracle { color: #57606a }
.bar { display: flex; height: .8rem; border-radius: .4rem; overflow: hidden; background: #dde3ea }
.bar span { display: block } .bar .equal { background: #2da44e }
.bar .different, .bar .not_loaded { background: #cf222e }
.bar .blocked { background: #d4a72c } .bar .no_oracle { background: #8c959f }
details summary { cursor: pointer }
@media (prefers-color-scheme: dark) { body { background: #14181d; color: #d7dde4 } td, th { border-color: #333b44 }
  .equal { color: #56d364 } .different, .not_loaded { color: #ff7b72 } .blocked { color: #e3b341 } }
"""


def document(
    sets: Sequence[SetResult],
    scenarios: Sequence[ScenarioResult],
    generated_at: str,
    unavailable: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the report as data; `unavailable` maps packages that cannot be fetched to the reason."""
    return {
        "schema": SCHEMA,
        "generated_at": generated_at,
        "notes": list(NOTES),
        "unavailable": dict(unavailable or {}),
        "totals": totals(item for item in sets if item.part == "named"),
        "further": totals(item for item in sets if item.part == "further"),
        "sets": [
            {
                "package": item.package,
                "version": item.version,
                "oracle": item.oracle,
                "part": item.part,
                "counted": item.counted(),
                "results": [msgspec.to_builtins(result) for result in item.results],
            }
            for item in sets
        ],
        "scenarios": {
            "total": len(scenarios),
            "equal": sum(item.outcome == "equal" for item in scenarios),
            "results": [msgspec.to_builtins(item) for item in scenarios],
        },
    }


def page(
    sets: Sequence[SetResult],
    scenarios: Sequence[ScenarioResult],
    generated_at: str,
    unavailable: Mapping[str, str] | None = None,
) -> str:
    """Return the report as one self-contained page."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'><title>Conformance</title>",
        f"<style>{_STYLE}</style></head><body><h1>Real extensions, unmodified</h1>",
        "<p>Each extension was loaded by the real loader and by the sandbox; every field of every registration was "
        f"compared. Made at {html.escape(generated_at)}.</p>",
        *(f"<p>{html.escape(note)}</p>" for note in NOTES),
        _overview([item for item in sets if item.part == "named"]),
    ]
    further = [item for item in sets if item.part == "further"]
    if further:
        parts.append("<h2>Further packages</h2><p>Measured in addition; the totals do not include them.</p>")
        parts.append(_overview(further))
    if unavailable:
        rows = "".join(f"<li>{html.escape(name)}: {html.escape(why)}</li>" for name, why in unavailable.items())
        parts.append(f"<h2>Not available</h2><ul>{rows}</ul>")
    for item in sets:
        parts.append(f"<h2>{html.escape(item.package)} {html.escape(item.version)}</h2>")
        parts.append(_table(item.results))
    if scenarios:
        parts.append(_scenarios(scenarios))
    return "\n".join([*parts, "</body></html>", ""])


def write(
    folder: Path,
    sets: Sequence[SetResult],
    scenarios: Sequence[ScenarioResult],
    generated_at: str,
    unavailable: Mapping[str, str] | None = None,
) -> tuple[Path, Path]:
    """Write both forms into `folder`; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data, text = folder / "conform.json", folder / "conform.html"
    whole = canonical.encode(document(sets, scenarios, generated_at, unavailable))
    data.write_bytes(msgspec.json.format(whole, indent=1) + b"\n")
    text.write_text(page(sets, scenarios, generated_at, unavailable))
    return data, text


def _overview(sets: Sequence[SetResult]) -> str:
    rows = []
    for item in sets:
        counted, total = item.counted(), max(1, len(item.results))
        bar = "".join(
            f"<span class='{name}' style='width:{100 * count / total:.2f}%' "
            f"title='{count} {html.escape(_WORDS[name])}'></span>"
            for name, count in counted.items()
        )
        told = ", ".join(f"{count} {_WORDS[name]}" for name, count in counted.items())
        name = html.escape(f"{item.package} {item.version}")
        rows.append(f"<tr><td>{name}</td><td><div class='bar'>{bar}</div>{told}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _table(results: Sequence[Result]) -> str:
    rows = []
    for result in sorted(results, key=lambda item: (item.outcome == "equal", item.entry)):
        told = html.escape(result.reason)
        if result.differences:
            items = "".join(
                f"<li><code>{html.escape(d.at)}</code>: real <code>{_short(d.oracle)}</code>, "
                f"ours <code>{_short(d.ours)}</code></li>"
                for d in result.differences[:30]
            )
            told += f"<details open><summary>{len(result.differences)} differences</summary><ul>{items}</ul></details>"
        words = f"<td class='{result.outcome}'>{_WORDS[result.outcome]}</td>"
        rows.append(f"<tr><td>{html.escape(result.entry)}</td>{words}<td>{told}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _scenarios(results: Sequence[ScenarioResult]) -> str:
    rows = []
    for item in sorted(results, key=lambda result: (result.outcome == "equal", result.scenario)):
        differences = "".join(
            f"<li><code>{html.escape(d.at)}</code>: real <code>{_short(d.oracle)}</code>, "
            f"ours <code>{_short(d.ours)}</code></li>"
            for d in item.differences[:20]
        )
        told = html.escape(item.reason) + (f"<ul>{differences}</ul>" if differences else "")
        told += "".join(
            f"<div>left out: <code>{html.escape(mask.at)}</code>"
            + (f" where <code>{html.escape(mask.pattern or mask.drop)}</code>" if mask.pattern or mask.drop else "")
            + f": {html.escape(mask.why)}</div>"
            for mask in item.left_out
        )
        rows.append(
            f"<tr><td>{html.escape(item.scenario)}</td><td class='{item.outcome}'>{item.outcome}</td>"
            f"<td>{told}</td></tr>"
        )
    equal = sum(item.outcome == "equal" for item in results)
    return f"<h2>Behaviour: {equal} of {len(results)} scenarios equal</h2><table>{''.join(rows)}</table>"


def _short(value: Any) -> str:
    text = canonical.encode(value).decode() if value is not None else "nothing"
    return html.escape(text if len(text) <= 160 else text[:159] + "…")
