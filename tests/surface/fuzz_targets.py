"""Targets of the surfaces: bodies, queries and forms."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from forestay.kernel import Problem, canonical
from forestay.surface.completions.chat import ChatRequest, _message
from forestay.surface.completions.messages import MessagesRequest, _messages
from forestay.surface.completions.responses import ResponseRequest, _said
from forestay.surface.crp import bodies
from forestay.surface.hostapi.runs import RunsQuery
from forestay.surface.reading import parse_form, parse_json, read_query
from tests.fuzz.target import lines_of, target

_JSON = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1", b'""', b"{}", b"[]")


def _request(query: str = "", kind: str = "application/json") -> Request:
    headers = [(b"content-type", kind.encode("latin-1", "replace"))]
    return Request(
        {"type": "http", "method": "POST", "query_string": query.encode("ascii", "replace"), "headers": headers}
    )


_BODIES: list[Any] = [
    *(bodies.CreateSession, bodies.DispatchRequest, bodies.AgenticRequest, bodies.IngestRequest, bodies.RpcRequest),
    *(list[bodies.RpcRequest], ChatRequest, MessagesRequest, ResponseRequest),
]


@target(
    [
        "surface.reading",
        "surface.completions.request_parts",
        "surface.completions.chat",
        "surface.completions.messages",
    ],
    [
        b'\x04{"jsonrpc":"2.0","id":1,"method":"crp.dispatch","params":{"task":"x"}}',
        b'\x06{"model":"a","messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"tool",'
        b'"tool_call_id":"c","content":"y"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":'
        b'{"name":"n","arguments":"{}"}}]}]}',
        b'\x07{"model":"a","max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":'
        b'[{"type":"tool_use","id":"i","name":"n","input":{}}]}]}',
        b'\x08{"model":"a","input":[{"type":"message","role":"user","content":"x"},{"type":"function_call_output",'
        b'"call_id":"c","output":"y"}]}',
        b'\x01{"task_input":"x","system_prompt":"y","max_output_tokens":1.0}',
    ],
    (*_JSON, b'"role":"tool"', b'"content":', b'"tool_calls":', b'"type":"tool_result"', b'"params":', b'"id":null'),
)
def request_body(data: bytes) -> None:
    """The body of a request at one of the doors; the first byte says which."""
    number, rest = (data[0] % len(_BODIES) if data else 0), data[1:]
    found = parse_json(_request(), rest, _BODIES[number])
    if isinstance(found, ChatRequest):
        [_message(item, at) for at, item in enumerate(found.messages)]
    elif isinstance(found, MessagesRequest):
        [list(_messages(item, at)) for at, item in enumerate(found.messages)]
    elif isinstance(found, ResponseRequest) and isinstance(found.input, list):
        _said(found.input)


@target(
    ["surface.reading"],
    [b"limit=10&status=running\na=b&c=d%20e+f", b"limit=-1\n%ff=%00", b"limit=1&limit=2\n"],
    (b"limit=", b"status=", b"&", b"=", b"%00", b"%ff", b"+", b";", b"null", b"true", b"cursor="),
)
def query_and_form(data: bytes) -> None:
    """A query, and a form of the same shape."""
    query, rest = lines_of(data, 2)
    for work in (
        lambda: canonical.encode(read_query(_request(query), RunsQuery)),
        lambda: canonical.encode(parse_form(_request(kind="application/x-www-form-urlencoded"), rest.encode())),
    ):
        try:
            work()
        except Problem as problem:
            canonical.encode(problem.as_lafs())
