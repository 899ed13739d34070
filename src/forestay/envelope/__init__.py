"""How anything is said: one machine-readable envelope for every answer (LAFS 1.8)."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.envelope.ask import Ask, give
    from forestay.envelope.budget import Budget
    from forestay.envelope.build import encode, error_of, failure, success
    from forestay.envelope.conformance import Check, Report, Tier, conform
    from forestay.envelope.context import ContextStore
    from forestay.envelope.context.store import Held
    from forestay.envelope.disclosure import project, select_field, select_fields
    from forestay.envelope.explanation import Explanation, explain
    from forestay.envelope.flags import REQUESTABLE_LEVELS, OutputChoice, resolve
    from forestay.envelope.json_schemas import schemas
    from forestay.envelope.transports.a2a_agent import agent_card, agent_routes
    from forestay.envelope.transports.asgi import ConformanceMiddleware
    from forestay.envelope.transports.context_http import context_routes
    from forestay.envelope.transports.discovery import CARD_PATH
    from forestay.envelope.transports.http import operation_routes
    from forestay.envelope.transports.mcp_server import mcp_server
    from forestay.envelope.transports.operations import Operation, Operations
    from forestay.envelope.truncate import Strategy
    from forestay.envelope.types import MEDIA_TYPE, SCHEMA_URL, Envelope, Error, Meta, Mvi, Page, Warning
    from forestay.envelope.validate import MAX_ENVELOPE_BYTES, decode, parse

__getattr__, __dir__ = face(__name__, __file__)
