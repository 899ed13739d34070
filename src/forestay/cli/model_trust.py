"""Asks a person once before a project's model sends a key from the environment to an address.

M1  A project's entry sends a variable only when a person said yes to this variable, this address and this folder.
M2  A yes is kept in the person's own settings, where no project can write one.
M3  Without a person to ask, the answer is no, with the command that changes it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from forestay.cli.output import note
from forestay.cli.settings_file import user_file
from forestay.cli.terminal import asked, attended
from forestay.kernel import Config, ModelEntry, Problem, UntrustedEntry, key_use


async def with_trusted_keys(settings: Config, *, only: str | None = None, also: str | None = None) -> Config:
    """Ask the person at the terminal about the keys of the models in use; return the settings with the trusted ones.

    `only` names the one model in use; `also` adds one to those that the settings use. A model without a yes stays
    untrusted: opening it is a Problem (M3).
    """
    models = settings.models
    entries = dict(models.entries)
    used = [*models.used, *([also] if also else ())] if only is None else [only]
    for name in dict.fromkeys(used):
        entry = entries.get(name)
        if not isinstance(entry, UntrustedEntry) or not os.environ.get(entry.api_key_env, "").strip():
            continue
        if attended() and await asked(_question(name, entry)) == "y":
            keep(entry.use)
            entries[name] = plain(entry)
    return msgspec.structs.replace(settings, models=msgspec.structs.replace(models, entries=entries))


def plain(entry: UntrustedEntry) -> ModelEntry:
    """Return the entry as a trusted one, after a yes."""
    return ModelEntry(**{field: getattr(entry, field) for field in ModelEntry.__struct_fields__})


def keep(use: str) -> None:
    """Write a yes into the person's own settings (M2)."""
    file = user_file()
    known = file.get("models", "trusted_keys") or []
    if use not in known:
        file.change({("models", "trusted_keys"): [*known, use]})


def take_back(use: str) -> bool:
    """Remove a yes; whether there was one."""
    file = user_file()
    known = file.get("models", "trusted_keys") or []
    if use not in known:
        return False
    file.change({("models", "trusted_keys"): [item for item in known if item != use] or None})
    return True


def keep_own(entry: ModelEntry) -> None:
    """Keep a yes for an entry that the person typed, so that nobody asks about it again."""
    if not (use := key_use(entry, Path())):
        return
    try:
        keep(use)
    except Problem as problem:
        note(f"You will be asked about this key when it is first used: {problem.message}")


def _question(name: str, entry: ModelEntry) -> str:
    from forestay import models

    return f"The model {name} of this project sends {models.sends(entry)}. Let it, always? [y/N] "
