"""Runs: start, list, show, watch, answer, cancel, fork, retry, compare, replay."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import typer
from msgspec import convert

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected, json_argument, json_object, names_file, reading
from forestay.cli.output import Answer, choice, note
from forestay.cli.run_compare import differences
from forestay.cli.run_outcome import answering, divergence, failure, not_cancelled
from forestay.cli.run_text import coloured, show_diff, show_events, show_list, show_results, show_run, shown, text
from forestay.kernel import Problem
from forestay.runs import TERMINAL, RunEvent, RunStatus, Sort, retry_point

app = Group("run")

RunId = Annotated[str, typer.Argument(help="A run's id.")]


@app.command("start", using=connected)
async def start(
    host: Connection,
    workflow: Annotated[str, typer.Argument(help="The workflow's id.")],
    inputs: Annotated[str | None, typer.Option(help="Inputs as JSON, @file or - for standard input.")] = None,
    input: Annotated[list[str] | None, typer.Option("--input", help="One input, NAME=VALUE (JSON or text).")] = None,
    configurable: Annotated[str | None, typer.Option(help="Overlay as JSON or @file.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be repeated.")] = None,
    scope: Annotated[str | None, typer.Option(help="A scope id, for --dedup.")] = None,
    dedup: Annotated[bool, typer.Option("--dedup", help="Refuse a second active run of the scope.")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="Start at most once under this key.")] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until the run ends or waits for somebody.")] = False,
) -> Answer:
    """Start a run of a workflow."""
    asked: dict[str, Any] = {
        "workflowId": workflow,
        "inputs": {**(json_object(inputs, "--inputs") or {}), **_pairs(input or [])},
        "configurable": json_object(configurable, "--configurable"),
        "scopeId": scope,
        "tags": tag,
    }
    body = {name: value for name, value in asked.items() if value is not None}
    headers = {"X-Dedup": "enforce"} if dedup else {}
    if idempotency_key:
        headers["Idempotency-Key"] = idempotency_key
    try:
        made = await host.post("/v1/runs", body, headers=headers)
    except Problem as problem:
        raise _explained(problem, workflow) from problem
    if wait:
        return await _waited(host, made["runId"])
    await _say_who_goes_on(host, made["runId"])
    return Answer(made, human=lambda console: console.print(f"{made['runId']}  {coloured(made['status'])}"))


@app.command("list", using=reading)
async def list_(
    host: Connection,
    status: Annotated[list[str] | None, typer.Option(help="Only runs with this status; may be repeated.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only runs with this tag.")] = None,
    search: Annotated[
        str, typer.Option("--search", "-s", help="Words of the inputs, a workflow, a tag, an error or an id.")
    ] = "",
    since: Annotated[str | None, typer.Option(help="Only runs from this moment on, RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(help="Only runs before this moment, RFC 3339.")] = None,
    sort: Annotated[Sort, typer.Option(help="What comes first.")] = "newest",
    limit: Annotated[int, typer.Option(min=1, max=200, help="At most so many.")] = 20,
    start: Annotated[int, typer.Option(min=0, help="The place of the first one shown.")] = 0,
) -> Answer:
    """Find runs, the newest first."""
    if unknown := [name for name in status or () if name not in get_args(RunStatus)]:
        known = ", ".join(get_args(RunStatus))
        raise Problem(
            "invalid_usage", f"No run has the status {unknown[0]}.", at="--status", fix=f"Use one of: {known}."
        )
    wanted: dict[str, Any] = {
        "q": search or None,
        "status": ",".join(status) if status else None,
        "workflowId": workflow,
        "tag": tag,
        "since": since,
        "until": until,
        "sort": sort,
        "start": start,
        "limit": limit,
    }
    found = await host.get("/host/v1/runs", **wanted)
    return Answer(found, human=lambda console: show_list(console, found, start))


@app.command("show", using=reading)
async def show(host: Connection, run: RunId) -> Answer:
    """Where a run stands, node by node."""
    standing = await host.get(f"/v1/runs/{run}")
    asked = await _asked(host, standing)
    return Answer(standing, human=lambda console: show_run(console, standing, asked))


@app.command("events", using=connected)
async def events(
    host: Connection,
    run: RunId,
    after: Annotated[int, typer.Option(help="Only events after this sequence.", min=-1)] = -1,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends, a JSON line each.")] = False,
    mode: Annotated[str, typer.Option(help="With --follow: updates, messages, debug, or a comma list.")] = "debug",
) -> Answer | None:
    """The events of a run."""
    if not follow:
        found = await host.ask("GET", f"/v1/runs/{run}/events", headers={"Last-Event-ID": str(after)})
        return Answer(found, human=lambda console: show_events(console, found["events"]))
    import msgspec

    async for event in host.events(run, mode=mode, after=after):
        typer.echo(msgspec.json.encode(event))
    return None


@app.command("watch", using=connected)
async def watch(host: Connection, run: RunId) -> Answer:
    """Watch a run live until it ends; on a terminal, keys answer what it asks, pause it and cancel it."""
    if choice().format == "human":
        from forestay.cli.run_watch import watch_live

        standing = await watch_live(host, run)
        return Answer(standing, human=lambda console: None, problem=failure(standing))
    async for _ in host.events(run):
        pass
    standing = await host.get(f"/v1/runs/{run}")
    return Answer(standing, problem=failure(standing))


@app.command("wait", using=connected)
async def wait_(host: Connection, run: RunId) -> Answer:
    """Wait until a run has ended or waits for somebody; one that did not complete is a problem."""
    return await _waited(host, run)


@app.command("approve", using=connected)
async def approve(
    host: Connection,
    run: RunId,
    node: Annotated[str | None, typer.Argument(help="The node that asks; needed when several do.")] = None,
    action: Annotated[str, typer.Option(help="accept, reject, refine, edit-accept or ask.")] = "accept",
    reject: Annotated[bool, typer.Option("--reject", help="Short for --action reject.")] = False,
    comment: Annotated[str | None, typer.Option(help="Why.")] = None,
    remember: Annotated[str | None, typer.Option(help="For a capability prompt: once, session or always.")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="For a capability prompt: these paths, hosts, names; default: what it asks."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="For a capability prompt: the whole capability, not only what it asks.")
    ] = False,
    expires_in: Annotated[
        int | None, typer.Option(min=1, help="For a capability prompt, with --remember always: seconds until it ends.")
    ] = None,
    value: Annotated[str | None, typer.Option(help="The whole answer as JSON, for questions of another kind.")] = None,
) -> Answer:
    """Answer what a run asks."""
    asked = await _question(host, run, node)
    answer: Any = json_argument(value, "--value")
    if answer is None:
        if asked["kind"] != "approval":
            how = answering(run, asked["nodeId"], asked["kind"], shown(asked))
            raise Problem("invalid_usage", f"{asked['nodeId']} waits for no approval.", kind=asked["kind"], fix=how)
        said = {
            "comment": comment,
            "remember": remember,
            "scope": scope,
            "everything": everything,
            "expiresInSeconds": expires_in,
        }
        answer = {"action": "reject" if reject else action, **{name: item for name, item in said.items() if item}}
    done = await host.resolve(run, asked["nodeId"], answer)
    await _say_who_goes_on(host, run)
    return Answer(done, human=lambda console: console.print(f"{text(done['nodeId'])}: {coloured(done['status'])}"))


@app.command("signal", using=connected)
async def signal(
    host: Connection,
    run: RunId,
    name: Annotated[str, typer.Argument(help="The event's name.")],
    payload: Annotated[str | None, typer.Option(help="JSON, @file or -.")] = None,
) -> Any:
    """Hand a named event to a run."""
    done = await host.post(f"/v1/runs/{run}/signals/{name}", {"payload": json_argument(payload, "--payload")})
    await _say_who_goes_on(host, run)
    return done


@app.command("cancel", using=connected)
async def cancel(
    host: Connection,
    runs: Annotated[list[str], typer.Argument(help="One or more runs.")],
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
) -> Answer:
    """Cancel runs and their children; a run that had completed or failed before is a problem."""
    body: dict[str, Any] = {"reason": reason} if reason else {}
    before = {run: await _status(host, run) for run in dict.fromkeys(runs)}
    if len(runs) == 1:
        results = [await host.post(f"/v1/runs/{runs[0]}/cancel", body)]
    else:
        results = (await host.post("/v1/runs:bulk-cancel", {"runIds": runs, **body}))["results"]
    if host.local:
        for run in (run for run, status in before.items() if status is not None):
            await _settled(host, run)
    for run in (run for run, status in before.items() if status == "cancelled"):
        note(f"{run} was cancelled before.")
    return Answer(
        {"results": results}, human=lambda console: show_results(console, results), problem=not_cancelled(before)
    )


@app.command("pause", using=connected)
async def pause(
    host: Connection,
    run: RunId,
    immediate: Annotated[bool, typer.Option("--immediate", help="Give up the attempts that are under way.")] = False,
) -> Any:
    """Start no further node of a run. Nodes that are under way end first."""
    return await host.post(f"/v1/runs/{run}:pause", {"drainPolicy": "immediate"} if immediate else None)


@app.command("resume", using=connected)
async def resume(host: Connection, run: RunId) -> Any:
    """Go on with a paused run."""
    done = await host.post(f"/v1/runs/{run}:resume")
    await _say_who_goes_on(host, run)
    return done


@app.command("fork", using=connected)
async def fork(
    host: Connection,
    run: RunId,
    at: Annotated[int, typer.Option("--from", min=0, help="The first sequence that is done anew.")] = 0,
    overlay: Annotated[str | None, typer.Option(help="Run options to lay over, as JSON or @file.")] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end.")] = False,
) -> Answer:
    """Branch off a run: the same past, a new future."""
    body: dict[str, Any] = {"mode": "branch", "fromSeq": at}
    changed = json_argument(overlay, "--overlay")
    if changed is not None:
        body["runOptionsOverlay"] = changed
    made = await host.post(f"/v1/runs/{run}:fork", body)
    if wait:
        return await _waited(host, made["runId"])
    await _say_who_goes_on(host, made["runId"])
    return Answer(made, human=lambda console: console.print(f"{made['runId']}  from {run} at {at}"))


@app.command("retry", using=connected)
async def retry(
    host: Connection,
    run: RunId,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end.")] = False,
) -> Answer:
    """Do a failed run's failed node anew, and all after it, as a run of its own; what was done before stays done."""
    point = retry_point(convert(await _events(host, run), list[RunEvent]))
    if point is None:
        fix = f"`forestay run show {run}` says where it stands."
        raise Problem("state_conflict", "No node of this run failed, so none can be tried again.", runId=run, fix=fix)
    made = await host.post(f"/v1/runs/{run}:fork", {"mode": "branch", "fromSeq": point.sequence})
    if wait:
        return await _waited(host, made["runId"])
    await _say_who_goes_on(host, made["runId"])
    return Answer(made, human=lambda console: console.print(f"{made['runId']}  from {text(point.node_id)} of {run}"))


