"""The packages of the host: joined once, one copy in an extension, and no way around the scan (P5)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.compiler.disguised_programs import made_up, program

from forestay import assets
from forestay.extensions.compiler import bundle as bundling
from forestay.extensions.compiler import provided
from forestay.extensions.compiler.artifact import Artifact
from forestay.extensions.compiler.build import build
from forestay.extensions.compiler.bundle import Bundle, bundle
from forestay.extensions.compiler.scan import program as reading_parts
from forestay.extensions.compiler.scan.program import read_program
from forestay.extensions.compiler.scan.uses import Finding
from forestay.extensions.compiler.source import source
from forestay.kernel import Problem

Write = Callable[[dict[str, str]], Path]
Run = Callable[[Artifact], dict[str, Any]]
WITH_TYPEBOX = "import {{ Type }} from 'typebox';\nexport default (pi) => {{ pi.say(Type.String()); {0} }};"


def test_all_entries_of_a_package_are_one_package(extension: Write, run: Run) -> None:
    """What one entry sets, another one sees: the joined files share their state."""
    code = """import Type from 'typebox'; import { Value } from 'typebox/value';
    import { Format } from 'typebox/format'; import { Compile } from 'typebox/compile';
    import * as old from '@sinclair/typebox';
    export default (pi) => {
      const even = Type.Object({ a: Type.String({ format: 'even' }) });
      Format.Set('even', (text) => text.length % 2 === 0);
      pi.say([Value.Check(even, { a: 'xx' }), Value.Check(even, { a: 'x' }), old.Type.String === Type.String]);
      pi.say(typeof Compile);
    };"""
    artifact = build(extension({"index.js": code}))
    assert run(artifact)["said"] == [[True, False, True], "function"]
    assert artifact.meta.warnings == ()


def test_the_joined_files_are_the_same_wherever_the_package_lies(tmp_path: Path) -> None:
    def joined(place: str) -> dict[str, bytes]:
        root, into = tmp_path / place / "typebox", tmp_path / place / "into"
        shutil.copytree(assets.asset("typebox"), root)
        return {path.name: path.read_bytes() for path in provided._join("typebox", root, into).iterdir()}

    first = joined("one")
    assert first == joined("another/one")
    assert "__export(" in first["index.mjs"].decode() and "\n__export(" not in first["index.mjs"].decode()


def test_what_is_gone_is_joined_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, modules = tmp_path / "assets", assets.modules()
    monkeypatch.setattr(assets, "folder", lambda: place)
    monkeypatch.setattr(assets, "modules", lambda: modules)
    provided._joined.cache_clear()
    first = provided.contents("typebox/index.mjs")
    shutil.rmtree(place)
    assert provided.contents("typebox/index.mjs") == first
    shutil.rmtree(place)
    place.write_text("no folder can be made here")
    provided._joined.cache_clear()
    assert provided.contents("typebox/index.mjs") == first
    provided._joined.cache_clear()


def test_a_path_that_the_package_does_not_export_is_told(extension: Write) -> None:
    with pytest.raises(Problem) as caught:
        build(extension({"index.js": "import 'typebox/build/index.mjs';\nexport default () => {};"}))
    assert caught.value.key == "compile_failed"
    assert '"typebox/build/index.mjs" is not exported by the package.' in caught.value.message


def _alike(made: Bundle) -> list[Finding]:
    """What is found beside the package, which is what reading everything finds there."""
    starts = [0]
    for line in made.code.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)

    def is_provided(finding: Finding) -> bool:
        place = starts[finding.location.line - 1] + finding.location.column - 1
        return any(start <= place < end for start, end in made.provided)

    whole = [finding for finding in read_program("index.js", made.code, ()) if not is_provided(finding)]
    beside = [
        finding
        for finding in read_program("index.js", made.code, made.sections, made.provided)
        if not is_provided(finding)
    ]
    assert beside == whole
    return beside


def test_p5_the_stretches_of_a_package_are_its_own(extension: Write) -> None:
    """Also with a module that runs later, whose opening line has no segment of its own."""
    files = {
        "index.js": "import { Type } from 'typebox';\nimport { a } from './a.js';\n"
        "export default async (pi) => [Type.String(), a, await import('./b.js')];",
        "a.js": "export const a = 'the first of ours';",
        "b.js": "import { Type } from 'typebox';\nexport const b = [Type, `two\nlines`, 'the second of ours'];",
    }
    made = bundle(source(extension(files)))
    theirs = b"".join(made.code[start:end] for start, end in made.provided)
    ours = made.code
    for start, end in reversed(made.provided):
        ours = ours[:start] + ours[end:]
    assert len(theirs) > 100_000 > len(ours)
    assert b"of ours" not in theirs and b"b.js" not in theirs
    assert b"the first of ours" in ours and b"the second of ours" in ours
    assert b"IsObject" not in ours and b"IsObject" in theirs


def test_p5_the_package_is_not_read_again(extension: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bundle(source(extension({"index.js": WITH_TYPEBOX.format("eval('x' + pi);")})))
    assert read_program("index.js", made.code, made.sections, made.provided)
    sizes: list[int] = []
    file = reading_parts.File

    def noted(name: str, text: bytes, dialect: Any, spans: Any = ()) -> Any:
        read = file(name, text, dialect, spans)
        sizes.append(len(read.text))
        return read

    monkeypatch.setattr(reading_parts, "File", noted)
    (found,) = read_program("index.js", made.code, made.sections, made.provided)
    assert found.rule.api == "eval() with a dynamic string"
    assert len(sizes) == 1 and sizes[0] < 10_000


@pytest.mark.parametrize(
    "code",
    [
        "Type.Unsafe(eval)('x' + pi);",
        "const run = Type.Options(eval, {}); run('x' + pi);",
        "Type.run = eval; Type.run('x' + pi);",
    ],
)
def test_p5_what_passes_through_a_package_is_found(extension: Write, code: str) -> None:
    made = bundle(source(extension({"index.js": WITH_TYPEBOX.format(code)})))
    assert made.provided
    assert _alike(made)


@pytest.mark.parametrize("write", [program, made_up])
def test_p5_generated_programs_are_judged_alike(extension: Write, write: Callable[[int], str]) -> None:
    compared = 0
    for seed in range(1, 9):
        body = f"const y = Type.String();\n{write(seed)}"
        try:
            made = bundle(source(extension({"index.js": WITH_TYPEBOX.format(body)})))
        except Problem:
            continue  # no module: strict code has no variable `eval`
        compared += bool(_alike(made))
    assert compared > 2


@pytest.mark.parametrize("folder", ["npm:typebox", "forestay-raw:pi"])
def test_a_file_cannot_pass_for_one_of_the_host(extension: Write, folder: str) -> None:
    files = {"index.js": f"export {{ default }} from './{folder}/a.js';", f"{folder}/a.js": "export default () => {};"}
    with pytest.raises(Problem) as caught:
        build(extension(files))
    assert "has a name that belongs to the host" in caught.value.message


def test_a_folder_that_is_named_like_the_host_is_judged(extension: Write) -> None:
    """Only the bundle is asked for keys that are made up."""
    code = "export default (pi) => (() => 1)[['con', 'structor'].join('')]('return ' + pi)();"
    files = {"index.js": "export { default } from './forestay-x/a.js';", "forestay-x/a.js": code}
    assert [use.api for use in build(extension(files), allow_forbidden=True).meta.flagged_apis] == ["new Function()"]


def test_types_that_are_imported_by_name_do_not_hide_values(
    extension: Write, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[object] = []
    session = bundling._Session.run
    monkeypatch.setattr(bundling._Session, "run", lambda self: runs.append(self) or session(self))
    files = {
        "index.ts": "import { type A } from './a.js';\nimport { b } from './a.js';\n"
        "export default (pi: { say(value: A): void }) => pi.say(b);",
        "a.ts": "export type A = string;\nexport const b: A = 'b';",
    }
    assert run(build(extension(files)))["said"] == ["b"]
    assert len(runs) == 1
