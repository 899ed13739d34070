"""CRP over HTTP: the sidecar, mounted at `/crp` or served by itself (CRP C9)."""

from forestay.http.crp.app import crp_app

__all__ = ["crp_app"]
