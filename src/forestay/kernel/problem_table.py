"""The table of problems: a row for each kind, a column for each contract.

To add a kind of problem, add a row. `Problem` refuses a key that has none, and the reference page
`docs/reference/problems.md` is generated from this table.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Category = Literal[
    "VALIDATION",
    "AUTH",
    "PERMISSION",
    "NOT_FOUND",
    "CONFLICT",
    "RATE_LIMIT",
    "TRANSIENT",
    "INTERNAL",
    "CONTRACT",
    "MIGRATION",
]
AgentAction = Literal["retry", "retry_modified", "wait", "escalate", "stop", "refresh_context", "authenticate"]
HostCallCode = Literal["timeout", "denied", "io", "invalid_request", "internal"]


class LafsCode(msgspec.Struct, frozen=True):
    """One code of the LAFS registry (R18 to R22, decision D6), with the matching codes of the other contracts."""

    code: str
    category: Category
    retryable: bool
    http: int
    grpc: str
    exit: int
    action: AgentAction
    openwop: str
    pi: HostCallCode
    crp: int
    jsonrpc: int


class Row(msgspec.Struct, frozen=True):
    """One kind of problem as each contract reports it."""

    key: str
    title: str
    remedy: str
    lafs: str
    category: Category
    retryable: bool
    action: AgentAction
    http: int
    grpc: str
    exit: int
    openwop: str
    pi: HostCallCode
    crp: int
    jsonrpc: int


_CODES = (
    LafsCode("E_FORMAT_CONFLICT", "CONTRACT", False, 400, "INVALID_ARGUMENT", 2, "stop", "validation_error", "invalid_request", 1010, -32602),
    LafsCode("E_VALIDATION_SCHEMA", "VALIDATION", False, 400, "INVALID_ARGUMENT", 2, "retry_modified", "validation_error", "invalid_request", 1010, -32602),
    LafsCode("E_NOT_FOUND_RESOURCE", "NOT_FOUND", False, 404, "NOT_FOUND", 4, "stop", "not_found", "io", 1010, -32004),
    LafsCode("E_CONFLICT_VERSION", "CONFLICT", True, 409, "ABORTED", 7, "refresh_context", "conflict", "invalid_request", 1010, -32009),
    LafsCode("E_RATE_LIMITED", "RATE_LIMIT", True, 429, "RESOURCE_EXHAUSTED", 8, "wait", "rate_limited", "denied", 1002, -32029),
    LafsCode("E_TRANSIENT_UPSTREAM", "TRANSIENT", True, 503, "UNAVAILABLE", 9, "retry", "service_unavailable", "io", 1020, -32053),
    LafsCode("E_INTERNAL_UNEXPECTED", "INTERNAL", False, 500, "INTERNAL", 1, "escalate", "internal_error", "internal", 1020, -32603),
    LafsCode("E_CONTEXT_MISSING", "CONTRACT", False, 400, "FAILED_PRECONDITION", 6, "retry_modified", "validation_error", "invalid_request", 1010, -32602),
    LafsCode("E_CONTEXT_STALE", "CONFLICT", True, 409, "ABORTED", 7, "refresh_context", "conflict", "invalid_request", 1010, -32009),
    LafsCode("E_MIGRATION_UNSUPPORTED_VERSION", "MIGRATION", False, 426, "FAILED_PRECONDITION", 10, "stop", "version_out_of_range", "invalid_request", 1030, -32602),
    LafsCode("E_DISCLOSURE_UNKNOWN_FIELD", "VALIDATION", False, 400, "INVALID_ARGUMENT", 2, "retry_modified", "validation_error", "invalid_request", 1010, -32602),
    LafsCode("E_MVI_BUDGET_EXCEEDED", "VALIDATION", True, 413, "RESOURCE_EXHAUSTED", 2, "retry_modified", "validation_error", "invalid_request", 1001, -32602),
    LafsCode("E_FIELD_CONFLICT", "CONTRACT", False, 400, "INVALID_ARGUMENT", 2, "stop", "validation_error", "invalid_request", 1010, -32602),
    # Decision D6: codes that the published registry lacks.
    LafsCode("E_AUTH_REQUIRED", "AUTH", False, 401, "UNAUTHENTICATED", 3, "authenticate", "unauthenticated", "denied", 1012, -32001),
    LafsCode("E_PERMISSION_DENIED", "PERMISSION", False, 403, "PERMISSION_DENIED", 5, "escalate", "forbidden", "denied", 1013, -32003),
    LafsCode("E_CONTEXT_NOT_FOUND", "NOT_FOUND", False, 404, "NOT_FOUND", 4, "stop", "not_found", "io", 1010, -32004),
    LafsCode("E_CONTEXT_VERSION_INVALID", "VALIDATION", False, 400, "INVALID_ARGUMENT", 2, "retry_modified", "validation_error", "invalid_request", 1010, -32602),
    LafsCode("E_CONTEXT_VERSION_CONFLICT", "CONFLICT", True, 409, "ABORTED", 7, "refresh_context", "conflict", "invalid_request", 1010, -32009),
    LafsCode("E_CONTEXT_UNAUTHORIZED", "PERMISSION", False, 403, "PERMISSION_DENIED", 5, "escalate", "forbidden", "denied", 1013, -32003),
    LafsCode("E_CONTEXT_EXPIRED", "AUTH", False, 401, "UNAUTHENTICATED", 3, "authenticate", "unauthenticated", "denied", 1003, -32001),
    LafsCode("E_CONTEXT_COMPACTED", "CONFLICT", True, 409, "FAILED_PRECONDITION", 7, "refresh_context", "conflict", "invalid_request", 1010, -32009),
    LafsCode("E_CONTEXT_TOO_LARGE", "VALIDATION", True, 413, "RESOURCE_EXHAUSTED", 2, "retry_modified", "validation_error", "invalid_request", 1010, -32602),
    LafsCode("E_CONTEXT_MODE_INVALID", "VALIDATION", False, 400, "INVALID_ARGUMENT", 2, "retry_modified", "validation_error", "invalid_request", 1010, -32602),
)

LAFS_CODES: dict[str, LafsCode] = {code.code: code for code in _CODES}


def _row(
    key: str,
    lafs: str,
    title: str,
    remedy: str,
    *,
    category: Category | None = None,
    retryable: bool | None = None,
    action: AgentAction | None = None,
    http: int | None = None,
    grpc: str | None = None,
    exit: int | None = None,
    openwop: str | None = None,
    pi: HostCallCode | None = None,
    crp: int | None = None,
    jsonrpc: int | None = None,
) -> Row:
    """Make a row; an argument is given only where the row differs from its LAFS code."""
    base = LAFS_CODES[lafs]
    return Row(
        key=key,
        title=title,
        remedy=remedy,
        lafs=lafs,
        category=category or base.category,
        retryable=base.retryable if retryable is None else retryable,
        action=action or base.action,
        http=http or base.http,
        grpc=grpc or base.grpc,
        exit=base.exit if exit is None else exit,
        openwop=openwop or base.openwop,
        pi=pi or base.pi,
        crp=crp or base.crp,
        jsonrpc=jsonrpc or base.jsonrpc,
    )


_SCHEMA = "E_VALIDATION_SCHEMA"
_MISSING = "E_NOT_FOUND_RESOURCE"
_CONFLICT = "E_CONFLICT_VERSION"
_RATE = "E_RATE_LIMITED"
_TRANSIENT = "E_TRANSIENT_UPSTREAM"
_INTERNAL = "E_INTERNAL_UNEXPECTED"
_AUTH = "E_AUTH_REQUIRED"
_DENIED = "E_PERMISSION_DENIED"

_GENERAL = (
    _row("format_conflict", "E_FORMAT_CONFLICT", "Two output formats were asked for", "Use one of --json and --human."),
    _row("field_conflict", "E_FIELD_CONFLICT", "Both --field and --fields were given", "Use --field for one plain value or --fields for a filtered envelope."),
    _row("schema_mismatch", _SCHEMA, "The input does not have the expected shape", "Correct the field that `details.at` names and send it again."),
    _row("invalid_json", _SCHEMA, "The input is not valid JSON", "Send one valid JSON document in UTF-8.", jsonrpc=-32700 ),
    _row("invalid_text", _SCHEMA, "A string holds characters that cannot be stored", "Remove NUL characters and lone surrogates."),
    _row("invalid_request", _SCHEMA, "The request cannot be understood", "Compare the request with the reference and send it again.", jsonrpc=-32600),
    _row("invalid_usage", _SCHEMA, "The command does not know these arguments", "Run it with --help."),
    _row("nesting_too_deep", _SCHEMA, "The document is nested too deeply", "Flatten the document."),
    _row("payload_too_large", _SCHEMA, "The document is too large", "Send less, or send it in parts.", http=413, grpc="RESOURCE_EXHAUSTED"),
    _row("head_too_large", _SCHEMA, "The request's line and headers are too large", "Send fewer and shorter headers, or a shorter address.", http=431, grpc="RESOURCE_EXHAUSTED"),
    _row("request_timeout", _TRANSIENT, "The request did not arrive in time", "Send it again, without pauses.", http=408, grpc="DEADLINE_EXCEEDED"),
    _row("out_of_range", _SCHEMA, "A value lies outside the range that is allowed", "Use a value inside the range in `details`.", grpc="OUT_OF_RANGE"),
    _row("request_unsupported", _SCHEMA, "The request asks for something that this host does not do", "Leave out what `details.at` names, and send it again."),
    _row("not_acceptable", _SCHEMA, "This host cannot produce any of the accepted media types", "Accept application/json.", http=406),
    _row("unsupported_media_type", _SCHEMA, "This host does not read the body's media type", "Send application/json.", http=415),
    _row("method_not_allowed", _SCHEMA, "This method is not allowed here", "Use one of the methods in `details.allow`.", http=405, grpc="UNIMPLEMENTED", jsonrpc=-32601),
    _row("method_not_found", _MISSING, "There is no such method", "Look the method up in the reference.", grpc="UNIMPLEMENTED", pi="invalid_request", jsonrpc=-32601),
    _row("not_found", _MISSING, "It does not exist, or you may not see it", "Check the id and the tenant."),
    _row("file_missing", _MISSING, "The file is not there", "Check the path; it is relative to the current folder."),
    _row("file_unreadable", _DENIED, "The file cannot be read", "Name a file that you may read."),
    _row("file_not_text", _SCHEMA, "The file is not text in a supported encoding", "Save it as UTF-8."),
    _row("already_exists", _CONFLICT, "It exists already", "Use another name, or change the existing one.", retryable=False, action="retry_modified", grpc="ALREADY_EXISTS"),
    _row("conflict", _CONFLICT, "Another caller changed it first", "Read the current version and try again."),
    _row("precondition_failed", _CONFLICT, "Its version is not the requested one", "Read the current version, and request that one.", http=412, grpc="FAILED_PRECONDITION"),
    _row("state_conflict", _CONFLICT, "It is not in a state that allows this", "Read the current state; `details` names it.", retryable=False, grpc="FAILED_PRECONDITION"),
    _row("cancelled", _CONFLICT, "The operation was cancelled", "Start it again if you still need it.", retryable=False, action="stop", grpc="CANCELLED", pi="timeout"),
    _row("rate_limited", _RATE, "Too many requests", "Wait as long as the answer says, then send fewer requests."),
    _row("unavailable", _TRANSIENT, "The service cannot accept work at the moment", "Wait as long as the answer says, then try again.", action="wait"),
    _row("upstream_failed", _TRANSIENT, "A service that this host depends on failed", "Try again; if it fails again, check that service."),
    _row("upstream_confused", _TRANSIENT, "A service that this host depends on gave an invalid answer", "Try again; if it fails again, check that service.", http=502, grpc="UNKNOWN"),
    _row("timeout", _TRANSIENT, "It took longer than allowed", "Try again with more time or less work.", http=504, grpc="DEADLINE_EXCEEDED", pi="timeout", crp=1021),
    _row("internal", _INTERNAL, "An unexpected error occurred inside the host", "Report it with the reference in `details`."),
    _row("capability_not_provided", _INTERNAL, "This host does not offer that capability", "Read the discovery document: it lists what the host offers.", category="CONTRACT", action="stop", http=501, grpc="UNIMPLEMENTED", exit=6, openwop="capability_not_provided", pi="invalid_request", crp=1010, jsonrpc=-32601),
)

_ACCESS = (
    _row("unauthenticated", _AUTH, "The request has no valid key", "Send `Authorization: Bearer <key>`."),
    _row("key_expired", _AUTH, "The key has expired", "Get a new key.", openwop="key_expired"),
    _row("key_revoked", _AUTH, "The key was revoked", "Get a new key.", openwop="key_revoked"),
    _row("permission_denied", _DENIED, "The caller may not do this", "Ask for the permission that `details` names."),
    _row("capability_denied", _DENIED, "Policy denies this capability", "Grant it, or work without it; the reason names the rule that decided."),
    _row("capability_mismatch", _SCHEMA, "The claimed capability is not the one the call needs", "Claim the capability that the host derives."),
    _row("consent_required", _DENIED, "Policy requires a person's decision, and nobody can be asked here", "Run it where a person can answer, or grant the capability first."),
    _row("path_outside_root", _DENIED, "The path is outside the allowed folder", "Use a path inside the root, without links that leave it."),
    _row("path_protected", _DENIED, "The path is protected from extensions", "Use another path; `forestay doctor` lists the protected paths and how to lift each protection."),
    _row("program_unconfined", _DENIED, "This system has no means to confine a program", "Install bubblewrap, or set `unconfined_programs = true` under [extensions.policy]."),
    _row("pattern_invalid", _SCHEMA, "A scope pattern is malformed or too costly", "Use a short glob: `*` inside a segment, `**` across segments."),
    _row("address_blocked", _DENIED, "The address is private, local or otherwise not allowed", "Use a public address, or grant this host by name."),
)

_CONTEXT = (
    _row("context_missing", "E_CONTEXT_MISSING", "The step needs a context that was not given", "Send the context id and version."),
    _row("context_stale", "E_CONTEXT_STALE", "The context has changed since", "Fetch the context again and retry."),
    _row("context_not_found", "E_CONTEXT_NOT_FOUND", "There is no such context ledger", "Check the ledger id."),
    _row("context_version_invalid", "E_CONTEXT_VERSION_INVALID", "The context version does not exist", "Use a version between 0 and the current one."),
    _row("context_version_conflict", "E_CONTEXT_VERSION_CONFLICT", "Another change to the context came first", "Fetch the delta and retry."),
    _row("context_unauthorized", "E_CONTEXT_UNAUTHORIZED", "This context is not yours", "Ask its owner for access."),
    _row("context_expired", "E_CONTEXT_EXPIRED", "The context session has expired", "Open a new one."),
    _row("context_compacted", "E_CONTEXT_COMPACTED", "The requested changes are gone: they were compacted", "Fetch the context in mode full."),
    _row("context_too_large", "E_CONTEXT_TOO_LARGE", "The context does not fit the answer", "Use filters, a smaller limit, or mode summary."),
    _row("context_mode_invalid", "E_CONTEXT_MODE_INVALID", "There is no such projection mode", "Use full, delta or summary."),
    _row("migration_unsupported", "E_MIGRATION_UNSUPPORTED_VERSION", "The version is not supported and cannot be migrated", "Use a supported version; `details` lists them."),
    _row("disclosure_unknown_field", "E_DISCLOSURE_UNKNOWN_FIELD", "A field to expand is not known", "Use a field that `details.known` lists."),
    _row("tool_failed", _INTERNAL, "A tool reported an error with nothing but a message", "Read the message; nothing else is known about the cause.", http=502, grpc="UNKNOWN"),
    _row("mvi_budget_exceeded", "E_MVI_BUDGET_EXCEEDED", "The answer does not fit the budget", "Raise the budget or ask for less."),
)

_KERNEL = (
    _row("ledger_conflict", _CONFLICT, "The stream's head is not the one that the writer expected", "Read the stream's head, and decide again."),
    _row("ledger_full", _TRANSIENT, "The disk is full; nothing was written", "Free disk space; reading still works.", action="escalate", http=507, grpc="RESOURCE_EXHAUSTED"),
    _row("ledger_read_only", _TRANSIENT, "The ledger file cannot be written", "Make the file and its folder writable; reading still works.", retryable=False, action="escalate", grpc="FAILED_PRECONDITION"),
    _row("ledger_locked", _TRANSIENT, "Another process holds the ledger", "Wait for it, or stop it.", action="wait"),
    _row("ledger_io", _TRANSIENT, "The disk failed while the ledger was written or read", "Check the machine's disk; every acknowledged record was written.", action="escalate"),
    _row("ledger_unreachable", _TRANSIENT, "The ledger's database does not answer", "Check the database server and its address, the setting data.ledger; every acknowledged record was written.", action="wait"),
    _row("ledger_closed", _TRANSIENT, "The ledger is closed", "Open it again.", retryable=False, action="stop", grpc="FAILED_PRECONDITION", crp=1005),
    _row("ledger_corrupt", _INTERNAL, "The ledger file is damaged", "Keep the file, restore a backup, and compare with `forestay ledger verify`.", grpc="DATA_LOSS", exit=11, crp=1030),
    _row("chain_broken", _INTERNAL, "A record was changed: the hash chain is broken", "Do not trust the stream from the named sequence on; restore a backup.", grpc="DATA_LOSS", exit=11, crp=1031),
    _row("config_invalid", _SCHEMA, "The configuration has a mistake", "Correct the setting that `details.at` names."),
    _row("asset_missing", _TRANSIENT, "A required asset is not fetched yet", "Run `forestay doctor`, and follow its advice.", retryable=False, action="escalate", grpc="FAILED_PRECONDITION"),
    _row("budget_exhausted", _RATE, "A budget is used up", "Raise the budget that `details.dimension` names, or stop.", retryable=False, action="escalate", openwop="budget_exhausted", crp=1001),
    _row("budget_model_denied", _DENIED, "A budget does not allow this model", "Use a model that the budget allows, or change its `modelAllow` and `modelDeny`.", openwop="budget_model_denied"),
)

_RUNS = (
    _row("eval_gate_unmet", _DENIED, "The evaluation that this promotion needs did not pass", "Name an evaluation run of this agent that has ended and passed, in `evalRunId`.", openwop="eval_gate_unmet"),
    _row("no_active_deployment", _SCHEMA, "No version of the agent is active on this channel", "Promote a version to the channel, or name a version.", openwop="no_active_deployment"),
    _row("run_already_active", _CONFLICT, "Another run of this workflow and scope is active", "Wait for it, or cancel it; `details.activeRunId` names it.", retryable=False, openwop="run_already_active"),
    _row("recursion_limit_exceeded", _SCHEMA, "The run executed more nodes than its limit", "Raise `recursionLimit` within the host's ceiling, or look for a loop.", http=422, grpc="RESOURCE_EXHAUSTED", openwop="recursion_limit_exceeded", crp=1001),
    _row("loop_limit_exceeded", _SCHEMA, "A loopback ran more often than its limit", "Raise `maxLoopbackIterations`, or correct the loop's condition.", http=422, grpc="RESOURCE_EXHAUSTED", openwop="loop_limit_exceeded", crp=1001),
    _row("run_timeout", _TRANSIENT, "The run took longer than its limit", "Raise the limit, or split the work.", retryable=False, http=504, grpc="DEADLINE_EXCEEDED", openwop="run_timeout", pi="timeout", crp=1021),
    _row("node_failed", _INTERNAL, "A node of the run failed", "Read the node's error in the run's events.", openwop="node_failed"),
    _row("capability_required", _SCHEMA, "The workflow needs a capability that this host does not have", "Use a host that advertises it; `details.requiredCapability` names it.", http=422, grpc="FAILED_PRECONDITION", openwop="capability_required"),
    _row("credential_required", _SCHEMA, "The node needs a credential that was not given", "Bind a credential.", http=422, grpc="FAILED_PRECONDITION", openwop="credential_required"),
    _row("credential_forbidden", _DENIED, "The credential may not be used here", "Bind one whose audience covers the destination.", openwop="credential_forbidden"),
    _row("credential_unavailable", _TRANSIENT, "The credential store did not give the credential", "Try again; check the credential store.", openwop="credential_unavailable"),
    _row("idempotency_in_flight", _CONFLICT, "The same request is being processed", "Wait a moment and send it again with the same key.", action="wait", openwop="idempotency_in_flight"),
    _row("idempotency_key_mismatch", _CONFLICT, "The idempotency key was used with another body", "Use a new key for a new request.", retryable=False, action="retry_modified", openwop="idempotency_key_mismatch"),
    _row("unsupported_stream_mode", _SCHEMA, "There is no such stream mode", "Use the modes in `details.supported`.", openwop="unsupported_stream_mode"),
    _row("channel_access_denied", _DENIED, "The node may not use this channel", "Add it to the channel's readers or writers.", openwop="channel_access_denied"),
    _row("channel_schema_breaking_change", _CONFLICT, "The channel's schema version is not compatible", "List the old version in `compatibleWith`, or start a new run.", retryable=False, openwop="channel_schema_breaking_change"),
    _row("engine_version_mismatch", "E_MIGRATION_UNSUPPORTED_VERSION", "The run was created by another engine version", "Use an engine of that version.", http=409, openwop="engine_version_mismatch"),
    _row("version_out_of_range", "E_MIGRATION_UNSUPPORTED_VERSION", "The version lies outside the supported range", "Use a version in `details`.", http=422, openwop="version_out_of_range"),
    _row("run_forbidden", _DENIED, "The run belongs to another workspace", "Use a key of that workspace.", openwop="run_forbidden"),
    _row("force_engine_version_forbidden", _DENIED, "Only test keys may force an engine version", "Use a test key, or leave the header out.", openwop="force_engine_version_forbidden"),
    _row("mock_provider_forbidden", _DENIED, "Only test keys may use a mock provider", "Use a test key, or leave `mockProvider` out.", openwop="mock_provider_forbidden"),
    _row("interrupt_already_resolved", _CONFLICT, "The interrupt is already answered", "Read the run's state.", retryable=False, action="stop", openwop="interrupt_already_resolved"),
    _row("interrupt_cancelled", _CONFLICT, "The run was cancelled before the answer came", "Start a new run.", retryable=False, action="stop", http=422, openwop="interrupt_cancelled"),
    _row("interrupt_expired", _CONFLICT, "The time to answer is over", "Ask for a new token, or start again.", retryable=False, action="stop", http=410, openwop="interrupt_expired"),
    _row("records_removed", _CONFLICT, "A policy of the host removed the records", "Read an export made before; `details.policy` says what was removed and when.", retryable=False, action="stop", http=410),
    _row("correlation_mismatch", _SCHEMA, "The event is not the one that the interrupt waits for", "Send the event whose fields `details.expected` names; the run keeps waiting.", http=422, grpc="FAILED_PRECONDITION"),
    _row("replay_out_of_range", _SCHEMA, "The sequence to fork from lies beyond the log", "Use a sequence of the source run.", http=422, grpc="OUT_OF_RANGE", openwop="replay_from_seq_out_of_range"),
    _row("replay_memory_unavailable", _CONFLICT, "The memory that the run had then is gone", "Fork from a sequence before the node that read it.", retryable=False, http=422, openwop="replay_memory_snapshot_unavailable"),
    _row("replay_diverged_at_refusal", _CONFLICT, "The model now refuses what it answered, or answers what it refused", "Look at the replay that `runId` names, and find out what changed at the provider.", retryable=False, http=422, openwop="replay_diverged_at_refusal"),
    _row("replay_diverged", _CONFLICT, "The replay differs from the log", "Compare the two runs with `forestay run diff`.", retryable=False, openwop="replay_diverged"),
    _row("webhook_url_rejected", _SCHEMA, "This host does not call this address", "Use an https:// address that leads to a public host.", openwop="webhook_url_rejected"),
    _row("subscription_not_found", _MISSING, "The subscription does not exist, or you may not see it", "List the subscriptions with GET /v1/webhooks.", openwop="subscription_not_found"),
    _row("expression_invalid", _SCHEMA, "An expression cannot be read or costs too much", "Correct the expression at `details.at`."),
    _row("workflow_invalid", _SCHEMA, "The workflow definition has mistakes", "Correct each of `details.errors`."),
)

_RELAY = (
    _row("session_expired", "E_CONTEXT_EXPIRED", "The session has expired", "Open a new session.", crp=1003),
    _row("session_limit", _RATE, "Too many sessions are open", "Close one; `details` has the count and the limit.", http=503, crp=1004),
    _row("session_closed", _CONFLICT, "The session is closed", "Open a new session.", retryable=False, action="stop", grpc="FAILED_PRECONDITION", crp=1005),
    _row("security_invariant", _DENIED, "This protection cannot be switched off", "Leave the setting as it is.", crp=1011 ),
    _row("signature_invalid", _AUTH, "The request's signature is missing or wrong", "Sign the request with the session key.", crp=1012),
    _row("role_denied", _DENIED, "The session's role does not allow this operation", "Use a session with the role that `details` names.", crp=1013),
    _row("provider_error", _TRANSIENT, "The model provider failed", "Try again, or use another provider.", http=502, openwop="provider_error", crp=1020),
    _row("provider_timeout", _TRANSIENT, "The model provider did not answer in time", "Try again, or raise the time limit.", http=504, grpc="DEADLINE_EXCEEDED", pi="timeout", crp=1021),
    _row("window_exceeded", _SCHEMA, "The required messages do not fit into the model's window", "Shorten the system prompt, the task or the tools, lower max_output_tokens, or use a model with a larger window.", http=413, grpc="RESOURCE_EXHAUSTED"),
    _row("provider_missing", _CONFLICT, "The session's provider is not registered", "Register the provider again; its key was kept in memory only.", retryable=False, action="retry_modified", grpc="FAILED_PRECONDITION", crp=1020),
    _row("state_corrupted", _INTERNAL, "Stored state failed its check", "Keep the file and restore a backup.", grpc="DATA_LOSS", exit=11, crp=1030),
    _row("chain_verification_failed", _INTERNAL, "The signature chain of the facts does not hold", "Do not use these facts; import a trusted export.", grpc="DATA_LOSS", exit=11, crp=1031),
)

_MODELS = (
    _row("model_unknown", _SCHEMA, "There is no such model provider", "Use one of `details.known`."),
    _row("script_invalid", _SCHEMA, "The script of a scripted model has mistakes", "Correct what `details.at` names."),
    _row("script_exhausted", _SCHEMA, "The scripted model has no answer left for this question", "Add a turn to the script.", grpc="OUT_OF_RANGE"),
    _row("provider_rejected", _SCHEMA, "The model provider refused the request", "Correct what the provider names; sending it again changes nothing.", http=502, grpc="FAILED_PRECONDITION", openwop="provider_error", crp=1020),
    _row("provider_unauthenticated", _AUTH, "The model provider does not accept the key", "Set a valid key for the provider.", http=502, grpc="FAILED_PRECONDITION", openwop="credential_forbidden", crp=1020),
    _row("key_untrusted", _DENIED, "This project's settings would send a key, and nobody has trusted them", "Look at the address, then run `forestay model trust`."),
    _row("package_missing", _INTERNAL, "An optional package is not installed", "Install the extra that `details.extra` names.", category="CONTRACT", action="escalate", http=501, grpc="UNIMPLEMENTED", exit=6),
)

_AGENTS = (
    _row("agent_invalid", _SCHEMA, "The agent manifest has mistakes", "Correct each of `details.errors`."),
    _row("pack_manifest_invalid", _SCHEMA, "The manifest of a pack has a mistake", "Correct what `details.at` names.", openwop="invalid_manifest"),
    _row("pack_runtime_requirement_unmet", _SCHEMA, "A pack needs something that this host does not give to packs", "Use a pack that needs less; `details.unmet` names what this one needs.", openwop="pack_runtime_requirement_unmet"),
    _row("prompt_template_invalid", _SCHEMA, "The prompt template has a mistake", "Correct what `details.at` names.", openwop="prompt_template_invalid"),
    _row("prompt_ref_invalid", _SCHEMA, "The reference does not name a prompt template", "Write `prompt:ID@VERSION`.", openwop="prompt_ref_invalid"),
    _row("prompt_variable_unresolved", _SCHEMA, "A prompt needs a value that was not given", "Give the value that `details.variable` names.", openwop="prompt_variable_unresolved"),
    _row("prompt_variable_type_mismatch", _SCHEMA, "A prompt's value has another type than its template declares", "Give the value that `details.variable` names in its type.", openwop="prompt_variable_type_mismatch"),
    _row("agent_input_invalid", _SCHEMA, "The task does not fit the agent's input schema", "Correct each of `details.errors`."),
    _row("agent_output_invalid", _INTERNAL, "The agent's answer does not fit its output schema", "Make the schema simpler, allow more repairs, or use a stronger model.", exit=12),
    _row("agent_turns_exhausted", _RATE, "The agent used all the turns it may take", "Raise `limits.turns`, or give it a smaller task.", retryable=False, action="retry_modified", openwop="loop_limit_exceeded"),
    _row("agent_refused", _DENIED, "The model refused the task", "Change the task, or use another model."),
    _row("agent_cut", _INTERNAL, "The model's answer was cut and could not be continued", "Raise the output limit, or call the model through the relay.", exit=12),
    _row("effect_uncertain", _CONFLICT, "An effect was begun, and its outcome is unknown", "Check the outside system, then decide: do it again, skip it, or stop.", retryable=False, action="escalate"),
)

_EXTENSIONS = (
    _row("extension_invalid", _SCHEMA, "The extension cannot be loaded", "Correct what `details` names."),
    _row("extension_failed", _INTERNAL, "The extension's code threw an error", "Read the error and its location; report it to the extension's author.", pi="internal", exit=12),
    _row("extension_trapped", _INTERNAL, "The sandbox stopped the extension", "The extension was reloaded; read the reason before using it again.", pi="internal", exit=12),
    _row("extension_timeout", _TRANSIENT, "The extension took longer than it may", "Raise the deadline, or report it to the extension's author.", http=504, grpc="DEADLINE_EXCEEDED", pi="timeout", crp=1021),
    _row("extension_memory", _INTERNAL, "The extension used more memory than it may", "Raise `max_memory_mb`, or report it to the extension's author.", grpc="RESOURCE_EXHAUSTED", pi="internal", exit=12),
    _row("quota_exceeded", _RATE, "The extension used more than its quota and was stopped", "Read what it did; raise the setting that `details.setting` names, or remove the extension.", retryable=False, action="escalate"),
    _row("registration_invalid", _SCHEMA, "The extension registered something malformed", "Correct the registration at the location in `details`."),
    _row("compile_failed", _SCHEMA, "The extension does not compile", "Correct the source at the location in `details`." ),
    _row("compile_timeout", _TRANSIENT, "The extension took too long to compile", "Raise `extensions.build_seconds`, or leave out code that is not the extension's own.", retryable=False, action="retry_modified", http=504, grpc="DEADLINE_EXCEEDED", pi="timeout", crp=1021),
    _row("api_forbidden", _DENIED, "The extension uses an API that is forbidden here", "Remove the use at the location in `details`."),
    _row("performance_budget_missed", _INTERNAL, "A measured time is above its budget", "Read `details.missed`; measure again on a quiet machine."),
    _row("manifest_invalid", _SCHEMA, "The extension's manifest has mistakes", "Correct each of `details.errors`.", openwop="invalid_manifest"),
    _row("folder_untrusted", _DENIED, "This folder's extensions have not been trusted", "Read them, then run `forestay ext trust`."),
    _row("server_unapproved", _DENIED, "Nobody approved this MCP server as it is configured", "Look at its command or address, then run `forestay mcp trust`."),
    _row("server_failed", _TRANSIENT, "The MCP server ended, or broke the protocol", "Read the reason and the server's standard error; the next call starts it again.", retryable=False, action="escalate", pi="io"),
    _row("tool_changed", _DENIED, "The tool has changed since a person approved it, so it is withdrawn", "Read `details.diff`, then run `forestay mcp trust`.", action="escalate"),
    _row("io_failed", _TRANSIENT, "Reading, writing or running something failed", "Read the reason; check that the file or program exists.", retryable=False, action="retry_modified", pi="io"),
)

TABLE: dict[str, Row] = {
    row.key: row for row in (*_GENERAL, *_ACCESS, *_CONTEXT, *_KERNEL, *_RUNS, *_RELAY, *_MODELS, *_AGENTS, *_EXTENSIONS)
}
