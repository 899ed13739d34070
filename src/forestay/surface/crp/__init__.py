"""CRP over HTTP: `/crp` of the host serves each tenant its own sessions; `crp_app` is a separate server."""

from forestay.surface.crp.app import crp_app, operations, schemas

__all__ = ["crp_app", "operations", "schemas"]
