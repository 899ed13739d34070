"""Compile extensions, check them, and compare them with the real loader."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay.cli.command import Group
from forestay.cli.data_folder import data_folder
from forestay.cli.files import read_bytes
from forestay.cli.output import Answer, choice, note
from forestay.cli.terminal import attended
from forestay.kernel import Problem, SystemClock, canonical, iso, one_line

if TYPE_CHECKING:
    from forestay.extensions import ArtifactMeta, ScenarioResult, SetResult

app = Group("ext")
catalog_app = app.group("catalog", "Describe a folder of extensions.")
corpus_app = app.group("corpus", "The real extensions that we measure with.")

Extension = Annotated[Path, typer.Argument(help="An extension: a file, or a folder that holds one.")]
Strict = Annotated[bool, typer.Option("--strict", help="A flagged API stops the build too.")]
CorpusFolder = Annotated[Path, typer.Option("--corpus", help="The folder with the corpus lock.")]


def build_line(name: str, step: str) -> None:
    """Show a build's current step on the last line of the terminal; without a step, clear the line."""
    text = f"compiling {one_line(name)}: {step} …" if step else ""
    sys.stderr.write(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}")
    sys.stderr.flush()


@app.command("check")
def check(path: Extension, strict: Strict = False) -> Answer:
    """What an extension imports, needs and uses: its verdict, without running anything."""
    from forestay.extensions import compile_source, refusal, sources

    told = build_line if attended() and choice().format == "human" else _unsaid
    metas = []
    for found in sources(path):
        metas.append(compile_source(found, partial(told, found.entry_name))[0].meta)
        told(found.entry_name, "")
    result = {"extensions": [described(meta) for meta in metas]}
    blocked = [meta for meta in metas if meta.forbidden_apis or (strict and meta.flagged_apis)]
    problem = refusal(blocked[0].forbidden_apis or blocked[0].flagged_apis) if blocked else None
    return Answer(result, human=(line for meta in metas for line in check_lines(meta)), problem=problem)


def _unsaid(name: str, step: str) -> None:
    """Show nothing: no person is at the terminal."""


@app.command("build")
def build(
    path: Extension,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the artifact's files into this folder.")
    ] = None,
    inline_map: Annotated[bool, typer.Option("--inline-map", help="The source map inside the code.")] = False,
    bytecode: Annotated[bool, typer.Option("--bytecode", help="The engine's bytecode beside the code.")] = False,
    strict: Strict = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Compile even when nothing changed.")] = False,
) -> Answer:
    """Compile an extension to one module, its source map and artifact.json."""
    from forestay.extensions import build as compile_extension
    from forestay.extensions import default_cache

    cache = None if no_cache else default_cache(data_folder(None), _cache_refused)
    artifact = compile_extension(path, strict=strict, cache=cache)
    if bytecode:
        from forestay.extensions import compile_module

        if artifact.meta.manifest.runtime == "wasm":
            raise Problem("invalid_usage", "A component has no bytecode.", at="--bytecode", fix="Leave it out.")

        made = compile_module(artifact.code.decode(), artifact.meta.entry_module)
        artifact = msgspec.structs.replace(artifact, bytecode=made)
    if out is not None:
        artifact.write(out, inline_map=inline_map)
    meta = artifact.meta
    result = {
        **described(meta),
        "hash": meta.hash,
        "source_hash": meta.source_hash,
        "bytes": len(artifact.code),
        "written": out.name if out is not None else None,
    }
    said = f"{meta.extension_id} {meta.manifest.version}: {len(artifact.code)} bytes, {meta.verdict}"
    return Answer(result, human=[said, meta.hash])


def _cache_refused(what: str, file: str) -> None:
    note(f"cache: {what} {file[:16]} is not as this host left it; it was not used")


