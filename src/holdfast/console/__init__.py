"""The web console: server-rendered pages to watch and steer a host. `console(...)` is an ASGI application."""

from holdfast.console.app import console, mounts

__all__ = ["console", "mounts"]
