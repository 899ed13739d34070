"""Builds the guest: bundles the TypeScript under `src/` into one prelude file, cached by the hash of its inputs.

Two modules are generated from the tables of `api_table.py`: `@forestay/table` has the lists that the guest shares with
the host, `@forestay/stubs` loads the files that define Node's modules.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from functools import lru_cache
from pathlib import Path

import msgspec

from forestay import assets
from forestay.extensions.api_table import EVENTS, NODE_MODULES, OLDER_EVENTS, PI_MEMBERS
from forestay.kernel import Problem

SOURCES = Path(__file__).parent / "src"
ENTRY = "index.ts"


class Prelude(msgspec.Struct, frozen=True):
    """The built guest: its JavaScript, its source map, and the hash of its inputs."""

    text: str
    source_map: str
    digest: str


def generated() -> dict[str, str]:
    """Return the generated modules by name."""
    builtins = sorted(name for name, row in NODE_MODULES.items() if row.stub and not (row.forbidden or row.package))
    lists = {
        "EVENTS": EVENTS,
        "OLDER_EVENTS": OLDER_EVENTS,
        "NODE_BUILTINS": builtins,
        "PI_METHODS": [(name, method) for name, (_, method) in PI_MEMBERS.items()],
    }
    table = [f"export const {name} = Object.freeze({json.dumps(rows)});\n" for name, rows in lists.items()]
    stubs = dict.fromkeys(row.stub for row in NODE_MODULES.values() if row.stub)
    return {"table": "".join(table), "stubs": "".join(f'import "./node/{stub}";\n' for stub in stubs)}


def source_digest() -> str:
    """Return the hash of the guest's sources and of the packages that build it."""
    digest = hashlib.sha256()
    digest.update((assets.folder()).name.encode())
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file():
            digest.update(f"\n{path.relative_to(SOURCES).as_posix()}\n".encode())
            digest.update(path.read_bytes())
    digest.update(json.dumps([generated(), _ARGUMENTS]).encode())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def prelude() -> Prelude:
    """Return the prelude of the current sources; build it if it is not cached. A process keeps its first one."""
    digest = source_digest()
    folder = assets.ensure() / "guest"
    script, mapping = folder / f"{digest[:24]}.js", folder / f"{digest[:24]}.js.map"
    if not (script.exists() and mapping.exists()):
        _run_esbuild(folder, script, mapping)
    return Prelude(script.read_text("utf-8"), mapping.read_text("utf-8"), digest)


_ARGUMENTS = (
    "--bundle",
    "--format=iife",
    "--platform=neutral",
    "--target=es2022",
    "--charset=utf8",
    "--main-fields=module,main",
    "--sourcemap=external",
    "--legal-comments=none",
    "--log-level=warning",
)


def _run_esbuild(folder: Path, script: Path, mapping: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    work = folder / f"{script.stem}.{os.getpid()}.js"
    command = [str(assets.esbuild()), ENTRY, *_ARGUMENTS, f"--outfile={work}"]
    for name, text in generated().items():
        file = folder / f"{script.stem}.{name}.ts"
        file.write_text(text.replace('"./', f'"{SOURCES}/'), "utf-8")
        command.append(f"--alias:@forestay/{name}={file}")
    environment = {**os.environ, "NODE_PATH": str(assets.modules())}
    done = subprocess.run(command, cwd=SOURCES, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Problem("compile_failed", "The guest does not build.", reason=done.stderr[-2000:])
    work.with_name(work.name + ".map").replace(mapping)
    work.replace(script)
