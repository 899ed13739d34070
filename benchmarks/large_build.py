"""Builds a large extension, made of the bundles of real ones, and builds it again after a comment is added.

A separate process does the building (`python -m benchmarks.large_build ENTRY PART`), so that its memory can be
measured. It answers in JSON.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from benchmarks.compiler import corpus_entries
from benchmarks.measure import duration
from forestay import assets
from forestay.extensions.compiler.build import compile_source
from forestay.extensions.compiler.source import source
from forestay.kernel import Problem

Row = tuple[str, str, str]
SIZE = 10_000_000


class Built(msgspec.Struct, frozen=True):
    """The processor seconds of the first build, the wall and processor seconds of the second one, and bytes."""

    cpu: float
    again: float
    again_cpu: float
    peak: int
    size: int


def run() -> list[Row]:
    """Measure one extension of ten million bytes. Bundles that use `__dirname` or `__filename` are left out."""
    bundles = []
    for entry in corpus_entries():
        with suppress(Problem):
            bundles.append(compile_source(source(entry))[0].code)
    plain = [code for code in bundles if b"__dirname" not in code and b"__filename" not in code]
    if not plain:
        return [("compiler: a large extension", "not measured", "the corpus is not here: `make corpus`")]
    with tempfile.TemporaryDirectory() as folder:
        return rows(plain, Path(folder))


def rows(bundles: list[bytes], folder: Path) -> list[Row]:
    """Return the rows of an extension whose modules are these bundles, repeated until it is large."""
    parts = _parts(bundles, folder)
    middle = sorted(parts, key=lambda path: path.stat().st_size)[len(parts) // 2]
    command = [sys.executable, "-P", "-m", "benchmarks.large_build", str(folder / "index.js"), str(middle)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path.cwd()), str(Path.cwd() / "src")))}
    done = subprocess.run(command, env=environ, capture_output=True, timeout=600, check=True)
    built = msgspec.json.decode(done.stdout.splitlines()[-1], type=Built)
    alone, wall = _esbuild(folder)
    what = f"compiler: {built.size / 1e6:.0f} MB of bundle in {len(parts)} files"
    return [
        (f"{what}, CPU", duration(built.cpu), "goal: 3 s"),
        (f"{what}, memory at most", f"{built.peak / 1e6:,.0f} MB", "goal: 500 MB; with its copy, where it made one"),
        (
            f"{what}, a comment more in the file of middle size",
            duration(built.again),
            f"goal: 300 ms of wall clock; CPU beside esbuild {duration(built.again_cpu)}",
        ),
        (
            "compiler: the same by esbuild alone, CPU",
            duration(alone),
            f"{duration(wall)} of wall clock; it bundles only",
        ),
    ]


def _parts(bundles: list[bytes], folder: Path) -> list[Path]:
    found: list[Path] = []
    size = 0
    while size < SIZE:
        code = bundles[len(found) % len(bundles)]
        found.append(folder / f"part{len(found)}.js")
        found[-1].write_bytes(code)
        size += len(code)
    names = [path.name for path in found]
    lines = [f"import part{at} from './{name}';" for at, name in enumerate(names)]
    all_of_them = ", ".join(f"part{at}" for at in range(len(names)))
    lines.append(f"export default async (pi) => {{ for (const part of [{all_of_them}]) await part(pi); }};")
    (folder / "index.js").write_text("\n".join(lines))
    return found


def _esbuild(folder: Path) -> tuple[float, float]:
    """Return esbuild's processor seconds and wall seconds."""
    command = [
        str(assets.esbuild()),
        "index.js",
        "--bundle",
        "--format=esm",
        "--outfile=alone.mjs",
        "--log-level=error",
    ]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*command, "--sourcemap"], cwd=folder, timeout=600, check=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main(entry: Path, part: Path) -> None:
    started = _processor()
    size = len(compile_source(source(entry))[0].code)
    cpu = _processor() - started
    part.write_bytes(part.read_bytes() + b"\n// a comment more\n")
    began, started = time.perf_counter(), _processor()
    compile_source(source(entry))
    again, again_cpu = time.perf_counter() - began, _processor() - started
    everybody = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = sum(resource.getrusage(who).ru_maxrss for who in everybody) * 1024
    print(msgspec.json.encode(Built(cpu, again, again_cpu, peak, size)).decode())


def _processor() -> float:
    """Return the processor seconds of this process and its ended children, which do not include the bundler."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
