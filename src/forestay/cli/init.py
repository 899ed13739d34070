"""`forestay init`: write a configuration file with every setting, commented out, with its default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forestay.cli.command import answers
from forestay.cli.files import write_file
from forestay.cli.output import Answer
from forestay.kernel import PROJECT_FILE, Problem

TEMPLATE = """\
# forestay.toml: the settings of this project. What is commented out shows its default.
# A flag beats the environment (FORESTAY_HTTP_PORT is http.port), that beats this file, and that the user's own file.

[data]
# dir = ".forestay"                      # the ledger, the keys' hashes and the host's secret: back this folder up
# ledger = ""                            # postgresql://user@host/database: the ledger is there, and not in the folder

[http]
# host = "127.0.0.1"                     # another address needs a TLS proxy in front
# port = 8787
# public_url = ""                        # the address that others see, when a proxy stands in front; https: TLS cookies
# hosts = []                             # further names that requests may be for, beside loopback names and public_url
# trusted_proxies = []                   # whose X-Forwarded-Proto is believed: "127.0.0.1", "10.0.0.0/8"
# access_log = false                     # true: one JSON line for each request, on standard error

[http.limits]                            # what one client, one key and all of them may take; times are seconds
# header_seconds = 10.0                  # until the head of a request is whole
# body_seconds = 60.0                    # until its body is
# write_seconds = 120.0                  # how long a client may leave its answer unread
# keep_alive_seconds = 30.0              # how long a connection may be idle between two requests
# header_count = 100
# header_bytes = 32768                   # the request's line and headers together
# body_bytes = 104857600                 # most operations take far less: see the HTTP page
# connections = 10000                    # fewer where the system lets the process open fewer files
# connections_per_client = 4000          # by address; a proxy in front is one client
# requests = 1000                        # under way at once
# requests_per_key = 500
# streams = 10000                        # event streams and long polls that are open at once
# streams_per_key = 2000

[http.rates]                             # how often callers may ask: requests a second over time, and how many at once
# overall = { per_second = 50000, burst = 100000 }   # all callers together; without it there is no such limit
# tenant = { per_second = 10000, burst = 20000 }
# key = { per_second = 5000, burst = 10000 }

# [http.rates.keys.key_01example]        # one key's own rate, by its id; the same under http.rates.tenants
# per_second = 10
# burst = 20

# [http.rates.routes."runs.create"]      # one operation's rate for each key, by its name
# per_second = 100
# burst = 200

[telemetry]
# traces = "off"                         # "otlp" sends spans to OTEL_EXPORTER_OTLP_ENDPOINT (needs opentelemetry-sdk)
# service_name = "forestay"

[models]
# default = "local"                      # offline; or an entry's name, "ollama:MODEL", "openai:MODEL[@BASE_URL]" …
# embedder = ""                          # "minilm" or "MODEL@ADDRESS" (OpenAI's embeddings): finds by meaning too
# trusted_keys = []                      # your own file only: keys that projects may send, as `model trust` writes them
# enabled = []                           # what a chat offers, extensions find: "anthropic/*", "*mini*:low"; none: all

[models.classes]                         # another model for a class of work
# reasoning = "openai:MODEL"

[models.agents]                          # another model for one agent, by its id
# "core.forestay.assistant" = "router"

# [models.entries.router]                # a model under a name of your own, as `forestay model add router` writes it
# model = "vendor/model"                 # as its server calls it
# provider = "openai"                    # openai, anthropic, ollama, lmstudio, llamacpp or openrouter
# base_url = "https://host/v1"           # another server that speaks the provider's protocol; empty: its own address
# api_key_env = "ROUTER_API_KEY"         # the variable that holds the key; empty: none is sent to a base_url
# context_window = 131072                # tokens; what is known of the model, else 8192
# capabilities = ["structured-output"]   # what it can do, for nodes that ask for it
# max_output_tokens = 8192
# headers = { X-Title = "my project" }   # sent with every request
# price = { input = 1.25, output = 10 }  # USD for a million tokens; budgets count with it

[agents]
# paths = []                             # agent manifests: files, or folders of *.json and *.toml
# context = ["**/*.md", "**/*.txt"]      # the texts that `forestay ask` may quote from
# mode = "prompt"                        # tools that change something: strict, prompt or permissive
# allow = []                             # tools that need no approval: "write", "ext:NAME/*", "workflow:*"
# deny = []                              # tools that nobody may call
# fetch = []                             # hosts that agents may reach with `fetch`: "api.example.com", "*.example.org"

[prompts]
# paths = []                             # prompt templates that every tenant may use: files, or folders of *.json
# observability = "hashed"               # what a run's log tells of a prompt: "off", "hashed", or "full" with its text
# defaults = {}                          # where nobody names another: { system = "prompt:house-style@1.0.0" }

[workflows]
# paths = []                             # folders of workflow documents
# nodes = []                             # Python files and folders of WASM packs with node types; run when trusted
# max_loop_iterations = 10000            # the most that `maxLoopbackIterations` of a document may ask for
# replay_asks_models = false             # a replay asks models again, and fails where one refuses otherwise than then

[budgets]
# enforce = "hard"                       # "advisory" tells what a budget says and stops nothing
# ceilings = []                          # how much may be used; the smallest of all that apply holds

