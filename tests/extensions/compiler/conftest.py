"""An extension folder to write into, and the bundle run in a real JavaScript engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forestay import assets
from forestay.extensions.compiler.artifact import Artifact

_HARNESS = """
const base = { existsSync() { return true }, join: (...p) => p.join("/"), tmpdir() { return "/t" } };
globalThis.__forestay_modules__ = (name) => {
  if (name === "pi:node/events") {
    class EventEmitter {}
    return { default: EventEmitter, EventEmitter, once() {} };
  }
  return { ...base, name, default: { ...base, name } };
};
globalThis.__forestay_root__ = process.argv[3];
const said = [];
try {
  const { default: factory } = await import(process.argv[2]);
  await factory({ say: (value) => said.push(value) });
  await new Promise((resolve) => setTimeout(resolve, 5));
  console.log(JSON.stringify({ said }));
} catch (error) {
  console.log(JSON.stringify({ said, error: String(error), stack: error.stack }));
}
"""


@pytest.fixture(scope="session", autouse=True)
def _assets() -> None:
    assets.ensure()


@pytest.fixture
def extension(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Write files into a folder of its own and give the folder."""

    def write(files: dict[str, str], folder: str = "ext") -> Path:
        root = tmp_path / folder
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return write


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Artifact], dict[str, Any]]:
    """Evaluate an artifact with a small registry and return what it said."""

    def evaluate(artifact: Artifact, root: str = "/abs/ext") -> dict[str, Any]:
        place = tmp_path / "run"
        place.mkdir(exist_ok=True)
        code, harness = place / "index.js", place / "harness.mjs"
        (place / "package.json").write_text('{"type": "module"}')
        code.write_bytes(artifact.code)
        harness.write_text(_HARNESS)
        node = assets.node_command()
        assert node is not None
        done = subprocess.run([node, harness, code, root], capture_output=True, text=True, check=True, timeout=60)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return evaluate
