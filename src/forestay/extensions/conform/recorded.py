"""`corpus/registrations.json`: a digest of what the real loader registers for each entry of the corpus.

Facts only, none of the extensions' words: a machine without Node can still tell whether ours registers the same. `null`
stands for an entry that the real loader does not load either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from forestay.extensions.conform.corpus import Corpus, Package
from forestay.extensions.conform.differential import normal
from forestay.extensions.conform.oracle import Verdict
from forestay.kernel import Problem, canonical

FILE = "registrations.json"


class Recorded(msgspec.Struct, frozen=True):
    """The file: `package@version` to entry to digest."""

    schema: Literal["forestay.registrations.v1"] = "forestay.registrations.v1"
    packages: dict[str, dict[str, str | None]] = {}


def registrations_digest(registrations: dict[str, Any]) -> str:
    """The sha256 of registrations in canonical form, absent members left out."""
    return canonical.digest(normal(registrations))


def read_recorded(corpus: Corpus) -> Recorded:
    path = corpus.folder / FILE
    return canonical.decode(path.read_bytes(), Recorded) if path.is_file() else Recorded()


def record(corpus: Corpus, package: Package, verdicts: Sequence[Verdict]) -> dict[str, str | None]:
    """Keep the digests of one package in place of those that were there."""
    if len(verdicts) != len(package.entries):
        raise Problem("state_conflict", f"The answers for {package.package} are not of this version.", fix="Ask again.")
    found = {
        entry: registrations_digest(verdict.registrations) if verdict.registrations is not None else None
        for entry, verdict in zip(package.entries, verdicts, strict=True)
    }
    packages = {**read_recorded(corpus).packages, f"{package.package}@{package.version}": found}
    text = msgspec.json.format(canonical.encode(Recorded(packages=packages)), indent=1)
    (corpus.folder / FILE).write_bytes(text + b"\n")
    return found
