"""Read, follow, verify and move the ledger."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay.cli.command import Group
from forestay.cli.data_folder import Data, announced, data_folder, existing_ledger, ledger_address
from forestay.cli.files import read_bytes, write_file
from forestay.cli.output import Answer, choice, console, note
from forestay.kernel import Problem, canonical, iso

if TYPE_CHECKING:
    from forestay.kernel import Fault, Head, Ledger, Record, Verification

app = Group("ledger")

Prefix = Annotated[str, typer.Option("--prefix", help="Only streams whose name starts so.")]


@app.command("tail", using=existing_ledger)
async def tail(
    ledger: Ledger,
    prefix: Annotated[str, typer.Argument(help="Only streams whose name starts so.")] = "",
    count: Annotated[int, typer.Option("-n", "--count", min=0, max=10_000, help="How many of the last records.")] = 20,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with each new record, one JSON line each.")
    ] = False,
) -> Answer | None:
    """The last records of all streams, oldest first."""
    records, position = await _last(ledger, prefix, count)
    if not follow:
        return Answer({"records": records}, human=map(_line, records))
    await _follow(ledger, prefix, records, position)
    return None


@app.command("show", using=existing_ledger)
async def show(
    ledger: Ledger,
    stream: Annotated[str | None, typer.Argument(help="A stream; without one, all streams are listed.")] = None,
    start: Annotated[int, typer.Option(min=0, help="The first sequence.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many records.")] = 100,
) -> Answer:
    """The streams with their heads, or the records of one stream."""
    if stream is None:
        heads = await ledger.streams(limit=limit)
        listed = [{"stream": name, "seq": head.seq, "hash": head.hash} for name, head in heads.items()]
        lines = [f"{name}  {head.seq + 1} records  {head.hash[:16]}…" for name, head in heads.items()]
        return Answer({"streams": listed}, human=lines)
    records = await ledger.read(stream, start, limit)
    if not records:
        raise Problem("not_found", f"The stream {stream} has no record from {start} on.", at=stream)
    return Answer({"records": records}, human=map(_whole, records))


@app.command("verify", using=existing_ledger)
async def verify(
    ledger: Ledger,
    prefix: Prefix = "",
    trusted: Annotated[
        Path | None, typer.Option(help="Heads you trust: what `ledger show --json` printed before.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Signed checkpoints, as `ledger checkpoints` wrote them: nothing before is new.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="With --checkpoint: believe only this public key, in PEM; default: the file's.")
    ] = None,
) -> Answer:
    """Check every record against its hash and every chain for gaps; name the first fault of each stream."""
    if checkpoint is not None:
        return await _against(ledger, checkpoint, key)
    found = await ledger.verify(prefix, _trusted_heads(trusted))
    return Answer(found, human=_verification(found), problem=_broken(found.faults))


async def _against(ledger: Ledger, file: Path, key: Path | None) -> Answer:
    """Verify the ledger, and check that the checkpoints in the file are its own."""
    from forestay.kernel import CheckpointBundle, PublicKey, check_bundle

    bundle = canonical.decode(read_bytes(file), CheckpointBundle)
    believed = PublicKey.read(read_bytes(key).decode(errors="replace")) if key is not None else None
    found = await ledger.verify()
    if not found.ok:
        return Answer({"chains": found}, human=_verification(found), problem=_broken(found.faults))
    signed = await check_bundle(ledger, bundle, believed)
    lines = [*_verification(found), *(f"  {one.stream} at sequence {one.seq}: {one.what}" for one in signed.faults)]
    if not signed.faults:
        lines.append(
            f"{signed.checkpoints} checkpoints of the key {signed.key_id} hold: they cover {signed.entries} entries of "
            f"the audit log and {signed.records} records of other streams."
        )
    return Answer({"chains": found, "checkpoints": signed}, human=lines, problem=_broken(signed.faults))


def _broken(faults: Sequence[Fault]) -> Problem | None:
    if not faults:
        return None
    first = faults[0]
    message = f"{first.stream} at sequence {first.seq}: {first.what}."
    return Problem("chain_broken", message, stream=first.stream, seq=first.seq, faults=len(faults))


@app.command("checkpoints")
async def checkpoints(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file; without one, stdout.")] = None,
    sign: Annotated[
        bool, typer.Option("--sign", help="Sign what is new before; a host that runs does that by itself.")
    ] = False,
    data: Data = None,
) -> Answer | None:
    """Write the signed checkpoints of the audit log, to be kept where nobody who has the ledger can write."""
    from forestay.kernel import SystemClock, export_checkpoints

    folder = data_folder(data)
    async with existing_ledger(data) as ledger:
        if sign and announced(folder) is None:
            from forestay.host import audit_of

            while await audit_of(folder, ledger).checkpoint():
                pass
        bundle = await export_checkpoints(ledger, SystemClock().now_ms())
    text = msgspec.json.format(msgspec.json.encode(bundle), indent=2) + b"\n"
    if output is None:
        sys.stdout.buffer.write(text)
        return None
    write_file(output, text)
    count = len(bundle.checkpoints)
    line = f"{count} checkpoints of the key {bundle.signing_key.key_id} written to {output.name}."
    return Answer({"checkpoints": count, "keyId": bundle.signing_key.key_id, "file": output.name}, human=[line])


@app.command("export", using=existing_ledger)
async def export(
    ledger: Ledger,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file; without one, stdout.")] = None,
    prefix: Prefix = "",
) -> Answer | None:
    """Every record as one line of canonical JSON, with its hash: a backup that proves itself."""
    count = 0
    with output.open("xb") if output else sys.stdout.buffer as target:
        async for line in ledger.export(prefix):
            target.write(line)
            count += 1
        target.flush()
    note(f"{count} records exported.")
    return Answer({"records": count, "file": output.name}) if output else None


@app.command("import")
async def import_(
    file: Annotated[Path, typer.Argument(help="What `ledger export` wrote.", exists=True, dir_okay=False)],
    data: Data = None,
) -> dict[str, int]:
    """Take an export in, whole or not at all; every line must continue its stream and match its hash."""
    if (address := announced(data_folder(data))) is not None:
        raise Problem(
            "state_conflict", f"A host runs here ({address}) and would not see it.", fix="Stop `forestay up` first."
        )
    from forestay.kernel import Ledger

    async with Ledger.open(ledger_address(data, make=True, fix=""), sole=True) as ledger:
        with file.open("rb") as lines:
            return {"records": await ledger.import_lines(lines)}


@app.command("copy")
async def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A data folder, a ledger file or postgresql://….")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Where to: empty, or what an earlier copy left.")],
) -> Answer:
    """Bring a whole ledger to another place, from SQLite to PostgreSQL or back, and verify it there."""
    from forestay.kernel import Ledger, copy_ledger

    places = [_place(source, make=False), _place(target, make=True)]
    if places[0] == places[1]:
        raise Problem("invalid_request", "FROM and TO are the same ledger.", at="TO")
    async with Ledger.open(places[0], sole=True) as one, Ledger.open(places[1], sole=True) as other:
        found = await copy_ledger(one, other, lambda count: note(f"{count} records copied."))
    line = f"{found.copied} records copied; {found.records} records in {found.streams} streams hold."
    return Answer(found, human=[line])


def _place(text: str, *, make: bool) -> Path | str:
    """Return the address of a ledger; a Problem when a host has it open."""
    if "://" in text:
        return text
    if (address := announced(Path(text) if Path(text).is_dir() else Path(text).parent)) is not None:
        raise Problem("state_conflict", f"A host has {text} open: {address}", fix="Stop `forestay up` first.")
    return ledger_address(Path(text), make=make, fix="Name the data folder that has it.")


async def _last(ledger: Ledger, prefix: str, count: int) -> tuple[list[Record], int]:
    """Return the newest `count` records under `prefix`, read backwards in growing steps until there are enough.

    The second value is the position up to which was read: later records come after it.
    """
    end = await ledger.position()
    reach = count
    while True:
        after = max(0, end - reach)
        page = await ledger.read_all(prefix, after, reach + 1)
        if len(page) >= count or after == 0:
            return [record for _, record in page[-count:]] if count else [], page[-1][0] if page else end
        reach *= 4


async def _follow(ledger: Ledger, prefix: str, records: list[Record], position: int) -> None:
    """Print `records`, then each record after `position`, until the reader goes away or presses Ctrl-C."""
    screen = console() if choice().format == "human" else None

    def tell(record: Record) -> None:
        if screen is not None:
            screen.print(_line(record), markup=False)
        else:
            sys.stdout.write(canonical.encode(record).decode() + "\n")
            sys.stdout.flush()

    for record in records:
        tell(record)
    async for _, record in ledger.follow_all(prefix, position, poll=0.25):
        tell(record)
        await asyncio.sleep(0)


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


def _line(record: Record) -> str:
    payload = msgspec.json.encode(record.payload).decode()
    short = payload if len(payload) <= 120 else payload[:119] + "…"
    return f"{iso(record.ts)}  {record.stream} {record.seq}  {record.type}  {short}"


def _whole(record: Record) -> str:
    pretty = msgspec.json.format(msgspec.json.encode(record.payload), indent=2).decode()
    return (
        f"{record.stream} {record.seq}  {record.type}  {iso(record.ts)}  {record.id}\n"
        f"  prev {record.prev[:16]}…  hash {record.hash[:16]}…\n"
        f"  {pretty.replace(chr(10), chr(10) + '  ')}"
    )


def _verification(found: Verification) -> Iterator[str]:
    yield f"{found.records} records in {found.streams} streams hold." if found.ok else "The ledger does not hold:"
    if found.sealed:
        yield f"  {found.sealed} of them are in archives."
    if found.removed:
        yield f"  {found.removed} more were removed by a policy; their hashes lead to the heads."
    for fault in found.faults:
        yield f"  {fault.stream} at sequence {fault.seq}: {fault.what}"
