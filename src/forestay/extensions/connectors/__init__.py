"""Connectors: each performs the host calls of one method. They do not depend on the guest or its language."""
