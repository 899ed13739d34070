"""A client of a running host: `AsyncClient` for coroutines, `Client` for plain code."""

from forestay.client.async_client import AsyncClient, AsyncRelaySession
from forestay.client.calls import Call
from forestay.client.client import Client, RelaySession

__all__ = ["AsyncClient", "AsyncRelaySession", "Call", "Client", "RelaySession"]
