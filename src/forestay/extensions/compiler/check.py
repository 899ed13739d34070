"""The verdict on an extension (Pi §8): compatible, warning, blocked, with every use at its place in the source."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from forestay.extensions.compiler.artifact import ENTRY_MODULE, ApiUse, Location
from forestay.extensions.compiler.bundle import Bundle, Input
from forestay.extensions.compiler.rewrite import node_builtin
from forestay.extensions.compiler.scan import Finding, read, read_bundle, rules
from forestay.extensions.compiler.scan.ahead import read_ahead
from forestay.extensions.compiler.scan.reading import Text
from forestay.extensions.compiler.sourcemap import SourceMap
from forestay.extensions.compiler.virtual_modules import is_ours
from forestay.kernel import canonical

Verdict = Literal["compatible", "warning", "blocked"]


class Check(msgspec.Struct, frozen=True):
    """What the scanner says about a bundle."""

    verdict: Verdict
    forbidden: tuple[ApiUse, ...]
    flagged: tuple[ApiUse, ...]


def read_all(bundle: Bundle, *, may_copy: bool = False) -> None:
    """Read what the verdict and the inference ask for, by two processes where that is faster."""
    texts = [Text(item.name, item.contents, item.dialect) for item in _scripts(bundle) if item.dialect is not None]
    size = len(bundle.code) - sum(end - start for start, end in bundle.provided)
    read_ahead(texts, lambda: _read_bundle(bundle), size, may_copy=may_copy)


def check_bundle(bundle: Bundle) -> Check:
    """Scan the sources that are in the bundle, and the bundle itself, where names of different files meet."""
    found = _sources(bundle)
    # The bundle's columns map to where a statement begins: what the sources already told on that line is the same.
    told = {(item.rule, item.location.file, item.location.line) for item in found}
    found += [f for f in _bundle(bundle) if (f.rule, f.location.file, f.location.line) not in told]
    return _verdict([_judged(finding) for finding in found])


def _judged(finding: Finding) -> Finding:
    """A package that only asks whether something is there uses nothing; in the extension's own sources it counts."""
    if finding.is_guarded and finding.rule.severity == "forbidden" and not _is_own(finding.location.file):
        return msgspec.structs.replace(finding, rule=finding.rule.expected_missing)
    return finding


def _sources(bundle: Bundle) -> list[Finding]:
    asked = {(item.importer, node_builtin(item.specifier)) for item in bundle.imports}
    found: list[Finding] = []
    for item in _scripts(bundle):
        assert item.dialect is not None
        for finding in read(item.name, item.contents, item.dialect).findings:
            if finding.rule == rules.UNPARSED and not _is_own(item.name):
                continue  # the bundle holds the same code, and is parsed as a whole
            # The bundler knows which imports are only types; what it never asked for is not in the program.
            if finding.is_static and (item.name, finding.module) not in asked:
                continue
            found.append(finding)
    return found


def _scripts(bundle: Bundle) -> list[Input]:
    """The inputs that count: what is in the bundle, and what the extension itself brings."""
    return [item for item in bundle.inputs if item.dialect is not None and (item.bytes_in_output or _is_own(item.name))]


def _read_bundle(bundle: Bundle) -> tuple[Finding, ...]:
    return read_bundle(ENTRY_MODULE, bundle.code, bundle.sections, bundle.provided)


def _bundle(bundle: Bundle) -> list[Finding]:
    source_map: SourceMap | None = None
    found: list[Finding] = []
    for finding in _read_bundle(bundle):
        if (finding.module and not finding.is_in_text) or finding.rule == rules.DYNAMIC_MODULE:
            continue  # imports are told by the sources, where they have a place
        source_map = source_map or SourceMap(bundle.source_map)
        place = source_map.original(finding.location.line, finding.location.column)
        if place is None or is_ours(place.file):
            continue
        found.append(msgspec.structs.replace(finding, location=place))
    return found


def _is_own(name: str) -> bool:
    """A file of the extension itself, not of a package that it brings."""
    return not name.startswith("../") and "node_modules/" not in name


def _verdict(findings: list[Finding]) -> Check:
    groups: dict[rules.Rule, dict[Location, str]] = {}
    for finding in findings:
        groups.setdefault(finding.rule, {}).setdefault(finding.location, finding.text)
    uses = {
        rule: ApiUse(rule.api, rule.message, tuple(sorted(places)), canonical.digest(_texts(places)))
        for rule, places in groups.items()
    }
    ordered = sorted(uses.items(), key=lambda pair: pair[0].api)
    forbidden = tuple(use for rule, use in ordered if rule.severity == "forbidden")
    flagged = tuple(use for rule, use in ordered if rule.severity == "flagged")
    verdict: Verdict = "blocked" if forbidden else "warning" if flagged else "compatible"
    return Check(verdict, forbidden, flagged)


def _texts(places: dict[Location, str]) -> list[Any]:
    return [[str(place), places[place]] for place in sorted(places)]
