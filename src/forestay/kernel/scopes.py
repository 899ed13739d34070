"""What a grant covers: path globs, host names, environment names, tool names, tenants.

Patterns are compiled once and matched in time proportional to pattern times text: no pattern can explode.
`locate` is the only function here that looks at the disk: it resolves `..` and links before anything is compared.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from forestay.kernel.problems import Problem

MAX_PATTERN = 1024
MAX_PATH = 4096
_MAX_WILDCARDS = 32
SCOPED = ("read", "write", "http", "env", "tool")  # the capabilities that `Scope.of` knows limits for


class Scope(msgspec.Struct, frozen=True):
    """A capability's limits; an empty list does not limit (Pi §3.3)."""

    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()

    def covers(self, resource: str | None) -> bool:
        """Whether `resource` lies inside; without limits everything does, an unknown resource only then."""
        patterns = self.patterns
        if not patterns:
            return True
        if resource is None:
            return False
        if self.paths:
            return any(match_path(pattern, resource) for pattern in self.paths)
        if self.hosts:
            return any(match_host(pattern, resource) for pattern in self.hosts)
        return any(match_env(pattern, resource) for pattern in patterns)

    def names(self, resource: str | None) -> bool:
        """Whether a pattern is this very resource, without any wildcard."""
        return resource is not None and any(
            "*" not in pattern and "?" not in pattern and pattern.lower() == resource.lower()
            for pattern in self.patterns
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        return self.paths or self.hosts or self.env or self.tools or self.tenants

    @classmethod
    def of(cls, capability: str, patterns: tuple[str, ...]) -> Scope:
        """The scope that `patterns` mean for `capability`, each checked."""
        if capability in ("read", "write"):
            return cls(paths=tuple(check_path_pattern(pattern) for pattern in patterns))
        if capability == "http":
            return cls(hosts=tuple(check_host_pattern(pattern) for pattern in patterns))
        if capability == "env":
            return cls(env=tuple(check_env_pattern(pattern) for pattern in patterns))
        if capability == "tool":
            return cls(tools=tuple(check_tool_pattern(pattern) for pattern in patterns))
        raise Problem(
            "pattern_invalid",
            f"The capability {capability} takes no scope.",
            at=patterns[0],
            fix="Leave the scope out.",
        )


def locate(root: Path, path: str) -> str:
    """Where `path` really is: relative to `root` when inside it ("." for the root), else absolute."""
    if "\0" in path or len(path) > MAX_PATH:
        raise Problem("invalid_text", "The path holds a NUL character or is too long.", limit=MAX_PATH)
    base = os.path.realpath(root)
    real = os.path.realpath(os.path.join(base, path))  # noqa: PTH118 - Path would fold `..` before links are followed
    if real == base:
        return "."
    prefix = base if base.endswith(os.sep) else base + os.sep
    return real[len(prefix) :] if real.startswith(prefix) else real


def check_path_pattern(pattern: str) -> str:
    """`pattern` in its normal form; a Problem when it is malformed or would cost too much."""
    if not pattern or "\0" in pattern or len(pattern) > MAX_PATTERN:
        raise Problem("pattern_invalid", "A path pattern is empty or too long.", at=pattern[:80], limit=MAX_PATTERN)
    if pattern.count("*") + pattern.count("?") > _MAX_WILDCARDS:
        raise Problem("pattern_invalid", f"A path pattern has more than {_MAX_WILDCARDS} wildcards.", at=pattern[:80])
    absolute = pattern.startswith("/")
    parts: list[str] = []
    for part in pattern.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            raise Problem("pattern_invalid", "A path pattern must not climb with `..`.", at=pattern[:80])
        if part == "**" and parts and parts[-1] == "**":
            continue
        parts.append(part)
    return ("/" if absolute else "") + "/".join(parts) or "."


def check_host_pattern(pattern: str) -> str:
    host = pattern.strip().lower().rstrip(".")
    body = host.removeprefix("*.")
    if not body or len(host) > 255 or any(character in body for character in "*?/@ \0\t\n") or "://" in host:
        raise Problem(
            "pattern_invalid",
            "A host is a name, an address, or `*.` and a name.",
            at=pattern[:80],
            fix="api.example.com",
        )
    return host


def check_env_pattern(pattern: str) -> str:
    body = pattern.removesuffix("*")
    if not pattern or len(pattern) > 255 or "*" in body or "=" in pattern or "\0" in pattern:
        raise Problem("pattern_invalid", "An environment name may end in `*`, nothing else.", at=pattern[:80])
    return pattern


def check_tool_pattern(pattern: str) -> str:
    body = pattern.removesuffix("*")
    if not pattern or len(pattern) > 255 or any(character in body for character in "*?,\0\t\n "):
        raise Problem("pattern_invalid", "A tool is a name, which may end in `*`.", at=pattern[:80])
    return pattern


def exactly(capability: str, resource: str) -> tuple[str, ...] | None:
    """The patterns that mean this resource and nothing else; None where none can say it."""
    if capability not in SCOPED or "*" in resource or "?" in resource or "," in resource:
        return None
    try:
        return Scope.of(capability, (resource,)).patterns
    except Problem:
        return None


def match_path(pattern: str, path: str) -> bool:
    """Whether the glob covers the path: `*` and `?` inside a segment, `**` across segments, itself included."""
    if pattern.startswith("/") != path.startswith("/"):
        return False
    wanted = pattern.strip("/").split("/")
    parts = [] if path in (".", "/") else path.strip("/").split("/")
    if wanted == ["."]:
        return not parts
    return _glob(wanted, parts, "**", _match_segment)


def match_host(pattern: str, host: str) -> bool:
    """Exact, or `*.name` for everything below `name`; a pattern without a port covers every port."""
    host, port = _split_port(host.lower().rstrip("."))
    wanted, wanted_port = _split_port(pattern.lower().rstrip("."))
    if wanted_port is not None and wanted_port != port:
        return False
    if wanted.startswith("*."):
        return host.endswith(wanted[1:]) and len(host) > len(wanted) - 1
    return _canonical_host(host) == _canonical_host(wanted)


def match_env(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _match_segment(pattern: str, text: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == text
    return _glob(pattern, text, "*", lambda wanted, letter: wanted in ("?", letter))


def _glob(pattern: Sequence[str], items: Sequence[str], star: str, same: Callable[[str, str], bool]) -> bool:
    """Wildcard matching with one resume point: after a later star, an earlier one never needs to be tried again."""
    position = index = 0
    resume, mark = -1, 0
    while index < len(items):
        if position < len(pattern) and pattern[position] == star:
            resume, mark = position, index
            position += 1
        elif position < len(pattern) and same(pattern[position], items[index]):
            position += 1
            index += 1
        elif resume >= 0:
            mark += 1
            position, index = resume + 1, mark
        else:
            return False
    return all(part == star for part in pattern[position:])


def _split_port(host: str) -> tuple[str, str | None]:
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name, rest.removeprefix(":") or None
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and ":" not in name else (host, None)


def _canonical_host(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host
