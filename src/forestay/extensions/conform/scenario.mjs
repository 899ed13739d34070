// One scenario in the real runtime: its loader, its runner, with doubles for the session and the person.
// Input (stdin): {package, cwd, home, entry, scenario}. Output: one JSON document. Nothing here knows any extension.
import { existsSync, readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const asked = JSON.parse(Buffer.concat(chunks).toString());
const { cwd, entry, scenario } = asked;
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = () => true;
process.stderr.write = () => true;

const core = (path) => import(pathToFileURL(`${asked.package}/dist/${path}`).href);
const { loadExtensions } = await core("core/extensions/loader.js");
const { ExtensionRunner } = await core("core/extensions/runner.js");
const { createEventBus } = await core("core/event-bus.js");
const themes = await core("modes/interactive/theme/theme.js");
const scope = JSON.parse(readFileSync(`${asked.package}/package.json`)).name.split("/")[0];
const nested = `${asked.package}/node_modules/${scope}/pi-ai/dist/index.js`;
const ai = await import(pathToFileURL(existsSync(nested) ? nested : `${asked.package}/../pi-ai/dist/index.js`).href);
themes.initTheme("dark");

const WIDTH = 80;
const errors = [];
process.on("uncaughtException", (error) => errors.push({ where: "uncaught", message: String(error?.message ?? error) }));
process.on("unhandledRejection", (error) => errors.push({ where: "rejection", message: String(error?.message ?? error) }));

const plain = (value) =>
  value === undefined ? null : JSON.parse(JSON.stringify(value, (_k, v) => (typeof v === "function" ? "[function]" : v)) ?? "null");
const lines = (component) => {
  if (component === null || component === undefined) return null;
  if (typeof component === "string") return component.split("\n");
  if (Array.isArray(component)) return component.map(String);
  return component.render(WIDTH);
};

// -- the person ------------------------------------------------------------------------------------------------------
const shown = [];
const answers = [...(scenario.answers ?? [])];
const tell = (op, rest) => void shown.push({ op, ...plain(rest) });
const dialog = async (op, rest, otherwise) => {
  const answer = answers.length > 0 ? answers.shift() : null;
  shown.push({ op, ...plain(rest), answer });
  return answer === null || answer === undefined ? otherwise : answer;
};
const tui = {
  requestRender() {}, invalidate() {}, setFocus() {}, addChild() {}, removeChild() {}, start() {}, stop() {},
  terminal: { columns: WIDTH, rows: 24, write() {}, setTitle: (title) => tell("setTitle", { title }) },
  showOverlay: () => ({ hide() {}, setHidden() {}, isHidden: () => false }), hideOverlay() {}, hasOverlay: () => false,
};
const KEYS = {
  "tui.select.up": ["\u001b[A"], "tui.select.down": ["\u001b[B"], "tui.select.confirm": ["\r", "\n"],
  "tui.select.cancel": ["\u001b", "\u0003"], "tui.input.submit": ["\r", "\n"],
};
const keybindings = { matches: (d, a) => (KEYS[a] ?? []).includes(d), getKeys: (a) => KEYS[a] ?? [], getConfig: () => ({}), getEffectiveConfig: () => ({}) };
const footer = { getGitBranch: () => null, getExtensionStatuses: () => new Map(), getAvailableProviderCount: () => 0, onBranchChange: () => () => {} };
const built = (content, data) => (typeof content === "function" ? lines(content(tui, themes.theme, data)) : lines(content));
let editor = "", editorFactory, expanded = false;
const ui = {
  select: (title, options) => dialog("select", { title, options: options.map((o) => (typeof o === "string" ? o : (o?.label ?? String(o)))) }, undefined),
  confirm: (title, message) => dialog("confirm", { title, message: message ?? "" }, false),
  input: (title, placeholder) => dialog("input", { title, placeholder: placeholder ?? "" }, undefined),
  editor: (title, text) => dialog("editor", { title, text: text ?? "" }, undefined),
  notify: (message, type = "info") => tell("notify", { message: String(message), type }),
  setStatus: (key, text) => tell("setStatus", { key, text: text ?? null }),
  setWorkingMessage: (message) => tell("setWorkingMessage", { message: message ?? null }),
  setWorkingVisible: (visible) => tell("setWorkingVisible", { visible }),
  setWorkingIndicator: (options) => tell("setWorkingIndicator", { options: options ?? null }),
  setHiddenThinkingLabel: (label) => tell("setHiddenThinkingLabel", { label: label ?? null }),
  setWidget: (key, content, options) => tell("setWidget", { key, lines: built(content), options: options ?? null }),
  setFooter: (factory) => tell("setFooter", { lines: built(factory, footer) }),
  setHeader: (factory) => tell("setHeader", { lines: built(factory) }),
  setTitle: (title) => tell("setTitle", { title }),
  pasteToEditor: (text) => { editor += text; tell("pasteToEditor", { text }); },
  setEditorText: (text) => { editor = text; tell("setEditorText", { text }); },
  getEditorText: () => editor,
  addAutocompleteProvider: () => tell("addAutocompleteProvider", {}),
  setEditorComponent: (factory) => { editorFactory = factory; tell("setEditorComponent", { set: factory !== undefined }); },
  getEditorComponent: () => editorFactory,
  onTerminalInput: () => () => {},
  async custom(factory, options) {
    let finished = false, result, wake;
    const closed = new Promise((resolve) => (wake = resolve));
    const done = (value) => { if (!finished) { finished = true; result = value; wake(); } };
    const component = await factory(tui, themes.theme, keybindings, done);
    options?.onHandle?.({ hide: () => done(undefined), setHidden() {}, isHidden: () => false, focus() {} });
    while (!finished) {
      const answer = await Promise.race([dialog("custom", { lines: lines(component), overlay: options?.overlay === true }, null), closed]);
      if (finished) break;
      if (answer === null || answer === undefined) done(undefined);
      else if (typeof answer === "object" && Array.isArray(answer.keys)) for (const key of answer.keys) { if (!finished) component?.handleInput?.(key); }
      else done(answer);
    }
    component?.dispose?.();
    return result;
  },
  get theme() { return themes.theme; },
  getAllThemes: () => themes.getAvailableThemesWithPaths().map(({ name }) => ({ name, path: undefined })),
  getTheme: (name) => themes.getThemeByName(name),
  setTheme: (chosen) => {
    if (typeof chosen === "string") return themes.setTheme(chosen);
    themes.setThemeInstance(chosen);
    return { success: true };
  },
  getToolsExpanded: () => expanded,
  setToolsExpanded: (value) => { expanded = value === true; tell("setToolsExpanded", { expanded }); },
};

// -- the session -----------------------------------------------------------------------------------------------------
const acted = [];
const given = scenario.session ?? {};
const state = {
  name: given.name ?? null, entries: [...(given.entries ?? [])], tools: given.activeTools ?? ["read", "bash", "edit", "write"],
  thinking: given.thinkingLevel ?? "off", model: given.model ?? null, labels: {},
};
const act = (op, ...args) => void acted.push({ op, args: plain(args) });
const append = (type, rest) => {
  const last = state.entries[state.entries.length - 1];
  state.entries.push({ type, id: `new-${state.entries.length + 1}`, parentId: last?.id ?? null, timestamp: "2026-01-01T00:00:00.000Z", ...plain(rest) });
};
const leaf = () => state.entries[state.entries.length - 1];
const undef = (value) => (value === null ? undefined : value);
const sessionManager = {
  getCwd: () => cwd, getSessionDir: () => "/sessions", getSessionId: () => "session-1", getSessionFile: () => undef(given.file ?? null),
  getLeafId: () => leaf()?.id, getLeafEntry: () => leaf(), getEntry: (id) => state.entries.find((e) => e.id === id),
  getLabel: (id) => state.labels[id], getHeader: () => undef(given.header ?? null), getSessionName: () => undef(state.name),
  getChildren: (id) => state.entries.filter((e) => e.parentId === id), getEntries: () => [...state.entries], getBranch: () => [...state.entries],
  getTree: () => [], buildSessionContext: () => undef(given.context ?? null), isPersisted: () => given.file !== undefined,
};
const models = scenario.models ?? [];
const find = (provider, id) => models.find((m) => m.provider === provider && m.id === id);
const modelRegistry = {
  getAll: () => models, getAvailable: () => models, find, hasConfiguredAuth: (m) => find(m?.provider, m?.id) !== undefined,
  isUsingOAuth: () => false, refresh() {}, getError: () => undefined, getApiKey: async () => undefined,
  getApiKeyForProvider: async () => undefined, getApiKeyAndHeaders: async () => ({ ok: false, error: "This host keeps its API keys; use complete()." }),
  registerProvider() {}, unregisterProvider() {},
};
const tools = () => [
  ...(scenario.tools ?? []),
  ...runner.getAllRegisteredTools().map(({ definition }) => ({ name: definition.name, description: definition.description, parameters: plain(definition.parameters) })),
];
const actions = {
  sendMessage: (message, options) => act("sendMessage", message, options ?? {}),
  sendUserMessage: (content, options) => act("sendUserMessage", content, options ?? {}),
  appendEntry: (customType, data) => { act("appendEntry", customType, data); append("custom", { customType, data }); },
  setSessionName: (name) => { act("setSessionName", name); state.name = name; },
  getSessionName: () => undef(state.name),
  setLabel: (id, label) => { act("setLabel", id, label ?? null); state.labels[id] = label; },
  getActiveTools: () => [...state.tools], getAllTools: tools,
  setActiveTools: (names) => { act("setActiveTools", names); state.tools = [...names]; },
  refreshTools() {}, getCommands: () => scenario.commands ?? [],
  setModel: async (model) => { act("setModel", model); state.model = model; return true; },
  getThinkingLevel: () => state.thinking,
  setThinkingLevel: (level) => { act("setThinkingLevel", level); state.thinking = level; },
};
const contextActions = {
  getModel: () => undef(state.model), isIdle: () => scenario.idle !== false, getSignal: () => undefined, abort: () => act("abort"),
  hasPendingMessages: () => scenario.pending === true, shutdown: () => act("shutdown"), getContextUsage: () => undef(given.usage ?? null),
  compact: (options = {}) => { const { onComplete, onError, ...rest } = options; act("compact", rest); onComplete?.(null); },
  getSystemPrompt: () => scenario.systemPrompt ?? "",
};
const replaced = (op) => async (...args) => { act(op, ...args); return { cancelled: false }; };
const commandActions = {
  waitForIdle: async () => {}, reload: async () => act("reload"), navigateTree: replaced("navigateTree"),
  newSession: async ({ withSession, setup, ...rest } = {}) => { act("newSession", rest); await setup?.(sessionManager); await withSession?.(follow()); return { cancelled: false }; },
  fork: async (id, { withSession, ...rest } = {}) => { act("fork", id, rest); await withSession?.(follow()); return { cancelled: false }; },
  switchSession: async (path, { withSession, ...rest } = {}) => { act("switchSession", path, rest); await withSession?.(follow()); return { cancelled: false }; },
};
const follow = () => Object.assign(runner.createCommandContext(), {
  sendMessage: async (m, o) => act("sendMessage", m, o ?? null), sendUserMessage: async (c, o) => act("sendUserMessage", c, o ?? null),
});

// -- the network -----------------------------------------------------------------------------------------------------
globalThis.fetch = async (input, init = {}) => {
  const url = String(input?.url ?? input);
  const rule = (scenario.http ?? []).find((r) => url.startsWith(r.url) && (!r.method || r.method === (init.method ?? "GET")));
  act("fetch", init.method ?? "GET", url);
  if (!rule) throw new TypeError("fetch failed");
  return new Response(rule.body ?? "", { status: rule.status ?? 200, headers: rule.headers ?? {} });
};

// -- the steps -------------------------------------------------------------------------------------------------------
const bus = createEventBus();
const { extensions, errors: failures, runtime } = await loadExtensions([entry], cwd, bus);
if (failures.length > 0) { write(JSON.stringify({ failed: failures[0].error }) + "\n"); process.exit(0); }
const runner = new ExtensionRunner(extensions, runtime, cwd, sessionManager, modelRegistry);
runner.onError((error) => errors.push({ where: error.event, message: error.error }));
runner.bindCore(actions, contextActions, { registerProvider() {}, unregisterProvider() {} });
runner.bindCommandContext(commandActions);
if (scenario.hasUI !== false) runner.setUIContext(ui);
for (const [name, value] of Object.entries(scenario.flags ?? {})) runner.setFlagValue(name, value);
const [extension] = extensions;

const emit = async (event) => {
  switch (event.type) {
    case "tool_call":
      try { const r = await runner.emitToolCall(event); return { block: r?.block === true, reason: r?.reason, input: event.input }; }
      catch (error) { errors.push({ where: "tool_call", message: String(error?.message ?? error) }); return { block: true, reason: `Extension failed, blocking execution: ${error?.message ?? error}`, input: event.input }; }
    case "tool_result": return runner.emitToolResult(event);
    case "message_end": return runner.emitMessageEnd(event);
    case "user_bash": return runner.emitUserBash(event);
    case "context": return runner.emitContext(event.messages);
    case "before_provider_request": return runner.emitBeforeProviderRequest(event.payload);
    case "before_agent_start": return runner.emitBeforeAgentStart(event.prompt, event.images, event.systemPrompt ?? "", event.systemPromptOptions ?? { cwd });
    case "resources_discover": return runner.emitResourcesDiscover(event.cwd ?? cwd, event.reason ?? "startup");
    case "input": return runner.emitInput(event.text, event.images, event.source ?? "interactive");
    default: return runner.emit(event);
  }
};
const callTool = async (name, args) => {
  const definition = extension.tools.get(name).definition;
  const updates = [];
  try {
    const prepared = definition.prepareArguments ? definition.prepareArguments(args) : args;
    const checked = ai.validateToolArguments(definition, { type: "toolCall", id: "call", name, arguments: prepared });
    const done = await definition.execute("call", checked, undefined, (update) => updates.push(plain(update)), runner.createContext());
    return { content: done.content, details: done.details, isError: false, updates };
  } catch (error) {
    return { content: [{ type: "text", text: error instanceof Error ? error.message : String(error) }], isError: true, updates };
  }
};
const perform = async (step) => {
  if (step.emit) return emit(structuredClone(step.emit));
  if (step.tool) return callTool(step.tool, structuredClone(step.args ?? {}));
  if (step.command) { await extension.commands.get(step.command).handler(step.args ?? "", runner.createCommandContext()); return null; }
  if (step.complete) return extension.commands.get(step.complete).getArgumentCompletions(step.prefix ?? "");
  if (step.shortcut) { await extension.shortcuts.get(step.shortcut).handler(runner.createContext()); return null; }
  if (step.render) return lines(extension.messageRenderers.get(step.render)(step.message, { expanded: step.expanded === true }, themes.theme));
  if (step.renderTool) {
    const tool = extension.tools.get(step.renderTool).definition;
    const context = { args: step.args, toolCallId: "call", invalidate() {}, lastComponent: undefined, state: {}, cwd, executionStarted: true, argsComplete: true, isPartial: false, expanded: step.expanded === true, showImages: false, isError: false };
    return lines(step.result === undefined ? tool.renderCall(step.args, themes.theme, context) : tool.renderResult(step.result, { expanded: step.expanded === true, isPartial: false }, themes.theme, context));
  }
  if (step.bus) { bus.emit(step.bus, step.data); return null; }
  if (step.wait) return null;
  throw new Error("an unknown step");
};
const results = [];
for (const step of scenario.steps) {
  try { results.push({ value: plain(await perform(step)) }); }
  catch (error) { results.push({ error: error instanceof Error ? error.message : String(error) }); }
  await new Promise((resolve) => setTimeout(resolve, step.wait ?? 30));
}
write(JSON.stringify({ steps: results, ui: shown, session: acted, errors }) + "\n", () => process.exit(0));
