"""The composition root: opens a data folder and builds what serves it, once."""

from holdfast.host.opening import Host, Options, open_host

__all__ = ["Host", "Options", "open_host"]
