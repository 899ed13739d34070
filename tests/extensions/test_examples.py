"""The real example extensions of pi 0.73.1 load in the sandbox and register what the real loader registers.

`corpus/registrations.json` holds the digest of what the real loader registered for each. The examples themselves are
fetched by `scripts/examples.py` (part of `make test`) or `make corpus`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.source import sources
from forestay.extensions.conform.corpus import Corpus
from forestay.extensions.conform.differential import registrations_of
from forestay.extensions.conform.recorded import read_recorded, registrations_digest
from forestay.extensions.conform.run import oracle_wording
from forestay.kernel import Problem

CORPUS = Corpus(Path(__file__).parents[2] / "corpus")
PACKAGE = next(item for item in CORPUS.lock().packages if item.group == "pi-0.73")
RECORDED = read_recorded(CORPUS).packages[f"{PACKAGE.package}@{PACKAGE.version}"]
EXAMPLES = "examples/extensions/"
# Examples that import an npm package; it is not among their own files, and comes with the whole corpus only.
NEEDS = {
    "custom-provider-anthropic/index.ts": "@anthropic-ai/sdk",
    "sandbox/index.ts": "@anthropic-ai/sandbox-runtime",
    "with-deps/index.ts": "ms",
}
# Examples that hand on the words of their host's own tools; pi's come with the whole corpus, ours are others.
HANDS_ON_WORDS = {"bash-spawn-hook.ts", "built-in-tool-renderer.ts", "minimal-mode.ts", "ssh.ts"}
HOMES = (CORPUS.home(PACKAGE), CORPUS.cache / "examples")
HOME = next((home for home in HOMES if (home / PACKAGE.entries[0]).is_file()), None)
WORDS = (CORPUS.cache / "words" / f"{PACKAGE.oracle}.json").is_file()


def test_the_record_covers_what_the_lock_names() -> None:
    assert len(PACKAGE.entries) == 72 and set(PACKAGE.entries) == set(RECORDED)
    assert [entry for entry, digest in RECORDED.items() if digest is None] == [f"{EXAMPLES}sandbox/index.ts"]


@pytest.mark.skipif(HOME is None, reason="72 example extensions are not here: python scripts/examples.py")
@pytest.mark.parametrize("name", [entry.removeprefix(EXAMPLES) for entry in PACKAGE.entries])
def test_an_example_registers_what_the_real_loader_registers(name: str) -> None:
    assert HOME is not None
    try:
        artifact, _ = compile_source(sources(HOME / EXAMPLES / name)[0])
    except Problem as problem:
        assert problem.key == "compile_failed" and NEEDS[name] in problem.message, problem
        assert HOMES[1] == HOME or name == "sandbox/index.ts"
        return
    found = asyncio.run(registrations_of(artifact, oracle_wording(CORPUS, PACKAGE.oracle) if WORDS else None))
    same = registrations_digest(found) == RECORDED[EXAMPLES + name]
    assert same or (not WORDS and name in HANDS_ON_WORDS and found["tools"])
