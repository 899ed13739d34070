"""Which import becomes which module of the sandbox: the table of Pi §2A.2, as data.

A rewrite depends on the specifier alone, never on who imports it (Pi §2A.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Node builtins whose name in the sandbox follows from the name in Node: `/` becomes `_`.
NODE_BUILTINS = frozenset(
    """
    assert assert/strict async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel
    dns dns/promises domain events fs fs/promises http http2 https inspector inspector/promises module net os path
    path/posix path/win32 perf_hooks process punycode querystring readline readline/promises repl sea sqlite stream
    stream/consumers stream/promises stream/web string_decoder sys test timers timers/promises tls trace_events tty
    url util util/types v8 vm wasi worker_threads zlib
    """.split()
)

# Exist in Node only behind their prefix; a bare import of the name is an npm package.
_PREFIX_ONLY = frozenset({"sea", "sqlite", "test"})

# Forbidden modules (Pi §2A.4): why they stop the build.
FORBIDDEN_MODULES = {
    "vm": "Arbitrary code execution",
    "worker_threads": "Unsupported concurrency model",
    "cluster": "Unsupported concurrency model",
    "dgram": "Raw UDP sockets",
    "net": "Bypasses HTTP policy",
    "tls": "Bypasses HTTP policy",
    "inspector": "Debugger access",
    "inspector/promises": "Debugger access",
    "perf_hooks": "Performance timing oracle",
    "v8": "Engine internals",
    "repl": "Interactive eval",
}

# The host's own packages, in both spellings that extensions use; a subpath belongs to its package.
_PI_SCOPES = ("@mariozechner/", "@earendil-works/")
_PI_PACKAGES = frozenset({"pi-agent-core", "pi-ai", "pi-coding-agent", "pi-tui"})

# Packages that are part of a platform (other runtimes serve them themselves too): ours, over the connectors. Their real
# sources would open sockets. A subpath is no public part of such a package and stays what it is.
PLATFORM_PACKAGES = {"undici": "pi:web/undici"}

# Packages that every extension may import without bringing them: bundled from the real source.
PROVIDED_PACKAGES = {"typebox": "typebox", "@sinclair/typebox": "typebox"}

# Injected in this order; the second column says which words of the sources call for it, None that all do.
POLYFILLS: tuple[tuple[str, re.Pattern[bytes] | None], ...] = (
    ("pi:polyfills/node_globals", None),
    ("pi:polyfills/fetch", re.compile(rb"\b(?:fetch|Headers|Request|Response|FormData)\b")),
    ("pi:polyfills/webassembly", re.compile(rb"\bWebAssembly\b")),
)

# Import schemes that would load code from elsewhere (Pi §1A.4.3).
NETWORK_SCHEMES = ("http:", "https:", "ftp:", "ws:", "wss:", "data:", "blob:", "//")


def polyfills(sources: Iterable[bytes]) -> tuple[str, ...]:
    """Which polyfills an extension needs (Pi §2A.3), always in the same order."""
    texts = list(sources)
    return tuple(name for name, words in POLYFILLS if words is None or any(words.search(text) for text in texts))


def node_builtin(specifier: str) -> str | None:
    """The builtin's name without prefix (`fs/promises`), or None when the specifier is not one."""
    name = specifier.removeprefix("node:").rstrip("/")
    if name not in NODE_BUILTINS:
        return None
    if name in _PREFIX_ONLY and not specifier.startswith("node:"):
        return None
    return name


def platform_module(specifier: str) -> str | None:
    """The name under which an import is judged and inferred: a builtin's, or a platform package's own."""
    return specifier if specifier in PLATFORM_PACKAGES else node_builtin(specifier)


def virtual_module(specifier: str) -> str | None:
    """The sandbox module that `specifier` becomes, or None when it is a file or an npm package."""
    builtin = node_builtin(specifier)
    if builtin is not None:
        return "pi:node/" + builtin.replace("/", "_")
    if specifier.startswith("pi:"):
        return specifier
    if specifier in PLATFORM_PACKAGES:
        return PLATFORM_PACKAGES[specifier]
    for scope in _PI_SCOPES:
        if specifier.startswith(scope) and specifier.removeprefix(scope).split("/", 1)[0] in _PI_PACKAGES:
            return specifier
    return None


def provided_package(specifier: str) -> str | None:
    """The specifier inside the provided npm assets (`typebox/value`), or None."""
    for name, target in PROVIDED_PACKAGES.items():
        if specifier == name or specifier.startswith(name + "/"):
            return target + specifier[len(name) :]
    return None


def is_network(specifier: str) -> bool:
    return specifier.lower().startswith(NETWORK_SCHEMES)
