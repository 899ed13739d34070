"""Every target: each package has its own in `tests/PACKAGE/fuzz_targets.py`. Importing this registers them."""

from __future__ import annotations

from importlib import import_module

from tests.fuzz.target import SLOW_SECONDS as SLOW_SECONDS
from tests.fuzz.target import TARGETS as TARGETS

_PACKAGES = (
    "agents",
    "client",
    "envelope",
    "extensions",
    "governance",
    "kernel",
    "models",
    "relay",
    "runs",
    "sessions",
    "surface",
)

for package in _PACKAGES:
    import_module(f"tests.{package}.fuzz_targets")
