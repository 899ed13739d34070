"""Ask a model past its window, and inspect the envelope that it sees."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay.cli.command import Group
from forestay.cli.data_folder import Data, data_folder, ledger_address
from forestay.cli.files import STDIN, read_bytes, read_text
from forestay.cli.model_trust import with_trusted_keys
from forestay.cli.output import Answer, choice, note
from forestay.kernel import HOST_SECRET, Problem, config, derive, iso, kept_in, kept_secret, make_folder, printable

if TYPE_CHECKING:
    from rich.console import Console

    from forestay.relay import EnvelopePreview, Evaluation, Relay, RemainingBudget, Session

app = Group("relay")

APP_ID = "cli"
_KEY_VARIABLE = "FORESTAY_EXPORT_KEY"
_TOKEN_VARIABLE = "FORESTAY_RELAY_TOKEN"  # noqa: S105 - a name, not a token
_EXPLAINED = 'forestay relay facts "how deep is the basin" --explain'
_SESSIONS = 64

Which = Annotated[str | None, typer.Option("--session", help="A session; default: the newest one of the command line.")]
ModelName = Annotated[str | None, typer.Option("--model", help="local, openai:MODEL, anthropic:MODEL, scripted:FILE.")]
System = Annotated[str, typer.Option("--system", help="The system prompt.")]
New = Annotated[bool, typer.Option("--new", help="Begin a new session.")]


@asynccontextmanager
async def _relay(data: Path | None, model: str | None, *, make: bool) -> AsyncIterator[Relay]:
    from forestay.models import embed, registry
    from forestay.relay import Relay

    settings = config.load().config
    if model is not None:
        settings = await with_trusted_keys(settings, only=model)
    path = ledger_address(data, make=make, fix="Ingest or ask something first, or give --data.")
    beside = path if isinstance(path, Path) else data_folder(data) / "ledger.db"
    make_folder(beside.parent)
    with kept_in(beside.parent):
        kept = kept_secret(beside.with_name(HOST_SECRET))
    secret = derive(kept, "relay")  # the same as the host's, so that each opens the other's sessions
    opened = registry.open(model, entries=settings.models.entries) if model is not None else None
    embedder = embed.open(settings.models.embedder) if settings.models.embedder else None
    try:
        async with Relay.open(
            path,
            secret=secret,
            model=opened,
            max_sessions_per_app=_SESSIONS,
            embedder=embedder,
            vectors=beside.with_name(beside.name + ".vectors"),
        ) as relay:
            yield relay
    finally:
        if opened is not None:
            await opened.aclose()


@asynccontextmanager
async def kept_session(session: Which = None, data: Data = None) -> AsyncIterator[Session]:
    """Open an existing session, without a model."""
    async with _session(data, session) as found:
        yield found


@asynccontextmanager
async def reading_session(session: Which = None, new: New = False, data: Data = None) -> AsyncIterator[Session]:
    """Open a session without a model; create it when there is none."""
    async with _session(data, session, make=True, new=new) as found:
        yield found


@asynccontextmanager
async def asking_session(
    session: Which = None, new: New = False, model: ModelName = None, data: Data = None
) -> AsyncIterator[Session]:
    """Open a session with a model; create it when there is none."""
    async with _session(data, session, model=_model(model), make=True, new=new) as found:
        yield found


def _model(name: str | None) -> str:
    return name or config.load().config.models.default


@asynccontextmanager
async def _session(
    data: Path | None, session_id: str | None, *, model: str | None = None, make: bool = False, new: bool = False
) -> AsyncIterator[Session]:
    """Open the named session, else the command line's newest, else a new one if `make` allows it."""
    async with _relay(data, model, make=make) as relay:
        if session_id is not None:
            yield await relay.session(session_id)
            return
        known = [] if new else await relay.sessions(APP_ID)
        if known:
            yield await relay.session(known[-1]["session_id"])
        elif make:
            yield await relay.init(APP_ID, role="ADMIN", config={"session_timeout": 604_800})
        else:
            raise Problem("not_found", "There is no session yet.", fix="Run `forestay relay ingest` or `ask` first.")


