// Exercises every member of pi's ExtensionAPI, of ctx and of ctx.ui, one command each; the test looks at what happened.

const answers: Record<string, (event: any) => any> = {
  resources_discover: () => ({ skillPaths: ["skills"] }),
  context: (event) => ({ messages: [...event.messages, { role: "user", content: "added" }] }),
  before_agent_start: (event) => ({ systemPrompt: event.systemPrompt + " And be brief.", message: { customType: "n", content: "first", display: true } }),
  before_provider_request: (event) => ({ ...event.payload, temperature: 0 }),
  tool_call: (event) => { event.input.path = "b.txt"; return event.toolName === "rm" ? { block: true, reason: "not here" } : undefined; },
  tool_result: () => ({ content: [{ type: "text", text: "hidden" }] }),
  input: (event) => (event.text === "ping" ? { action: "handled" } : { action: "transform", text: event.text.toUpperCase() }),
  user_bash: () => ({ result: { output: "pretended", exitCode: 0, cancelled: false, truncated: false } }),
  message_end: (event) => ({ message: { ...event.message, content: "changed" } }),
  session_before_compact: (event) => ({ compaction: { summary: `${event.branchEntries.length} entries`, firstKeptEntryId: event.preparation.firstKeptEntryId, tokensBefore: 7 } }),
  session_before_tree: (event) => (event.preparation.userWantsSummary ? { summary: { summary: "left behind" } } : undefined),
};

