"""The catalog (Pi §1C): identity, tags, duplicates."""

from __future__ import annotations

import hashlib

import pytest

from forestay.extensions.catalog import GitSource, NpmSource, UrlSource, build_catalog, read_catalog, source_key
from forestay.kernel import Problem, canonical

NOW = "2026-01-02T03:04:05Z"
TOOL = "export default (pi) => { pi.registerTool({ name: 'a' }); };"
FILES = {
    "tool.ts": TOOL,
    "copy.ts": TOOL,
    "hooks.ts": 'import fs from "fs";\nexport default (pi) => { pi.on("x", (e, ctx) => ctx.ui.notify("hi")); '
    "pi.registerFlag('f', {}); pi.registerShortcut('k', {}); pi.registerProvider('p', {}); };",
    "many/index.ts": 'import { a } from "./a";\nexport default (pi) => a(pi);',
    "many/a.ts": "export const a = (pi) => pi.exec('ls');",
    "pack/package.json": '{"name": "pack", "version": "1.0.0", "license": "MIT", "dependencies": {"dep": "1"}, '
    '"pi": {"extensions": ["./main.ts"]}}',
    "pack/main.ts": 'import d from "dep";\nexport default () => d();',
    "pack/node_modules/dep/package.json": '{"name": "dep"}',
    "pack/node_modules/dep/index.js": "module.exports = () => 1;",
    "broken.ts": "export default (",
}


def test_a_folder_becomes_a_catalog(extension):
    catalog, skipped = build_catalog(extension(FILES), "community", NOW)
    items = {item.id: item for item in catalog.items}
    assert sorted(items) == ["copy", "hooks", "many", "pack"]
    assert items["copy"].interaction_tags == ("tool_only",)
    assert items["copy"].checksum.sha256 == hashlib.sha256(TOOL.encode()).hexdigest()
    assert items["hooks"].interaction_tags == ("event_hook", "flag", "provider", "shortcut", "ui_integration")
    assert items["hooks"].capabilities == ("event_hook", "flag", "http", "provider", "shortcut", "ui")
    assert (items["many"].runtime_tier, items["many"].file_count) == ("multi-file", 2)
    digests = sorted(hashlib.sha256(FILES[f"many/{name}.ts"].encode()).hexdigest() for name in ("a", "index"))
    assert items["many"].checksum.sha256 == hashlib.sha256("".join(digests).encode()).hexdigest()
    assert items["many"].io_pattern == ("os-heavy",)
    assert (items["pack"].runtime_tier, items["pack"].source, items["pack"].license) == (
        "pkg-with-deps",
        NpmSource("pack", "1.0.0"),
        "MIT",
    )
    assert {item.path: item.reason for item in skipped}["tool.ts"] == "It has the same content as copy."
    assert "broken.ts" in {item.path for item in skipped}
    assert catalog.runtime_summary == {"legacy-js": 2, "multi-file": 1, "pkg-with-deps": 1}


def test_what_is_written_is_valid_and_a_lie_is_not(extension):
    catalog, _ = build_catalog(extension(FILES), "community", NOW)
    data = canonical.encode(catalog)
    assert read_catalog(data) == catalog
    for before, after in ((b'"total_extensions":4', b'"total_extensions":5'), (b'"small"', b'"tiny"')):
        with pytest.raises(Problem) as caught:
            read_catalog(data.replace(before, after))
        assert caught.value.key == "schema_mismatch"


def test_canonical_source_keys():
    assert source_key(GitSource("https://x.test/r", "a.ts")) == "git:https://x.test/r#a.ts"
    assert source_key(NpmSource("p", "1.0.0"), "a.ts") == "npm:p@1.0.0#a.ts"
    assert source_key(UrlSource("local:/a/b.ts")) == "local:/a/b.ts"
