"""Read, follow, verify and move the ledger."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay.cli.files import read_bytes
from forestay.cli.ledger_file import ledger_file
from forestay.cli.notes import announced
from forestay.cli.output import Answer, answers, choice, each, note
from forestay.kernel import Problem, canonical, config, iso

if TYPE_CHECKING:
    from rich.console import Console

    from forestay.kernel import Head, Ledger, Record, Verification

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Data = Annotated[Path | None, typer.Option("--data", help="The data folder, or a ledger file; default: data.dir.")]
Prefix = Annotated[str, typer.Option("--prefix", help="Only streams whose name starts so.")]


@app.callback()
def _group() -> None:
    """Read, follow, verify and move the ledger."""


@app.command("tail")
@answers("ledger.tail")
async def tail(
    prefix: Annotated[str, typer.Argument(help="Only streams whose name starts so.")] = "",
    count: Annotated[int, typer.Option("-n", "--count", min=0, max=10_000, help="How many of the last records.")] = 20,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with each new record, one JSON line each.")
    ] = False,
    data: Data = None,
) -> Answer | None:
    """The last records of all streams, oldest first."""
    async with _open(data) as ledger:
        records = await _last(ledger, prefix, count)
        if not follow:
            return Answer({"records": records}, human=each(records, _show))
        await _follow(ledger, prefix, records)
        return None


@app.command("show")
@answers("ledger.show")
async def show(
    stream: Annotated[str | None, typer.Argument(help="A stream; without one, all streams are listed.")] = None,
    start: Annotated[int, typer.Option(min=0, help="The first sequence.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many records.")] = 100,
    data: Data = None,
) -> Answer:
    """The streams with their heads, or the records of one stream."""
    async with _open(data) as ledger:
        if stream is None:
            heads = await ledger.streams(limit=limit)
            listed = [{"stream": name, "seq": head.seq, "hash": head.hash} for name, head in heads.items()]
            return Answer({"streams": listed}, human=lambda console: _show_streams(console, heads))
        records = await ledger.read(stream, start, limit)
        if not records:
            raise Problem("not_found", f"The stream {stream} has no record from {start} on.", at=stream)
        return Answer({"records": records}, human=each(records, _show_whole))


@app.command("verify")
@answers("ledger.verify")
async def verify(
    prefix: Prefix = "",
    trusted: Annotated[
        Path | None, typer.Option(help="Heads you trust: what `ledger show --json` printed before.")
    ] = None,
    data: Data = None,
) -> Answer:
    """Check every record against its hash and every chain for gaps; name the first fault of each stream."""
    async with _open(data) as ledger:
        found = await ledger.verify(prefix, _trusted_heads(trusted))
    problem = None
    if not found.ok:
        first = found.faults[0]
        message = f"{first.stream} at sequence {first.seq}: {first.what}."
        problem = Problem("chain_broken", message, stream=first.stream, seq=first.seq, faults=len(found.faults))
    return Answer(found, human=lambda console: _show_verification(console, found), problem=problem)


@app.command("export")
@answers("ledger.export")
async def export(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file; without one, stdout.")] = None,
    prefix: Prefix = "",
    data: Data = None,
) -> Answer | None:
    """Every record as one line of canonical JSON, with its hash: a backup that proves itself."""
    async with _open(data) as ledger:
        count = 0
        with output.open("xb") if output else sys.stdout.buffer as target:
            async for line in ledger.export(prefix):
                target.write(line)
                count += 1
            target.flush()
    note(f"{count} records exported.")
    return Answer({"records": count, "file": output.name}) if output else None


@app.command("import")
@answers("ledger.import")
async def import_(
    file: Annotated[Path, typer.Argument(help="What `ledger export` wrote.", exists=True, dir_okay=False)],
    data: Data = None,
) -> dict[str, int]:
    """Take an export in, whole or not at all; every line must continue its stream and match its hash."""
    if (address := announced(data or Path(config.load().config.data.dir))) is not None:
        raise Problem(
            "state_conflict", f"A host runs here ({address}) and would not see it.", fix="Stop `forestay up` first."
        )
    async with _open(data, create=True) as ledger:
        with file.open("rb") as lines:
            return {"records": await ledger.import_lines(lines)}


@asynccontextmanager
async def _open(data: Path | None, *, create: bool = False) -> AsyncIterator[Ledger]:
    from forestay.kernel import Ledger

    async with Ledger.open(ledger_file(data, make=create, fix="Start the host once, or give --data.")) as ledger:
        yield ledger


async def _last(ledger: Ledger, prefix: str, count: int) -> list[Record]:
    """The newest `count` records under `prefix`: read backwards in growing steps until there are enough."""
    end = await ledger.position()
    reach = count
    while True:
        after = max(0, end - reach)
        page = await ledger.read_all(prefix, after, reach + 1)
        if len(page) >= count or after == 0:
            return [record for _, record in page[-count:]] if count else []
        reach *= 4


async def _follow(ledger: Ledger, prefix: str, records: list[Record]) -> None:
    """Print as records come, until the reader goes away or presses Ctrl-C."""
    human = choice().format == "human"
    printer = None
    if human:
        from forestay.cli.output import console

        printer = console()
    for record in records:
        _print(printer, record)
    async for _, record in ledger.follow_all(prefix, poll=0.25):
        _print(printer, record)
        await asyncio.sleep(0)


def _print(printer: Console | None, record: Record) -> None:
    if printer is not None:
        _show(printer, record)
    else:
        sys.stdout.write(canonical.encode(record).decode() + "\n")
        sys.stdout.flush()


def _trusted_heads(path: Path | None) -> dict[str, Head]:
    from forestay.kernel import Head

    if path is None:
        return {}
    document: Any = canonical.decode(read_bytes(path))
    try:
        return {item["stream"]: Head(item["seq"], item["hash"]) for item in document["result"]["streams"]}
    except (KeyError, TypeError) as error:
        raise Problem(
            "schema_mismatch", f"{path.name} does not hold heads.", fix="Use `ledger show --json`."
        ) from error


def _show(console: Console, record: Record) -> None:
    payload = msgspec.json.encode(record.payload).decode()
    short = payload if len(payload) <= 120 else payload[:119] + "…"
    console.print(f"{iso(record.ts)}  {record.stream} {record.seq}  {record.type}  {short}", markup=False)


def _show_whole(console: Console, record: Record) -> None:
    console.print(f"{record.stream} {record.seq}  {record.type}  {iso(record.ts)}  {record.id}", markup=False)
    console.print(f"  prev {record.prev[:16]}…  hash {record.hash[:16]}…", markup=False)
    pretty = msgspec.json.format(msgspec.json.encode(record.payload), indent=2).decode()
    console.print("  " + pretty.replace("\n", "\n  "), markup=False)


def _show_streams(console: Console, heads: dict[str, Head]) -> None:
    for name, head in heads.items():
        console.print(f"{name}  {head.seq + 1} records  {head.hash[:16]}…", markup=False)


def _show_verification(console: Console, found: Verification) -> None:
    console.print(
        f"{found.records} records in {found.streams} streams hold." if found.ok else "The ledger does not hold:"
    )
    for fault in found.faults:
        console.print(f"  {fault.stream} at sequence {fault.seq}: {fault.what}", markup=False)
