"""Connectors: the small set of things that a host call can do. Each knows nothing of JavaScript."""

from forestay.extensions.connectors.contract import Call, Connector, Session, Waiting

__all__ = ["Call", "Connector", "Session", "Waiting"]
