"""The real example extensions of pi 0.73.1 load in the sandbox and register what is on record.

`corpus/examples.json` holds, for each example, the digest of its registrations and how they compared with the real
loader's when they were recorded (`equal`, or `host_words` where an example hands on the words of its host's own tools).
The examples themselves are fetched by `scripts/examples.py` (part of `make test`) or `make corpus`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.extensions.compiler.build import compile_source
from holdfast.extensions.compiler.source import sources
from holdfast.extensions.conform.differential import normal, registrations_of
from holdfast.kernel import canonical
from holdfast.kernel.problems import Problem

CORPUS = Path(__file__).parents[2] / "corpus"
RECORDED: dict[str, Any] = json.loads((CORPUS / "examples.json").read_bytes())
EXAMPLES: dict[str, dict[str, str]] = RECORDED["examples"]
HOMES = (CORPUS / "cache" / "pi-0.73" / "node_modules" / RECORDED["package"], CORPUS / "cache" / "examples")
HOME = next((home for home in HOMES if (home / next(iter(EXAMPLES))).is_file()), None)
needs_examples = pytest.mark.skipif(
    HOME is None, reason=f"{len(EXAMPLES)} example extensions are not here: python scripts/examples.py"
)


def test_the_record_covers_what_the_lock_names() -> None:
    lock = json.loads((CORPUS / "lock.json").read_bytes())
    package = next(item for item in lock["packages"] if item["group"] == "pi-0.73")
    assert (package["package"], package["version"]) == (RECORDED["package"], RECORDED["version"])
    assert list(EXAMPLES) == package["entries"] and len(EXAMPLES) == 72
    loadable = [item for item in EXAMPLES.values() if "registrations" in item]
    assert len(loadable) == 71 and {item["oracle"] for item in loadable} == {"equal", "host_words"}


@needs_examples
@pytest.mark.parametrize("entry", EXAMPLES, ids=lambda entry: entry.removeprefix("examples/extensions/"))
def test_an_example_loads_and_registers_what_is_on_record(entry: str) -> None:
    assert HOME is not None
    recorded = EXAMPLES[entry]
    try:
        artifact, _ = compile_source(sources(HOME / entry)[0])
    except Problem as problem:
        # A package that is not among the examples' own files is there only when the whole corpus was fetched.
        assert problem.key == "compile_failed" and recorded.get("needs", "-") in problem.message, problem
        assert HOMES[1] == HOME or "registrations" not in recorded
        return
    found = canonical.digest(normal(asyncio.run(registrations_of(artifact))))
    assert found == recorded["registrations"]