@app.command("ask", using=asking_session)
async def ask(
    found: Session,
    task: Annotated[str, typer.Argument(help="The question or task; `-` reads it from standard input.")],
    system: System = "",
    max_windows: Annotated[int | None, typer.Option(min=1, help="At most so many windows.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens for the output of one window.")] = None,
    remember: Annotated[bool, typer.Option("--remember", help="Keep the answer as facts of the session.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the dispatch that was interrupted.")] = False,
) -> Answer | None:
    """Ask the model; the answer appears while it is written."""
    if resume:
        events = found.resumed_events()
    else:
        text = read_text(Path(STDIN)) if task == STDIN else task
        events = found.events(
            system,
            text,
            max_windows=max_windows,
            max_output_tokens=max_output_tokens,
            remember=remember or None,
        )
    live = choice().format == "human"
    output: list[str] = []
    report: Any = None
    async for event in events:
        if event.event_type == "token":
            output.append(event.data)
            if live:
                sys.stdout.write(printable(event.data))
                sys.stdout.flush()
        elif event.event_type == "done":
            report = event.data
    if not live:
        return Answer({"session_id": found.id, "output": "".join(output), "report": report})
    sys.stdout.write("\n")
    seen, score = report.telemetry, report.groundedness.score
    note(
        f"{seen.windows} {'window' if seen.windows == 1 else 'windows'}, tier {report.quality_tier}, "
        f"{seen.output_tokens} tokens out, "
        f"{seen.facts_in_envelope} facts shown, groundedness {'-' if score is None else f'{score:.0%}'}"
    )
    return None


@app.command("ingest", using=reading_session)
async def ingest(
    found: Session,
    paths: Annotated[
        list[Path], typer.Argument(help="Text, HTML, PDF and DOCX files, folders; `-` reads standard input.")
    ],
    supersedes: Annotated[
        list[str] | None, typer.Option("--supersedes", help="A source that this text replaces; may be repeated.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Of the files, where it is not UTF-8, such as latin-1.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on: take what changes, and take back what is deleted, until Ctrl-C.")
    ] = False,
) -> Answer:
    """Keep everything that the files say; no model is asked. A file that was ingested before replaces what it said."""
    from forestay.cli.relay_ingest import Intake, state_of, until_stopped

    intake = Intake(found, encoding, supersedes or ())
    before = await asyncio.to_thread(state_of, paths)  # so that the first look notices a change while they are read
    await intake.take(paths)
    if watch:
        await until_stopped(intake, paths, before)
    wrong = intake.problem(paths)
    if not intake.taken:
        return Answer(problem=wrong)
    told = intake.told()
    return Answer(told, human=intake.lines(told), problem=wrong)


