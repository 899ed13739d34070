"""One machine-readable envelope for every answer (LAFS 1.8)."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.envelope.ask import Ask, give, read_ask
    from forestay.envelope.budget import Budget, cost, read_budget, within
    from forestay.envelope.build import encode, failure, success
    from forestay.envelope.conformance import TIERS, Check, Report, Tier, conform, conform_envelope, conform_flags
    from forestay.envelope.context import ContextStore, Follower, read_query
    from forestay.envelope.context import project as project_context
    from forestay.envelope.context.store import Held, chain
    from forestay.envelope.context.types import Entry
    from forestay.envelope.deprecations import DEPRECATIONS, may_be_removed
    from forestay.envelope.disclosure import project, select_field, select_fields
    from forestay.envelope.errors import CATEGORY_ACTIONS, action_of, next_step
    from forestay.envelope.expand import Expanders
    from forestay.envelope.explanation import explain
    from forestay.envelope.fitting import fit
    from forestay.envelope.flags import REQUESTABLE_LEVELS, OutputChoice, resolve
    from forestay.envelope.json_schemas import schemas
    from forestay.envelope.pages import cursor_page, no_page, offset_page, page_request
    from forestay.envelope.token_estimate import estimate
    from forestay.envelope.transports.a2a_agent import Spoken, agent_card, agent_routes
    from forestay.envelope.transports.asgi import ConformanceMiddleware
    from forestay.envelope.transports.context_http import context_routes
    from forestay.envelope.transports.discovery import CARD_PATH
    from forestay.envelope.transports.http import operation_routes
    from forestay.envelope.transports.mcp_server import mcp_server
    from forestay.envelope.transports.operations import Operation, Operations
    from forestay.envelope.truncate import Strategy
    from forestay.envelope.types import MEDIA_TYPE, SCHEMA_URL, Envelope, Error, Page, Warning
    from forestay.envelope.validate import MAX_ENVELOPE_BYTES, decode, parse

__getattr__, __dir__ = face(__name__, __file__)
