"""`forestay worker`: carry runs of a ledger that other processes share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay.cli.command import answers
from forestay.cli.data_folder import Database, database_flag, no_database
from forestay.cli.model_trust import with_trusted_keys
from forestay.cli.output import Answer, say
from forestay.kernel import config, redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forestay.host import Options


@answers("worker")
def worker(
    database: Database = None,
    data: Annotated[Path | None, typer.Option(help="This process's own data folder; default: data.dir.")] = None,
    room: Annotated[int | None, typer.Option(min=1, help="How many runs it carries at a time.")] = None,
    allow_egress: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT that calls out may reach though it is not public.")
    ] = None,
    workflows: Annotated[Path | None, typer.Option(help="A folder of workflow documents to load.")] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust the project's extensions and node files as they are now.")
    ] = False,
) -> None:
    """Carry runs, keep schedules and deliver webhooks beside other hosts of a PostgreSQL ledger; nobody calls it. On
    SIGTERM it takes no more, lets its nodes reach a recorded point, and hands its runs over."""
    from forestay.host import Options
    from forestay.surface import run

    settings = config.load(flags=database_flag(database)).config
    if not settings.data.ledger:
        raise no_database("A worker shares a ledger on PostgreSQL, and none is named.")
    options = Options(
        config=settings,
        data=data,
        room=room,
        allow_egress=tuple(allow_egress or ()),
        trust_nodes=trust,
        workflows=(workflows,) if workflows else (),
    )
    run(_work(options, trust))


async def _work(options: Options, trust: bool) -> None:
    from forestay.host import open_host
    from forestay.surface import DRAIN_SECONDS, KeyTable, until_signalled

    settings = await with_trusted_keys(options.config)
    opening = msgspec.structs.replace(options, config=settings, projections=(KeyTable(),))
    async with open_host(opening) as host:
        if trust:
            await host.extensions.trust.give(host.root)
        result: dict[str, Any] = {
            "name": host.about["name"],
            "ledger": redact(str(options.ledger)),
            "data": str(options.folder),
            "room": options.room,
        }

        async def ready() -> None:
            say("worker", Answer(result, human=_lines(result)))

        await until_signalled(ready=ready)
        await host.runs.drain(DRAIN_SECONDS)


def _lines(result: dict[str, Any]) -> Iterator[str]:
    yield f"forestay worker {result['name']} is up."
    yield f"  ledger     {result['ledger']}"
    yield f"  data       {result['data']}"
    yield "`forestay fleet` shows it among the others. Its runs are handed over when you stop it with Ctrl-C."
