"""The composition root: `async with Host.open(config) as host` builds everything once and closes it."""

from forestay.host.opening import Host, Options, open_host

__all__ = ["Host", "Options", "open_host"]
