"""`holdfast up`: serve the host until it is told to stop."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.notes import announce, announced
from holdfast.cli.output import Answer, answers, say
from holdfast.kernel import config
from holdfast.kernel.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from starlette.types import ASGIApp

    from holdfast.host import Host, Options
    from holdfast.http.hosting import Serving
    from holdfast.http.services import Services


@answers("up")
def up(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 picks one; default: http.port.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; default: http.host.")] = None,
    data: Annotated[Path | None, typer.Option(help="The data folder; default: data.dir.")] = None,
    workflows: Annotated[Path | None, typer.Option(help="A folder of workflow documents to load.")] = None,
    sample_seams: Annotated[bool, typer.Option("--sample-seams", help="Open the test seams.")] = False,
    allow_egress: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT that calls out may reach though it is not public.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust the project's extensions and node files as they are now.")
    ] = False,
) -> None:
    """Serve the host; HOLDFAST_API_KEY is the first key, otherwise one is made and shown once."""
    from holdfast.host import Options
    from holdfast.http.server import run

    settings = config.load().config
    options = Options(
        config=settings, data=data, sample_seams=sample_seams, allow_egress=tuple(allow_egress or ()), trust_nodes=trust
    )
    if (running := announced(options.folder)) is not None:
        raise Problem(
            "state_conflict",
            f"A host has this folder open already: {running}",
            fix="Use that one, stop it, or give --data.",
        )
    address = settings.http.host if host is None else host
    run(_serve(options, address, settings.http.port if port is None else port, workflows, trust))


async def _serve(options: Options, address: str, port: int, workflows: Path | None, trust: bool) -> None:
    from holdfast.host import load_workflows
    from holdfast.http.front import log_requests
    from holdfast.http.hosting import serve
    from holdfast.http.server import until_signalled

    if options.config.http.access_log:
        log_requests(sys.stderr)
    result: dict[str, Any] = {}

    async def prepare(serving: Serving) -> None:
        """What the first caller may ask for is there before anybody can connect: the key, trust, the workflows."""
        if trust:
            await serving.host.extensions.trust.give(serving.host.root)
        loaded = [*serving.host.workflows]
        loaded += await load_workflows(serving.host.runs, workflows) if workflows else []
        result.update(
            url=serving.url,
            key=await _first_key(serving.services.keys),
            data=str(options.folder),
            model=serving.host.models.default.name,
            workflows=loaded,
            untrusted=await serving.host.extensions.untrusted(),
            untrustedOfUser=await serving.host.extensions.untrusted_of_user(),
        )

    async with serve(options, address=address, port=port, mounts=mounts, prepare=prepare) as serving:
        note = announce(options.folder, serving.url)

        async def ready() -> None:
            say("up", Answer(result, human=lambda console: _show(console, result)))

        try:
            await until_signalled(ready=ready)
        finally:
            note.unlink(missing_ok=True)


def mounts(host: Host, services: Services) -> Mapping[str, ASGIApp]:
    """What is served beside the operations: CRP at /crp, the console at /."""
    from holdfast.console import mounts as console
    from holdfast.http.crp.mount import Mounted

    return {"/crp": Mounted(host.relay, services), **console(host, services)}


async def _first_key(keys: Any) -> str | None:
    """The key to show: the one from the environment, a new one for a new host, none for a host that has its own."""
    if chosen := _chosen_key():
        await keys.ensure(chosen)
        return chosen
    if len(keys):
        return None
    _, text = await keys.create("first")
    return str(text)


def _chosen_key() -> str | None:
    return os.environ.get("HOLDFAST_API_KEY") or None


def _show(console: Console, result: dict[str, Any]) -> None:
    console.print(f"holdfast is up. Console: [bold]{result['url']}/[/bold]")
    if result["key"] and result["key"] == _chosen_key():
        console.print("  key        the one in HOLDFAST_API_KEY")
    elif result["key"]:
        console.print(f"  key        [bold]{result['key']}[/bold]")
        console.print("             Keep it: it is shown once. `export HOLDFAST_API_KEY=…` for other commands.")
    else:
        console.print("  key        the one that you keep; `export HOLDFAST_API_KEY=…` for other commands")
        console.print("             Lost it? `holdfast key create NAME` makes another one.")
    console.print(f"  data       {result['data']}")
    console.print(f"  model      {model_line(result['model'])}")
    if result["workflows"]:
        console.print(f"  workflows  {_some(result['workflows'])}", markup=False)
    for path in result["untrusted"]:
        console.print(f"  not loaded {path}: nobody trusts it yet", markup=False)
    if result["untrusted"]:
        console.print(f"             Look at it on {result['url']}/trust, or start with --trust.", markup=False)
    for path in result["untrustedOfUser"]:
        console.print(f"  not loaded {path}: nobody trusts it yet (holdfast ext trust --user)", markup=False)
    console.print("Three things to try:")
    for line in _to_try(result):
        console.print(f"  {line}", markup=False)
    console.print("Stop it with Ctrl-C.")


def model_line(name: str) -> str:
    """The model in use, and what to know about it."""
    if name == "local":
        return "local (offline: it quotes what it is given; set models.default for a larger one)"
    return name


def _to_try(result: dict[str, Any]) -> list[str]:
    key = result["key"] if result["key"] != _chosen_key() else None  # a secret of the environment is not repeated
    with_key = f"HOLDFAST_API_KEY={key} " if key else ""
    lines = [
        f"open {result['url']}/ and sign in with the key",
        f'{with_key}holdfast ask "List the files of this folder."',
        f'curl -H "Authorization: Bearer {key or "$HOLDFAST_API_KEY"}" {result["url"]}/v1/runs',
    ]
    if result["workflows"]:
        lines[1] = f"{with_key}holdfast run start {result['workflows'][0]} --wait"
    return lines


def _some(names: list[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")
