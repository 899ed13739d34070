"""Durable workflows (OpenWOP 1.11): a run continues to its end after any crash."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.runs.annotations import Anchor, Annotation, Annotations, FeedbackSignal
    from forestay.runs.authoring import Step, Workflow, workflow
    from forestay.runs.check import check_workflow
    from forestay.runs.cron import between as cron_between
    from forestay.runs.cron import check as cron_check
    from forestay.runs.cron import next_ms as cron_next
    from forestay.runs.execution import Execution
    from forestay.runs.graph import mermaid
    from forestay.runs.graph_svg import svg
    from forestay.runs.idempotency import Claim, Idempotency, Reply
    from forestay.runs.leases import FLEET
    from forestay.runs.log import QUEUE, Outbox, stream_of, title_of, to_event
    from forestay.runs.mock_models import MOCK_PROVIDERS, Staged
    from forestay.runs.node_http import body_of, forbidden, passes_off, tell_expired
    from forestay.runs.node_view import NODE_ENDS, retry_point
    from forestay.runs.nodes import NodeContext, NodeError, node
    from forestay.runs.nodes.ai import TRUNCATION_GROWTH, parse_lenient
    from forestay.runs.nodes.core import standard_registry
    from forestay.runs.nodes.handoff import CONFIDENCE_FLOOR
    from forestay.runs.nodes.outside import HTTP_METHODS
    from forestay.runs.nodes.registry import NodeRegistry, NodeType, declaring
    from forestay.runs.outcome import Parked
    from forestay.runs.pending import Prompt, pending_prompts
    from forestay.runs.ports import Caller, EgressDecision, Fact, HttpRequest, HttpResponse, HttpSender
    from forestay.runs.prompting import prompted
    from forestay.runs.record_view import LedgerView, RecordShown, run_of
    from forestay.runs.schedules import Firing, Schedule, Schedules, ScheduleSpec, ScheduleTable
    from forestay.runs.service import Runs, projections
    from forestay.runs.spending import (
        DIMENSIONS,
        Dimension,
        ModelRule,
        RunBudget,
        Spend,
        ceilings,
        exhaustion,
        limits_of,
        shown,
    )
    from forestay.runs.types import (
        ENGINE_VERSION,
        TERMINAL,
        TERMINAL_EVENTS,
        Ancestry,
        Artifact,
        BulkResult,
        CreateRun,
        DrainPolicy,
        EventPage,
        ForkRequest,
        Interrupt,
        InterruptView,
        Limits,
        Resolved,
        RunCreated,
        RunDiff,
        RunEvent,
        RunFilter,
        RunForked,
        RunPage,
        RunSnapshot,
        RunStanding,
        RunStatus,
        RunSummary,
        WorkflowCheck,
        WorkflowVersion,
    )
    from forestay.runs.values import equal, matches
    from forestay.runs.views import SORTS, RunDigest, Sort, Span
    from forestay.runs.webhooks import (
        EVENT_TYPE,
        SIGNATURE_ALGORITHM,
        Delivery,
        Registered,
        RetryPolicy,
        Webhook,
        Webhooks,
    )
    from forestay.runs.workflows import CONFIGURABLE, MAX_NAME, RESERVED, Condition

__getattr__, __dir__ = face(__name__, __file__)