# [[budgets.ceilings]]                   # an entry for each ceiling, in place of the list
# scope = "project"                      # run, workflow, agent or project
# name = "*"                             # a pattern over the workflow's or the agent's id
# per = "run"                            # each run by itself; or all of them together in a "day" or a "month" (UTC)
# max_tokens = 100000
# max_cost_usd = 2.5
# max_tool_calls = 50
# max_retries = 10
# model_allow = ["openai:*"]             # patterns over models; without a list, every model
# model_deny = []                        # wins over model_allow
# threshold_percent = 80                 # say so when this share is used
# on_exhaustion = "fail"                 # or "interrupt": ask a person for more

# [budgets.prices."openai:*"]            # USD for a million tokens; without a price nothing is known of a model's cost
# input = 1.25
# output = 10.0

[retention]                              # of ended runs, in days since they ended; without a number: for ever
# seal_after_days = 30                   # into compressed archives, which everybody reads as before
# remove_after_days = 365                # heads and hashes stay; who reads one hears what was removed, and when

[deployments]
# gates = []                             # what a promotion to active needs; the first that fits the agent holds

# [[deployments.gates]]                  # an entry for each gate, in place of the list
# agent = "*"                            # a pattern over the agent's id
# approval = false                       # a person must approve it
# evaluation = false                     # it names an evaluation of this version that passed
# pass_score = 0.9                       # or one with at least this score
# auto_rollback = 0.8                    # a canary whose live-shadow score is lower goes back by itself

# [mailboxes.orders]                     # unread mail of it starts workflows: forestay trigger subscribe email …
# host = "imap.example.com"
# user = "orders"
# password_env = "ORDERS_PASSWORD"       # the variable that has the password
# port = 993
# tls = "implicit"                       # or "starttls"; "none" only on this machine
# folder = "INBOX"
# poll_seconds = 30.0
# senders = ["*@example.com"]            # who may start a workflow; without a list, everybody who writes
# authenticated_by = "mx.example.com"    # the server whose `Authentication-Results` say that a sender is real
# tenant = "default"

[evaluations]
# judge = "default"                      # the model that grades by a rubric; without it, rubrics are refused

# [oauth.providers.NAME]                 # an authorization server: `forestay credential authorize NAME`
# auth_url = "https://auth.example.com/authorize"
# token_url = "https://auth.example.com/token"
# client_id = "forestay"                 # people come back to http.public_url + /host/v1/oauth/callback
# client_secret_env = ""                 # the variable with the client's secret, where it has one
# scopes = []
# audiences = ["api.example.com"]        # where its tokens may go

[extensions]
# paths = []                             # extensions, or folders of them; each is loaded when a person trusts it
# tool_words = ""                        # a JSON file with the wording of the built-in tools; empty: our own
# unprotected = []                       # what `forestay doctor` lists as protected, lifted: by its name or path
# build_seconds = 60.0                   # how long compiling one extension may take
# flags = {}                             # what extensions' own flags stand at: {ssh = "harbour"}

[extensions.policy]
# mode = "prompt"                        # what nobody decided: strict denies, prompt asks, permissive allows
# max_memory_mb = 256
# max_model_tokens = 1000000             # of one extension, from the host's start to its stop
# unconfined_programs = false            # true: start programs also where neither bubblewrap nor Landlock works
# default_caps = []                      # what every extension may do: "read:docs/**"
# deny_caps = []                         # what none may do, whatever it was granted: "exec"

[extensions.quotas]                      # of each extension; one that passes a quota is stopped until the next start
# calls_per_second = 5000                # host calls; twenty seconds' worth of them at once
# evidence_mb = 1024                     # records in the ledger, within a day
# log_mb = 64                            # of these, what it logs itself
# storage_mb = 4096                      # written to files through host calls, within a day
# session_mb = 64                        # entries and notices that the session keeps for it

# [extensions.overrides."ext.name"]      # what one extension may do
# allow = ["read:src/**", "http:api.example.com"]
# deny = ["env"]
# mode = "strict"

# [mcpServers.NAME]                      # an MCP server, as in `.mcp.json`; see `forestay mcp trust`
# command = "python3"                    # the program; or `url` for a server that is reached over HTTP
# args = ["server.py"]
# env = { TOKEN = "${TOKEN}" }           # `${NAME}` is the host's variable, if the server is granted it: env:NAME
# cwd = ""                               # a folder of the project; empty: the project
# headers = {}                           # of a server with a `url`
# read_only = []                         # tools that change nothing, as you know; others are unsafe to repeat
# start_seconds = 30.0
# call_seconds = 60.0                    # how long a call may hear nothing; progress starts the time again
# idle_seconds = 300.0                   # after which a server that nobody uses is stopped

# [a2a.peers.NAME]                       # an A2A agent that the node `core.a2a.invoke` gives tasks to
# url = "https://agents.example.com"     # where `/.well-known/agent-card.json` is
# credential = ""                        # the id of a credential that goes along; see `forestay credential`

[output]
# format = "json"                        # "human" or "json"; default: by the terminal
"""


@answers("init")
def init(
    folder: Annotated[Path, typer.Argument(help="The project's folder.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> Answer:
    """Write a commented forestay.toml."""
    file = folder / PROJECT_FILE
    if file.exists() and not force:
        raise Problem(
            "already_exists", f"There is a {PROJECT_FILE} already.", at=str(file), fix="Use --force to write over it."
        )
    write_file(file, TEMPLATE, with_folders=True)
    return Answer({"file": str(file)}, human=[_NEXT.format(file=file)])


_NEXT = """\
wrote {file}: every setting, commented, with its default
Next: put a text into the folder and ask about it (`forestay ask "…"`), or serve it (`forestay up`).\
"""
