"""What a person types, what is suggested to them, and what an extension meets that asks for WebAssembly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from forestay.extensions.connectors.ui import ScriptedUi
from forestay.extensions.extensions import Extensions
from forestay.kernel import Ledger

INPUT = """
export default function (pi) {
  pi.on("session_start", (_event, ctx) => {
    ctx.ui.addAutocompleteProvider((current) => ({ ...current, async getSuggestions(lines, line, column, options) {
      if (!lines[line].slice(0, column).endsWith("#")) return current.getSuggestions(lines, line, column, options);
      return { items: [{ value: "#12", label: "a leak" }], prefix: "#" }; } }));
    const stop = ctx.ui.onTerminalInput((data) => (data === "x" ? { consume: true } : { data: data.toUpperCase() }));
    ctx.ui.onTerminalInput((data) => { if (data === "END") stop(); throw new Error("a listener that fails"); });
    for (const wrong of [() => ctx.ui.onTerminalInput(), () => ctx.ui.addAutocompleteProvider({})]) {
      try { wrong(); } catch (error) { ctx.ui.notify(error.message); }
    }
  });
  pi.registerCommand("ask", { handler: async (_args, ctx) => ctx.ui.custom((_tui, _theme, _keys, done) => {
    let text = "";
    return { render: () => [text], handleInput: (data) => { text += data; if (data === "\\r") done(text.trim()); } };
  }) });
}
"""
WASM = """
export default function (pi) {
  pi.registerTool({ name: "wasm", label: "w", description: "d", parameters: { type: "object", properties: {} },
    async execute() {
      const met = [typeof WebAssembly, WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))];
      try { await WebAssembly.instantiate(new Uint8Array(8)); } catch (error) { met.push(error.code, error.message); }
      try { new WebAssembly.Memory({ initial: 1 }); }
      catch (error) { met.push(error instanceof WebAssembly.CompileError); }
      return { content: [{ type: "text", text: JSON.stringify(met) }] };
    } });
}
"""


def play(folder: Path, source: str, story: Callable[[Extensions], Coroutine[Any, Any, None]], ui: Any = None) -> None:
    (folder / "one.ts").write_text(source)

    async def whole() -> None:
        async with (
            Ledger.open(folder / "l.db") as ledger,
            Extensions(ledger, root=folder, mode="permissive", ui=ui) as suite,
        ):
            await suite.load(folder / "one.ts")
            await suite.emit({"type": "session_start", "reason": "startup"})
            await story(suite)

    asyncio.run(whole())


def test_suggestions_come_from_the_providers_that_were_added(tmp_path: Path) -> None:
    async def story(suite: Extensions) -> None:
        found = await suite.autocomplete(["see #"], 0, 5)
        assert found == {"items": [{"value": "#12", "label": "a leak"}], "prefix": "#"}
        assert await suite.autocomplete(["see"], 0, 3) is None
        said = [call["message"] for call in suite.ui.calls if call["op"] == "notify"]  # type: ignore[attr-defined]
        assert [text.split(" ")[0] for text in said] == ["onTerminalInput", "addAutocompleteProvider"]

    play(tmp_path, INPUT, story)


def test_listeners_change_or_keep_what_is_typed_until_they_are_taken_away(tmp_path: Path) -> None:
    async def story(suite: Extensions) -> None:
        assert await suite.typed("abc") == "ABC"
        assert await suite.typed("x") is None
        assert await suite.typed("end") == "END"
        assert await suite.typed("abc") == "abc"

    play(tmp_path, INPUT, story)


def test_keys_for_a_component_pass_the_listeners(tmp_path: Path) -> None:
    async def story(suite: Extensions) -> None:
        assert await suite.run_command("ask") == "HI"

    play(tmp_path, INPUT, story, ScriptedUi([{"keys": ["h", "x", "i", "\r"]}]))


def test_webassembly_says_that_it_is_not_there(tmp_path: Path) -> None:
    async def story(suite: Extensions) -> None:
        outcome = await suite.call_tool("wasm", {})
        kind, valid, code, message, same = json.loads(outcome.content[0]["text"])
        assert (kind, valid, code, same) == ("object", False, "ERR_WASM_UNAVAILABLE", True)
        assert "not available inside an extension's sandbox" in message

    play(tmp_path, WASM, story)
