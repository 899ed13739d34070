"""`forestay ext install`: install a package from npm into the project, or the dependencies of an extension."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.cli.command import Group
from forestay.cli.data_folder import Data, opened_ledger
from forestay.cli.ext_compile import check_lines, described
from forestay.cli.output import Answer, note
from forestay.cli.terminal import asked, attended
from forestay.kernel import Problem, config

if TYPE_CHECKING:
    from forestay.extensions import AddedPackage, ArtifactMeta

app = Group("ext")


@app.command("install")
async def install(
    what: Annotated[str, typer.Argument(help="A package of npm, NAME or NAME@VERSION; or an extension's folder.")],
    offline: Annotated[bool, typer.Option("--offline", help="Take packages from npm's cache only.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Trust what the project brings without being asked.")] = False,
    data: Data = None,
) -> Answer:
    """Install a package from npm into this project: pinned by its hash, looked through, then asked about. Of a folder,
    fetch its own dependencies. No script of any package is run."""
    from forestay.extensions import add_package
    from forestay.extensions import install as install_packages

    folder = Path(what)
    if not await asyncio.to_thread(_is_package, what):
        done = await asyncio.to_thread(install_packages, folder, offline=offline)
        result = {"installed": len(done.packages), "packages": list(done.packages), "locked": done.locked}
        return Answer(result, human=[f"{len(done.packages)} packages"])
    added = await asyncio.to_thread(add_package, Path(), what, offline=offline)
    metas, faults = await asyncio.to_thread(_looked_through, added)
    lines = [f"{added.source} is installed; {len(added.came)} packages, {added.integrity[:24]}…"]
    lines += [line for meta in metas for line in check_lines(meta)]
    lines += [f"cannot be used: {fault.message}" for fault in faults]
    asks = not faults and not yes and attended()
    trusted = not faults and (yes or (asks and await _asked(lines))) and await _trusted(data)
    if asks:
        lines = []  # the person saw them before the question
    lines.append("It is trusted as it is: the next host loads it." if trusted else "Not trusted: forestay ext trust")
    return Answer(_result(added, metas, trusted), human=lines, problem=faults[0] if faults else None)


def _is_package(what: str) -> bool:
    """Whether `what` is a package of npm; an existing folder of that name takes precedence."""
    from forestay.extensions import is_package

    return is_package(what) and not Path(what).exists()


def _looked_through(added: AddedPackage) -> tuple[list[ArtifactMeta], list[Problem]]:
    """Return what each extension of the package needs, without running it, and the faults that stop a build."""
    from forestay.extensions import compile_source, named, refusal, sources

    metas: list[ArtifactMeta] = []
    faults: list[Problem] = []
    package = next(item for item in named(Path()).packages if item.source == added.source)
    for resource in package.resources():
        if resource.kind != "extension":
            continue
        try:
            found = [compile_source(source)[0].meta for source in sources(Path(resource.path))]
        except Problem as problem:
            faults.append(problem)
            continue
        metas += found
        faults += [refusal(meta.forbidden_apis) for meta in found if meta.forbidden_apis]
    return metas, faults


async def _asked(lines: list[str]) -> bool:
    """Show what the package needs; whether the person then trusts the project with it."""
    for line in lines:
        note(line)
    return await asked("Trust what this project brings as it is now? [y/N] ") == "y"


async def _trusted(data: Path | None) -> bool:
    from forestay.extensions import Trust

    async with opened_ledger(data) as ledger:
        standing = await Trust(ledger, config.load().config.extensions.paths).give(Path())
    return standing.state == "trusted"


def _result(added: AddedPackage, metas: list[ArtifactMeta], trusted: bool) -> dict[str, Any]:
    return {
        "package": added.name,
        "version": added.version,
        "integrity": added.integrity,
        "source": added.source,
        "packages": list(added.came),
        "extensions": [described(meta) for meta in metas],
        "trusted": trusted,
    }
