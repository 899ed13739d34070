"""The host's own API at `/host/v1`, in LAFS envelopes; its OpenAPI document lists what is wired here."""

from __future__ import annotations

from forestay.surface.hostapi import (
    agents,
    budgets,
    contexts,
    credentials,
    extensions,
    grants,
    keys,
    ledger,
    memory,
    oauth,
    organisation,
    policy,
    runs,
    session_ui,
    sessions,
    suites,
    triggers,
)
from forestay.surface.openapi import About, openapi
from forestay.surface.operations import Operation
from forestay.surface.services import Services


def operations(services: Services) -> list[Operation]:
    """Return every operation of the host's own API."""
    host = services.host
    made = [
        *extensions.api.of(host),
        *grants.api.of(host),
        *ledger.api.of(host),
        *agents.api.of(host),
        *sessions.api.of(host),
        *runs.api.of(host),
        *session_ui.api.of(host),
        *budgets.api.of(host),
        *organisation.api.of(host),
        *suites.api.of(host),
        *triggers.api.of(host),
        *triggers.signed.of(host),
        *memory.api.of(host),
        *credentials.api.of(host),
        *oauth.api.of(host),
        *contexts.api.of(contexts.Contexts(host)),
        *keys.api.of(services),
        *policy.api.of(services),
    ]
    about = About("The host's own API, in LAFS envelopes.")
    made.append(openapi("host.openapi", "/host/v1/openapi.json", lambda: made, lambda: about))
    return made
