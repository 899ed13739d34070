"""A client of a running host: `Client` for plain code, `AsyncClient` for coroutines, one set of calls for both."""

from forestay.client.answers import answer_of, problem_of
from forestay.client.calls import Call
from forestay.client.clients import AsyncClient, AsyncRelay, Client, RelaySession

__all__ = ["AsyncClient", "AsyncRelay", "Call", "Client", "RelaySession", "answer_of", "problem_of"]