@app.command("replay", using=connected)
async def replay(
    host: Connection,
    run: RunId,
    at: Annotated[int, typer.Option("--from", min=0, help="The first sequence that is done anew.")] = 0,
) -> Answer:
    """Do a run again from its records, and say whether it went the same way."""
    made = await host.post(f"/v1/runs/{run}:fork", {"mode": "replay", "fromSeq": at})
    await _settled(host, made["runId"])
    diff = await host.get(f"/v1/runs/{run}:diff", against=made["runId"])
    both = [await _events(host, one) for one in (run, made["runId"])]
    result = {"runId": made["runId"], "sourceRunId": run, "same": diff["divergedAtSeq"] is None, "diff": diff}
    return Answer(
        result, human=lambda console: show_diff(console, diff, differences(*both)), problem=divergence(run, diff)
    )


@app.command("diff", using=reading)
async def diff(
    host: Connection,
    run: RunId,
    against: Annotated[str, typer.Argument(help="The other run.")],
) -> Answer:
    """Where two runs went apart."""
    found = await host.get(f"/v1/runs/{run}:diff", against=against)
    apart = [] if found["divergedAtSeq"] is None else differences(*[await _events(host, one) for one in (run, against)])
    return Answer(found, human=lambda console: show_diff(console, found, apart))


