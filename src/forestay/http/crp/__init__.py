"""CRP over HTTP: `/crp` of the host, for each tenant its own; `crp_app` is a server of its own."""

from forestay.http.crp import operations as _sidecar
from forestay.http.crp.app import crp_app
from forestay.http.crp.tenants import Sidecars
from forestay.http.operations import Operation
from forestay.relay import Relay

__all__ = ["crp_app", "operations"]


def operations(relay: Relay) -> list[Operation]:
    """The sidecar of a host, for every tenant."""
    return _sidecar.operations(Sidecars(relay).of)
