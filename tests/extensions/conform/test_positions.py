"""An error in a nested TypeScript module is told at its place: through compile, bytecode and snapshot."""

from __future__ import annotations

import asyncio

from holdfast.extensions.compiler import build
from holdfast.extensions.conform.host import Host, Place
from holdfast.extensions.engine.pool import Pool

FILES = {
    "package.json": '{"name": "nested", "version": "1.0.0", "pi": {"extensions": ["./src/index.ts"]}}',
    "src/index.ts": 'import { outer } from "./lib/outer";\nimport each from "dep";\n\n'
    "export default (pi: any) => {\n  pi.registerTool({\n    name: 'go', label: 'Go', description: 'Goes',\n"
    "    parameters: { type: 'object', properties: {} },\n"
    "    execute: async () => each([3], (value: number) => outer({ value })),\n  });\n};\n",
    "src/lib/outer.ts": "interface Input {\n  value: number;\n}\n\nexport function outer(input: Input): never {\n"
    "  return inner(input.value);\n}\n\nfunction inner(value: number): never {\n"
    "    if (value > 2) throw new RangeError('bad');\n}\n",
    "node_modules/dep/package.json": '{"name": "dep", "version": "1.0.0", "main": "i.js"}',
    "node_modules/dep/i.js": "'use strict';\n"
    "module.exports = function each(list, f) { return list.map((x) => f(x)); };\n",
}


async def _thrown(place, artifact, pool):
    async with Host(place, artifact, pool=pool) as host:
        await host.extension.load()
        return await host.extension.call_tool("go", {})


def test_the_place_is_the_same_cold_and_from_a_snapshot(tmp_path):
    root = tmp_path / "ext"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    artifact = build(root)

    async def run():
        pool = Pool()
        return [await _thrown(Place(tmp_path / str(number)), artifact, pool) for number in range(2)]

    for outcome in asyncio.run(run()):
        assert outcome.is_error
        assert outcome.content == [{"type": "text", "text": "bad"}]
        assert outcome.problem is not None
        details = outcome.problem["details"]
        assert str(details["at"]) == "src/lib/outer.ts:10:30"  # the engine points at the class behind `new`
        stack = "\n".join(map(str, details["stack"]))
        assert "src/lib/outer.ts:6:" in stack
        assert "node_modules/dep/i.js:2:" in stack
