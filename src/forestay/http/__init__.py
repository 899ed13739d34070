"""HTTP: how programs reach the host. Each contract's bodies are that contract's; problems come from one table."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.http.answers import as_problem, request_id
    from forestay.http.auth import Caller, Keys
    from forestay.http.crp import crp_app
    from forestay.http.exchange import note_caller, note_route
    from forestay.http.front import log_requests
    from forestay.http.hosting import Serving, serve
    from forestay.http.operations import Operation
    from forestay.http.server import bind, run, serving, until_signalled, url_of
    from forestay.http.services import Services

__getattr__, __dir__ = face(__name__, __file__)
