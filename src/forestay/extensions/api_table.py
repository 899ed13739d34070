"""The API for extensions as data: capabilities, host calls, Node's modules, members of `pi`, events.

Other parts are derived from these tables: the dispatcher's capabilities (`capabilities.py`), the allowed declarations
of a manifest, the compiler's inference and refusals, the lists of the guest's TypeScript (`guest/build.py`), and the
reference page (`scripts/docs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from forestay.tools import BUILT_IN

NONE = ""
"""The capability of pure computation."""

CAPABILITIES: dict[str, str] = {
    "read": "read files and folders",
    "write": "create, change and delete files and folders",
    "exec": "run programs",
    "http": "talk to hosts on the network",
    "env": "see environment variables and facts about the machine",
    "session": "read and change the session it runs in",
    "ui": "show notices and ask questions",
    "model": "ask a language model",
    "events": "exchange events with other extensions",
    "log": "write to the log",
    "tool": "call tools that are not built in",
}
GRANT_SCOPES: dict[str, str] = {
    "read": "paths: `read:src/**`",
    "write": "paths: `write:out/**`",
    "http": "hosts: `http:api.example.com`, `http:*.example.com`",
    "env": "names: `env:HOME`, `env:MY_*`",
    "tool": "names: `tool:tally`, `tool:notes_*`, `tool:github/get_*`",
}
"""How a grant of a capability can be narrowed; a capability that is not here is granted whole."""


class Method(msgspec.Struct, frozen=True):
    """One kind of host call. If `choices` has the value of the parameter `by`, it gives the capability."""

    capability: str | None
    """The capability of all other calls; None: a value outside `choices` is not a valid call."""
    by: str = ""
    choices: Mapping[str, str] = {}
    keeps: bool = False
    """Whether the host stores or shows the parameters, so that their size is limited (a log line is cut instead)."""


FILE_READS = ("read", "list", "stat", "realpath", "access", "exists", "readlink", "watch")
FILE_WRITES = (
    "write", "append", "mkdir", "delete", "rename", "copy", "chmod", "utimes", "symlink", "mkdtemp", "truncate",
)  # fmt: skip

METHODS: dict[str, Method] = {
    "tool": Method("tool", "name", {name: row.capability for name, row in BUILT_IN.items()}),
    "exec": Method("exec"),
    "http": Method("http"),
    "fs": Method(None, "op", {**dict.fromkeys(FILE_READS, "read"), **dict.fromkeys(FILE_WRITES, "write")}),
    "env": Method(
        "env", "op", {"temp": NONE}, keeps=True
    ),  # its own temporary folder reveals nothing about the machine
    "session": Method("session", keeps=True),
    "ui": Method("ui", keeps=True),
    "model": Method("model"),
    "events": Method("events", keeps=True),
    "log": Method("log"),
    "crypto": Method(NONE),
}


class NodeModule(msgspec.Struct, frozen=True):
    """One module of Node: its members' capabilities, the guest's file that defines it, and whether it is refused."""

    members: Mapping[str, tuple[str, ...]] = {}
    """Member to capabilities; `*` stands for every other member. Empty: the module makes no host calls."""
    stub: str = ""
    """The file under `guest/src/node` that defines it; empty: an import fails at run time."""
    forbidden: str = ""
    """Why an import stops the build (Pi §2A.4)."""
    prefix_only: bool = False
    """Whether Node provides it only as `node:…`; the bare name is an npm package."""
    package: bool = False
    """Whether it is an npm package that platforms provide themselves; ours uses the connectors."""


def _members(*rows: tuple[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: capabilities for names, capabilities in rows for name in names.split()}


_FS = _members(
    (
        "access accessSync createReadStream exists existsSync fstat fstatSync glob globSync lstat lstatSync opendir "
        "opendirSync read readFile readFileSync readSync readdir readdirSync readlink readlinkSync realpath "
        "realpathSync stat statSync statfs statfsSync unwatchFile watch watchFile openAsBlob",
        ("read",),
    ),
    (
        "appendFile appendFileSync chmod chmodSync chown chownSync copyFile copyFileSync cp cpSync createWriteStream "
        "fchmod fchown fdatasync fdatasyncSync fsync fsyncSync ftruncate ftruncateSync futimes futimesSync lchown link "
        "linkSync lutimes mkdir mkdirSync mkdtemp mkdtempSync rename renameSync rm rmSync rmdir rmdirSync symlink "
        "symlinkSync truncate truncateSync unlink unlinkSync utimes utimesSync write writeFile writeFileSync writeSync "
        "writev writevSync",
        ("write",),
    ),
    ("constants F_OK R_OK W_OK X_OK Stats Dirent Dir ReadStream WriteStream promises default close closeSync", ()),
    ("*", ("read", "write")),
)
_NETWORK = _members(("default", ()), ("*", ("http",)))
_SOCKETS, _THREADS, _DEBUGGER = "Bypasses HTTP policy", "Unsupported concurrency model", "Debugger access"

# Stubs are loaded in the order of their first use here.
NODE_MODULES: dict[str, NodeModule] = {
    "path": NodeModule(stub="path"),
    "path/posix": NodeModule(stub="path"),
    "path/win32": NodeModule(stub="path"),
    "events": NodeModule(stub="events"),
    "buffer": NodeModule(stub="buffer"),
    "util": NodeModule(stub="util"),
    "util/types": NodeModule(stub="util"),
    "assert": NodeModule(stub="assert"),
    "assert/strict": NodeModule(stub="assert"),
    "url": NodeModule(stub="url"),
    "querystring": NodeModule(stub="querystring"),
    "string_decoder": NodeModule(stub="string_decoder"),
    "timers": NodeModule(stub="timers"),
    "timers/promises": NodeModule(stub="timers"),
    "os": NodeModule(_members(("EOL constants default", ()), ("*", ("env",))), "os"),
    "tty": NodeModule(stub="tty"),
    "constants": NodeModule(stub="os"),
    "punycode": NodeModule(stub="punycode"),
    "async_hooks": NodeModule(stub="async_hooks"),
    "diagnostics_channel": NodeModule(stub="diagnostics_channel"),
    "stream": NodeModule(stub="stream"),
    "stream/consumers": NodeModule(stub="stream"),
    "stream/promises": NodeModule(stub="stream"),
    "stream/web": NodeModule(stub="stream"),
    "process": NodeModule(stub="process"),
    "console": NodeModule(stub="process"),
    "fs": NodeModule(_FS, "fs"),
    "fs/promises": NodeModule(_FS, "fs"),
    "child_process": NodeModule(_members(("*", ("exec",))), "child_process"),
    "crypto": NodeModule(stub="crypto"),
    "zlib": NodeModule(stub="zlib"),
    "readline": NodeModule(stub="readline"),
    "readline/promises": NodeModule(stub="readline"),
    "module": NodeModule(stub="module"),
    "http": NodeModule({**_NETWORK, "STATUS_CODES": (), "METHODS": ()}, "http"),
    "https": NodeModule(_NETWORK, "http"),
    "net": NodeModule(stub="net", forbidden=_SOCKETS),
    "dns": NodeModule(_NETWORK, "dns"),
    "dns/promises": NodeModule(_NETWORK, "dns"),
    "undici": NodeModule(
        _members(
            ("Headers Request Response FormData File errors default getGlobalDispatcher", ()),
            ("*", ("http",)),
        ),
        "undici",
        package=True,
    ),
    "http2": NodeModule({**_NETWORK, "constants": ()}),
    "sqlite": NodeModule(_members(("default", ()), ("*", ("read", "write"))), prefix_only=True),
    "sea": NodeModule(prefix_only=True),
    "test": NodeModule(prefix_only=True),
    "domain": NodeModule(),
    "sys": NodeModule(),
    "trace_events": NodeModule(),
    "wasi": NodeModule(),
    "vm": NodeModule(forbidden="Arbitrary code execution"),
    "worker_threads": NodeModule(forbidden=_THREADS),
    "cluster": NodeModule(forbidden=_THREADS),
    "dgram": NodeModule(forbidden="Raw UDP sockets"),
    "tls": NodeModule(forbidden=_SOCKETS),
    "inspector": NodeModule(forbidden=_DEBUGGER),
    "inspector/promises": NodeModule(forbidden=_DEBUGGER),
    "perf_hooks": NodeModule(forbidden="Performance timing oracle"),
    "v8": NodeModule(forbidden="Engine internals"),
    "repl": NodeModule(forbidden="Interactive eval"),
}
NODE_METHODS = {"read": "fs", "write": "fs", "exec": "exec", "http": "http", "env": "env"}
"""The method of the host call for a capability of a module."""

PI_MEMBERS: dict[str, tuple[str, str]] = {
    "exec": ("exec", "exec"),
    "http": ("http", "http"),
    "registerProvider": ("http", "http"),
    "log": ("log", "log"),
    **dict.fromkeys(
        ("appendEntry", "setSessionName", "getSessionName", "setLabel", "sendMessage", "sendUserMessage", "session"),
        ("session", "session"),
    ),
    "ui": ("ui", "ui"),
}
"""Members of the `pi` object: capability and method."""
PI_FS = {"read": "read", "list": "read", "stat": "read", "write": "write", "mkdir": "write", "delete": "write"}
PACKAGE_HINTS = {"axios": "http", "got": "http", "node-fetch": "http", "undici": "http", "execa": "exec", "zx": "exec"}
"""The capability of well-known packages whose source is not available (Pi §2B.2, config hints)."""

EVENTS = (
    "resources_discover", "session_start", "session_before_switch", "session_before_fork", "session_before_compact",
    "session_compact", "session_shutdown", "session_before_tree", "session_tree", "context", "before_provider_request",
    "after_provider_response", "before_agent_start", "agent_start", "agent_end", "turn_start", "turn_end",
    "message_start", "message_update", "message_end", "tool_execution_start", "tool_execution_update",
    "tool_execution_end", "model_select", "thinking_level_select", "tool_call", "tool_result", "user_bash", "input",
    "session_info_changed", "session_compact_failed", "context_with_system", "agent_settled", "ui_prompt_start",
    "ui_prompt_end", "mcp_servers_change", "agent_before_settle", "provider_stream_event",
)  # fmt: skip
OLDER_EVENTS = ("session_switch", "session_fork", "session_directory", "session_branch")
"""Older names of events that extensions still use."""
