"""Relay sessions: facts and their sources, envelope previews, and the quality of the answers."""

from __future__ import annotations

from starlette.responses import Response

from forestay.console.visit import Visit, page, whole
from forestay.kernel import OPERATOR, Problem
from forestay.relay import SessionHistory, sessions
from forestay.runs import run_of

_PAGE = 50
_DISPATCHES = 20
_MOST_TASK = 4_000


@page("/relay", "relay", operator=True)
async def listing(visit: Visit) -> Response:
    """The relay's sessions."""
    start = visit.number("start")
    found = await sessions(visit.host.relay, after=start, limit=_PAGE + 1)
    return visit.page("relay.html", sessions=found[:_PAGE], start=start, more=len(found) > _PAGE, page_size=_PAGE)


@page("/relay/{sessionId}", "relay.session", operator=True)
async def show(visit: Visit) -> Response:
    """One session: its facts and its dispatches."""
    view = await _view(visit)
    query = visit.asked("q")[:_MOST_TASK]
    start, back = visit.number("start"), visit.number("back")
    found = view.found(query)
    dispatches = view.dispatches[::-1]
    return visit.page(
        "session.html",
        view=view,
        query=query,
        facts=found[start : start + _PAGE],
        total=len(found),
        start=start,
        page_size=_PAGE,
        run=run_of(view.warm.app_id) if view.warm.app_id.startswith(f"{OPERATOR}::") else None,
        dispatches=dispatches[back : back + _DISPATCHES],
        asked=len(dispatches),
        back=back,
        dispatch_page=_DISPATCHES,
    )


@page("/relay/{sessionId}/facts/{number}", "relay.fact", operator=True)
async def fact(visit: Visit) -> Response:
    """One fact in the text that it was cut out of."""
    view = await _view(visit)
    found = view.fact(whole(visit.path["number"], "number"))
    return visit.page("fact.html", view=view, fact=found, passage=await view.passage(found))


@page("/relay/{sessionId}/preview", "relay.preview", operator=True)
async def preview(visit: Visit) -> Response:
    """What the model would be shown for a task, and why each fact is there; nothing is sent and nothing is written."""
    view = await _view(visit)
    task = visit.asked("task")[:_MOST_TASK]
    system = visit.asked("system")[:_MOST_TASK]
    found = await view.preview(system, task) if task.strip() else None
    return visit.page("preview.html", view=view, task=task, system=system, preview=found)


@page("/relay/{sessionId}/windows/{windowId}", "relay.window", operator=True)
async def window(visit: Visit) -> Response:
    """What the model was shown in one window."""
    view = await _view(visit)
    shown = await view.shown(visit.path["windowId"])
    return visit.page("window.html", view=view, shown=shown, window=visit.path["windowId"])


async def _view(visit: Visit) -> SessionHistory:
    """Return the session; when its run has secrets, only for callers who may read the run (W24)."""
    view = await visit.console.looks.session(visit.path["sessionId"])
    run = await visit.host.runs.find_state(run_of(view.warm.app_id) or "")
    if run is not None and run.secrets and not visit.caller.reads_runs_of(run.owner.tenant if run.owner else ""):
        raise Problem(
            "permission_denied", "The run of this session hides something.", fix="Use a key that may read the run."
        )
    return view
