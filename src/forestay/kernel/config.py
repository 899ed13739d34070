"""Configuration: one typed object, and for every value where it came from.

A flag beats the environment, the environment beats the project's file, that beats the user's, and that the default.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from forestay.kernel import canonical, former
from forestay.kernel.policy import Mode
from forestay.kernel.problems import Problem

PROJECT_FILE = "forestay.toml"
# The tenant of the host's own operator: the project, its extensions, the whole ledger are this tenant's alone.
OPERATOR = "default"
_MAX_BYTES = 1024 * 1024
_ONE_TABLE = "A [table] or a setting stands twice. Put what belongs to it under the first one, and delete the second."


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
    host: str = "127.0.0.1"
    port: int = 8787
    public_url: str = ""
    access_log: bool = False
    limits: HttpLimits = HttpLimits()
    rates: HttpRates = HttpRates()


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
    one extension may take.
    """

    policy: ExtensionPolicy = ExtensionPolicy()
    quotas: ExtensionQuotas = ExtensionQuotas()
    overrides: dict[str, ExtensionOverride] = {}
    paths: list[str] = []
    tool_words: str = ""
    unprotected: list[str] = []
    build_seconds: float = 60.0


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


class ModelEntry(_Section, frozen=True):
    """A model under a name of the project's own; what is not said is what is known of the model.

    `base_url` is a server that speaks the provider's protocol; it gets a key only from `api_key_env`, the name of the
    variable that holds it. `context_window` and `max_output_tokens` are tokens.
    """

    model: str
    provider: Literal["openai", "anthropic"] = "openai"
    base_url: str = ""
    api_key_env: str = ""
    context_window: Annotated[int, msgspec.Meta(ge=256)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    headers: dict[str, str] = {}


class Models(_Section, frozen=True):
    """`default` names an entry or says where a model is. `classes` names another model for a class of work:
    reasoning, writing, coding, research, classification.

    `embedder` lets the relay find facts by their meaning too; none is the default.
    """

    default: str = "local"
    embedder: str = ""
    classes: dict[str, str] = {}
    entries: dict[str, ModelEntry] = {}


class Agents(_Section, frozen=True):
    """Where manifests are, what agents may quote from, and which tools they may call without asking a person.

    `allow` and `deny` are patterns over tool names and ids (`write`, `ext:notes/*`, `workflow:*`). A tool that only
    reads is allowed; any other goes by `mode`.
    """

    paths: list[str] = []
    context: list[str] = msgspec.field(default_factory=lambda: ["**/*.md", "**/*.txt"])
    mode: Mode = "prompt"
    allow: list[str] = []
    deny: list[str] = []


class Workflows(_Section, frozen=True):
    """Folders of workflow documents that are stored when the host opens, and Python files with node types of the
    project's own, which are executed when a person trusts them. `max_loop_iterations` is the most that a document may
    ask for."""

    paths: list[str] = []
    nodes: list[str] = []
    max_loop_iterations: int = 10_000


_Count = Annotated[int, msgspec.Meta(ge=1)]


class Price(_Section, frozen=True):
    """What a model costs: USD for a million tokens, of the question and of the answer."""

    input: Annotated[float, msgspec.Meta(ge=0)]
    output: Annotated[float, msgspec.Meta(ge=0)]


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


class DeploymentSettings(_Section, frozen=True):
    """The first of `gates` that fits an agent holds for it."""

    gates: list[DeploymentGate] = []


class EvaluationSettings(_Section, frozen=True):
    """`judge` names the model that grades by a rubric; without it, only what a function can score is evaluated."""

    judge: str | None = None


class Config(_Section, frozen=True):
    output: Output = Output()
    data: Data = Data()
    http: Http = Http()
    extensions: ExtensionConfig = ExtensionConfig()
    models: Models = Models()
    agents: Agents = Agents()
    workflows: Workflows = Workflows()
    budgets: Budgets = Budgets()
    deployments: DeploymentSettings = DeploymentSettings()
    evaluations: EvaluationSettings = EvaluationSettings()
    telemetry: Telemetry = Telemetry()
    mcpServers: dict[str, McpServer] = {}
    """MCP servers by name; spelled as in the `.mcp.json` of other hosts."""


class Loaded(msgspec.Struct, frozen=True):
    """A configuration and, for each dotted name that was set, its source."""

    config: Config
    sources: dict[str, str]


def load(
    project: Path | None = None,
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    user_file: Path | None = None,
) -> Loaded:
    """Read every layer, weakest first. `flags` are dotted names: {"http.port": 0}."""
    environ = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, path in (
        ("user file", user_file or users_file(environ)),
        ("project file", (project or Path()) / PROJECT_FILE),
    ):
        path = former.settings(path)
        values = former.values(_read_file(path))
        _merge(merged, values, source, sources)
        _convert(merged, path.name, path)
    _merge(merged, _from_environ(environ), "environment", sources)
    _convert(merged, "the environment", None)
    _merge(merged, _nest(flags or {}), "flag", sources)
    return Loaded(_convert(merged, "the flags", None), sources)


def users_file(environ: Mapping[str, str]) -> Path:
    """The file of the user's own settings, whether it is there or not."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "forestay" / "config.toml"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise Problem("config_invalid", f"{path.name} is larger than {_MAX_BYTES} bytes.", at=path.name)
        return tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Problem("config_invalid", f"{path.name} cannot be read.", at=path.name, reason=error.strerror) from error
    except (tomllib.TOMLDecodeError, UnicodeError, RecursionError) as error:
        reason = str(error)[:200]
        more: dict[str, Any] = {"fix": _ONE_TABLE} if reason.startswith(("Cannot declare", "Cannot overwrite")) else {}
        raise Problem(
            "config_invalid", f"{path.name} is not valid TOML.", at=path.name, reason=reason, **more
        ) from error


def _from_environ(environ: Mapping[str, str]) -> dict[str, Any]:
    """FORESTAY_HTTP_PORT is http.port. Only names of the table count; others belong to other parts."""
    flat: dict[str, Any] = {}
    for name, default in _leaves(Config()):
        text = environ.get("FORESTAY_" + name.upper().replace(".", "_"))
        if text is None:
            continue
        if isinstance(default, list):
            flat[name] = [part.strip() for part in text.split(",") if part.strip()]
        elif isinstance(default, bool) and text in ("true", "false"):
            flat[name] = text == "true"
        elif isinstance(default, int) and re.fullmatch(r"-?\d+", text):
            flat[name] = int(text)
        elif isinstance(default, float) and re.fullmatch(r"-?\d+(\.\d+)?", text):
            flat[name] = float(text)
        else:
            flat[name] = text
    return _nest(flat)


def _leaves(section: msgspec.Struct, prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for field in section.__struct_fields__:
        value = getattr(section, field)
        if isinstance(value, msgspec.Struct):
            found.extend(_leaves(value, f"{prefix}{field}."))
        elif not isinstance(value, dict):
            found.append((prefix + field, value))
    return found


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        table = nested
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return nested


def _merge(into: dict[str, Any], values: Mapping[str, Any], source: str, sources: dict[str, str], at: str = "") -> None:
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key, {}), dict):
            _merge(into.setdefault(key, {}), value, source, sources, f"{at}{key}.")
        else:
            into[key] = value
            sources[at + key] = source


def _convert(merged: dict[str, Any], origin: str, path: Path | None) -> Config:
    try:
        return msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        raise _located(error, origin, path) from error


def _located(error: msgspec.ValidationError, origin: str, path: Path | None) -> Problem:
    """A validation message with the dotted name, the line, and the word that was probably meant."""
    message, where = canonical.located(error, "")
    name = where.removeprefix(".")
    unknown = re.search(r"unknown field `([^`]*)`", message)
    if unknown is None:
        key = name.rsplit(".", 1)[-1]
        return Problem("config_invalid", f"{name} in {origin}: {message}.", at=name, line=_line(path, key))
    key = unknown[1]
    dotted = f"{name}.{key}" if name else key
    close = difflib.get_close_matches(key, _fields_at(name), n=1)
    fix = f"Did you mean `{close[0]}`?" if close else f"Known here: {', '.join(_fields_at(name))}."
    return Problem(
        "config_invalid",
        f"{origin} has a setting that does not exist: {dotted}.",
        at=dotted,
        line=_line(path, key),
        fix=fix,
    )


def _fields_at(name: str) -> list[str]:
    section: Any = Config
    for part in name.replace("[...]", "[]").split(".") if name else ():
        field = part.removesuffix("[]")  # with brackets, an entry of a table such as extensions.overrides
        section = next((known.type for known in msgspec.structs.fields(section) if known.name == field), None)
        if field != part:
            section = get_args(section)[1]
        if not (isinstance(section, type) and issubclass(section, msgspec.Struct)):
            return []
    return list(section.__struct_fields__)


def _line(path: Path | None, key: str) -> int | None:
    if path is None:
        return None
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if re.match(rf"\s*\[?(?:[\w.\"-]+\.)?\"?{re.escape(key)}\"?\s*[=\]]", line):
            return number
    return None
