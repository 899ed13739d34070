"""Each text is read once (N1 to N3), and only what a decisive word reaches is evaluated (R1 to R4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.extensions.compiler.disguised_programs import made_up, program

from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.scan import program as whole_program
from forestay.extensions.compiler.scan import reading, scan_text
from forestay.extensions.compiler.scan.reach import Reach
from forestay.extensions.compiler.scan.syntax import Dialect, File, Span
from forestay.extensions.compiler.scan.uses import DECISIVE, MODULES, Finding, findings
from forestay.extensions.compiler.scan.values import Values
from forestay.extensions.compiler.source import source

_NAMES = "[(identifier) (property_identifier) (shorthand_property_identifier)] @node"
_PATTERNS = """
(variable_declarator name: (object_pattern)) @node
(assignment_expression left: (object_pattern)) @node
"""
_RECORDED = json.loads(Path(__file__).with_name("disguised_programs.json").read_text())

Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the texts that are parsed for a reading, as they are."""
    names: list[str] = []

    def noted(name: str, text: bytes, dialect: Dialect, spans: Sequence[Span] = ()) -> File:
        names.append(name)
        return File(name, text, dialect, spans)

    monkeypatch.setattr(reading, "File", noted)
    monkeypatch.setattr(whole_program, "File", noted)
    monkeypatch.setattr(reading, "_kept", reading._Kept())
    yield names


def test_generated_programs_are_judged_as_they_were_recorded() -> None:
    kinds, verdicts = _RECORDED["kinds"], _RECORDED["verdicts"]
    for seed, kind in enumerate(verdicts):
        found = sorted({finding.rule.api for finding in scan_text("a.js", program(seed).encode(), "js")})
        assert found == kinds[kind], f"seed {seed}:\n{program(seed)}"


def test_the_record_holds_programs_of_every_kind() -> None:
    apis = {api for kind in _RECORDED["kinds"] for api in kind}
    assert {"eval() with a dynamic string", "new Function()", "node:vm", "process.binding()"} <= apis
    assert [] in _RECORDED["kinds"]


def test_a_source_is_parsed_once_for_what_it_uses_and_what_it_needs(extension: Write, parsed: list[str]) -> None:
    root = extension({"index.ts": "import { readFileSync } from 'fs';\nexport default (pi) => readFileSync('a');"})
    compile_source(source(root))
    assert sorted(parsed) == ["index.js", "index.ts"]


def test_a_comment_in_one_file_has_only_that_file_read_again(extension: Write, parsed: list[str]) -> None:
    files = {"index.ts": "import { a } from './a';\nexport default (pi) => a(pi, eval);"}
    files["a.ts"] = "export const a = (pi, f) => pi.on('x', () => f('a' + pi));"
    before, _ = compile_source(source(extension(files)))
    parsed.clear()
    after, _ = compile_source(source(extension(files | {"a.ts": "// a remark\n" + files["a.ts"]})))
    assert parsed == ["a.ts"]
    assert after.code == before.code
    (was,), (now,) = before.meta.forbidden_apis, after.meta.forbidden_apis
    assert (was.api, was.locations[0].line, now.locations[0].line) == ("eval() with a dynamic string", 1, 2)


def test_a_reading_depends_on_the_dialect_and_every_byte(parsed: list[str]) -> None:
    for name, text, dialect in (("a.ts", b"eval(x)", "ts"), ("b.ts", b"eval(x)", "ts"), ("a.ts", b"eval(y)", "ts")):
        reading.read(name, text, dialect)  # type: ignore[arg-type]
    reading.read("a.ts", b"eval(x)", "tsx")
    reading.read("a.ts", b"eval(x)", "ts")
    assert parsed == ["a.ts", "a.ts", "a.ts"]


def test_the_same_text_under_two_names_is_parsed_once_and_told_under_each(parsed: list[str]) -> None:
    text = b"import { readFileSync } from 'fs';\neval(x); readFileSync('a');"
    readings = {name: reading.read(name, text, "ts") for name in ("a.ts", "b/a.ts", "a.ts")}
    assert parsed == ["a.ts"]
    for name, told in readings.items():
        assert {one.location.file for one in (*told.findings, *told.uses)} == {name}
        assert (len(told.findings), bool(told.uses)) == (1, True)


