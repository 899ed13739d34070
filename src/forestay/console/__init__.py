"""The web console: server-rendered pages to watch and steer a host; `serve(console=Console)` serves them."""

from forestay.console.pages import PAGES, Console

__all__ = ["PAGES", "Console"]
