"""The web console: server-rendered pages to watch and steer a host. `console(...)` is an ASGI application."""

from forestay.console.app import PAGES, console, mounts

__all__ = ["PAGES", "console", "mounts"]
