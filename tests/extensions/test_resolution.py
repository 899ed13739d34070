"""`require.resolve` and `import.meta.resolve` of a bundled extension, against Node in the same folder."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from forestay.extensions.extensions import Extensions
from forestay.extensions.settings import Settings
from forestay.kernel import ExtensionConfig, ExtensionPolicy, Ledger

NODE = shutil.which("node")
ASKED = (
    "fs", "node:fs", "dep", "dep/package.json", "dep/lib", "dep/none", "exp", "exp/f/a", "exp/x", "exp/package.json",
    "@scope/part", "./index.cjs", "./sub", ".", "./package.json", "./none", "no-such-package",
)  # fmt: skip
EXTENSION = """
require("dep");
const tell = (name, run) => {
  try { return [name, run(name)]; } catch (error) { return [name, error.code, error.message.split("\\n")[0]]; }
};
const go = { name: "go", description: "d", parameters: { type: "object" } };
module.exports = (pi) => pi.registerTool({ ...go, async execute() {
  const said = %s.map((name) => tell(name, (one) => require.resolve(one)));
  said.push(tell("paths", () => require.resolve.paths("dep")[0]), tell("none", () => require.resolve.paths("fs")));
  said.push(tell("beside", () => require("./sub").own()), tell("cache", () => typeof require.cache));
  return { content: [{ type: "text", text: JSON.stringify(said) }] };
} });
"""
RUN = 'require("./index.cjs")({ registerTool: async (tool) => console.log((await tool.execute()).content[0].text) });'
FILES = {
    "index.cjs": EXTENSION % json.dumps(ASKED),
    "sub/index.js": "exports.own = () => require.resolve('./beside.js');",
    "sub/beside.js": "",
    "run.cjs": RUN,
    "package.json": '{"name": "resolving", "pi": {"extensions": ["./index.cjs"]}}',
    "node_modules/dep/package.json": '{"name": "dep", "main": "lib"}',
    "node_modules/dep/lib.js": "module.exports = 1;",
    "node_modules/exp/package.json": json.dumps(
        {
            "name": "exp",
            "exports": {
                ".": {"import": "./lib/m.mjs", "require": "./lib/c.cjs"},
                "./f/*": ["./lib/*.js"],
                "./x": None,
            },
        }
    ),
    "node_modules/exp/lib/m.mjs": "",
    "node_modules/exp/lib/c.cjs": "",
    "node_modules/exp/lib/a.js": "",
    "node_modules/@scope/part/index.js": "",
}


def _laid_out(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


async def _answer(folder: Path, project: Path) -> Any:
    settings = ExtensionConfig(ExtensionPolicy(mode="permissive"))
    async with (
        Ledger.open(project / "data") as ledger,
        Extensions(ledger, root=project, settings=Settings(config=settings)) as suite,
    ):
        await suite.load(folder)
        return json.loads((await suite.call_tool("go", {})).content[0]["text"])


@pytest.mark.skipif(NODE is None, reason="no Node.js to compare with")
async def test_require_resolve_finds_what_node_finds(tmp_path: Path) -> None:
    folder = _laid_out(tmp_path / "resolving", FILES)
    done = subprocess.run([str(NODE), "run.cjs"], cwd=folder, capture_output=True, timeout=60, check=True)
    theirs = json.loads(done.stdout)
    assert len(theirs) == len(ASKED) + 4 and "MODULE_NOT_FOUND" in str(theirs)
    assert await _answer(folder, tmp_path) == theirs


async def test_import_meta_resolve_gives_addresses(tmp_path: Path) -> None:
    source = """
    const asked = ["fs", "node:path", "exp", "./beside.mjs", "https://a.b/c"];
    export default (pi) => pi.registerTool({ name: "go", description: "d", parameters: { type: "object" },
      async execute() {
        const said = asked.map((one) => import.meta.resolve(one));
        try { import.meta.resolve("no-such-package"); } catch (error) { said.push(error.code); }
        return { content: [{ type: "text", text: JSON.stringify(said) }] };
      } });
    """
    package = '{"name": "resolving", "pi": {"extensions": ["./index.mjs"]}}'
    kept = {name: text for name, text in FILES.items() if name.startswith("node_modules/exp")}
    folder = _laid_out(tmp_path / "resolving", {**kept, "index.mjs": source, "package.json": package})
    assert await _answer(folder, tmp_path) == [
        "node:fs", "node:path", f"file://{folder}/node_modules/exp/lib/m.mjs", f"file://{folder}/beside.mjs",
        "https://a.b/c", "ERR_MODULE_NOT_FOUND",
    ]  # fmt: skip
