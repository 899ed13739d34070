"""Checks what works on this machine by trying it."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from forestay import assets
from forestay.cli.command import answers
from forestay.cli.output import Answer
from forestay.kernel import SQLITE_VERSION, Config, Problem, config, former, one_line, sqlite_fault

if TYPE_CHECKING:
    from rich.text import Text

    from forestay.extensions import Protected

State = Literal["ok", "optional", "broken"]


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: `optional` means that something works less well without it."""

    name: str
    state: State
    detail: str
    fix: str | None = None


@answers("doctor")
def doctor() -> Answer:
    """Try everything forestay needs, and say what to do about what does not work."""
    findings = [check() for check in CHECKS]
    broken = [finding for finding in findings if finding.state == "broken"]
    problem = None
    if broken:
        names = ", ".join(finding.name for finding in broken)
        problem = Problem("asset_missing", f"Not everything works here: {names}.", fix=broken[0].fix)
    guarded = _guarded()
    lines: list[str | Text] = [*map(_finding_lines, findings), *_guarded_lines(guarded)]
    return Answer({"findings": findings, "protected": guarded}, human=lines, problem=problem)


def _settings() -> Config:
    """Return the settings, or the defaults while the configuration is broken."""
    try:
        return config.load().config
    except Problem:
        return Config()


def _python() -> Finding:
    return Finding("python", "ok", platform.python_version())


def _sqlite() -> Finding:
    fault = sqlite_fault()
    if fault is None:
        return Finding("sqlite", "ok", f"{SQLITE_VERSION}, write-ahead log")
    return Finding("sqlite", "broken", fault, "Use a Python built with SQLite 3.37 or newer.")


def _configuration() -> Finding:
    try:
        loaded = config.load()
    except Problem as problem:
        fix = str(problem.details.get("fix") or problem.row.remedy)
        return Finding("configuration", "broken", problem.message, fix)
    return Finding("configuration", "ok", f"{len(loaded.sources)} settings beside the defaults")


def _former_name() -> Finding:
    """Report the files and variables that 0.1 left under the project's former name, and whether they are used."""
    found = former.look(Path(), config.PROJECT_FILE)
    told = []
    if found.settings is not None:
        used = "is not read, because forestay.toml is here" if Path(config.PROJECT_FILE).exists() else "is read"
        told.append(f"{found.settings.name} {used}")
    if found.folder is not None:
        later = "stays as it is, because .forestay is here" if Path(former.FOLDER).exists() else "is renamed when used"
        told.append(f"{former.FORMER_FOLDER} {later}")
    if found.moved is not None:
        told.append(f"{former.FOLDER} was {former.FORMER_FOLDER}")
    told += [f"the variable {name} is set" for name in sorted(os.environ) if name.startswith(former.VARIABLES)]
    if not told:
        return Finding("former name", "ok", "nothing of holdfast 0.1 is here")
    fix = "Merge the two by hand, and remove the older." if found.both else None
    if found.settings is not None and fix is None:
        fix = f"Rename {found.settings.name} to {config.PROJECT_FILE} when you like."
    return Finding("former name", "optional" if found.both else "ok", "; ".join(told), fix)


def _data_folder() -> Finding:
    folder = Path(_settings().data.dir)
    nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=nearest):
            pass
    except OSError as error:
        return Finding(
            "data folder", "broken", f"{folder}: {error.strerror}", "Set data.dir to a folder you may write."
        )
    return Finding("data folder", "ok", str(folder))


def _engine() -> Finding:
    if assets.ready():
        return Finding("javascript engine", "ok", "quickjs-wasi and esbuild are here")
    here = "" if assets.npm_command() is not None else ", and there is no npm"
    return Finding("javascript engine", "broken", f"not fetched{here}", f"Run `{assets.fetching()}`.")


def _process_sandbox() -> Finding:
    """Report what confines the commands of extensions here, worded as in prompts and evidence."""
    from forestay.extensions import Sandbox

    found = Sandbox.detect()
    if found.kind == "bubblewrap":
        return Finding("process sandbox", "ok", found.describes)
    fix = "Install bubblewrap, and allow unprivileged user namespaces, to confine what extensions start."
    if found.kind == "landlock" and found.namespaces:
        return Finding("process sandbox", "ok", found.describes)
    return Finding("process sandbox", "optional", found.describes, fix)


