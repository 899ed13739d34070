"""Every way out of a sandbox is bounded before the host reads it, and a cut says so (Y1, Y2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.extensions.dispatcher_world import World
from tests.extensions.runtime_world import TableDispatcher, extension, text_of, tool

from forestay.extensions.engine.limits import Limits
from forestay.kernel import Problem, redaction

HUGE = "'E'.repeat(2e7)"
ROOMY = Limits(memory_mb=512, slice_ms=30_000)
FEW = 200_000  # characters: all that any of these may leave on the host's side


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each text that redaction looked at."""
    lengths: list[int] = []
    original = redaction.redact_text

    def counted(text: str) -> str:
        lengths.append(len(text))
        return original(text)

    for place in ("forestay.kernel.redaction", "forestay.kernel.problems", "forestay.extensions.host_call"):
        monkeypatch.setattr(f"{place}.redact_text", counted)
    return lengths


@pytest.mark.parametrize(
    "thrown",
    [
        f"new Error({HUGE})",
        HUGE,
        f"Object.assign(new Error('x'), {{ stack: {HUGE} }})",
        f"Object.assign(new Error('x'), {{ name: {HUGE} }})",
        f"Object.assign(new Error('x'), {{ code: {HUGE} }})",
        f"{{ get message() {{ return {HUGE} }} }}",
        f"{{ toString() {{ return {HUGE} }} }}",
        f"new Error('m', {{ cause: {HUGE} }})",
        f"new AggregateError([new Error({HUGE})], {HUGE})",
        "new Error('E\\ud800'.repeat(8e5))",
    ],
)
async def test_whatever_a_tool_throws_is_read_in_part(thrown: str, read: list[int]) -> None:
    subject = extension(tool(f"throw {thrown}"), limits=ROOMY)
    await subject.load()
    outcome = await subject.call_tool("go", {})
    assert outcome.is_error
    assert len(msgspec.json.encode(outcome)) < FEW
    assert sum(read) < FEW
    await subject.close()


async def test_a_cut_tells_how_long_the_text_was() -> None:
    subject = extension(tool(f"throw new Error({HUGE})"), limits=ROOMY)
    await subject.load()
    assert "[cut: the first 16384 of 20000000 characters]" in text_of(await subject.call_tool("go", {}))
    await subject.close()


async def test_a_message_of_ordinary_length_stays_as_it_is() -> None:
    subject = extension(tool("throw new Error('E'.repeat(10000))"))
    await subject.load()
    assert text_of(await subject.call_tool("go", {})) == "E" * 10_000
    await subject.close()


@pytest.mark.parametrize(
    "body",
    [
        f"Promise.reject(new Error({HUGE})); return 'on'",
        f"setTimeout(() => {{ throw new Error({HUGE}) }}, 0); await new Promise((r) => setTimeout(r, 5)); return 'on'",
        f"queueMicrotask(() => {{ throw new Error({HUGE}) }}); return 'on'",
        "for (let i = 0; i < 5000; i++) Promise.reject(new Error('many' + i)); return 'on'",
        "for (let i = 0; i < 5000; i++) setTimeout(() => { throw new Error('many') }, 0); return 'on'",
        "for (let i = 0; i < 5000; i++) queueMicrotask(() => { throw new Error('many') }); return 'on'",
    ],
)
async def test_errors_that_nobody_waits_for_are_bounded_in_size_and_number(body: str, read: list[int]) -> None:
    told: list[Any] = []
    subject = extension(tool(body), limits=ROOMY, report=lambda event, data: told.append((event, data)))
    await subject.load()
    assert text_of(await subject.call_tool("go", {})) == "on"
    assert all(len(msgspec.json.encode(item)) < FEW for item in told)
    assert sum(read) < FEW
    await subject.close()


async def test_many_rejections_of_one_tick_are_counted() -> None:
    told: list[Any] = []
    subject = extension(
        tool("for (let i = 0; i < 5000; i++) Promise.reject(new Error('many')); return 'on'"),
        report=lambda event, data: told.append(data["message"]),
    )
    await subject.load()
    await subject.call_tool("go", {})
    assert len(told) == 33
    assert "4968 more promises" in told[-1]
    await subject.close()


@pytest.mark.parametrize(
    "answer",
    [
        HUGE,
        f"{{ content: [{{ type: 'text', text: {HUGE} }}] }}",
        f"{{ content: [], details: {{ a: {HUGE} }} }}",
        "{ content: [], details: Object.fromEntries([...Array(3e5).keys()].map((i) => ['k' + i, i])) }",
        "{ content: [], details: Array(3e6).fill(0) }",
    ],
)
async def test_an_answer_is_whole_or_refused(answer: str) -> None:
    subject = extension(tool(f"return {answer}"), limits=ROOMY)
    await subject.load()
    with pytest.raises(Problem) as caught:
        await subject.call_tool("go", {})
    assert caught.value.key == "payload_too_large"
    assert "at most 4194304 are taken" in caught.value.message
    await subject.close()


async def test_a_large_answer_that_fits_is_whole() -> None:
    subject = extension(tool("return 'x'.repeat(4e6)"), limits=ROOMY)
    await subject.load()
    assert text_of(await subject.call_tool("go", {})) == "x" * 4_000_000
    await subject.close()


