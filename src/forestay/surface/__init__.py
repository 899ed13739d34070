"""HTTP: how programs reach the host. Each contract's bodies are that contract's; problems come from one table."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.surface.answers import as_problem, request_id
    from forestay.surface.auth import Caller, Keys
    from forestay.surface.crp import crp_app
    from forestay.surface.exchange import note_caller, note_route
    from forestay.surface.front import log_requests
    from forestay.surface.hosting import Serving, serve
    from forestay.surface.operations import Operation
    from forestay.surface.server import bind, run, serving, until_signalled, url_of
    from forestay.surface.services import Services

__getattr__, __dir__ = face(__name__, __file__)