@app.command("conform")
def conform(
    names: Annotated[list[str] | None, typer.Argument(help="Packages of the corpus; without one, all.")] = None,
    only: Annotated[str, typer.Option("--only", help="Entries whose path contains this.")] = "",
    report: Annotated[Path, typer.Option("--report", help="Where the report goes.")] = Path("conform-report"),
    scenarios: Annotated[bool, typer.Option("--scenarios/--no-scenarios", help="Behaviour too.")] = True,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ask the real loader again.")] = False,
    corpus: CorpusFolder = Path("corpus"),
) -> Answer:
    """Compare with the real loader: every registration, and the behaviour in the scenarios."""
    from forestay.extensions import Corpus, document, write

    sets, behaviour = asyncio.run(_conform(corpus.resolve(), names or [], only, fresh, scenarios and not only))
    stamp = iso(SystemClock().now_ms())
    unavailable = Corpus(corpus.resolve()).lock().unavailable
    data, page = write(report, sets, behaviour, stamp, unavailable)
    whole = document(sets, behaviour, stamp, unavailable)
    result = {
        "totals": whole["totals"],
        "further": whole["further"],
        "sets": [{key: item[key] for key in ("package", "version", "counted")} for item in whole["sets"]],
        "scenarios": {key: whole["scenarios"][key] for key in ("total", "equal")},
        "unavailable": unavailable,
        "report": [data.name, page.name],
    }
    return Answer(result, human=_conform_lines(sets, behaviour, page))


@app.command("bench")
def bench(
    budgets: Annotated[Path | None, typer.Option("--budgets", help="Budgets to hold, as JSON.")] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="How many extensions of the corpus.")] = 12,
    previous: Annotated[Path | None, typer.Option("--previous", help="An earlier report to compare with.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the report to this file.")] = None,
    folder: Annotated[Path | None, typer.Option("--extensions", help="Measure these instead of the corpus.")] = None,
    corpus: CorpusFolder = Path("corpus"),
) -> Answer:
    """Cold load, warm load and event dispatch over the corpus, beside their budgets and an earlier report (Pi §7)."""
    from forestay.extensions import corpus_entries, measure, read_budgets, read_report, regressions

    limits, earlier = read_budgets(budgets), read_report(previous) if previous is not None else None
    entries = sorted(folder.resolve().iterdir()) if folder is not None else corpus_entries(corpus.resolve())
    result = asyncio.run(measure(entries, most, limits))
    if earlier is not None:
        result["regressions"] = regressions(earlier, result)
    if out is not None:
        _write_json(out, result)
    missed = [row for row in result["budgets"] if not row["held"]]
    slower = result.get("regressions") or []
    problem = None
    if missed or slower:
        told = f"{len(missed)} budgets are not held, {len(slower)} figures are worse than before."
        problem = Problem("performance_budget_missed", told, missed=missed, slower=slower)
    lines = [
        f"{row['name']}: {row['measured_ms']:.2f} ms, budget {row['budget_ms']} ms"
        + ("" if row["held"] else ": MISSED")
        for row in result["budgets"]
    ]
    lines += [f"{row['name']}: {row['before_ms']:.2f} ms before, {row['now_ms']:.2f} ms now" for row in slower]
    return Answer(result, human=lines, problem=problem)


@catalog_app.command("build")
def catalog_build(
    folder: Annotated[Path, typer.Argument(help="A folder of extensions.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the catalog to this file.")] = None,
    tier: Annotated[str, typer.Option("--tier", help="Where they come from.")] = "community",
) -> Answer:
    """Make the catalog of a folder."""
    from forestay.extensions import SourceTier, build_catalog

    try:
        checked = msgspec.convert(tier, SourceTier)
    except msgspec.ValidationError as error:
        raise Problem("invalid_usage", str(error), at="--tier") from error
    catalog, skipped = build_catalog(folder, checked, iso(SystemClock().now_ms()))
    if out is not None:
        _write_json(out, catalog)
    result = {
        "total_extensions": catalog.total_extensions,
        "tier_summary": catalog.tier_summary,
        "runtime_summary": catalog.runtime_summary,
        "skipped": [{"path": item.path, "reason": item.reason} for item in skipped],
        "items": [item.id for item in catalog.items],
    }
    return Answer(result)


