"""The settings of `Extensions`; most callers keep the defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from forestay.extensions.connectors.model import Model
from forestay.extensions.engine.limits import Limits
from forestay.kernel import Clock, ExtensionConfig, Randomness, SystemClock

SIGNED_IN = "/signed-in"
"""The console's page to which an authorization server sends the browser back."""


class Settings(msgspec.Struct, frozen=True):
    """Surroundings, limits and collaborators of the extensions of one project."""

    config: ExtensionConfig = ExtensionConfig()
    """The section `extensions` of the settings file."""
    model: Model | None = None
    """The language model behind `pi.model`."""
    scope: tuple[str, ...] = ()
    """Patterns of the models that a person may choose from; empty: all."""
    environ: Mapping[str, str] | None = None
    """The variables that extensions see; None: those of this process."""
    deadline: float = 30.0
    """Seconds that an extension has for one answer."""
    limits: Limits | None = None
    """Memory and time of one VM; None: from the configuration."""
    clock: Clock = msgspec.field(default_factory=SystemClock)
    randomness: Randomness | None = None
    scenario: str = "scn-local"
    """The name of the run in the evidence."""
    trusted: bool = False
    """Whether a person trusts everything that is loaded."""
    trusted_places: tuple[Path, ...] = ()
    """Files and folders that a person trusts."""
    record: Callable[[bytes], None] | None = None
    """Receives the trace of each VM, for `forestay ext replay`."""
    building: Callable[[str, str], None] | None = None
    """Receives the progress of a build: the extension's name and the step, which is empty at the end."""
    log_file: bool = False
    """Whether the evidence is also written as a log file (`pi.ext.log.v1`)."""
    data: Path | None = None
    """The host's data folder."""
    sign_in_url: str = f"http://127.0.0.1:8787{SIGNED_IN}"
    """The URL to which the browser returns after a person has signed in at an MCP server."""

    def vm_limits(self) -> Limits:
        """Return the VM's limits: JavaScript that does not yield stops at the deadline or after the default slice."""
        slice_ms = min(Limits().slice_ms, max(1, int(self.deadline * 1000)))
        return self.limits or Limits(memory_mb=self.config.policy.max_memory_mb, slice_ms=slice_ms)
