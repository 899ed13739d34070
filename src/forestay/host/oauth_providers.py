"""The authorization servers of the settings, and with the test seams a sample one."""

from __future__ import annotations

import os

from forestay.governance import Provider
from forestay.host.sample_network import SampleNetwork
from forestay.kernel import Config

SAMPLE_PROVIDER = "synthetic"


def oauth_providers(config: Config, network: SampleNetwork | None) -> dict[str, Provider]:
    """Return the providers by id."""
    found = {
        name: Provider(
            id=name,
            auth_url=item.auth_url,
            token_url=item.token_url,
            client_id=item.client_id,
            client_secret=os.environ.get(item.client_secret_env, "") if item.client_secret_env else "",
            scopes=tuple(item.scopes),
            audiences=tuple(item.audiences),
        )
        for name, item in config.oauth.providers.items()
    }
    if network is not None:
        found[SAMPLE_PROVIDER] = Provider(
            id=SAMPLE_PROVIDER,
            auth_url=f"http://{network.place}/authorize",
            token_url=f"http://{network.place}/token",
            client_id="sample",
            audiences=(network.place,),
        )
    return found
