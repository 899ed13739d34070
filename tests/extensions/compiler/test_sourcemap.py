"""Positions: the VLQ code, the map of a bundle, stack traces."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.extensions.compiler import call_sites
from forestay.extensions.compiler.artifact import ENTRY_MODULE, Location
from forestay.extensions.compiler.build import build, compile_source
from forestay.extensions.compiler.source import source
from forestay.extensions.compiler.sourcemap import SourceMap, decode_mappings, encode_mappings
from forestay.extensions.locations import frames

_numbers = st.integers(min_value=0, max_value=100_000)
_segments = st.one_of(
    st.tuples(_numbers), st.tuples(_numbers, _numbers, _numbers, _numbers), st.tuples(*[_numbers] * 5)
)


@given(st.lists(st.lists(_segments, max_size=6).map(lambda line: sorted(line)), min_size=1, max_size=5))
def test_mappings_survive_encoding(lines):
    assert decode_mappings(encode_mappings(lines)) == lines


@given(
    st.lists(st.lists(_segments, max_size=6).map(lambda line: sorted(line)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 100_001)), max_size=8),
)
def test_a_place_is_the_same_in_whatever_order_lines_are_asked_for(lines, asked):
    """Lines are decoded one by one, from what those in front of them add up to."""
    sources = [str(number) for number in range(100_001)]
    table = SourceMap({"sources": sources, "mappings": encode_mappings(lines)})
    for line, column in asked:
        before = [segment for segment in lines[line - 1] if segment[0] < column] if line <= len(lines) else []
        last = before[-1] if before else ()
        expected = Location(sources[last[1]], last[2] + 1, last[3] + 1) if len(last) > 3 else None
        assert table.original(line, column) == expected


def test_a_segment_with_more_numbers_than_there_are_counts_by_the_first():
    table = SourceMap({"sources": ["a"], "mappings": "AAAAAA;AACA"})
    assert table.original(2) == Location("a", 2, 1)


NESTED = {
    "index.ts": 'import { outer } from "./lib/outer";\nimport dep from "dep";\n'
    "export default (pi: any) => { dep(() => outer({ value: 3 })); };\n",
    "lib/outer.ts": "interface Input {\n  value: number;\n}\n\n"
    "export function outer(input: Input): never {\n  return inner(input.value);\n}\n\n"
    "function inner(value: number): never {\n    throw new Error(`bad ${value}`);\n}\n",
    "node_modules/dep/package.json": '{"name": "dep", "version": "1.0.0", "main": "i.js"}',
    "node_modules/dep/i.js": "module.exports = function call(f) { return __dirname && f(); };",
}


def test_an_error_in_a_nested_module_is_at_its_original_place(extension, run, tmp_path):
    artifact = build(extension(NESTED))
    answer = run(artifact)
    assert answer["error"] == "Error: bad 3"
    stack = answer["stack"].replace((tmp_path / "run").as_uri() + "/", "")
    places = [frame.place for frame in frames(stack, ENTRY_MODULE, artifact.source_map.decode())]
    assert places[:2] == ["lib/outer.ts:10:11", "lib/outer.ts:6:10"]
    assert "node_modules/dep/i.js:1:57" in places  # the prefix for __dirname does not move it


def test_the_map_carries_the_sources_as_they_are_on_disk(extension):
    root = extension(NESTED)
    document = json.loads(build(root).source_map)
    contents = dict(zip(document["sources"], document["sourcesContent"], strict=True))
    for name in ("index.ts", "lib/outer.ts", "node_modules/dep/i.js"):
        assert contents[name] == (root / name).read_text()


_FOREIGN = {"version": 3, "sources": ["forestay-raw:x.js"], "sourcesContent": [""], "mappings": "AAAA" + ";AAAA" * 8}
_INLINE = "data:application/json;base64," + base64.b64encode(json.dumps(_FOREIGN).encode()).decode()


@pytest.mark.parametrize(
    "named",
    ["", f"//# sourceMappingURL={_INLINE}", f"/*@ sourceMappingURL={_INLINE} */", "//# sourceMappingURL=index.js.map"],
)
def test_a_map_that_a_file_brings_moves_nothing_to_another_place(extension, named):
    files = {"index.js": "import { run } from './run.js';\nexport default (pi) => {\nrun('a' + pi);\n};\n" + named}
    files |= {"run.js": "export const run = eval;", "index.js.map": json.dumps(_FOREIGN)}
    artifact, _ = compile_source(source(extension(files)))
    (use,) = artifact.meta.forbidden_apis
    assert (use.api, use.locations) == ("eval() with a dynamic string", (Location("index.js", 3, 1),))
    document = json.loads(artifact.source_map)
    contents = dict(zip(document["sources"], document["sourcesContent"], strict=True))
    assert contents == {name: files[name] for name in ("run.js", "index.js")}
    assert artifact.meta.warnings == ()


def test_a_map_inline_is_the_same_map(extension):
    artifact = build(extension(NESTED))
    _, _, encoded = artifact.code_with_inline_map().partition(b"sourceMappingURL=data:application/json;base64,")
    assert base64.b64decode(encoded) == artifact.source_map


def test_a_place_that_the_map_does_not_know_stays_as_it_is_and_others_frames_are_left_out(extension):
    table = build(extension(NESTED)).source_map
    assert SourceMap(table).original(999) is None
    stack = "Error: x\n    at f (prelude.js:1:5)\n    at native\n    at index.js:999:1"
    assert [frame.place for frame in frames(stack, ENTRY_MODULE, table.decode())] == ["index.js:999:1"]


def test_a_segment_of_a_source_that_there_is_not_leads_nowhere() -> None:
    """`AAAA` is the first source, `ADAA` the one before it, `ACAA` the second."""
    damaged = {"version": 3, "sources": ["a.ts"], "sourcesContent": ["x"], "mappings": "AAAA;ADAA;AEAA"}
    table = SourceMap(json.dumps(damaged).encode())
    assert [table.original(line) for line in (1, 2, 3)] == [Location("a.ts", 1, 1), None, None]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "{}",
        '{"sources":[],"mappings":[]}',
        '{"sources":[1],"mappings":""}',
        "[" * 9999,
        '{"sources":["a.ts"],"mappings":"AAAA;AA!A"}',
    ],
)
def test_what_is_no_map_costs_only_precision(text: str) -> None:
    with pytest.raises(ValueError, match="source map"):
        SourceMap(text.encode())
    assert [frame.place for frame in frames("Error: x\n    at index.js:9:1", ENTRY_MODULE, text)] == ["index.js:9:1"]


def test_a_source_is_taken_apart_once_for_many_errors() -> None:
    source = "// a line\n" * 500 + 'throw new RangeError("x" + value);\n'
    call_sites._lines.cache_clear()
    call_sites._parsed.cache_clear()
    for _ in range(50):
        assert call_sites.made_at(Location("a.ts", 501, 28), source, "RangeError") == Location("a.ts", 501, 7)
    assert (call_sites._lines.cache_info().misses, call_sites._parsed.cache_info().misses) == (1, 1)
