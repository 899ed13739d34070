"""The base of every other package: canonical JSON, clock, ids, problems, ledger, policy, redaction, budgets, config."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.kernel.ambient import (
        Clock,
        Ids,
        ManualClock,
        Randomness,
        SeededRandomness,
        SharedClock,
        SystemClock,
        SystemRandomness,
        Watch,
        bound_of,
        count_outside,
        counts_outside,
        iso,
        moment_of,
        outside_work,
        parse_iso,
    )
    from forestay.kernel.audit_bundle import CheckpointBundle, check_bundle, export_checkpoints
    from forestay.kernel.audit_log import AuditLog, AuditVerdict
    from forestay.kernel.budget import Amounts, Budget, Limits
    from forestay.kernel.checkpoint import EVERY_ENTRIES, EVERY_SECONDS, PublicKey
    from forestay.kernel.cipher import KEY_BYTES, decrypt, encrypt
    from forestay.kernel.config import PROJECT_FILE, key_use
    from forestay.kernel.folders import kept_in, make_folder, write_file
    from forestay.kernel.http_url import MAX_URL, URL_PATTERN, Place, place_of, plain_host
    from forestay.kernel.json_schema import (
        Mistake,
        Validator,
        check_schema,
        compiled,
        json_path,
        misfit,
        mistakes,
        object_schema,
        schema_mistake,
    )
    from forestay.kernel.ledger import (
        Append,
        Beat,
        Draft,
        Fault,
        Head,
        Ledger,
        Locks,
        Projection,
        Queue,
        Record,
        Transaction,
        Verification,
        Worker,
        Workers,
    )
    from forestay.kernel.ledger.postgres import lacking
    from forestay.kernel.ledger.postgres_server import Lacking
    from forestay.kernel.ledger.sqlite_file import SQLITE_VERSION, sqlite_fault
    from forestay.kernel.ledger.transfer import copy_ledger
    from forestay.kernel.loss import Weighed, weigh
    from forestay.kernel.markup import MarkupReader
    from forestay.kernel.peers import A2a, A2aPeer
    from forestay.kernel.policy import (
        AUDIT,
        SCOPED,
        Decision,
        Effect,
        Grant,
        Mode,
        Policy,
        Request,
        Scope,
        SubjectRules,
        check_path_pattern,
        exactly,
        match_path,
        scope_policy,
        scope_request,
    )
    from forestay.kernel.problem_table import LAFS_CODES, TABLE, AgentAction, Category, Row
    from forestay.kernel.problems import Problem, lafs_registry
    from forestay.kernel.redaction import REDACTED, is_secret_key, redact, redact_text
    from forestay.kernel.schemas import schema_of
    from forestay.kernel.seal import Seal
    from forestay.kernel.secret import HOST_SECRET, derive, kept_secret
    from forestay.kernel.settings import (
        OPERATOR,
        Agents,
        Budgets,
        Ceiling,
        Config,
        DeploymentGate,
        DeploymentSettings,
        ExtensionConfig,
        ExtensionOverride,
        ExtensionPolicy,
        ExtensionQuotas,
        Http,
        HttpLimits,
        HttpRates,
        Mailbox,
        McpServer,
        ModelEntry,
        Models,
        ModelService,
        Price,
        PromptSettings,
        Rate,
        RetentionSettings,
        Telemetry,
        UntrustedEntry,
        Workflows,
    )
    from forestay.kernel.terminal_text import one_line, printable
    from forestay.kernel.text_bound import Bounds, bounded, cut
    from forestay.kernel.trace import read_traceparent, trace_id

__getattr__, __dir__ = face(__name__, __file__)
