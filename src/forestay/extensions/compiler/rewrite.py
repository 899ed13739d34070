"""Which import becomes which module of the sandbox: the table of Pi §2A.2, as data.

A rewrite depends on the specifier alone, never on who imports it (Pi §2A.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from forestay.extensions.api_table import NODE_MODULES

# The host's own packages, in both spellings that extensions use; a subpath belongs to its package.
_PI_SCOPES = ("@mariozechner/", "@earendil-works/")
_PI_PACKAGES = frozenset({"pi-agent-core", "pi-ai", "pi-coding-agent", "pi-tui"})

# Packages that every extension may import without bringing them: bundled from the real source.
PROVIDED_PACKAGES = {"typebox": "typebox", "@sinclair/typebox": "typebox"}

# Injected in this order; the second column says which words of the sources call for it, none that all do.
POLYFILLS: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("pi:polyfills/node_globals", ()),
    ("pi:polyfills/fetch", (b"fetch", b"Headers", b"Request", b"Response", b"FormData")),
    ("pi:polyfills/webassembly", (b"WebAssembly",)),
)

# Import schemes that would load code from elsewhere (Pi §1A.4.3).
NETWORK_SCHEMES = ("http:", "https:", "ftp:", "ws:", "wss:", "data:", "blob:", "//")


def polyfills(sources: Iterable[bytes]) -> tuple[str, ...]:
    """Which polyfills an extension needs (Pi §2A.3), always in the same order."""
    texts = list(sources)
    return tuple(
        name for name, words in POLYFILLS if not words or any(_has(text, word) for text in texts for word in words)
    )


def _has(text: bytes, word: bytes) -> bool:
    """Whether a text has a word. What has not even its letters is most, and is told many times as fast."""
    return word in text and re.search(rb"\b" + word + rb"\b", text) is not None


def node_builtin(specifier: str) -> str | None:
    """The builtin's name without prefix (`fs/promises`), or None when the specifier is not one."""
    name = specifier.removeprefix("node:").rstrip("/")
    row = NODE_MODULES.get(name)
    if row is None or row.package or (row.prefix_only and not specifier.startswith("node:")):
        return None
    return name


def platform_module(specifier: str) -> str | None:
    """The name under which an import is judged and inferred: a builtin's, or a platform package's own."""
    return specifier if _is_platform_package(specifier) else node_builtin(specifier)


def _is_platform_package(specifier: str) -> bool:
    """Whether the platform serves this npm package itself; a subpath of it is no public part and stays what it is."""
    row = NODE_MODULES.get(specifier)
    return row is not None and row.package


def virtual_module(specifier: str) -> str | None:
    """The sandbox module that `specifier` becomes, or None when it is a file or an npm package."""
    builtin = node_builtin(specifier)
    if builtin is not None:
        return "pi:node/" + builtin.replace("/", "_")  # a name of the sandbox has no slash
    if specifier.startswith("pi:"):
        return specifier
    if _is_platform_package(specifier):
        return f"pi:web/{specifier}"  # its real sources would open sockets
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
