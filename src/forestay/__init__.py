"""forestay: an agent host that you can trust with other people's code."""

__version__ = "0.1.0"
