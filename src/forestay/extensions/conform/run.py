"""Runs the whole corpus through oracle and sandbox, and collects the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from forestay.extensions.conform.corpus import Corpus, Package, Part
from forestay.extensions.conform.differential import Result, compare
from forestay.extensions.conform.oracle import Verdict, ask, wording
from forestay.extensions.tool_wording import ToolWords, read_wording
from forestay.kernel import canonical


class SetResult(msgspec.Struct, frozen=True):
    """One package of the corpus: its extensions and their outcomes."""

    package: str
    version: str
    oracle: str
    results: tuple[Result, ...]
    part: Part = "named"

    def counted(self) -> dict[str, int]:
        return dict(sorted(Counter(result.outcome for result in self.results).items()))


def oracle_answers(corpus: Corpus, package: Package, *, fresh: bool = False) -> list[Verdict]:
    """Return the real loader's answers for a package; they are cached, because a pinned package does not change."""
    kept = corpus.cache / "oracle" / f"{package.group}.json"
    if kept.is_file() and not fresh:
        found = canonical.decode(kept.read_bytes(), list[Verdict])
        if len(found) == len(package.entries):
            return found
    answers = ask(corpus.oracle(package.oracle), corpus.entries(package))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(canonical.encode(answers))
    return answers


def oracle_wording(corpus: Corpus, name: str, *, fresh: bool = False) -> dict[str, ToolWords]:
    """Return the real host's wording of its own tools; it is stored in the cache, never in the repository."""
    kept = corpus.cache / "words" / f"{name}.json"
    if kept.is_file() and not fresh:
        return read_wording(kept)
    found = wording(corpus.oracle(name))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(canonical.encode({"schema": "forestay.tool-words.v1", "tools": found}))
    return found


def packages_of(corpus: Corpus, names: Iterable[str] = (), part: Part | None = None) -> list[Package]:
    """Return fetched packages with entries; filter by `names` (group, package or package@version) and `part`."""
    wanted = set(names)
    return [
        package
        for package in corpus.lock().packages
        if package.entries
        and part in (None, package.part)
        and corpus.is_fetched(package)
        and (not wanted or wanted & {package.group, package.package, f"{package.package}@{package.version}"})
    ]


async def conform(
    corpus: Corpus,
    packages: Iterable[Package],
    *,
    only: str = "",
    fresh: bool = False,
    told: Callable[[Result], None] | None = None,
) -> list[SetResult]:
    """Compare every extension of `packages`; `only` keeps entries whose path contains it."""
    sets = []
    for package in packages:
        answers = oracle_answers(corpus, package, fresh=fresh)
        words = oracle_wording(corpus, package.oracle, fresh=fresh)
        results = []
        for name, entry, answer in zip(package.entries, corpus.entries(package), answers, strict=True):
            if only and only not in name:
                continue
            result = await compare(package.package, entry, name, answer, words)
            results.append(result)
            if told is not None:
                told(result)
        sets.append(SetResult(package.package, package.version, package.oracle, tuple(results), package.part))
    return sets


def totals(sets: Iterable[SetResult]) -> dict[str, Any]:
    """Return the counts of all outcomes, and the share of equal ones among those that the oracle loads."""
    counted: Counter[str] = Counter()
    for item in sets:
        counted.update(item.counted())
    measured = sum(counted.values()) - counted["no_oracle"]
    share = round(counted["equal"] / measured, 4) if measured else None
    return {**dict(sorted(counted.items())), "measured": measured, "equal_share": share}