def test_what_is_kept_is_bounded(parsed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MOST", 3)
    for number in (0, 1, 2, 0, 3, 0, 1):
        reading.read(f"{number}.js", f"f{number}()".encode(), "js")
    assert parsed == ["0.js", "1.js", "2.js", "3.js", "1.js"]


def test_only_calls_that_a_decisive_word_reaches_are_evaluated() -> None:
    text = "const box = { f: eval };\n" + "".join(f"g{n}(h.i(n{n}), box{n}.f);\n" for n in range(200)) + "box.f(x);"
    file = File("a.js", text.encode(), "js")
    reach = Reach(file, Values(file), DECISIVE, MODULES)
    assert [call.text for call in reach.calls.values()] == [b"box.f(x)"]


class Everything(Reach):
    """Reaches every place of a file, whether or not a decisive word leads there."""

    def __init__(self, file: File, values: Values) -> None:
        super().__init__(file, values, DECISIVE, MODULES)
        self.calls = {node.id: node for node in file.nodes("call")}
        self.subscripts = {node.id: node for node in file.nodes("subscript")}
        self.names = {node.id: node for _, node in file.find(_NAMES)}
        self.patterns = {node.id: node for _, node in file.find(_PATTERNS)}


def _told(found: list[Finding]) -> set[tuple[str, str]]:
    return {(finding.rule.api, str(finding.location)) for finding in found}


@pytest.mark.parametrize("write", [program, made_up])
def test_what_is_not_reached_has_nothing_to_find(write: Callable[[int], str]) -> None:
    """R4: reading every place of a program finds nothing that reading what is reached does not find."""
    for seed in range(600):
        text = write(seed)
        file = File("a.js", text.encode(), "js")
        values = Values(file)
        everything = _told(findings(file, values, Everything(file, values)))
        assert everything <= _told(scan_text("a.js", text.encode(), "js")), f"seed {seed}:\n{text}"


def test_a_part_leaves_only_made_up_words_to_the_bundle() -> None:
    """N3: for every other rule a part is read like a whole text."""
    for seed in range(600):
        assert _left_to_the_bundle(program(seed)) == set()
    left = [_left_to_the_bundle(made_up(seed)) for seed in range(600)]
    assert set().union(*left) == {"new Function()"}


def _left_to_the_bundle(text: str) -> set[str]:
    part, whole = reading.read("a.js", text.encode(), "js").findings, reading.read_bundle("a.js", text.encode())
    return {api for api, _ in _told(list(whole)) - _told(list(part))}


@pytest.mark.parametrize("seed", range(24))
def test_a_made_up_word_of_a_part_is_found_in_its_place(extension: Write, seed: int) -> None:
    """N3, R1: what a whole text tells, a build tells that has the text as a part."""
    text = made_up(seed)
    part = f"export default function (pi, y) {{\n{text}\n}}"
    expected = {finding.rule.api for finding in scan_text("part.js", part.encode(), "js")}
    root = extension(
        {"index.ts": "import part from './part.js';\nexport default (pi) => part(pi, 1);", "part.js": part}
    )
    meta = compile_source(source(root))[0].meta
    flagged = {use.api: {place.file for place in use.locations} for use in meta.flagged_apis}
    assert expected <= set(flagged)
    assert all(flagged[api] == {"part.js"} for api in expected)


def test_a_made_up_constructor_is_found_across_files(extension: Write) -> None:
    files = {"index.ts": "import { key } from './key';\nexport default (pi) => (() => {})[key]('return ' + pi)();"}
    files["key.ts"] = "export const key = ['con', 'structor'].join('');"
    (use,) = compile_source(source(extension(files)))[0].meta.flagged_apis
    assert (use.api, use.locations[0].file, use.locations[0].line) == ("new Function()", "index.ts", 2)


def test_code_in_a_text_is_judged_though_only_the_bundle_tells_what_runs_it(extension: Write) -> None:
    text = "export default () => (() => {})['con' + 'structor'.slice(0)]('return require(\\'vm\\')')();"
    meta = compile_source(source(extension({"index.ts": text})))[0].meta
    assert {use.api for use in meta.forbidden_apis} == {"node:vm"}
