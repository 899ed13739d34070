"""The sections of the settings: every value with its type and its default."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from forestay.kernel.peers import A2a
from forestay.kernel.policy import Mode

# The tenant of the host's operator: only this tenant has the project, its extensions and the whole ledger.
OPERATOR = "default"


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Output(_Section, frozen=True):
    format: Literal["json", "human"] | None = None


class Data(_Section, frozen=True):
    """`ledger` is the ledger's address, `postgresql://user@host/database`; if it is empty, the ledger is the file
    `ledger.db` in the folder `dir`. Keep the password in PGPASSWORD or in a password file, not in the address."""

    dir: str = ".forestay"
    ledger: str = ""


class HttpLimits(_Section, frozen=True):
    """The limits of the server for one client, for one key and in all; times are in seconds."""

    header_seconds: float = 10.0
    body_seconds: float = 60.0
    write_seconds: float = 120.0
    keep_alive_seconds: float = 30.0
    header_count: int = 100
    header_bytes: int = 32_768
    body_bytes: int = 104_857_600
    connections: int = 10_000
    connections_per_client: int = 4_000
    requests: int = 1_000
    requests_per_key: int = 500
    streams: int = 10_000
    streams_per_key: int = 2_000


class Rate(_Section, frozen=True):
    """Allows `per_second` requests over time, and `burst` at once."""

    per_second: Annotated[float, msgspec.Meta(gt=0)]
    burst: Annotated[int, msgspec.Meta(ge=1)]


class HttpRates(_Section, frozen=True):
    """The rate limits: for all callers together, for each tenant and for each key. `tenants` and `keys` set the rate of
    one tenant or key; `routes` are by operation name and count separately for each key."""

    overall: Rate | None = None
    tenant: Rate | None = Rate(10_000, 20_000)
    key: Rate | None = Rate(5_000, 10_000)
    tenants: dict[str, Rate] = {}
    keys: dict[str, Rate] = {}
    routes: dict[str, Rate] = {}


class Http(_Section, frozen=True):
    """`public_url` is the address that clients use; `hosts` are further names of this host. Forwarding headers count
    only when they come from `trusted_proxies` (addresses or networks)."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8787
    public_url: str = ""
    hosts: list[str] = []
    trusted_proxies: list[str] = []
    access_log: bool = False
    limits: HttpLimits = HttpLimits()
    rates: HttpRates = HttpRates()

    @property
    def url(self) -> str:
        """The address that clients use: `public_url`, else the one of host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.public_url.rstrip("/") or f"http://{host}:{self.port}"


class Telemetry(_Section, frozen=True):
    """Spans for OpenTelemetry (the extra `otel`): `otlp` sends them to OTEL_EXPORTER_OTLP_ENDPOINT."""

    traces: Literal["off", "otlp"] = "off"
    service_name: str = "forestay"


class ExtensionPolicy(_Section, frozen=True):
    """Pi §4: the mode, the capabilities that every extension has, and those that none may have."""

    mode: Mode = "prompt"
    max_memory_mb: int = 256
    max_model_tokens: int = 1_000_000
    unconfined_programs: bool = False
    default_caps: list[str] = []
    deny_caps: list[str] = []


class ExtensionQuotas(_Section, frozen=True):
    """How much one extension may use; beyond that it is stopped. The quotas are host calls per second (a burst may have
    twenty seconds' worth), megabytes of evidence, log lines and files per day, and megabytes in the session."""

    calls_per_second: int = 5_000
    evidence_mb: int = 1_024
    log_mb: int = 64
    storage_mb: int = 4_096
    session_mb: int = 64


class ExtensionOverride(_Section, frozen=True):
    """A person's decisions about one extension: grants as `CAP` or `CAP:SCOPE`."""

    allow: list[str] = []
    deny: list[str] = []
    mode: Mode | None = None


class ExtensionConfig(_Section, frozen=True):
    """`tool_words` is a file with the wording of the built-in tools; without one they have the default wording.

    `unprotected` lifts a protection that `doctor` lists, by its name or its path. `build_seconds` is how long compiling
    one extension may take. `flags` sets the values of extensions' flags (`pi.getFlag`).
    """

    policy: ExtensionPolicy = ExtensionPolicy()
    quotas: ExtensionQuotas = ExtensionQuotas()
    overrides: dict[str, ExtensionOverride] = {}
    paths: list[str] = []
    tool_words: str = ""
    unprotected: list[str] = []
    build_seconds: float = 60.0
    flags: dict[str, bool | str] = {}


class McpServer(_Section, frozen=True):
    """One MCP server: `command` with `args`, `env` and `cwd`, or `url` with `headers`.

    `${NAME}` in a value of `env` or `headers` is that variable of the host, if the server is granted it. The tools in
    `read_only` change nothing; a person states this here. A call without an answer for `call_seconds` fails; a server
    without a call for `idle_seconds` is stopped.
    """

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    read_only: list[str] = []
    start_seconds: float = 30.0
    call_seconds: float = 60.0
    idle_seconds: float = 300.0


class Mailbox(_Section, frozen=True):
    """A mailbox whose unread mail starts workflows, over IMAP. The password is in the variable `password_env`.

    `senders` are patterns over the addresses that may start one. `authenticated_by` is the name of the server that
    receives the mail and writes `Authentication-Results` into it: then only mail counts whose sender that server
    verified. `tenant` is the tenant whose subscriptions may use the mailbox.
    """

    host: str
    user: str
    password_env: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 993
    tls: Literal["implicit", "starttls", "none"] = "implicit"
    folder: str = "INBOX"
    poll_seconds: Annotated[float, msgspec.Meta(ge=1)] = 30.0
    senders: list[str] = []
    authenticated_by: str = ""
    tenant: str = OPERATOR


class Price(_Section, frozen=True):
    """The price of a model, in USD for a million tokens of input and of output."""

    input: Annotated[float, msgspec.Meta(ge=0)]
    output: Annotated[float, msgspec.Meta(ge=0)]


ModelService = Literal["openai", "anthropic", "ollama", "lmstudio", "llamacpp", "openrouter"]


class ModelEntry(_Section, frozen=True):
    """A model under a name that the project chooses; unset values come from what is known of the model.

    `provider` is the protocol, or a service that speaks one. `base_url` is another server that speaks it; it gets a key
    only from `api_key_env` (a variable), `api_key_file` or `api_key_command`. The last two count only in the user's own
    file: a project must not read files or start programs. `context_window` and `max_output_tokens` are in tokens.
    `capabilities` are what the model can do, in the contract's words (`structured-output`, `vision-input`).
    """

    model: str
    provider: ModelService = "openai"
    base_url: str = ""
    api_key_env: str = ""
    api_key_file: str = ""
    api_key_command: list[str] = []
    context_window: Annotated[int, msgspec.Meta(ge=256)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    headers: dict[str, str] = {}
    capabilities: list[str] = []
    price: Price | None = None


class UntrustedEntry(ModelEntry, frozen=True):
    """A project's entry that would send a variable to an address, and that no person has trusted yet.

    `use` is what a person must trust: the variable, the address and the folder, in one line.
    """

    use: str = ""


class Models(_Section, frozen=True):
    """`default` names an entry, or a model as `PROVIDER:MODEL`. `classes` names another model for a class of work:
    reasoning, writing, coding, research, classification. `agents` names another model for one agent, by its id. Both
    may name a model that an extension routes, as `PROVIDER/ID`.

    `enabled` limits the models of a chat, and those that extensions see as `ctx.scopedModels`: patterns over
    `PROVIDER/ID` or the id alone (`anthropic/*`, `*mini*:high`); without a pattern all are offered.

    `embedder` lets the relay find facts by their meaning too; the default is none. `trusted_keys` are the keys that a
    project's entries may send, each as `VARIABLE ADDRESS FOLDER`: only in the user's own file or the environment.
    """

    default: str = "local"
    embedder: str = ""
    trusted_keys: list[str] = []
    enabled: list[str] = []
    classes: dict[str, str] = {}
    agents: dict[str, str] = {}
    entries: dict[str, ModelEntry] = {}

    @property
    def used(self) -> list[str]:
        """The models that the settings name, the default first."""
        return list(dict.fromkeys((self.default, *self.classes.values(), *self.agents.values())))


class Agents(_Section, frozen=True):
    """Where manifests are, which files agents may quote, and which tools they may call without asking a person.

    `allow` and `deny` are patterns over tool names and ids (`write`, `ext:notes/*`, `workflow:*`). A tool that only
    reads is allowed; `mode` decides on any other. `fetch` are patterns over the hosts that agents may reach; without
    one they have no tool for it.
    """

    paths: list[str] = []
    context: list[str] = msgspec.field(default_factory=lambda: ["**/*.md", "**/*.txt"])
    mode: Mode = "prompt"
    allow: list[str] = []
    deny: list[str] = []
    fetch: list[str] = []


class PromptSettings(_Section, frozen=True):
    """Files and folders of prompt templates, which every tenant may use. `defaults` names the template of a kind where
    nothing else names one. `observability` is what the log shows of a prompt: nothing, hashes, or its text."""

    paths: list[str] = []
    observability: Literal["off", "hashed", "full"] = "hashed"
    defaults: dict[Literal["system", "user", "few-shot", "schema-hint"], str] = {}


class Workflows(_Section, frozen=True):
    """`paths` are folders of workflow documents, stored when the host opens. `nodes` are the project's own node types:
    Python files and folders of WASM packs, which run once a person trusts them. `max_loop_iterations` is the highest
    limit that a document may set. With `replay_asks_models` a replay asks each model again, and fails if the model now
    refuses what it answered, or answers what it refused. It never asks in agents, or where budgets have ceilings."""

    paths: list[str] = []
    nodes: list[str] = []
    max_loop_iterations: int = 10_000
    replay_asks_models: bool = False


_Count = Annotated[int, msgspec.Meta(ge=1)]


class Ceiling(_Section, frozen=True):
    """The limits of a budget: for each run, or for all runs of a day or a month (UTC).

    `name` is a pattern over the workflow's or the agent's id. `model_allow` and `model_deny` are patterns over models.
    """

    scope: Literal["run", "workflow", "agent", "project"] = "project"
    name: str = "*"
    per: Literal["run", "day", "month"] = "run"
    max_tokens: _Count | None = None
    max_cost_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None
    max_tool_calls: _Count | None = None
    max_retries: Annotated[int, msgspec.Meta(ge=0)] | None = None
    model_allow: list[str] | None = None
    model_deny: list[str] = []
    threshold_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    on_exhaustion: Literal["fail", "interrupt"] | None = None


class Budgets(_Section, frozen=True):
    """`ceilings` apply to each tenant separately; `prices` are by a pattern over models, and the first match counts.
    `advisory` reports what a budget would refuse, and stops nothing."""

    enforce: Literal["hard", "advisory"] = "hard"
    ceilings: list[Ceiling] = []
    prices: dict[str, Price] = {}


class DeploymentGate(_Section, frozen=True):
    """What a promotion to `active` needs, for agents whose id matches `agent`: a person's approval, a passed evaluation
    or a minimum score. A live-shadow evaluation with a score below `auto_rollback` rolls a canary back."""

    agent: str = "*"
    approval: bool = False
    evaluation: bool = False
    pass_score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    auto_rollback: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class RetentionSettings(_Section, frozen=True):
    """How long the ledger keeps runs, in days after their end; None keeps them for ever. Sealed runs are compressed and
    stay readable. Of removed runs, only the heads and the hashes of their records stay."""

    seal_after_days: Annotated[float, msgspec.Meta(ge=0)] | None = None
    remove_after_days: Annotated[float, msgspec.Meta(ge=0)] | None = None


class DeploymentSettings(_Section, frozen=True):
    """The first of `gates` that matches an agent applies to it."""

    gates: list[DeploymentGate] = []


class EvaluationSettings(_Section, frozen=True):
    """`judge` names the model that grades by a rubric (`default` is the host's own). Without it, an evaluation has only
    the scores that a function can compute."""

    judge: str | None = None


class OAuthProvider(_Section, frozen=True):
    """An authorization server where people authorize runs to act for them. Its tokens are sent only to `audiences`.
    `client_secret_env` is the variable with the client's secret, if it has one."""

    auth_url: str
    token_url: str
    client_id: str
    audiences: list[str]
    client_secret_env: str = ""
    scopes: list[str] = []


class OAuth(_Section, frozen=True):
    """`providers` are by the id that credentials name as their issuer."""

    providers: dict[str, OAuthProvider] = {}


class Config(_Section, frozen=True):
    output: Output = Output()
    data: Data = Data()
    http: Http = Http()
    extensions: ExtensionConfig = ExtensionConfig()
    models: Models = Models()
    agents: Agents = Agents()
    prompts: PromptSettings = PromptSettings()
    workflows: Workflows = Workflows()
    budgets: Budgets = Budgets()
    retention: RetentionSettings = RetentionSettings()
    deployments: DeploymentSettings = DeploymentSettings()
    evaluations: EvaluationSettings = EvaluationSettings()
    oauth: OAuth = OAuth()
    telemetry: Telemetry = Telemetry()
    a2a: A2a = A2a()
    mailboxes: dict[str, Mailbox] = {}
    mcpServers: dict[str, McpServer] = {}
    """MCP servers by name; the key has the same spelling as in the `.mcp.json` of other hosts."""
