"""The environment variables that an extension sees: filtered by policy, without likely secrets (P11)."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forestay.extensions.connectors.contract import Call, Output, text
from forestay.kernel import Problem, is_secret_key, redact_text

# Variables that a program needs to start, and that reveal nothing about the person.
_PLAIN = {"PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "SHELL", "USER", "LOGNAME", "TMPDIR", "COLORTERM", "PWD",
          "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "EDITOR", "VISUAL", "PAGER", "CI", "NODE_ENV"}  # fmt: skip
_SEARCH = "/usr/local/bin:/usr/bin:/bin"
_SECRET = re.compile(
    r"(?:^|_)(?:KEY|KEYS|PASS|PASSPHRASE|PWD|AUTH|SESSION|DSN|SALT|CERT|SIGNATURE|WEBHOOK|PAT)(?:_|$)|_URL$|^AWS_|^SSH_|^GPG",
    re.IGNORECASE,
)
_HARMLESS_URLS = {"PWD", "OLDPWD"}


def looks_secret(name: str, value: str = "") -> bool:
    """Whether a variable must be granted by name, because its name or its value looks like a credential."""
    if name in _HARMLESS_URLS:
        return False
    return is_secret_key(name) or bool(_SECRET.search(name)) or redact_text(value) != value


class Environment:
    """A view of one set of variables (the host's by default)."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = os.environ if variables is None else variables

    @property
    def search(self) -> str:
        """The host's own search path; an extension cannot change it."""
        return self._variables.get("PATH", _SEARCH)

    def get(self, call: Call, name: str) -> str | None:
        """Return the value, or None when it is unset or not granted."""
        value = self._variables.get(name)
        if value is None:
            return None
        if looks_secret(name, value):
            return value if call.policy.granted("env!", name) else None
        return value if call.policy.granted("env", name) else None

    def visible(self, call: Call) -> dict[str, str]:
        return {name: value for name in sorted(self._variables) if (value := self.get(call, name)) is not None}

    def for_process(self, call: Call, extra: Any, *, temp: str | None) -> dict[str, str]:
        """Return the variables of a command: the plain ones, the granted ones, and the extension's own `extra`."""
        environ = {name: self._variables[name] for name in sorted(_PLAIN) if name in self._variables}
        environ = {name: value for name, value in environ.items() if not looks_secret(name, value)}
        environ.update(self.visible(call))
        if extra is not None:
            if not isinstance(extra, Mapping):
                raise Problem("schema_mismatch", "`env` must be an object.", at="$.params.env")
            environ.update(
                {str(name): str(value) for name, value in extra.items() if value is not None and _usable(name, value)}
            )
        environ.setdefault("PATH", _SEARCH)
        if temp:
            environ["TMPDIR"] = temp
        return environ


class EnvConnector:
    """Operations: `get` {name}, `all`, `system` (platform, home and so on), `temp` (its own folder; needs no grant)."""

    method = "env"

    def __init__(self, environment: Environment | None = None, *, temp: str | None = None) -> None:
        self._environment = environment or Environment()
        self._temp = temp

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        operation = params.get("op", "get")
        if operation == "get":
            return {"value": self._environment.get(call, text(params, "name"))}
        if operation == "all":
            return {"variables": self._environment.visible(call)}
        if operation == "temp":
            return {"tmpdir": self._tmpdir(call)}
        if operation == "system":
            return self._system(call)
        raise Problem("invalid_request", f"There is no env operation {operation!r}.", at="$.params.op")

    def _tmpdir(self, call: Call) -> str:
        return call.roots.temp or self._temp or "/tmp"  # noqa: S108 - a name to show, not a file to make

    def _system(self, call: Call) -> Output:
        machine = platform.machine()
        return {
            "platform": sys.platform,
            "arch": {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64"}.get(machine, machine),
            "machine": machine,
            "type": platform.system(),
            "release": platform.release(),
            "version": platform.version(),
            "hostname": socket.gethostname(),
            "homedir": self._environment.get(call, "HOME") or str(Path.home()),
            "tmpdir": self._tmpdir(call),
            "cpus": os.cpu_count() or 1,
            "user": self._environment.get(call, "USER") or self._environment.get(call, "LOGNAME") or "user",
            "shell": self._environment.get(call, "SHELL"),
            "uid": os.getuid() if hasattr(os, "getuid") else -1,
            "gid": os.getgid() if hasattr(os, "getgid") else -1,
        }


def _usable(name: Any, value: Any) -> bool:
    return isinstance(name, str) and "=" not in name and "\0" not in name and "\0" not in str(value)
