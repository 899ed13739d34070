"""Starter projects for components, one for each language: sources, the world, and a build command."""

from __future__ import annotations

from pathlib import Path

from forestay.extensions.manifest import SCHEMA, Manifest
from forestay.kernel import Problem, canonical

_PROJECTS = Path(__file__).with_name("projects")
LANGUAGES = ("c", "javascript", "python", "rust")


def component_project(language: str, name: str) -> dict[str, str]:
    """Return the files of a new project by their path in it."""
    if language not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise Problem(
            "invalid_usage",
            f"There is no project for the language {language[:40]!r}.",
            at="--lang",
            fix=f"Use {known}.",
        )
    slug = "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-") or "extension"
    manifest = Manifest(
        SCHEMA, f"ext.{slug}"[:64], slug, "0.1.0", "1.0", "wasm", "extension.wasm", capabilities=("read",)
    )
    files = {
        path.name.removesuffix(".template"): path.read_text("utf-8").replace("NAME", slug)
        for path in (_PROJECTS / language).iterdir()
    }
    files["wit/extension.wit"] = (_PROJECTS / "extension.wit").read_text("utf-8")
    files["extension.json"] = canonical.encode(manifest).decode() + "\n"
    return dict(sorted(files.items()))
