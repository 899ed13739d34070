"""The surface: programs and people reach the host through it.

One router, one admission and one way to answer serve every contract. Bodies follow each contract; problems come from
one table.
"""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.surface.auth import Caller, Keys, KeyTable
    from forestay.surface.crp import crp_app
    from forestay.surface.front import log_requests
    from forestay.surface.host_names import TrustedProxies
    from forestay.surface.hostapi import operations as host_operations
    from forestay.surface.hostapi.keys import NewKey, keys_within_reach, make_key
    from forestay.surface.hostapi.ledger import read_stream
    from forestay.surface.hosting import DRAIN_SECONDS, Serving, serve, serve_here
    from forestay.surface.inner_transport import InnerTransport
    from forestay.surface.mcp_tools import served_tools
    from forestay.surface.operations import Call, Operation, Operations
    from forestay.surface.reading import Form
    from forestay.surface.server import bind, run, serving, until_signalled, url_of
    from forestay.surface.services import Services
    from forestay.surface.sse import KEEPALIVE, KEEPALIVE_SECONDS, Awaited, frame

__getattr__, __dir__ = face(__name__, __file__)