async def _events(host: Connection, run: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await host.get(f"/v1/runs/{run}/events"))["events"]
    return found


async def _status(host: Connection, run: str) -> str | None:
    """Return a run's status; None when there is no such run, because the command itself then reports that."""
    try:
        return str((await host.get(f"/v1/runs/{run}"))["status"])
    except Problem as problem:
        if problem.key != "not_found":
            raise
        return None


async def _question(host: Connection, run: str, node: str | None) -> dict[str, Any]:
    """Return the open interrupt of the node, or the only one."""
    open_now = await host.open_questions(run)
    found = [item for item in open_now if node in (None, item["nodeId"])]
    if not found:
        raise Problem("not_found", f"{node or 'The run'} asks nothing.", open=[item["nodeId"] for item in open_now])
    if len(found) > 1:
        nodes = [item["nodeId"] for item in found]
        raise Problem("invalid_usage", "Several nodes ask.", open=nodes, fix=f"Name one: {', '.join(nodes)}.")
    return found[0]


async def _asked(host: Connection, run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the open questions of a run, by node."""
    if run["status"] in TERMINAL:
        return {}
    return {item["nodeId"]: item for item in await host.open_questions(run["runId"])}


async def _waited(host: Connection, run: str) -> Answer:
    """Wait until the run ends or waits for somebody, and show it; one that failed or was cancelled is a problem."""
    await _settled(host, run)
    standing = await host.get(f"/v1/runs/{run}")
    asked = await _asked(host, standing)
    problem = failure(standing)
    traces = problem is None  # otherwise the problem shows them
    return Answer(standing, human=lambda console: show_run(console, standing, asked, traces=traces), problem=problem)


async def _say_who_goes_on(host: Connection, run: str) -> None:
    """Say how a run continues after a command that opened the host itself: without a host, nothing moves the run."""
    if not host.local:
        return
    status = (await host.get(f"/v1/runs/{run}"))["status"]
    if status in ("pending", "running"):
        note(f"No host is up. {run} goes on with `forestay up`, or with `forestay run watch {run}`.")


async def _settled(host: Connection, run: str) -> None:
    """Wait until a run has ended or waits for somebody."""
    after = -1
    while True:
        page = await host.get(f"/v1/runs/{run}/events/poll", lastSequence=after, timeout=30)
        after = max([after, *(event["sequence"] for event in page["events"])])
        status = (await host.get(f"/v1/runs/{run}"))["status"]
        if status in TERMINAL or status.startswith("waiting-") or status == "paused":
            return


def _explained(problem: Problem, workflow: str) -> Problem:
    """Add the command to type to the problem of a run that did not start: missing workflow or missing input."""
    at = str(problem.details.get("at"))
    if at.startswith("$.inputs."):
        fix = f"Give it with --input {at.removeprefix('$.inputs.')}=VALUE."
    elif problem.key != "not_found" or problem.details.get("workflowId") != workflow:
        return problem
    elif names_file(workflow):
        fix = f"Store the file with `forestay workflow put {workflow}`, then start the workflow by its id."
    else:
        fix = "`forestay workflow list` names those that are stored, `forestay workflow put FILE` stores one."
    return Problem(problem.key, problem.message, **{**problem.details, "fix": fix})


def _pairs(items: list[str]) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise Problem("invalid_usage", f"{item!r} is not NAME=VALUE.", at="--input")
        try:
            found[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found[name] = text
    return found
