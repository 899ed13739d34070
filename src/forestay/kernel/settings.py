"""The sections of the settings: what each value is, and what it is when nobody sets it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from forestay.kernel.peers import A2a
from forestay.kernel.policy import Mode

# The tenant of the host's own operator: the project, its extensions, the whole ledger are this tenant's alone.
OPERATOR = "default"


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Output(_Section, frozen=True):
    format: Literal["json", "human"] | None = None


class Data(_Section, frozen=True):
    """`ledger` is the ledger's address, `postgresql://user@host/database`; when it is empty, the ledger is the file
    `ledger.db` of the folder `dir`. Keep the password in PGPASSWORD or in a password file, not in the address."""

    dir: str = ".forestay"
    ledger: str = ""


class HttpLimits(_Section, frozen=True):
    """What one client, one key and all of them together may take of the server; times are seconds."""

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
    """`per_second` requests over time, `burst` at once."""

    per_second: Annotated[float, msgspec.Meta(gt=0)]
    burst: Annotated[int, msgspec.Meta(ge=1)]


class HttpRates(_Section, frozen=True):
    """How often callers may ask: all of them together, each tenant, each key. `tenants` and `keys` give one of them a
    rate of its own; `routes` are by operation name and count for each key apart."""

    overall: Rate | None = None
    tenant: Rate | None = Rate(10_000, 20_000)
    key: Rate | None = Rate(5_000, 10_000)
    tenants: dict[str, Rate] = {}
    keys: dict[str, Rate] = {}
    routes: dict[str, Rate] = {}


class Http(_Section, frozen=True):
    """`public_url` is the address that others see; `hosts` are further names that requests may be for. What
    `trusted_proxies` (addresses or networks) say of the way of a request is believed."""

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
        """The address that others see, as far as the settings know it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.public_url.rstrip("/") or f"http://{host}:{self.port}"


class Telemetry(_Section, frozen=True):
    """Spans for OpenTelemetry (the extra `otel`): `otlp` sends them where OTEL_EXPORTER_OTLP_ENDPOINT says."""

    traces: Literal["off", "otlp"] = "off"
    service_name: str = "forestay"


class ExtensionPolicy(_Section, frozen=True):
    """Pi §4: the mode, what every extension may do, and what none may do."""

    mode: Mode = "prompt"
    max_memory_mb: int = 256
    max_model_tokens: int = 1_000_000
    unconfined_programs: bool = False
    default_caps: list[str] = []
    deny_caps: list[str] = []


class ExtensionQuotas(_Section, frozen=True):
    """What one extension may use before it is stopped: host calls a second (twenty seconds' worth at once), megabytes
    of evidence, of log lines and of files within a day, and megabytes that the session keeps for it."""

    calls_per_second: int = 5_000
    evidence_mb: int = 1_024
    log_mb: int = 64
    storage_mb: int = 4_096
    session_mb: int = 64


class ExtensionOverride(_Section, frozen=True):
    """What a person decided about one extension: grants as `CAP` or `CAP:SCOPE`."""

    allow: list[str] = []
    deny: list[str] = []
    mode: Mode | None = None


class ExtensionConfig(_Section, frozen=True):
    """`tool_words` is a file with the wording of the built-in tools; without one they have our own.

    `unprotected` lifts what `doctor` lists as protected, by its name or its path. `build_seconds` is how long compiling
    one extension may take. `flags` are what extensions' own flags stand at (`pi.getFlag`).
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

    `${NAME}` in a value of `env` or `headers` is that variable of the host, if the server is granted it. Tools that
    `read_only` names change nothing, as a person says here. A call that hears nothing for `call_seconds` is given up; a
    server that nobody uses for `idle_seconds` is stopped.
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

    `senders` are patterns over addresses that may start one. `authenticated_by` is the name of the server that receives
    the mail and writes `Authentication-Results` into it: then only mail counts whose sender it found to be real.
    `tenant` is whose subscriptions may use it.
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
    """What a model costs: USD for a million tokens, of the question and of the answer."""

    input: Annotated[float, msgspec.Meta(ge=0)]
    output: Annotated[float, msgspec.Meta(ge=0)]


ModelService = Literal["openai", "anthropic", "ollama", "lmstudio", "llamacpp", "openrouter"]


class ModelEntry(_Section, frozen=True):
    """A model under a name of the project's own; what is not said is what is known of the model.

    `provider` is the protocol, or a service that speaks one. `base_url` is another server that speaks it; it gets a key
    only from `api_key_env` (a variable), `api_key_file` or `api_key_command`. The last two count in the user's own file
    alone: a folder from elsewhere must not read files or start programs. `context_window` and `max_output_tokens` are
    tokens. `capabilities` are what the model can do, in the contract's words (`structured-output`, `vision-input`).
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
    """A project's entry that would send a variable to an address, and that nobody has trusted to do so.

    `use` is what a person says yes to: the variable, the address and the folder, in one line.
    """

    use: str = ""