@catalog_app.command("validate")
def catalog_validate(file: Annotated[Path, typer.Argument(help="A catalog.")]) -> Answer:
    """Whether a file is a catalog that agrees with itself."""
    catalog = _read_catalog(file)
    return Answer({"valid": True, "total_extensions": catalog.total_extensions})


@catalog_app.command("show")
def catalog_show(
    file: Annotated[Path, typer.Argument(help="A catalog.")],
    extension: Annotated[str | None, typer.Argument(help="One extension's id.")] = None,
) -> Answer:
    """What a catalog says."""
    catalog = _read_catalog(file)
    items = [item for item in catalog.items if extension is None or item.id == extension]
    if not items:
        raise Problem("not_found", f"The catalog has no {extension}.", fix="Show it without an id to see all.")
    lines = [f"{item.id}  {item.runtime_tier}  {', '.join(item.capabilities)}" for item in items]
    return Answer({"items": items}, human=lines)


@corpus_app.command("fetch")
def corpus_fetch(corpus: CorpusFolder = Path("corpus")) -> Answer:
    """Bring in what the lock pins, with npm; no script of any package is run."""
    from forestay.extensions import Corpus, oracle_wording

    folder = Corpus(corpus.resolve())
    fetched, failed = folder.fetch()
    lock = folder.lock()
    words = [name for name in sorted(lock.oracles) if oracle_wording(folder, name)] if not failed else []
    result = {
        "fetched": fetched,
        "failed": {name: problem.message for name, problem in failed.items()},
        "unavailable": lock.unavailable,
        "words": words,
    }
    return Answer(result, problem=next(iter(failed.values()), None))


@corpus_app.command("record")
def corpus_record(
    names: Annotated[list[str] | None, typer.Argument(help="Packages of the corpus; without one, all.")] = None,
    corpus: CorpusFolder = Path("corpus"),
) -> Answer:
    """Keep a digest of what the real loader registers for each entry, for machines without Node."""
    from forestay.extensions import Corpus, oracle_answers, packages_of, record

    folder = Corpus(corpus.resolve())
    packages = packages_of(folder, names or [])
    found = {item.group: record(folder, item, oracle_answers(folder, item)) for item in packages}
    if not found:
        raise Problem("not_found", "No package of the corpus is here.", fix="Run `make corpus`, or check the names.")
    return Answer({"recorded": {group: len(entries) for group, entries in found.items()}})


@corpus_app.command("words")
def corpus_words(
    oracle: Annotated[str, typer.Argument(help="Which of the lock's loaders.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the wording to this file.")],
    corpus: CorpusFolder = Path("corpus"),
) -> Answer:
    """How the real host words its built-in tools, as a file for --tool-words."""
    from forestay.extensions import Corpus, oracle_wording

    words = oracle_wording(Corpus(corpus.resolve()), oracle)
    _write_json(out, {"schema": "forestay.tool-words.v1", "tools": words})
    return Answer({"tools": sorted(words), "written": out.name})


@corpus_app.command("add")
def corpus_add(
    package: Annotated[str, typer.Argument(help="name@version on the npm registry.")],
    oracle: Annotated[str, typer.Option("--oracle", help="Which of the lock's loaders is the measure.")] = "pi-0.87",
    further: Annotated[bool, typer.Option("--further", help="Beside the set that the figures are about.")] = False,
    corpus: CorpusFolder = Path("corpus"),
) -> Answer:
    """Pin a package, ask the real loader, keep a digest of its answer, and compare."""
    from forestay.extensions import Corpus, oracle_answers, record
    from forestay.extensions import conform_corpus as run_conform

    name, at, version = package.rpartition("@")
    if not at or not name:
        raise Problem("invalid_usage", "Name a version: package@1.2.3.", at="package")
    folder = Corpus(corpus.resolve())
    added = folder.add(name, version, oracle, "further" if further else "named")
    (found,) = asyncio.run(run_conform(folder, [added], fresh=True))
    digests = record(folder, added, oracle_answers(folder, added))
    return Answer(
        {
            "package": added.package,
            "version": added.version,
            "integrity": added.integrity,
            "entries": list(added.entries),
            "digests": digests,
            "counted": found.counted(),
            "results": [msgspec.to_builtins(result) for result in found.results if result.outcome != "equal"],
        }
    )


