"""The packages that every extension may import without bringing them, joined into a few files once for each host.

typebox has hundreds of files, and the bundler would ask for each of them in each build. Joined, an entry of the package
is one file, beside the chunks that several entries share. They lie beside the packages themselves, which are as much
trusted, and are made by the first build that needs them.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from forestay import assets
from forestay.kernel import Problem

_FLAGS = (
    "--bundle", "--splitting", "--format=esm", "--platform=node", "--target=es2023", "--legal-comments=none",
    "--chunk-names=shared-[hash]", "--out-extension:.js=.mjs", "--log-level=error",
)  # fmt: skip
_PATIENCE = 60.0
# How the bundler writes `export * as name`: two statements, of which the second looks as if it had to be kept. In one
# that is marked as pure, what an extension does not use can be left out of its bundle, as from the package itself.
_NAMESPACE = re.compile(r"^var (\w+) = \{\};\n__export\(\1, (\{.*?^\})\);$", re.MULTILINE | re.DOTALL)
_SIDE_EFFECTS = re.compile(r'^import "\./[^"]*";\n', re.MULTILINE)  # there are none, and the bundler would warn of each
_PURE = r"var \1 = /* @__PURE__ */ ((__into) => (__export(__into, \2), __into))({});"


def file_of(provided: str) -> str:
    """The joined file of an import (`typebox/value`), by its name below the package."""
    package, _, sub = provided.partition("/")
    entry = f"./{sub}" if sub else "."
    if entry not in _exports(package):
        raise Problem("compile_failed", f'"{provided}" is not exported by the package.', fix="Import another path.")
    return f"{package}/{_file_name(entry)}.mjs"


def contents(name: str) -> bytes:
    """What a joined file holds."""
    package, _, rest = name.partition("/")
    try:
        return (_joined(package) / rest).read_bytes()
    except FileNotFoundError:
        _joined.cache_clear()  # somebody tidied up: it is made again
        return (_joined(package) / rest).read_bytes()


def _file_name(entry: str) -> str:
    return entry.removeprefix("./") if entry != "." else "index"


@lru_cache(maxsize=8)
def _exports(package: str) -> dict[str, str]:
    """Each entry of a package and its file."""
    exports = json.loads(assets.asset(f"{package}/package.json").read_bytes())["exports"]
    return {name: to if isinstance(to, str) else to.get("import") or to["default"] for name, to in exports.items()}


@lru_cache(maxsize=8)
def _joined(package: str) -> Path:
    """The folder of a joined package; where nothing can be kept, one that lasts as long as this process."""
    root = assets.asset(package)
    made_by = (*_FLAGS, _NAMESPACE.pattern, _PURE, _SIDE_EFFECTS.pattern, (root / "package.json").read_text())
    key = hashlib.sha256("\n".join(made_by).encode()).hexdigest()[:16]
    target = assets.folder() / "joined" / f"{package}-{key}"
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    except OSError:
        return _join(package, root, Path(_for_this_process()) / package)
    try:
        _join(package, root, work)
        work.rename(target)
    except OSError:
        if not target.is_dir():  # else another process was faster
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _join(package: str, root: Path, into: Path) -> Path:
    # Names are told relative to the package, so that the files are the same wherever it lies.
    entries = [f"{_file_name(name)}={file}" for name, file in _exports(package).items()]
    try:
        done = subprocess.run(
            [str(assets.esbuild()), *entries, *_FLAGS, f"--outdir={into}"],
            cwd=root,
            env={"GOMAXPROCS": "2"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired as error:
        raise Problem("compile_failed", f"{package} could not be joined in {_PATIENCE:g} seconds.") from error
    if done.returncode:
        raise Problem("compile_failed", f"{package} could not be joined.", reason=done.stderr[-400:])
    for file in into.iterdir():
        file.write_text(_SIDE_EFFECTS.sub("", _NAMESPACE.sub(_PURE, file.read_text())))
    into.chmod(0o755)  # as readable as the packages themselves
    return into


_temporary: tempfile.TemporaryDirectory[str] | None = None


def _for_this_process() -> str:
    global _temporary
    if _temporary is None:
        _temporary = tempfile.TemporaryDirectory(prefix="forestay-joined-")
    return _temporary.name
