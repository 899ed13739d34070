"""Positions: the VLQ code, the map of a bundle, stack traces."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from forestay.extensions.compiler import call_sites
from forestay.extensions.compiler.artifact import ENTRY_MODULE, Location
from forestay.extensions.compiler.build import build
from forestay.extensions.compiler.sourcemap import SourceMap, decode_mappings, encode_mappings
from forestay.extensions.locations import frames

_numbers = st.integers(min_value=0, max_value=100_000)
_segments = st.one_of(
    st.tuples(_numbers), st.tuples(_numbers, _numbers, _numbers, _numbers), st.tuples(*[_numbers] * 5)
)


@given(st.lists(st.lists(_segments, max_size=6).map(lambda line: sorted(line)), min_size=1, max_size=5))
def test_mappings_survive_encoding(lines):
    assert decode_mappings(encode_mappings(lines)) == lines


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


def test_a_map_inline_is_the_same_map(extension):
    import base64

    artifact = build(extension(NESTED))
    _, _, encoded = artifact.code_with_inline_map().partition(b"sourceMappingURL=data:application/json;base64,")
    assert base64.b64decode(encoded) == artifact.source_map


def test_a_place_that_the_map_does_not_know_stays_as_it_is_and_others_frames_are_left_out(extension):
    table = build(extension(NESTED)).source_map
    assert SourceMap(table).original(999) is None
    stack = "Error: x\n    at f (prelude.js:1:5)\n    at native\n    at index.js:999:1"
    assert [frame.place for frame in frames(stack, ENTRY_MODULE, table.decode())] == ["index.js:999:1"]


def test_a_source_is_taken_apart_once_for_many_errors() -> None:
    source = "// a line\n" * 500 + 'throw new RangeError("x" + value);\n'
    call_sites._lines.cache_clear()
    call_sites._parsed.cache_clear()
    for _ in range(50):
        assert call_sites.made_at(Location("a.ts", 501, 28), source, "RangeError") == Location("a.ts", 501, 7)
    assert (call_sites._lines.cache_info().misses, call_sites._parsed.cache_info().misses) == (1, 1)
