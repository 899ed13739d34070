"""`corpus/registrations.json`: digests of what the real loader registers for each entry of the corpus.

With them, a machine without Node can check whether our loader registers the same. The file has digests only, no text of
the extensions. `null` stands for an entry that the real loader cannot load either.
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
    """Return the SHA-256 of registrations in canonical form, without absent members."""
    return canonical.digest(normal(registrations))


def read_recorded(corpus: Corpus) -> Recorded:
    path = corpus.folder / FILE
    return canonical.decode(path.read_bytes(), Recorded) if path.is_file() else Recorded()


def record(corpus: Corpus, package: Package, verdicts: Sequence[Verdict]) -> dict[str, str | None]:
    """Store the digests of one package, in place of its earlier ones."""
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