@app.command("restore", using=kept_session)
async def restore(
    found: Session,
    facts: Annotated[list[str] | None, typer.Argument(help="Facts such as f17.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="Every fact of this source instead.")] = None,
) -> Answer:
    """Let facts stand again that were quarantined, rejected or superseded."""
    if bool(facts) == (source is not None):
        raise Problem("invalid_usage", "Name facts, or a --source.", at="FACTS", fix="forestay relay restore f17")
    done = await found.restore_facts(facts or None, source_label=source)
    said = f"{done.facts_restored} restored: {', '.join(done.fact_ids) or 'none was out'}"
    return Answer({"session_id": found.id, "restored": done.facts_restored, "facts": done.fact_ids}, human=[said])


@app.command("facts", using=kept_session)
async def facts(
    found: Session,
    query: Annotated[str | None, typer.Argument(help="What to look for; without it, the newest facts.")] = None,
    top: Annotated[int, typer.Option("--top", "-n", min=1, max=10_000, help="At most so many.")] = 10,
    superseded: Annotated[bool, typer.Option("--superseded", help="Superseded facts too.")] = False,
    quarantined: Annotated[bool, typer.Option("--quarantined", help="The facts in quarantine, and no others.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say for each fact why it was found.")] = False,
) -> Answer:
    """The facts of a session, the best for a query first."""
    from forestay.relay import view

    if explain:
        if not query or quarantined:
            raise Problem("invalid_usage", "Only what a query finds can be explained.", at="--explain", fix=_EXPLAINED)
        found_for = await found.explain(query, top_k=top, include_superseded=superseded)
        told = [{**view(fact), "score": reason.score, "why": reason} for fact, reason in found_for]
        return Answer({"session_id": found.id, "facts": told, "total": len(found.warm.facts)}, human=map(_why, told))
    rows = await found.facts(query, top_k=top, include_superseded=superseded, quarantined=quarantined)
    shown = [{**view(fact), "score": round(score, 4)} for fact, score in rows]
    total = len(found.warm.facts)
    return Answer({"session_id": found.id, "facts": shown, "total": total}, human=map(_fact_lines, shown))


def _why(fact: dict[str, Any]) -> str:
    return f"{_fact_lines(fact)}\n{'':>16}{fact['why'].told()}"


@app.command("eval", using=kept_session)
async def evaluation(
    found: Session,
    questions: Annotated[
        Path, typer.Argument(help="JSON lines with a question and its answer or facts; `-` is stdin.")
    ],
) -> Answer:
    """How many of your own questions find their answer, with each signal of the ranking switched off in turn."""
    from forestay.relay import questions_of

    measured = await found.evaluate(questions_of(read_text(questions)))
    told = {"session_id": found.id, **msgspec.structs.asdict(measured)}
    return Answer(told, human=lambda console: _show_evaluation(console, measured))


def _show_evaluation(console: Console, measured: Evaluation) -> None:
    from rich.table import Table

    from forestay.relay import CUTS

    table = Table(
        f"{measured.questions} {'question' if measured.questions == 1 else 'questions'}",
        *(f"first {cut}" for cut in CUTS),
        box=None,
    )
    for setting in measured.settings:
        table.add_row(setting.name, *(f"{setting.recall[str(cut)]:.0%}" for cut in CUTS))
    console.print(table)
    for miss in measured.misses:
        place = f"at {miss.place}" if miss.place is not None else "not found"
        console.print(f"{place}: {miss.question}\n{'':>4}{miss.answer[:160]}", markup=False)
    for question in measured.unlabelled:
        console.print(f"no fact holds the answer to: {question}", markup=False)


def _fact_lines(fact: dict[str, Any]) -> str:
    where = f"{fact['source']} {fact['start']}-{fact['end']}"
    if fact["superseded_by"]:
        where += f"  superseded by {fact['superseded_by']}"
    if fact["quarantined"]:
        where += "  quarantined"
    return f"{fact['id']:>7}  {fact['score']:.3f}  {fact['text'][:200]}\n{'':>16}{where}  {fact['context']}"


@app.command("preview")
async def preview(
    task: Annotated[str, typer.Argument(help="The question or task.")],
    system: System = "",
    session: Which = None,
    model: ModelName = None,
    data: Data = None,
) -> Answer:
    """What the model would see, and why each fact is there."""
    async with _session(data, session, model=_model(model)) as found:
        shown = await found.preview_envelope(system, task)
        return Answer(shown, human=lambda console: _show_preview(console, shown, task))


def _show_preview(console: Console, shown: EnvelopePreview, task: str) -> None:
    from rich.table import Table

    console.print(shown.envelope_text or "(the envelope is empty)", markup=False)
    console.print(f"\n{task}\n", markup=False, style="bold")
    table = Table("fact", "score", "words", "recent", "new", "near", "tokens", "section", box=None)
    for item in shown.facts:
        parts = (item.score, item.relevance, item.recency, item.novelty, item.graph)
        table.add_row(item.id, *(f"{value:.2f}" for value in parts), str(item.tokens), item.section)
    console.print(table)
    console.print(
        f"{shown.facts_included} of {shown.facts_available} facts, "
        f"{shown.used_tokens} of {shown.budget_tokens} tokens; {shown.generation_reserve} kept for the answer",
        markup=False,
    )


@app.command("status", using=kept_session)
async def status(found: Session) -> Answer:
    """Where a session stands."""
    shown = await found.session_status()
    told = {
        **msgspec.structs.asdict(shown),
        "expires_at": iso(round(shown.expires_at * 1000)),
        "remaining_budget": _budget(shown.remaining_budget),
        "context_window": shown.context_window or None,
    }
    return Answer(shown, human=[f"{name:<24}{value}" for name, value in told.items() if value not in (None, "")])


def _budget(left: RemainingBudget | None) -> str:
    if left is None:
        return "no caps"
    parts = ((left.windows_remaining, "windows"), (left.input_tokens_remaining, "tokens in"))
    every = (*parts, (left.output_tokens_remaining, "tokens out"))
    return ", ".join(f"{count} {what}" for count, what in every if count is not None)


@app.command("estimate", using=asking_session)
async def estimate(
    found: Session,
    task: Annotated[str, typer.Argument(help="The question or task.")],
    system: System = "",
    dispatches: Annotated[int, typer.Option(min=1, help="How many such dispatches.")] = 1,
    input_price: Annotated[float | None, typer.Option(min=0, help="USD for a million input tokens.")] = None,
    output_price: Annotated[float | None, typer.Option(min=0, help="USD for a million output tokens.")] = None,
) -> Answer:
    """What a task would take and, with prices, cost."""
    from forestay.relay import Pricing

    pricing = Pricing(input_price or 0.0, output_price or 0.0) if input_price or output_price else None
    size = await found.preview_envelope(system, task)
    tokens = size.system_tokens + size.task_tokens + size.envelope_tokens
    shown = await found.estimate_session(dispatches, tokens, None, pricing)
    cost = "no prices given" if shown.estimated_cost_usd is None else f"{shown.estimated_cost_usd:.6f}"
    told = {**msgspec.structs.asdict(shown), "estimated_cost_usd": cost}
    return Answer(shown, human=[f"{name:<26}{value}" for name, value in told.items()])


@app.command("export", using=kept_session)
async def export(
    found: Session, file: Annotated[Path, typer.Argument(help="Where the export goes.")]
) -> dict[str, Any]:
    """Write a session to a file, encrypted with the key in FORESTAY_EXPORT_KEY."""
    key = _export_key()
    content = await found.export_state(key)
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise Problem("invalid_usage", f"{file.name} exists already.", fix="Choose another name.") from None
    except OSError as error:
        raise Problem("invalid_usage", f"{file.name} cannot be written.", reason=error.strerror) from error
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
    return {"session_id": found.id, "file": file.name, "bytes": len(content)}


@app.command("import")
async def import_(file: Annotated[Path, typer.Argument(help="An export.")], data: Data = None) -> dict[str, Any]:
    """Take in an export, with the key in FORESTAY_EXPORT_KEY."""
    content = read_bytes(file)
    async with _relay(data, None, make=True) as relay:
        found = await relay.import_state(content, _export_key())
        return {"session_id": found.id, "facts": len(found.warm.facts), "windows": found.warm.windows}


@app.command("serve")
async def serve(
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 picks one.")] = 8900,
    model: ModelName = None,
    data: Data = None,
) -> None:
    """Serve the CRP sidecar until it is stopped; beyond this machine it needs a token in FORESTAY_RELAY_TOKEN."""
    from forestay.surface import bind, crp_app, serving, until_signalled, url_of

    token = os.environ.get(_TOKEN_VARIABLE) or None
    if token is None and host not in ("127.0.0.1", "::1", "localhost"):
        raise Problem(
            "invalid_usage",
            "Beyond this machine the sidecar needs a token.",
            at="--host",
            fix=f"Set {_TOKEN_VARIABLE}.",
        )
    bound = bind(host, port)

    async def ready() -> None:
        note(f"The relay answers at {url_of(bound)}; its operations are in {url_of(bound)}/openapi.json.")

    async with _relay(data, _model(model), make=True) as relay:
        sidecar = serving(crp_app(relay, token=token), bound)
        async with sidecar:
            await until_signalled(ready=ready)


def _export_key() -> str:
    key = os.environ.get(_KEY_VARIABLE, "")
    if not key:
        raise Problem("invalid_usage", "There is no export key.", fix=f"Set {_KEY_VARIABLE} to a long random text.")
    return key