@pytest.mark.parametrize("what", ["command", "hook", "render", "load"])
async def test_every_other_answer_is_bounded_too(what: str, read: list[int]) -> None:
    begin = f"throw new Error({HUGE});" if what == "load" else ""
    subject = extension(
        f"""export default (pi) => {{ {begin}
        pi.registerCommand('c', {{ handler: async () => {HUGE} }});
        pi.on('input', () => ({{ action: 'transform', text: {HUGE} }}));
        pi.registerMessageRenderer('m', () => ({{ render: () => [{HUGE}] }})) }}""",
        limits=ROOMY,
    )
    with pytest.raises(Problem) as caught:
        await subject.load()
        if what == "command":
            await subject.run_command("c")
        elif what == "hook":
            await subject.hook({"type": "input", "text": "hello"}, 0)
        else:
            await subject.render("m", {})
    assert len(msgspec.json.encode(caught.value.as_lafs())) < FEW
    assert sum(read) < FEW
    await subject.close()


async def test_an_update_that_is_too_large_says_so_in_its_place() -> None:
    subject = extension(tool(f"onUpdate({{ content: {HUGE} }}); onUpdate('fine'); return 'done'"), limits=ROOMY)
    await subject.load()
    outcome = await subject.call_tool("go", {})
    assert "left out: this update has" in outcome.updates[0]["content"][0]["text"]
    assert outcome.updates[1] == "fine"
    await subject.close()


async def test_updates_are_kept_up_to_a_size() -> None:
    body = "const big = 'x'.repeat(2 ** 21); for (let i = 0; i < 12; i++) { onUpdate(big); await new Promise((r) => setTimeout(r, 0)) } return 'done'"
    subject = extension(tool(body), limits=ROOMY)
    await subject.load()
    heard: list[Any] = []
    outcome = await subject.call_tool("go", {}, on_update=heard.append)
    assert (len(outcome.updates), len(heard)) == (7, 12)
    await subject.close()


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        (f"pi.registerCommand({HUGE}, {{ handler() {{}} }})", ("registration_invalid", "extension_memory")),
        ("pi.registerCommand('n'.repeat(300), { handler() {} })", ("registration_invalid",)),
        ("for (let i = 0; i < 20; i++) pi.registerCommand('c' + i, { description: 'd'.repeat(1e6), handler() {} })", ("registration_invalid",)),
        ("for (let i = 0; i < 30000; i++) pi.registerCommand('again', { handler() {} })", ("extension_memory",)),
    ],
)  # fmt: skip
async def test_registrations_are_bounded(body: str, keys: tuple[str, ...]) -> None:
    subject = extension(f"export default (pi) => {{ {body} }}", limits=ROOMY)
    with pytest.raises(Problem) as caught:
        await subject.load()
    assert caught.value.key in keys
    assert len(msgspec.json.encode(caught.value.as_lafs())) < FEW


@pytest.mark.parametrize("number", ["9" * 5_000, "1" * 20])
async def test_a_forged_stack_is_no_reason_to_fail(number: str) -> None:
    body = f"throw Object.assign(new Error('x'), {{ stack: 'at f (index.js:{number}:1)' }})"
    subject = extension(tool(body), TableDispatcher())
    await subject.load()
    assert text_of(await subject.call_tool("go", {})) == "x"
    await subject.close()


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("fs", {"op": "access", "path": "E" * 3_000_000}),
        ("log", {"message": "x", "name": "E" * 3_000_000}),
        ("fs", {"op": "mkdtemp", "prefix": "E" * 3_000_000}),
        ("http", {"url": "http://" + "e" * 3_000_000}),
        ("env", {"name": "E" * 3_000_000}),
        ("tool", {"name": "read", "input": {"path": "E" * 3_000_000}}),
        ("tool", {"name": "E" * 3_000_000}),
        ("session", {"op": "sendMessage", "args": [{"content": "E" * 3_000_000}]}),
        ("session", {"op": "appendEntry", "args": ["x", list(range(500_000))]}),
        ("session", {"op": "E" * 500_000}),
        ("ui", {"op": "notify", "message": "E" * 3_000_000}),
        ("ui", {"op": "setWidget", "lines": ["E"] * 500_000}),
        ("events", {"op": "emit", "channel": "c", "data": "E" * 3_000_000}),
        ("E" * 3_000_000, {}),
    ],
)
def test_d8_a_host_call_is_weighed_before_anything_reads_it(
    tmp_path: Path, read: list[int], method: str, params: dict[str, Any]
) -> None:
    world = World(tmp_path, mode="permissive")
    result = world.dispatcher.call_sync(world.request(method, params), "ext.test")
    assert result.is_error
    assert sum(read) < FEW
    world.evidence.flush()
    assert all(len(msgspec.json.encode(record.payload)) < 10_000 for record in world.records())
    world.close()


@pytest.mark.parametrize(
    "data", ["E" * 900_000, ["E" * 1_000] * 500, {f"k{i}": i for i in range(50_000)}, [[[[[["deep"]]]]]] * 1_000]
)
def test_a_log_line_is_cut_and_says_so(tmp_path: Path, read: list[int], data: Any) -> None:
    world = World(tmp_path, mode="permissive")
    request = world.request("log", {"message": "E" * 3_000_000, "data": data})
    assert not world.dispatcher.call_sync(request, "ext.test").is_error
    _, _, _, message, kept = world.logged[0]
    assert "[cut: the first 4096 of 3000000 characters]" in message
    assert "[cut: " in str(kept)
    assert len(str(kept)) < 60_000
    assert sum(read) < FEW
    world.close()