def _read_catalog(file: Path) -> Any:
    from forestay.extensions import read_catalog

    return read_catalog(read_bytes(file))


def _drift(meta: ArtifactMeta) -> dict[str, Any]:
    from forestay.extensions import drift

    manifest = meta.manifest
    has_declaration = manifest.capabilities is not None or manifest.capability_manifest is not None
    declared = [need.capability for need in manifest.declared()] if has_declaration else None
    found: dict[str, Any] = msgspec.to_builtins(drift(declared, {item.capability for item in meta.evidence}))
    return found


def described(meta: ArtifactMeta) -> dict[str, Any]:
    def uses(listed: Any) -> list[dict[str, Any]]:
        return [{"api": u.api, "message": u.message, "locations": [str(at) for at in u.locations]} for u in listed]

    return {
        "extension_id": meta.extension_id,
        "version": meta.manifest.version,
        "verdict": meta.verdict,
        "capabilities_required": list(meta.capabilities_required),
        "capability_scope_inferred": meta.capability_scope_inferred,
        "drift": _drift(meta),
        "forbidden_apis": uses(meta.forbidden_apis),
        "flagged_apis": uses(meta.flagged_apis),
        "rewrites": [{"from": item.source, "to": item.target} for item in meta.rewrite_log],
        "warnings": list(meta.warnings),
    }


def check_lines(meta: ArtifactMeta) -> Iterator[str]:
    yield f"{meta.extension_id} {meta.manifest.version}: {meta.verdict}"
    yield f"  needs {', '.join(meta.capabilities_required) or 'nothing'}"
    for use in (*meta.forbidden_apis, *meta.flagged_apis):
        yield f"  {use.message}"
        yield from (f"    {place}" for place in use.locations[:5])


async def _conform(
    folder: Path, names: list[str], only: str, fresh: bool, with_scenarios: bool
) -> tuple[list[SetResult], list[ScenarioResult]]:
    from forestay.extensions import Corpus, compare_scenario, packages_of, read_scenarios
    from forestay.extensions import conform_corpus as run_conform

    corpus = Corpus(folder)
    packages = packages_of(corpus, names)
    if not packages:
        raise Problem("not_found", "No package of the corpus is here.", fix="Run `make corpus`, or check the names.")
    sets = await run_conform(corpus, packages, only=only, fresh=fresh)
    scenarios = read_scenarios(corpus.folder / "scenarios") if with_scenarios and not names else []
    return sets, [await compare_scenario(corpus, scenario) for scenario in scenarios]


def _conform_lines(sets: list[SetResult], behaviour: list[ScenarioResult], page: Path) -> Iterator[str]:
    for item in sets:
        counted = ", ".join(f"{count} {name}" for name, count in item.counted().items())
        yield f"{item.package} {item.version}: {counted}"
        for result in (result for result in item.results if result.outcome != "equal"):
            yield f"  {result.entry}: {result.outcome} {result.reason}"
            yield from (f"    {difference.at}" for difference in result.differences[:3])
    if behaviour:
        equal = sum(result.outcome == "equal" for result in behaviour)
        yield f"Behaviour: {equal} of {len(behaviour)} scenarios equal"
    yield str(page)


def _write_json(path: Path, value: Any) -> None:
    path.write_bytes(msgspec.json.format(canonical.encode(value), indent=2) + b"\n")
