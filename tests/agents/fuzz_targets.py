"""Targets of agents: prompts and manifests."""

from __future__ import annotations

from forestay.agents.manifest import parse
from forestay.agents.prompt_template import compose, read_ref, read_template
from forestay.kernel import canonical
from tests.fuzz.target import target

_JSON = (b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1", b'""', b"{}", b"[]")


_TEMPLATE = (
    b'{"templateId":"a","version":"1.0.0","kind":"system","name":"A","text":"Hi {{name}} {{x}}","variables":'
    b'[{"name":"name","type":"string","source":"input","extractPath":"$.a[0].b","required":false}]}'
)


@target(
    ["agents.prompt_template"],
    [_TEMPLATE + b'\n{"a":[{"b":"c"}]}', _TEMPLATE + b"\n{}", b'"prompt:a@1.0.0"\n{}'],
    (*_JSON, b"{{", b"}}", b'"text":', b'"variables":', b'"source":"variable"', b"$.a", b"[0]", b"prompt:"),
)
def prompt_template(data: bytes) -> None:
    """A prompt, filled with what a stranger sent."""
    first, second = data.partition(b"\n")[::2]
    document, inputs = canonical.decode(first), canonical.decode(second or b"{}", dict)
    if isinstance(document, str):
        read_ref(document)
    else:
        canonical.encode(compose(read_template(document), {"input": inputs, "variable": inputs}, {}, untrusted=True))


_AGENT = (
    b'{"agentId":"core.forestay.a","persona":"A","modelClass":"general","systemPrompt":"Be short.",'
    b'"toolAllowlist":["read"],"handoff":{"taskSchemaRef":"s.json","returnSchemaRef":"s.json"}}'
)


@target(
    ["agents.manifest"],
    [_AGENT, _AGENT.replace(b'"systemPrompt":"Be short."', b'"systemPromptRef":"../a.md"'), b"{}"],
    (
        *_JSON,
        b'"toolAllowlist":',
        b'"memoryShape":',
        b'"systemPromptRef":',
        b'"handoff":',
        b'"promptOverrides":',
        b"../",
    ),
)
def agent_manifest(data: bytes) -> None:
    """The manifest of an agent in a pack."""
    parse(canonical.decode(data), files={"a.md": "text", "s.json": "{}"})
