"""Targets of runs: expressions, workflow documents, cron lines."""

from __future__ import annotations

from forestay.kernel import canonical
from forestay.runs import cron
from forestay.runs.check import check_workflow
from forestay.runs.expressions import compile_expression
from forestay.runs.nodes.core import standard_registry
from tests.fuzz.target import lines_of, target, text_of

_JSON = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1", b'""', b"{}", b"[]")


_SCOPE = {"input": {"a": [1, 2.5, "x", None, True], "b": "text", "c": {"d": -1}}, "n": 3, "s": "abc"}


@target(
    ["runs.expressions", "runs.values"],
    [
        b"input.a[0] + n * 2 >= 3 && !(s == 'abc')",
        b"{a: [1, 2], 'b': s + \"x\"}.a[1] ? 'y' : \"n\"",
        b"matches(s, '^a+') or 'x' in input.a and not null",
        b"upper(s) + lower(s) + 'x'",
        b"-n % 2 / 3 - 1e3 <= 4 !== 5",
    ],
    (
        *(word.encode() for word in ("&&", "||", "==", "===", "in ", "not ", "matches(", "length(", "contains(", "[")),
        *(b"input.a", b"'", b'"', b"\\u0041", b"(", b")", b"1e308", b"?", b":", b"{", b"}", b".", b"null", b"%"),
    ),
)
def expression(data: bytes) -> None:
    """An expression makes a value that JSON can carry, or says why not."""
    compile_expression.cache_clear()
    canonical.encode_strict(compile_expression(text_of(data)).evaluate(_SCOPE))


_WORKFLOW = (
    b'{"id":"w","name":"W","version":"1.0.0","nodes":[{"id":"a","typeId":"core.transform","name":"A","position":'
    b'{"x":0,"y":0},"config":{"expression":"input"},"inputs":{"v":{"type":"expression","expression":"n + 1"}}},'
    b'{"id":"b","typeId":"core.delay","name":"B","position":{"x":1,"y":0},"config":{},"inputs":{"v":{"type":'
    b'"connection","nodeId":"a","outputKey":"output"}}}],"edges":[{"id":"e","sourceNodeId":"a","targetNodeId":"b",'
    b'"condition":{"type":"expression","expression":"output > 1"},"triggerRule":"any_success"}],"triggers":'
    b'[{"id":"t","type":"manual"}],"variables":[{"name":"n","type":"number","defaultValue":1}],"metadata":{},'
    b'"settings":{}}'
)
_REGISTRY = standard_registry()


@target(
    ["runs.check", "runs.definition", "runs.shape"],
    [
        _WORKFLOW,
        _WORKFLOW.replace(b'"targetNodeId":"b"', b'"targetNodeId":"a"'),
        _WORKFLOW.replace(b"core.delay", b"core.dealy"),
    ],
    (
        *_JSON,
        b'"nodes":',
        b'"edges":',
        b'"inputs":',
        b'"config":',
        b'"type":"variable"',
        b'"settings":',
        b'"disabled":',
    ),
)
def workflow(data: bytes) -> None:
    """A workflow document, and everything that is wrong with it, as JSON."""
    _, found = check_workflow(canonical.decode(data), _REGISTRY)
    canonical.encode(found)


@target(
    ["runs.cron"],
    [b"*/5 * * * *\nEurope/Berlin", b"0 0 29 2 *\nUTC", b"0 9 * * MON#1\nAmerica/New_York", b"0 0 L * *\nAsia/Tokyo"],
    (b"*", b"/", b"-", b",", b"L", b"W", b"#", b"JAN", b"MON", b"@daily", b"UTC", b"Europe/", b"../", b"30 2"),
)
def cron_line(data: bytes) -> None:
    """A cron expression in a zone; the moments come in order."""
    expression, zone = lines_of(data, 2)
    cron.check(expression, zone)
    found = cron.between(expression, zone, 1_700_000_000_000, 1_800_000_000_000, 3)
    assert found == sorted(set(found)) and all(moment > 1_700_000_000_000 for moment in found)