export default function (pi: any) {
  const state: any = { cancel: false, bus: [], keys: [] };
  for (const name of EVENT_NAMES) {
    pi.on(name, (event: any, ctx: any) => {
      ctx.ui.setStatus(name, JSON.stringify(event));
      if (state.cancel && name.startsWith("session_before_")) return { cancel: true };
      return answers[name]?.(event);
    });
  }
  const command = (name: string, handler: any) => pi.registerCommand(name, { description: `probes ${name}`, handler: (args: string, ctx: any) => handler(ctx, args) });
  const entries = (ctx: any) => ctx.sessionManager.getEntries();

  // -- ExtensionAPI -----------------------------------------------------------------------------------------------------
  pi.registerTool({ name: "double", label: "Double", description: "doubles", parameters: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
    async execute(id: string, params: any, signal: any, update: any, ctx: any) { update({ content: [{ type: "text", text: "half way" }] }); return { content: [{ type: "text", text: `${params.n * 2}` }], details: { id, cwd: ctx.cwd, aborted: signal.aborted } }; } });
  pi.registerShortcut("ctrl+y", { description: "yes", handler: async (ctx: any) => ctx.ui.notify("pressed") });
  pi.registerFlag("deep", { type: "boolean", default: false, description: "deeper" });
  pi.registerMessageRenderer("note", (message: any, options: any) => ({ render: (width: number) => [`${message.content}|${width}|${options.expanded}`] }));
  pi.registerProvider("tide", { api: "tide-api", baseUrl: "http://localhost", apiKey: "k", models: [{ id: "spring", name: "Spring" }], streamSimple: async function* () { yield { type: "text_delta", delta: "high" }; } });
  for (const channel of ["wind", "echo"]) pi.events.on(channel, (data: any) => state.bus.push(data));
  command("getFlag", () => pi.getFlag("deep"));
  command("unregisterProvider", () => { pi.unregisterProvider("tide"); });
  command("sendMessage", async (ctx: any) => { pi.sendMessage({ customType: "note", content: "hello", display: true }, { triggerTurn: true }); await 0; return null; });
  command("sendUserMessage", async () => { pi.sendUserMessage("do it"); });
  command("pending", (ctx: any) => ctx.hasPendingMessages());
  command("appendEntry", (ctx: any) => { pi.appendEntry("mark", { a: 1 }); return entries(ctx).at(-1); });
  command("setSessionName", () => { pi.setSessionName("harbour"); });
  command("getSessionName", () => pi.getSessionName());
  command("setLabel", (ctx: any) => { const id = entries(ctx)[0].id; pi.setLabel(id, "start"); return ctx.sessionManager.getLabel(id); });
  command("exec", () => pi.exec("sh", ["-c", "echo out; echo err >&2; exit 3"]));
  command("getActiveTools", () => pi.getActiveTools());
  command("getAllTools", () => pi.getAllTools());
  command("setActiveTools", () => { pi.setActiveTools(["double"]); });
  command("getCommands", () => pi.getCommands().map((found: any) => found.name));
  command("setModel", async () => [await pi.setModel({ provider: "tide", id: "spring" }), await pi.setModel({ provider: "no", id: "where" })]);
  command("getThinkingLevel", () => pi.getThinkingLevel());
  command("setThinkingLevel", () => { pi.setThinkingLevel("high"); });
  command("emit", () => { pi.events.emit("wind", 7); });
  command("heard", () => state.bus);
  command("getSettings", () => pi.getSettings());
  command("getSystemPromptOptions", (ctx: any) => ctx.getSystemPromptOptions());
  command("unsubscribe", () => { state.stop(); });
  state.stop = pi.on("turn_end", (_event: any, ctx: any) => ctx.ui.setStatus("twice", "turn_end"));
  pi.registerTool({ name: "relay", label: "Relay", description: "calls others", parameters: { type: "object", properties: {} },
    async execute(_id: string, _params: any, _signal: any, _update: any, ctx: any) {
      const done = [await ctx.executeTool("double", { n: 2 }), await ctx.executeTool("read", { path: "skills/knots/SKILL.md" }), await ctx.executeTool("nowhere", {})];
      return { content: [{ type: "text", text: JSON.stringify(done.map((item: any) => [item.isError, item.result.content[0].text])) }], details: { tools: ctx.tools.length, cwd: ctx.cwd } };
    } });

  // -- ctx --------------------------------------------------------------------------------------------------------------
  command("facts", (ctx: any) => ({ cwd: ctx.cwd, hasUI: ctx.hasUI, mode: ctx.mode, trusted: ctx.isProjectTrusted(), level: ctx.thinkingLevel, scoped: ctx.scopedModels, idle: ctx.isIdle(), usage: ctx.getContextUsage() ?? null, prompt: ctx.getSystemPrompt(), signal: ctx.signal === undefined ? null : ctx.signal.aborted, model: ctx.model ?? null, models: ctx.modelRegistry.getAll().map((model: any) => model.id) }));
  command("abort", async (ctx: any) => { ctx.abort(); });
  command("compact", (ctx: any) => new Promise((done) => ctx.compact({ onComplete: done, onError: (error: any) => done(error.message) })));
  command("shutdown", async (ctx: any) => { ctx.shutdown(); });
  command("reload", async (ctx: any) => { state.bus.push("before"); await ctx.reload(); });
  command("cancel", () => { state.cancel = !state.cancel; return state.cancel; });
  command("newSession", async (ctx: any) => { const seen: any[] = []; const answer = await ctx.newSession({ setup: (manager: any) => seen.push(manager.getEntries().length), withSession: async (next: any) => { await next.sendMessage({ customType: "note", content: "fresh" }); seen.push(next.sessionManager.getEntries().length); } }); return [answer, seen]; });
  command("fork", (ctx: any, id: string) => ctx.fork(id));
  command("forkAt", (ctx: any, id: string) => ctx.fork(id, { position: "at" }));
  command("navigateTree", (ctx: any, id: string) => ctx.navigateTree(id, { summarize: true, label: "here" }));
  command("switchSession", (ctx: any, id: string) => ctx.switchSession(id));
  command("waitForIdle", async (ctx: any) => { await ctx.waitForIdle(); return ctx.isIdle(); });
  command("sessionManager", (ctx: any) => { const m = ctx.sessionManager; return { id: m.getSessionId(), leaf: m.getLeafId(), entries: m.getEntries(), branch: m.getBranch(), tree: m.getTree(), header: m.getHeader(), context: m.buildSessionContext(), kept: m.isPersisted() }; });

  // -- ctx.ui -----------------------------------------------------------------------------------------------------------
  command("dialogs", async (ctx: any) => [await ctx.ui.select("s", ["a", "b"]), await ctx.ui.confirm("c", "m"), await ctx.ui.input("i", "p"), await ctx.ui.editor("e", "t")]);
  command("notices", async (ctx: any) => {
    const ui = ctx.ui;
    ui.notify("n", "warning"); ui.setStatus("k", "v"); ui.setWorkingMessage("w"); ui.setWorkingVisible(false); ui.setWorkingIndicator({ frames: ["."] });
    ui.setHiddenThinkingLabel("l"); ui.setWidget("plain", ["x"]); ui.setHeader(() => ({ render: () => ["head"] })); ui.setFooter((_tui: any, theme: any, data: any) => ({ render: () => [theme.fg("text", `foot ${data.getGitBranch()}`)] }));
    ui.setTitle("t"); ui.setEditorText("one"); ui.pasteToEditor(" two"); ui.setToolsExpanded(true); ui.setEditorComponent(() => ({})); ui.addAutocompleteProvider((before: any) => ({ ...before, getSuggestions: async () => ({ items: [{ value: "v", label: "l" }], prefix: "" }) }));
    const stop = ui.onTerminalInput((data: string) => { state.keys.push(data); return data === "x" ? { consume: true } : undefined; });
    return { text: ui.getEditorText(), expanded: ui.getToolsExpanded(), editor: typeof ui.getEditorComponent(), stop: typeof stop, theme: ui.theme.name, themes: ui.getAllThemes().map((theme: any) => theme.name), light: ui.getTheme("light")?.name, set: ui.setTheme("light"), now: ui.theme.name };
  });
  command("keys", () => state.keys);
  command("widget", async (ctx: any) => { let count = 0; let tui: any; let gone = 0; ctx.ui.setWidget("w", (given: any) => { tui = given; return { render: () => [`drawn ${++count}`], dispose: () => gone++ }; }); tui.requestRender(); tui.requestRender(); await new Promise((done) => setTimeout(done, 1)); ctx.ui.setWidget("w", undefined); tui.requestRender(); await new Promise((done) => setTimeout(done, 1)); return [count, gone]; });
  command("custom", (ctx: any) => ctx.ui.custom((tui: any, theme: any, keys: any, done: any) => { let text = ""; return { render: () => [`typed ${text}`], handleInput: (data: string) => { if (keys.matches(data, "tui.select.confirm")) done(text); else text += data; } }; }));
}
