"""No exception for anybody (Pi §2A.1): compiler and runtime know no extension, author or package of the corpus."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Words of the language or of the contract that happen to name an extension too.
ORDINARY = {
    "bookmark", "commands", "event-bus", "examples", "extensions", "handoff", "hello", "index", "notify", "preset",
    "pi-tui", "structured-output",
    "question", "sandbox", "snake", "ssh", "summarize", "todo", "tools", "subagent", "questionnaire", "qna", "pirate",
}  # fmt: skip


def _names():
    lock = json.loads((ROOT / "corpus" / "lock.json").read_bytes())
    names = set()
    for package in lock["packages"]:
        if package.get("tier") == "official-pi-mono":
            stems = {
                Path(entry).parent.name if Path(entry).stem == "index" else Path(entry).stem
                for entry in package.get("entries", ())
            }
            names |= {stem for stem in stems if "-" in stem}
        else:
            names |= {package["package"], *[part for part in package["package"].split("/") if part.startswith("@")]}
    return names - ORDINARY


def test_no_name_of_the_corpus_is_in_compiler_or_runtime_code():
    names = _names()
    assert len(names) > 60
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    known = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])")
    found = []
    for path in sorted((ROOT / "src" / "forestay").rglob("*")):
        if path.suffix not in (".py", ".ts", ".mjs", ".js"):
            continue
        found += [f"{path.name}: {name}" for name in known.findall(path.read_text())]
    assert found == []
