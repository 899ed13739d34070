"""`forestay up`: serve the host until it is told to stop."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay.cli.command import answers
from forestay.cli.data_folder import Database, announce, announced, database_flag
from forestay.cli.model_trust import with_trusted_keys
from forestay.cli.output import Answer, say
from forestay.kernel import OPERATOR, Problem, config, kept_in, redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forestay.host import Host, Options
    from forestay.surface import Keys, Serving

FIRST_KEY = "first-key"  # in the data folder: the first key of a host that started without a terminal


@answers("up")
def up(
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 picks one; default: http.port.")] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; default: http.host.")] = None,
    data: Annotated[Path | None, typer.Option(help="The data folder; default: data.dir.")] = None,
    database: Database = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="While another host has the data folder, wait; take over when it is gone.")
    ] = False,
    new_secret: Annotated[
        bool, typer.Option("--new-secret", help="Go on with another secret than the ledger knows: the old one is lost.")
    ] = False,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Answer callers and carry no runs: `forestay worker` does, elsewhere.")
    ] = False,
    workflows: Annotated[Path | None, typer.Option(help="A folder of workflow documents to load.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse to start when a workflow document cannot be loaded.")
    ] = False,
    show_key: Annotated[
        bool, typer.Option("--show-key", help="Print the first key of a new host also where no terminal is.")
    ] = False,
    sample_seams: Annotated[bool, typer.Option("--sample-seams", help="Open the test seams.")] = False,
    allow_egress: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT that calls out may reach though it is not public.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust the project's extensions and node files as they are now.")
    ] = False,
) -> None:
    """Serve the host; FORESTAY_API_KEY is the first key, otherwise one is made: shown once on a terminal, else kept in
    the file `first-key` of the data folder."""
    from forestay.host import Options
    from forestay.surface import run

    settings = config.load(flags=database_flag(database)).config
    options = Options(
        config=settings,
        data=data,
        sample_seams=sample_seams,
        allow_egress=tuple(allow_egress or ()),
        trust_nodes=trust,
        standby=standby,
        new_secret=new_secret,
        room=0 if no_worker else None,
        workflows=(workflows,) if workflows else (),
        strict=strict,
    )
    if not standby and (running := announced(options.folder)) is not None:
        raise Problem(
            "state_conflict",
            f"A host has this folder open already: {running}",
            fix="Use that one, stop it, or give --data.",
        )
    address = settings.http.host if host is None else host
    run(_serve(options, address, settings.http.port if port is None else port, trust, show_key))


async def _serve(options: Options, address: str, port: int, trust: bool, show_key: bool) -> None:
    from forestay.console import Console
    from forestay.surface import log_requests, serve, until_signalled

    if options.config.http.access_log:
        log_requests(sys.stderr)
    options = msgspec.structs.replace(options, config=await with_trusted_keys(options.config))
    result: dict[str, Any] = {}

    async def prepare(serving: Serving) -> None:
        """Prepare the key, trust and workflows before anybody can connect."""
        if trust:
            await serving.host.extensions.trust.give(serving.host.root)
        result.update(
            url=serving.url,
            **await first_key(serving.services.keys, options.folder, shown=show_key or sys.stdout.isatty()),
            data=str(options.folder),
            ledger=redact(str(options.ledger)),
            name=serving.host.about["name"],
            model=serving.host.models.default.name,
            workflows=list(serving.host.workflows),
            startable=await _startable(serving.host),
            elsewhere=options.data is not None,
            leftOut=msgspec.to_builtins(serving.host.left_out),
            unloadable=await _unloadable(serving.host),
            untrusted=await serving.host.extensions.untrusted(),
            untrustedOfUser=await serving.host.extensions.untrusted_of_user(),
        )

    async with serve(options, address=address, port=port, console=Console, prepare=prepare) as serving:
        note = announce(options.folder, serving.url)

        async def ready() -> None:
            say("up", Answer(result, human=_lines(result)))

        try:
            await until_signalled(ready=ready)
        finally:
            note.unlink(missing_ok=True)


async def _unloadable(host: Host) -> dict[str, Any] | None:
    """Return the trusted extensions that cannot be loaded without the JavaScript engine, or None."""
    if (found := await host.extensions.unloadable()) is None:
        return None
    paths, problem = found
    return {"paths": paths, "reason": problem.message, "fix": problem.details["fix"]}


async def first_key(keys: Keys, folder: Path, *, shown: bool) -> dict[str, Any]:
    """Make sure that somebody can sign in, and say where the key is.

    `key` is the text of a new key, only when it is `shown`: output without a terminal ends in a log. A key that the
    person gave is never repeated.
    """
    file = folder / FIRST_KEY
    if chosen := os.environ.get("FORESTAY_API_KEY"):
        await keys.ensure(chosen)
        return {"key": None, "keyFrom": "environment"}
    if not len(keys):
        _, text = await keys.create("first")
        if shown:
            return {"key": text, "keyFrom": "new"}
        _keep(file, text)
    if file.exists():
        return {"key": None, "keyFrom": "file", "keyFile": str(file)}
    return {"key": None, "keyFrom": "earlier"}


def _keep(file: Path, text: str) -> None:
    """Write the key where only its owner may read it."""
    with kept_in(file.parent):
        file.unlink(missing_ok=True)  # a leftover of an earlier ledger
        with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
            out.write(text + "\n")


def _lines(result: dict[str, Any]) -> Iterator[str]:
    yield f"forestay is up. Console: {result['url']}/"
    yield from key_lines(result)
    yield f"  data       {result['data']}"
    if "://" in result.get("ledger", ""):
        yield f"  ledger     {result['ledger']}"
    yield f"  model      {model_line(result['model'])}"
    if result["workflows"]:
        yield f"  workflows  {_some(result['workflows'])}"
    for item in result["leftOut"]:
        yield f"  left out   {item['file']}: {item['reason']}"
    if lacking := result["unloadable"]:
        yield f"  not loaded {', '.join(lacking['paths'])}: {lacking['reason']}"
        yield f"             {lacking['fix']} Then start again."
    for path in result["untrusted"]:
        yield f"  not loaded {path}: nobody trusts it yet"
    if result["untrusted"]:
        yield f"             Look at it on {result['url']}/trust, or start with --trust."
    for path in result["untrustedOfUser"]:
        yield f"  not loaded {path}: nobody trusts it yet (forestay ext trust --user)"
    yield "Three things to try:"
    yield from (f"  {line}" for line in _to_try(result))
    yield "Stop it with Ctrl-C."


def model_line(name: str) -> str:
    """Return the model's name, with a hint for the offline model."""
    if name == "local":
        return "local (offline: it quotes what it is given; set models.default for a larger one)"
    return name


