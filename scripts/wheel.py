"""The build hook of the wheel: adds the packages from npm, so that a machine with only Python runs everything.

npm installs them from the lock and checks every hash. The bundler is a native program, so the wheel is for the platform
that it is built on. Without npm the wheel has no such packages, and `forestay setup` fetches them later.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ASSETS = Path("src/forestay/assets")
SHIPPED = (
    "@esbuild/*/package.json",
    "@esbuild/*/bin/*",
    "esbuild/LICENSE.md",
    "quickjs-wasi/LICENSE",
    "quickjs-wasi/package.json",
    "quickjs-wasi/quickjs.wasm",
    "typebox/license",
    "typebox/package.json",
    "typebox/build/**/*.mjs",
)
# The bundler is linked statically, so every Linux of the processor runs it.
PLATFORMS = {
    ("linux", "x86_64"): "manylinux2014_x86_64.musllinux_1_1_x86_64",
    ("linux", "aarch64"): "manylinux2014_aarch64.musllinux_1_1_aarch64",
    ("darwin", "x86_64"): "macosx_12_0_x86_64",
    ("darwin", "arm64"): "macosx_12_0_arm64",
}


class CustomBuildHook(BuildHookInterface[Any]):
    """Called by hatchling around each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        tag = PLATFORMS.get((sys.platform, platform.machine()))
        if version == "editable" or tag is None:
            return
        self._folder = tempfile.TemporaryDirectory(prefix="forestay-wheel-")
        reason = _npm(Path(self.root)).install(Path(self._folder.name) / "npm")
        if reason:
            self.app.display_warning(f"The wheel has no packages from npm: {reason}.")
            return
        modules = Path(self._folder.name) / "npm" / "node_modules"
        for path in sorted(path for pattern in SHIPPED for path in modules.glob(pattern)):
            inside = path.relative_to(modules).as_posix()
            build_data["force_include"][str(path)] = f"forestay/assets/node_modules/{inside}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _npm(root: Path) -> Any:
    """Load the module that runs npm without its package, because the build has none of the package's dependencies."""
    spec = importlib.util.spec_from_file_location("npm", root / ASSETS / "npm.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
