"""CRP over HTTP: `/crp` of the host, for each tenant its own; `crp_app` is a server of its own."""

from forestay.surface.crp.app import crp_app, operations, schemas

__all__ = ["crp_app", "operations", "schemas"]