class Guarded(msgspec.Struct, frozen=True):
    """A place that no extension may change; its `name` or `path` in `extensions.unprotected` lifts the protection."""

    name: str
    path: str
    why: str
    lifted: bool


def _guarded() -> list[Guarded]:
    """Return the places that a host in this folder protects, and which of them a person lifted."""
    from forestay.extensions import cache_folder, of_git, protected

    settings = _settings()
    data, lifted, here = Path(settings.data.dir), settings.extensions.unprotected, Path()

    def places(free: list[str]) -> list[Protected]:
        found = protected(here, data, cache=cache_folder(), lifted=free)
        return [*found, *of_git(str(here.resolve()), free)]

    held = set(places(lifted))
    return [Guarded(item.name, item.path, item.why, item not in held) for item in places([])]


def _protected() -> Finding:
    from forestay.extensions import LASTING

    lifted, guarded = _settings().extensions.unprotected, _guarded()
    named = {item.name for item in guarded if item.lifted} | {item.path for item in guarded if item.lifted}
    idle = [text for text in lifted if text not in named and str(Path(text).expanduser().absolute()) not in named]
    detail = f"{sum(not item.lifted for item in guarded)} places that no extension may change"
    detail += f", {sum(item.lifted for item in guarded)} lifted" if named else ""
    around = next((item for item in guarded if not item.lifted and Path().resolve().is_relative_to(item.path)), None)
    if around is not None:
        fix = f"Lift it in the settings: unprotected = [{around.path!r}]. Or keep the project out of it."
        return Finding("protected", "optional", f"the whole project is ({around.name}: {around.why})", fix)
    if idle:
        fix = f"Nothing is lifted by {', '.join(idle)}. Names that are listed lift, but for {' and '.join(LASTING)}."
        return Finding("protected", "optional", detail, fix)
    return Finding("protected", "ok", detail)


def _mcp_servers() -> Finding:
    """Report whether the project's MCP servers are approved, start, and offer what was pinned."""
    from forestay.extensions import read_servers

    servers = read_servers(Path(), _settings().mcpServers)
    faults = [problem.message for problem in servers.problems]
    detail = f"{len(servers.found)} configured"
    if servers.found:
        from forestay.cli.mcp import server_faults

        try:
            faults += asyncio.run(server_faults())
        except Problem as problem:
            faults.append(f"they were not tried: {one_line(problem.message)}")
    if faults:
        fix = "`forestay mcp inspect NAME` says more, `forestay mcp trust NAME` approves and pins."
        return Finding("mcp servers", "optional", f"{detail}; {'; '.join(faults)}", fix)
    return Finding(
        "mcp servers", "ok", f"{detail}, each starts and offers what was pinned" if servers.found else detail
    )


def _browser() -> Finding:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found:
        return Finding("browser", "ok", Path(found).name)
    return Finding("browser", "optional", "no Chromium", "Install Chromium to run the browser tests.")


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _sqlite,
    _configuration,
    _former_name,
    _data_folder,
    _engine,
    _process_sandbox,
    _protected,
    _mcp_servers,
    _browser,
)


def _finding_lines(finding: Finding) -> Text:
    from rich.text import Text

    colour = {"ok": "green", "optional": "yellow", "broken": "red"}[finding.state]
    fix = f"\n          {finding.fix}" if finding.fix else ""
    return Text.assemble((f"{finding.state:<8}", colour), f"  {finding.name}: {finding.detail}{fix}")


def _guarded_lines(guarded: list[Guarded]) -> Iterator[str]:
    """Yield the protected places by name, each with its reason and its paths."""
    for name in dict.fromkeys(item.name for item in guarded):
        own = [item for item in guarded if item.name == name]
        yield f"          {name}: {own[0].why}"
        yield from (f"            {item.path}{' (lifted)' if item.lifted else ''}" for item in own)
