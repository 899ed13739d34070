"""Connectors: the small set of things that a host call can do. They know no guest and no language."""
