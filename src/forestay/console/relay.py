"""Relay sessions: facts and their sources, what a model would be shown, and how the answers fared."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forestay.console.parts import Parts, number_of, operator_of, whole
from forestay.kernel import OPERATOR, Problem
from forestay.relay import SessionHistory, sessions
from forestay.runs import run_of

_PAGE = 50
_DISPATCHES = 20
_MOST_TASK = 4_000


async def listing(request: Request, parts: Parts) -> Response:
    operator_of(request)
    start = number_of(request, "start")
    found = await sessions(parts.host.relay, after=start, limit=_PAGE + 1)
    return parts.templates.page(
        request,
        "relay.html",
        sessions=found[:_PAGE],
        start=start,
        more=len(found) > _PAGE,
        page_size=_PAGE,
    )


async def show(request: Request, parts: Parts) -> Response:
    view = await _view(request, parts)
    query = request.query_params.get("q", "")[:_MOST_TASK]
    start, back = number_of(request, "start"), number_of(request, "back")
    found = view.found(query)
    dispatches = view.dispatches[::-1]
    return parts.templates.page(
        request,
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


async def fact(request: Request, parts: Parts) -> Response:
    """One fact in the text that it was cut out of."""
    view = await _view(request, parts)
    found = view.fact(whole(request.path_params["number"], "number"))
    return parts.templates.page(request, "fact.html", view=view, fact=found, passage=await view.passage(found))


async def preview(request: Request, parts: Parts) -> Response:
    """What the model would be shown for a task, and why each fact is there; nothing is sent and nothing is written."""
    view = await _view(request, parts)
    task = request.query_params.get("task", "")[:_MOST_TASK]
    system = request.query_params.get("system", "")[:_MOST_TASK]
    found = await view.preview(system, task) if task.strip() else None
    return parts.templates.page(request, "preview.html", view=view, task=task, system=system, preview=found)


async def window(request: Request, parts: Parts) -> Response:
    """What the model was shown in one window."""
    view = await _view(request, parts)
    shown = await view.shown(request.path_params["window"])
    return parts.templates.page(request, "window.html", view=view, shown=shown, window=request.path_params["window"])


async def _view(request: Request, parts: Parts) -> SessionHistory:
    """The session; that of a run which hides something is for those who may read the run (W24)."""
    caller = operator_of(request)
    view = await parts.looks.session(request.path_params["session"])
    run = await parts.runs.find_state(run_of(view.warm.app_id) or "")
    if run is not None and run.secrets and not caller.reads_runs_of(run.owner.tenant if run.owner else ""):
        raise Problem(
            "permission_denied", "The run of this session hides something.", fix="Use a key that may read the run."
        )
    return view
