"""CRP over HTTP: `/crp` of the host, for each tenant its own; `crp_app` is a server of its own."""

from forestay.relay import Relay
from forestay.surface.crp import operations as _sidecar
from forestay.surface.crp.app import crp_app
from forestay.surface.crp.tenants import Sidecars
from forestay.surface.operations import Operation

__all__ = ["crp_app", "operations"]


def operations(relay: Relay) -> list[Operation]:
    """The sidecar of a host, for every tenant."""
    return _sidecar.operations(Sidecars(relay).of)
