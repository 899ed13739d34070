"""A bundle that is read in parts tells what it tells as a whole (P1 to P4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.extensions.compiler.disguised_programs import made_up, program

from forestay.extensions.compiler.bundle import Bundle, bundle
from forestay.extensions.compiler.scan import program as reading_parts
from forestay.extensions.compiler.scan.program import Section, read_program
from forestay.extensions.compiler.scan.syntax import Dialect, File, Span
from forestay.extensions.compiler.scan.uses import Finding
from forestay.extensions.compiler.source import source
from forestay.kernel import Problem

Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many bytes are parsed, each time; every file is a part of its own."""
    sizes: list[int] = []

    def noted(name: str, text: bytes, dialect: Dialect, spans: Sequence[Span] = ()) -> File:
        file = File(name, text, dialect, spans)
        sizes.append(len(file.text))
        return file

    monkeypatch.setattr(reading_parts, "File", noted)
    monkeypatch.setattr(reading_parts, "_OWN_PART", 0)
    yield sizes


def _built(write: Write, files: dict[str, str]) -> Bundle:
    return bundle(source(write(files)))


def _in_parts(made: Bundle) -> list[Finding]:
    return read_program("index.js", made.code, made.sections, large=0)


def _whole(made: Bundle) -> list[Finding]:
    return read_program("index.js", made.code, ())


ENTRY = "import { a } from './a.js';\nimport { b } from './b.js';\nexport default (pi) => [a(pi), b(pi)];"


def test_files_that_have_nothing_to_do_with_each_other_are_parsed_apart(extension: Write, spans: list[int]) -> None:
    code = "export const {0} = (pi) => { const run = eval; return run('x' + Date.now()); };"
    files = {"index.js": ENTRY, "a.js": code.replace("{0}", "a"), "b.js": code.replace("{0}", "b")}
    made = _built(extension, files)
    found = _in_parts(made)
    assert max(spans) < len(made.code)
    assert len(spans) == 3
    assert [finding.rule.api for finding in found] == ["eval() with a dynamic string"] * 2
    assert found == _whole(made)


@pytest.mark.parametrize(
    "files",
    [
        {  # a function that is handed over
            "a.js": "export const a = (pi, f) => f('x' + pi);",
            "b.js": "import { a } from './a.js'; export const b = (pi) => a(pi, eval);",
        },
        {  # a key that another file makes up
            "a.js": "export const a = ['con', 'structor'].map((x) => x).join('') && ['con', 'structor'].join('');",
            "b.js": "import { a } from './a.js'; export const b = (pi) => (() => 1)[a]('return ' + pi)();",
        },
        {  # a key that another file hands over
            "a.js": "export function a(of, key) { return of[key]; }",
            "b.js": "import { a } from './a.js'; export const b = (pi) => a(() => 1, 'constructor')('return ' + pi)();",
        },
        {  # a member that another file puts there
            "a.js": "export const a = {}; export const go = (pi) => a.run('x' + pi);",
            "b.js": "import { a, go } from './a.js'; export const b = (pi) => { a.run = eval; return go(pi); };",
        },
        {  # through a third file
            "a.js": "export const a = (0, eval);",
            "c.js": "export { a as c } from './a.js';",
            "b.js": "import { c } from './c.js'; export const b = (pi) => c('x' + pi);",
        },
    ],
)
def test_what_crosses_a_file_is_found(extension: Write, spans: list[int], files: dict[str, str]) -> None:
    entry = "import { b } from './b.js';\nimport * as a from './a.js';\nexport default (pi) => [b(pi), a];"
    made = _built(extension, {"index.js": entry, **files})
    assert len(made.sections) >= 3
    whole = _whole(made)
    assert whole != []
    assert _in_parts(made) == whole


@pytest.mark.parametrize("write", [program, made_up])
def test_generated_programs_are_judged_alike(extension: Write, spans: list[int], write: Callable[[int], str]) -> None:
    compared = 0
    for seed in range(0, 40, 2):
        parts = [f"export function {name}(pi, y) {{\n{write(seed + at)}\n}}" for at, name in enumerate("ab")]
        try:
            made = _built(extension, {"index.js": ENTRY, "a.js": parts[0], "b.js": parts[1]})
        except Problem:
            continue  # no module: strict code has no variable `eval`
        assert _in_parts(made) == _whole(made), f"seed {seed}"
        compared += bool(_whole(made))
    assert compared > 4


def test_a_place_in_the_middle_of_a_statement_parts_nothing(spans: list[int]) -> None:
    """P1: a section that is told wrongly leads to reading the whole."""
    text = b"var f=function(){a;b;return eval};var g=f()('x'+y);\nexport{g as default};"
    for cut in range(1, 50):
        sections = [Section("a", "a", 0, cut), Section("b", "b", cut, 51, ("a",))]
        assert read_program("index.js", text, sections, large=0) == read_program("index.js", text, ())


def test_the_sections_of_a_bundle_are_its_files(extension: Write) -> None:
    files = {"index.js": ENTRY, "a.js": "export const a = () => 'of a';", "b.js": "export const b = () => 'of b';"}
    made = _built(extension, files)
    texts = {section.name: made.code[section.start : section.end] for section in made.sections}
    assert b"of a" in texts["a.js"] and b"of b" in texts["b.js"]
    assert next(s.imports for s in made.sections if s.name == "index.js") == ("a.js", "b.js")