class Models(_Section, frozen=True):
    """`default` names an entry or says where a model is. `classes` names another model for a class of work:
    reasoning, writing, coding, research, classification. `agents` names another model for one agent, by its id.

    `embedder` lets the relay find facts by their meaning too; none is the default. `trusted_keys` are the keys that a
    project's entries may send, each as `VARIABLE ADDRESS FOLDER`: in the user's own file or the environment alone.
    """

    default: str = "local"
    embedder: str = ""
    trusted_keys: list[str] = []
    classes: dict[str, str] = {}
    agents: dict[str, str] = {}
    entries: dict[str, ModelEntry] = {}

    @property
    def used(self) -> list[str]:
        """What the settings name for some work: the default first."""
        return list(dict.fromkeys((self.default, *self.classes.values(), *self.agents.values())))


class Agents(_Section, frozen=True):
    """Where manifests are, what agents may quote from, and which tools they may call without asking a person.

    `allow` and `deny` are patterns over tool names and ids (`write`, `ext:notes/*`, `workflow:*`). A tool that only
    reads is allowed; any other goes by `mode`. `fetch` are patterns over the hosts that agents may reach; with none
    they have no tool for it.
    """

    paths: list[str] = []
    context: list[str] = msgspec.field(default_factory=lambda: ["**/*.md", "**/*.txt"])
    mode: Mode = "prompt"
    allow: list[str] = []
    deny: list[str] = []
    fetch: list[str] = []


class PromptSettings(_Section, frozen=True):
    """Files and folders of prompt templates, which every tenant may use; `defaults` names one for a kind where nobody
    else does. `observability` is what the log tells of a prompt: nothing, hashes, or its text."""

    paths: list[str] = []
    observability: Literal["off", "hashed", "full"] = "hashed"
    defaults: dict[Literal["system", "user", "few-shot", "schema-hint"], str] = {}


class Workflows(_Section, frozen=True):
    """Folders of workflow documents that are stored when the host opens, and node types of the project's own: Python
    files and folders of WASM packs, which run when a person trusts them. `max_loop_iterations` is the most that a
    document may ask for. With `replay_asks_models` a replay asks each model again and fails where it refuses now what
    it answered then, or answers what it refused; where there are ceilings of budgets, and in agents, it never asks."""

    paths: list[str] = []
    nodes: list[str] = []
    max_loop_iterations: int = 10_000
    replay_asks_models: bool = False


_Count = Annotated[int, msgspec.Meta(ge=1)]


class Ceiling(_Section, frozen=True):
    """How much may be used: by each run, or by all runs together in a day or a month (UTC).

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
    """`ceilings` hold for every tenant by itself; `prices` are by a pattern over models, the first that fits.
    `advisory` tells what a budget says and stops nothing."""

    enforce: Literal["hard", "advisory"] = "hard"
    ceilings: list[Ceiling] = []
    prices: dict[str, Price] = {}


class DeploymentGate(_Section, frozen=True):
    """What a promotion to `active` needs, for agents whose id fits `agent`: a person's yes, an evaluation that passed,
    or one with a score. `auto_rollback` is the score of a live-shadow evaluation under which a canary goes back."""

    agent: str = "*"
    approval: bool = False
    evaluation: bool = False
    pass_score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    auto_rollback: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class RetentionSettings(_Section, frozen=True):
    """How long the ledger has runs, in days since they ended; None: for ever. Sealed runs are compressed and read as
    before. Of removed runs the heads and the hashes of their records stay."""

    seal_after_days: Annotated[float, msgspec.Meta(ge=0)] | None = None
    remove_after_days: Annotated[float, msgspec.Meta(ge=0)] | None = None


class DeploymentSettings(_Section, frozen=True):
    """The first of `gates` that fits an agent holds for it."""

    gates: list[DeploymentGate] = []


class EvaluationSettings(_Section, frozen=True):
    """`judge` names the model that grades by a rubric (`default` is the host's own); without it, only what a function
    can score is evaluated."""

    judge: str | None = None


class OAuthProvider(_Section, frozen=True):
    """An authorization server where people agree that runs act for them. Its tokens go to `audiences` and nowhere
    else. `client_secret_env` is the variable with the client's secret, where it has one."""

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
    """MCP servers by name; spelled as in the `.mcp.json` of other hosts."""
