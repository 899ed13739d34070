# ruff: noqa: E501 - a JavaScript program in a string reads best on its own line
"""Tools, commands, flags, renderers and providers of one extension, through a real VM."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.extensions.runtime_world import TableDispatcher, extension, text_of, tool

from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.outcomes import Surroundings
from forestay.extensions.protocol import HostCall, HostResult
from forestay.kernel import ManualClock, Problem


async def _loaded(source: str, dispatcher: TableDispatcher | None = None, **options: Any) -> JavaScriptGuest:
    subject = extension(source, dispatcher, **options)
    await subject.load()
    return subject


async def test_a_tool_gets_its_arguments_and_answers() -> None:
    subject = await _loaded(
        tool("return { content: [{ type: 'text', text: params.a + ctx.cwd + id }], details: { b: 1 } }")
    )
    outcome = await subject.call_tool("go", {"a": "x"}, call_id="7")
    assert text_of(outcome) == "x/project7"
    assert outcome.details == {"b": 1}
    assert not outcome.is_error
    await subject.close()


async def test_updates_come_in_order_and_before_the_result() -> None:
    subject = await _loaded(tool("for (let i = 0; i < 3; i++) { onUpdate({ i }); await 0 } return 'done'"))
    seen: list[Any] = []
    outcome = await subject.call_tool("go", {}, on_update=seen.append)
    assert seen == outcome.updates == [{"i": 0}, {"i": 1}, {"i": 2}]
    await subject.close()


async def test_a_tool_that_throws_has_an_error_result_with_its_place() -> None:
    subject = await _loaded(tool("\nthrow new RangeError('too far')"))
    outcome = await subject.call_tool("go", {})
    assert outcome.is_error
    assert text_of(outcome) == "too far"
    assert outcome.problem is not None
    assert outcome.problem["details"]["at"].startswith("index.js:2:")
    await subject.close()


async def test_missing_arguments_never_reach_the_tool() -> None:
    subject = await _loaded(tool("globalThis.ran = true", parameters='{type:"object",required:["a"]}'))
    with pytest.raises(Problem, match='Validation failed for tool "go"'):
        await subject.call_tool("go", {})
    await subject.close()


async def test_a_tool_may_prepare_its_arguments_first() -> None:
    subject = await _loaded(
        """export default (pi) => pi.registerTool({ name: "go", description: "d",
          parameters: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
          prepareArguments: (args) => ({ n: args.old }), execute: async (id, params) => typeof params.n + params.n })"""
    )
    assert text_of(await subject.call_tool("go", {"old": "5"})) == "number5"
    await subject.close()


async def test_unknown_names_are_not_found() -> None:
    subject = await _loaded(tool("return ''"))
    for call in (subject.call_tool("no", {}), subject.run_command("no"), subject.press("no")):
        with pytest.raises(Problem) as caught:
            await call
        assert caught.value.key == "not_found"
    await subject.close()


async def test_a_tool_that_never_answers_times_out_and_its_signal_is_raised(clock: ManualClock) -> None:
    source = """let aborted = "no";
    export default (pi) => {
      const add = (name, execute) => pi.registerTool({ name, description: "d", parameters: { type: "object" }, execute });
      add("wait", (id, params, signal) => new Promise(() => { signal?.addEventListener("abort", () => { aborted = "yes" }) }));
      add("aborted", async () => aborted);
    }"""
    subject = await _loaded(source, clock=clock, deadline=5.0)
    before = clock.now_ms()
    with pytest.raises(Problem) as caught:
        await subject.call_tool("wait", {})
    assert caught.value.key == "extension_timeout"
    assert clock.now_ms() - before >= 5_000
    assert subject.traps == 0
    assert text_of(await subject.call_tool("aborted", {})) == "yes"
    await subject.close()


async def test_timers_wait_in_the_hosts_time(clock: ManualClock) -> None:
    subject = await _loaded(
        tool("await new Promise((r) => setTimeout(r, 3_600_000)); return 'later'"), clock=clock, deadline=7200.0
    )
    before = clock.now_ms()
    assert text_of(await subject.call_tool("go", {})) == "later"
    assert clock.now_ms() - before >= 3_600_000
    await subject.close()


async def test_host_calls_carry_method_params_and_timeout() -> None:
    dispatcher = TableDispatcher(tool=lambda call: {"content": call.params["input"]})
    subject = await _loaded(
        _with_pi("return JSON.stringify(await pi.tool('read', { path: 'a' }, { timeout: 1500 }))"), dispatcher
    )
    assert text_of(await subject.call_tool("go", {})) == '{"content":{"path":"a"}}'
    (call,) = dispatcher.calls
    assert (call.method, call.params, call.timeout_ms) == ("tool", {"name": "read", "input": {"path": "a"}}, 1500)
    assert call.call_id == "test/1.1"
    await subject.close()


def _with_pi(body: str) -> str:
    return f"""export default (pi) => pi.registerTool({{ name: "go", description: "d", parameters: {{ type: "object" }},
      async execute(id, params, signal, onUpdate, ctx) {{ {body} }} }})"""


async def test_a_refused_host_call_is_an_error_with_its_code() -> None:
    subject = await _loaded(
        _with_pi("try { await pi.http('http://x') } catch (e) { return e.name + e.code + e.details.capability }")
    )
    assert text_of(await subject.call_tool("go", {})) == "HostErrordeniedhttp"
    await subject.close()


async def test_a_refusal_that_nobody_catches_names_the_host_call() -> None:
    subject = await _loaded(_with_pi("await pi.http('http://x')"))
    outcome = await subject.call_tool("go", {})
    assert outcome.is_error
    assert outcome.hostcall == "denied"
    await subject.close()


async def test_streamed_results_arrive_in_order() -> None:
    dispatcher = TableDispatcher(tool=lambda call: [{"n": n} for n in range(5)])
    subject = await _loaded(
        _with_pi(
            "const seen = []; const last = await pi.tool('x', {}, { onChunk: (c) => seen.push(c.n) }); return seen + '|' + last.n"
        ),
        dispatcher,
    )
    assert text_of(await subject.call_tool("go", {})) == "0,1,2,3,4|4"
    await subject.close()


async def test_many_host_calls_at_once_each_get_their_own_answer() -> None:
    async def slow(call: HostCall) -> dict[str, Any]:
        await asyncio.sleep((call.params["input"]["n"] * 7) % 5)
        return {"n": call.params["input"]["n"]}

    subject = await _loaded(
        _with_pi(
            "return (await Promise.all([...Array(50).keys()].map((n) => pi.tool('x', { n })))).map((r) => r.n).join()"
        ),
        TableDispatcher(tool=slow),
    )
    assert text_of(await subject.call_tool("go", {})) == ",".join(str(n) for n in range(50))
    await subject.close()


async def test_a_dispatcher_that_breaks_is_an_internal_error_in_javascript() -> None:
    def broken(call: HostCall) -> dict[str, Any]:
        raise RuntimeError("the host's own business")

    subject = await _loaded(
        _with_pi("try { await pi.tool('x') } catch (e) { return e.code + e.message }"), TableDispatcher(tool=broken)
    )
    text = text_of(await subject.call_tool("go", {}))
    assert text.startswith("internal")
    assert "business" not in text
    await subject.close()


EXEC = "const r = await pi.exec('x', ['a', 1], { timeout: 5 }); return JSON.stringify(r)"


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ({"stdout": "o", "stderr": "e", "code": 3}, '{"stdout":"o","stderr":"e","code":3,"exitCode":3,"killed":false}'),
        (
            HostResult.failed("x", "io", "ENOENT: not found"),
            '{"stdout":"","stderr":"","code":1,"exitCode":1,"killed":false}',
        ),
        (
            {"stdout": "part", "stderr": "", "code": 143, "killed": True},
            '{"stdout":"part","stderr":"","code":143,"exitCode":143,"killed":true}',
        ),
        (
            HostResult.failed("x", "timeout", "too long"),
            '{"stdout":"","stderr":"","code":0,"exitCode":0,"killed":true}',
        ),
    ],
)
async def test_exec_always_answers_as_pi_does(answer: Any, wanted: str) -> None:
    dispatcher = TableDispatcher(exec=lambda call: answer)
    subject = await _loaded(_with_pi(EXEC), dispatcher)
    assert text_of(await subject.call_tool("go", {})) == wanted
    assert dispatcher.calls[0].params == {"op": "run", "command": "x", "args": ["a", "1"], "timeout": 5}
    await subject.close()


async def test_exec_that_is_denied_throws() -> None:
    subject = await _loaded(_with_pi(EXEC))
    assert (await subject.call_tool("go", {})).hostcall == "denied"
    await subject.close()


async def test_the_context_reads_the_session_when_it_is_asked() -> None:
    def session(call: HostCall) -> dict[str, Any]:
        return {
            "value": {"getSessionId": "s1", "getEntries": [{"id": 1}], "getModel": {"id": "m"}, "isIdle": False}.get(
                call.params["op"]
            )
        }

    body = "return JSON.stringify([ctx.sessionManager.getSessionId(), ctx.sessionManager.getEntries(), ctx.model, ctx.isIdle(), ctx.hasUI, ctx.sessionManager.getBranch(), ctx.sessionManager.getLeafId() === undefined])"
    subject = await _loaded(_with_pi(body), TableDispatcher(session=session))
    assert text_of(await subject.call_tool("go", {})) == '["s1",[{"id":1}],{"id":"m"},false,false,[],true]'
    await subject.close()


async def test_models_are_the_hosts_and_so_are_its_keys() -> None:
    body = "const r = ctx.modelRegistry, m = r.find('p', 'm'); return JSON.stringify([r.getAll().length, m?.id, await r.getApiKeyAndHeaders({ provider: 'p' }), (await r.getApiKeyAndHeaders({ provider: 'q' })).ok, await r.getApiKeyForProvider('q') === undefined])"
    connected = TableDispatcher(model=lambda call: {"models": [{"provider": "p", "id": "m"}]})
    subject = await _loaded(_with_pi(body), connected)
    assert (
        text_of(await subject.call_tool("go", {}))
        == '[1,"m",{"ok":true,"apiKey":"managed-by-the-host","headers":{}},false,true]'
    )
    await subject.close()
    alone = TableDispatcher(
        model=lambda call: HostResult.failed(call.call_id, "invalid_request", "No model is connected.")
    )
    subject = await _loaded(_with_pi("return '' + ctx.modelRegistry.getAll().length"), alone)
    assert text_of(await subject.call_tool("go", {})) == "0"
    await subject.close()


async def test_the_command_context_controls_the_session() -> None:
    done: list[Any] = []

    def session(call: HostCall) -> dict[str, Any]:
        done.append((call.params["op"], call.params["args"]))
        return {"value": {"cancelled": call.params["op"] == "fork"}}

    source = """export default (pi) => pi.registerCommand("go", { handler: async (args, ctx) => {
      const out = [args];
      out.push((await ctx.newSession({ parentSession: "p", withSession: async (next) => { out.push(typeof next.sendMessage) } })).cancelled);
      out.push((await ctx.fork("e1", { position: "at", withSession: async () => out.push("never") })).cancelled);
      out.push((await ctx.navigateTree("t1")).cancelled, (await ctx.switchSession("f")).cancelled);
      await ctx.waitForIdle(); await ctx.reload();
      return out } })"""
    subject = await _loaded(source, TableDispatcher(session=session))
    assert await subject.run_command("go", "the args") == ["the args", "function", False, True, False, False]
    assert [name for name, _ in done] == [
        "newSession",
        "fork",
        "navigateTree",
        "switchSession",
        "waitForIdle",
        "reload",
    ]
    assert done[0][1] == [{"parentSession": "p"}]
    await subject.close()


async def test_dialogs_without_anybody_answer_as_pi_does() -> None:
    body = "return JSON.stringify([await ctx.ui.select('t', ['a']), await ctx.ui.confirm('t', 'm'), await ctx.ui.input('t'), await ctx.ui.editor('t'), await ctx.ui.custom(() => 1)].map((v) => v === undefined ? 'nothing' : v))"
    subject = await _loaded(_with_pi(body))
    assert text_of(await subject.call_tool("go", {})) == '["nothing",false,"nothing","nothing","nothing"]'
    await subject.close()


async def test_dialogs_with_somebody_get_the_answer() -> None:
    answers = {"select": "b", "confirm": True, "input": "typed", "custom": {"keys": ["x", "q"]}}
    shown: list[dict[str, Any]] = []

    def ui(call: HostCall) -> dict[str, Any]:
        shown.append(call.params)
        return {"value": answers.get(call.params["op"])}

    body = """const out = [await ctx.ui.select('t', ['a', 'b']), await ctx.ui.confirm('t', 'm'), await ctx.ui.input('t')];
      out.push(await ctx.ui.custom((tui, theme, keys, done) => { let seen = ""; return {
        render: (width) => [theme.fg("accent", "seen " + seen)], handleInput: (key) => { seen += key; if (key === "q") done(seen) } } }));
      ctx.ui.notify("hello", "warning"); ctx.ui.setStatus("k", "v"); return JSON.stringify(out)"""
    subject = await _loaded(_with_pi(body), TableDispatcher(ui=ui), surroundings=Surroundings("test", "/", has_ui=True))
    assert text_of(await subject.call_tool("go", {})) == '["b",true,"typed","xq"]'
    assert [params["op"] for params in shown] == ["select", "confirm", "input", "custom", "notify", "setStatus"]
    assert shown[3]["lines"] == ["seen "]
    assert shown[4] == {"op": "notify", "message": "hello", "type": "warning"}
    await subject.close()


async def test_a_dialog_that_policy_denies_is_an_error() -> None:
    subject = await _loaded(
        _with_pi("await ctx.ui.confirm('t', 'm')"), surroundings=Surroundings("test", "/", has_ui=True)
    )
    assert (await subject.call_tool("go", {})).hostcall == "denied"
    await subject.close()


async def test_flags_have_their_default_and_then_what_the_host_says() -> None:
    source = """export default (pi) => { pi.registerFlag("f", { type: "string", default: "d" });
      pi.registerCommand("f", { handler: async () => [pi.getFlag("f"), pi.getFlag("other")] }) }"""
    subject = await _loaded(source)
    assert await subject.run_command("f") == ["d", None]
    subject.set_flag("f", "mine")
    assert await subject.run_command("f") == ["mine", None]
    with pytest.raises(Problem):
        subject.set_flag("f", True)
    with pytest.raises(Problem):
        subject.set_flag("unknown", "x")
    await subject.close()


async def test_renderers_draw_lines() -> None:
    source = """export default (pi) => { pi.registerMessageRenderer("note", (message, options, theme) => ({ render: (width) => [message.text, "" + width, "" + options.expanded] }));
      pi.registerTool({ name: "t", description: "d", parameters: { type: "object" }, execute: async () => "",
        renderCall: (args) => ({ render: () => ["call " + args.a] }), renderResult: (result) => ({ render: () => ["result " + result.details] }) }) }"""
    subject = await _loaded(source)
    assert await subject.render("note", {"text": "hi"}, expanded=True, width=40) == ["hi", "40", "true"]
    assert await subject.render_tool("t", {"a": 1}) == ["call 1"]
    assert await subject.render_tool("t", {"a": 1}, {"details": 2}) == ["result 2"]
    await subject.close()


async def test_a_provider_streams() -> None:
    source = """export default (pi) => pi.registerProvider("mine", { api: "custom", models: [{ id: "m" }], streamSimple: (model, context) => {
      const stream = (async function* () { for (const word of context.words) yield { type: "text_delta", delta: word } })();
      stream.result = async () => ({ role: "assistant", content: context.words.join(" ") + model.id });
      return stream } })"""
    subject = await _loaded(source)
    events: list[Any] = []
    result = await subject.stream("mine", {"id": "m"}, {"words": ["a", "b"]}, {}, events.append)
    assert [event["delta"] for event in events] == ["a", "b"]
    assert result["content"] == "a bm"
    await subject.close()


async def test_shortcuts_and_completions_run() -> None:
    source = """let pressed = 0; export default (pi) => { pi.registerShortcut("ctrl+p", { handler: () => { pressed++ } });
      pi.registerCommand("n", { handler: async () => pressed, getArgumentCompletions: (prefix) => [{ value: prefix + "!", label: prefix }] }) }"""
    subject = await _loaded(source)
    await subject.press("ctrl+p")
    assert await subject.run_command("n") == 1
    assert await subject.complete("n", "ab") == [{"value": "ab!", "label": "ab"}]
    await subject.close()


async def test_the_bus_reaches_local_handlers_and_the_host() -> None:
    dispatcher = TableDispatcher(events=lambda call: {})
    source = """const heard = []; export default (pi) => { const off = pi.events.on("c", (data) => { heard.push(data) });
      pi.registerCommand("emit", { handler: async () => { pi.events.emit("c", 1); return heard } });
      pi.registerCommand("off", { handler: async () => { off() } }) }"""
    subject = await _loaded(source, dispatcher)
    assert await subject.run_command("emit") == [1]
    subject.bus("c", {"from": "outside"})
    assert await subject.run_command("emit") == [1, {"from": "outside"}, 1]
    await subject.run_command("off")
    assert len(await subject.run_command("emit")) == 3
    assert dispatcher.calls[0].params == {"op": "emit", "channel": "c", "data": 1}
    await subject.close()


async def test_errors_that_nobody_waits_for_are_reported() -> None:
    reports: list[tuple[str, dict[str, Any]]] = []
    source = _with_pi(
        "setTimeout(() => { throw new Error('in a timer') }, 1); queueMicrotask(() => { throw new Error('in a microtask') }); Promise.reject(new Error('rejected')); await new Promise((r) => setTimeout(r, 5)); return 'ok'"
    )
    subject = await _loaded(source, report=lambda event, data: reports.append((event, data)))
    assert text_of(await subject.call_tool("go", {})) == "ok"
    assert [(event, data["where"], data["message"]) for event, data in reports] == [
        ("error", "microtask", "Error: in a microtask"),
        ("error", "unhandled", "Error: rejected"),
        ("error", "timer", "Error: in a timer"),
    ]
    await subject.close()


async def test_lone_surrogates_do_not_break_the_channel() -> None:
    subject = await _loaded(tool(r"return 'a\ud800b\\ud800' + params.x"))
    assert text_of(await subject.call_tool("go", {"x": "€"})) == "a�b\\ud800€"
    await subject.close()


async def test_closing_tells_whoever_waits() -> None:
    subject = await _loaded(tool("await new Promise(() => {})"))
    waiting = asyncio.create_task(subject.call_tool("go", {}))
    await asyncio.sleep(0.01)
    await subject.close()
    with pytest.raises(Problem) as caught:
        await waiting
    assert caught.value.key == "cancelled"