def key_lines(result: dict[str, Any]) -> list[str]:
    if result["keyFrom"] == "environment":
        return ["  key        the one in FORESTAY_API_KEY"]
    if result["keyFrom"] == "new":
        return [
            f"  key        {result['key']}",
            "             Keep it: it is shown once. `export FORESTAY_API_KEY=…` for other commands.",
        ]
    if result["keyFrom"] == "file":
        return [
            f"  key        in {result['keyFile']}, which only you may read",
            "             Move it where you keep secrets. `export FORESTAY_API_KEY=…` for other commands.",
        ]
    return [
        "  key        the one that you keep; `export FORESTAY_API_KEY=…` for other commands",
        "             Lost it? Stop this host; `forestay key create NAME` then makes another one.",
    ]


async def _startable(host: Host) -> str | None:
    """Return a workflow of the project that needs no inputs, or None."""
    for name in host.workflows:
        document = await host.runs.get_workflow(name, OPERATOR)
        if not any(item.get("required") and "defaultValue" not in item for item in document.get("variables", ())):
            return name
    return None


def _to_try(result: dict[str, Any]) -> list[str]:
    """Return commands that a person can type as they are, in another terminal of this folder."""
    key = result["key"]
    if not key and result["keyFrom"] == "file":
        key = f"$(cat {shlex.quote(result['keyFile'])})"
    with_key = f"FORESTAY_API_KEY={key} " if key else ""
    elsewhere = f" --url {result['url']}" if result["elsewhere"] else ""
    tried = f'ask "List the files of this folder."{elsewhere}'
    if result["startable"]:
        tried = f"run start {shlex.quote(result['startable'])} --wait{elsewhere}"
    return [
        f"open {result['url']}/ and sign in with the key",
        f"{with_key}{called_as()} {tried}",
        f'curl -H "Authorization: Bearer {key or "$FORESTAY_API_KEY"}" {result["url"]}/v1/runs',
    ]


def called_as() -> str:
    """Return what to type for this command: `forestay` where the shell finds it, else the path it was called by."""
    called = Path(sys.argv[0])
    if shutil.which("forestay") is not None or called.name != "forestay":
        return "forestay"
    try:
        return str(called.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(called)


def _some(names: list[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")
