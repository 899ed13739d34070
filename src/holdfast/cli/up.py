"""`holdfast up`: serve the host until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.notes import announce
from holdfast.cli.output import Answer, answers, say
from holdfast.kernel import config

if TYPE_CHECKING:
    from rich.console import Console


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
) -> None:
    """Serve the host; HOLDFAST_API_KEY is the first key, otherwise one is made and shown once."""
    from holdfast.http.server import run

    settings = config.load().config
    run(
        _serve(
            Path(data or settings.data.dir),
            settings.http.host if host is None else host,
            settings.http.port if port is None else port,
            workflows,
            sample_seams,
            tuple(allow_egress or ()),
        )
    )


async def _serve(
    data: Path, address: str, port: int, workflows: Path | None, sample_seams: bool, allow_egress: tuple[str, ...]
) -> None:
    from holdfast.host import Options, load_workflows
    from holdfast.http.hosting import serve
    from holdfast.http.server import until_signalled

    options = Options(data=data, sample_seams=sample_seams, allow_egress=allow_egress)
    from holdfast.console import mounts

    async with serve(options, address=address, port=port, mounts=mounts) as serving:
        loaded = await load_workflows(serving.host.runs, workflows) if workflows else []
        key = await _first_key(serving.services.keys)
        note = announce(data, serving.url)

        async def ready() -> None:
            result = {"url": serving.url, "key": key, "data": str(data), "workflows": loaded}
            say("up", Answer(result, human=lambda console: _show(console, result)))

        try:
            await until_signalled(ready=ready)
        finally:
            note.unlink(missing_ok=True)


async def _first_key(keys: Any) -> str | None:
    """The key to show: the one from the environment, a new one for a new host, none for a host that has its own."""
    import os

    chosen = os.environ.get("HOLDFAST_API_KEY")
    if chosen:
        await keys.ensure(chosen)
        return chosen
    if len(keys):
        return None
    _, text = await keys.create("first")
    return str(text)


def _show(console: Console, result: dict[str, Any]) -> None:
    console.print(f"holdfast is up at [bold]{result['url']}[/bold]")
    console.print(f"  data       {result['data']}")
    if result["workflows"]:
        console.print(f"  workflows  {len(result['workflows'])} loaded")
    if result["key"]:
        console.print(f"  key        [bold]{result['key']}[/bold]")
        console.print("             Keep it: it is shown once. `export HOLDFAST_API_KEY=…` for other commands.")
    else:
        console.print("  key        as before; `holdfast key create` makes another")
    console.print("Stop it with Ctrl-C.")
