// The `pi` object: pi's ExtensionAPI and the specification's own names; and the requests of the host to an extension.

import { HostError, afterReply, answer, hostCall, onInbound, progress, register, report } from "./bridge";
import { commandContext, context, makeController, promptContext, session, sessionAction, sessionAsync, setAgent, shareProviders, shareTools } from "./context";
import { environment } from "./environment";
import { EVENTS, OLDER_EVENTS, PI_METHODS } from "@forestay/table";
import { bus } from "./events";
import { base64Decode, joined, utf8Decode, utf8Encode } from "./globals/encoding";
import { PrimordialError, PrimordialTypeError, append, hasOwn, resolved, table, then } from "./primordials";
import * as check from "./register";
import { theme } from "./theme";
import { providers as apis } from "./virtual/ai";
import { completes, lines, suggestions, typed, ui } from "./ui";
import { dropVirtualModel, routeWith, routed, virtualModel } from "./virtual_models";

const handlers = table<string, any[]>();
const tools = table<string, any>();
const commands = table<string, any>();
const shortcuts = table<string, any>();
const flags = table<string, any>();
const renderers = table<string, any>();
const entryRenderers = table<string, any>();
const providers = table<string, any>();
const servers = table<string, any>();
const resolvers: any[] = [];
let transformer: any;
const running = table<number, AbortController>();
let loading = true;

function settled(action: string): void {
  if (loading) {
    throw new PrimordialError(`pi.${action}: Extension runtime not initialized. Action methods cannot be called during extension loading.`);
  }
}

// -- the members of ExtensionAPI -------------------------------------------------------------------------------------

export const pi: any = {
  // Returns a function that removes the handler: the host keeps its index, and calling it then does nothing.
  on(event: string, handler: any): () => void {
    check.checkHandler(event, handler);
    let list = handlers.get(event);
    if (list === undefined) handlers.set(event, (list = []));
    const count = append(list, handler);
    register("handler", { event, count, known: EVENTS.includes(event) || OLDER_EVENTS.includes(event) });
    return () => void (handlers.get(event)![count - 1] = () => undefined);
  },
  registerTool(tool: any): void {
    check.checkTool(tool);
    tools.set(tool.name, tool);
    register("tool", {
      name: tool.name, label: tool.label ?? tool.name, description: tool.description, parameters: tool.parameters,
      promptSnippet: tool.promptSnippet, promptGuidelines: tool.promptGuidelines, executionMode: tool.executionMode,
      prepares: typeof tool.prepareArguments === "function", typebox: "~kind" in tool.parameters, rendersCall: typeof tool.renderCall === "function",
      rendersResult: typeof tool.renderResult === "function",
    });
  },
  registerCommand(name: string, options: any): void {
    addCommand(`registerCommand(${typeof name === "string" ? JSON.stringify(name) : "?"})`, name, options);
  },
  registerShortcut(shortcut: string, options: any): void {
    check.checkShortcut(shortcut, options);
    shortcuts.set(shortcut, options);
    register("shortcut", { shortcut, description: options.description });
  },
  registerFlag(name: string, options: any): void {
    check.checkFlag(name, options);
    flags.set(name, options);
    // The first default of a name is the flag's value; a later registration changes only its description.
    if (options.default !== undefined && !hasOwn(environment.flags, name)) environment.flags = { ...environment.flags, [name]: options.default };
    register("flag", { name, type: options.type, default: options.default, description: options.description });
  },
  getFlag(name: string): boolean | string | undefined {
    return flags.has(name) && hasOwn(environment.flags, name) ? environment.flags[name] : undefined;
  },
  registerMessageRenderer(customType: string, renderer: any): void {
    check.checkRenderer(customType, renderer);
    renderers.set(customType, renderer);
    register("renderer", { name: customType });
  },
  registerEntryRenderer(customType: string, renderer: any): void {
    check.checkRenderer(customType, renderer);
    entryRenderers.set(customType, renderer);
    register("entry_renderer", { name: customType });
  },
  registerToolRenderer(resolver: any): void {
    check.checkFunctionOf("registerToolRenderer", "resolver", resolver);
    append(resolvers, resolver);
    register("tool_renderer", { name: "resolver" });
  },
  registerMarkdownTransformer(transform: any): void {
    check.checkFunctionOf("registerMarkdownTransformer", "transformer", transform);
    transformer = transform;
    register("markdown_transformer", { name: "transformer" });
  },
  registerVirtualModel(model: any): void {
    register("virtual_model", { name: `${model?.provider}/${model?.id}`, model: virtualModel(model) });
  },
  unregisterVirtualModel(provider: string, id: string): void {
    if (dropVirtualModel(provider, id)) register("unregister_virtual_model", { name: `${provider}/${id}` });
  },
  registerProvider(name: string, config: any): void {
    check.checkProvider(name, config);
    const merged = { ...providers.get(name), ...given(config) };
    providers.set(name, merged);
    const { apiKey, streamSimple, oauth, headers, ...plain } = merged;
    if (typeof streamSimple === "function" && typeof merged.api === "string") apis.set(merged.api, { api: merged.api, stream: streamSimple, streamSimple });
    register("provider", { ...plain, provider: name, streams: typeof streamSimple === "function", oauth: oauth !== undefined });
  },
  unregisterProvider(name: string): void {
    const { api, streamSimple } = providers.get(name) ?? {};
    if (streamSimple !== undefined && apis.get(api)?.streamSimple === streamSimple) apis.delete(api);
    if (providers.delete(name)) register("unregister_provider", { provider: "" + name });
  },
  // Registers a server; a person must approve it before it starts.
  registerMcpServer(name: string, entry: any): void {
    check.checkMcpServer(name, entry);
    const { command, args, env, cwd, url, headers } = entry;
    servers.set(name, entry);
    register("mcp_server", { name, command, args, env, cwd, url, headers });
  },
  unregisterMcpServer(name: string): void {
    if (servers.delete(name)) register("unregister_mcp_server", { name: "" + name });
  },
  // Its own servers as registered; other servers without secrets.
  getMcpServers(): any[] {
    settled("getMcpServers");
    return (session("getMcpServers") ?? []).map((found: any) => (found.extension === environment.extension && servers.has(found.name) ? { name: found.name, config: servers.get(found.name), extensionPath: found.extensionPath } : { name: found.name, config: found.config, extensionPath: found.extensionPath }));
  },
  sendMessage(message: any, options?: any): void {
    settled("sendMessage");
    if (message === null || typeof message !== "object" || typeof message.customType !== "string") {
      throw new PrimordialTypeError("pi.sendMessage needs a message with a customType");
    }
    sessionAction("sendMessage", message, options ?? {});
  },
  sendUserMessage(content: any, options?: any): void {
    settled("sendUserMessage");
    sessionAction("sendUserMessage", content, options ?? {});
  },
  appendEntry(customType: string, data?: any): void {
    settled("appendEntry");
    session("appendEntry", customType, data);
  },
  setSessionName(name: string): void {
    settled("setSessionName");
    session("setSessionName", name);
  },
  getSessionName(): string | undefined {
    settled("getSessionName");
    return session("getSessionName");
  },
  setLabel(entryId: string, label?: string): void {
    settled("setLabel");
    session("setLabel", entryId, label ?? null);
  },
  async exec(command: string, args: string[] = [], options: any = {}): Promise<any> {
    return exec(command, args, options);
  },
  getActiveTools(): string[] {
    settled("getActiveTools");
    return session("getActiveTools") ?? [];
  },
  getAllTools(): any[] {
    settled("getAllTools");
    return session("getAllTools") ?? [];
  },
  setActiveTools(names: string[]): void {
    settled("setActiveTools");
    session("setActiveTools", names);
  },
  getSettings(): any {
    settled("getSettings");
    const model = session("getModel");
    return { defaultProvider: model?.provider, defaultModel: model?.id, defaultThinkingLevel: session("getThinkingLevel"), theme: theme.name };
  },
  getCommands(): any[] {
    settled("getCommands");
    return session("getCommands") ?? [];
  },
  async setModel(model: any): Promise<boolean> {
    settled("setModel");
    return (await sessionAsync("setModel", model)) === true;
  },
  getThinkingLevel(): string {
    settled("getThinkingLevel");
    return session("getThinkingLevel") ?? "off";
  },
  setThinkingLevel(level: string): void {
    settled("setThinkingLevel");
    session("setThinkingLevel", level);
  },
  events: bus,

  // -- the specification's names (Pi §1A.4.4) --

  registerSlashCommand(spec: any): void {
    const where = "registerSlashCommand";
    if (spec === null || typeof spec !== "object") throw new check.RegistrationError(where, "the spec is not an object", "Give { name, handler }.");
    addCommand(where, spec.name, { ...spec, handler: spec.handler ?? spec.execute });
  },
  tool: (name: string, input: any = {}, options: any = {}) => hostCall("tool", { name, input }, calling(options)),
  http: (request: any, options: any = {}) => hostCall("http", typeof request === "string" ? { url: request } : request, calling(options)),
  fs: fileSystem(),
  session: {
    getName: () => sessionAsync("getSessionName"),
    setName: (name: string) => sessionAsync("setSessionName", name),
    getEntries: () => sessionAsync("getEntries"),
    getMessages: () => sessionAsync("getBranch"),
    getState: () => sessionAsync("getState"),
    getFile: () => sessionAsync("getSessionFile"),
    getModel: () => sessionAsync("getModel"),
    setModel: (model: any) => sessionAsync("setModel", model),
    appendEntry: (customType: string, data?: any) => sessionAsync("appendEntry", customType, data),
    sendMessage: (message: any, options?: any) => sessionAsync("sendMessage", message, options ?? {}),
    setLabel: (entryId: string, label?: string) => sessionAsync("setLabel", entryId, label ?? null),
  },
  ui,
  log(level: any, event?: any, data?: any): void {
    const entry = level !== null && typeof level === "object" ? level : { level, event, data };
    then(hostCall("log", { level: entry.level ?? "info", event: entry.event ?? "extension.log", message: entry.message ?? entry.event ?? "", data: entry.data ?? null }), () => undefined, (error) => report(error, "log"));
  },
};

// The table's members without code of their own: their parameters are those of the host call.
for (const [name, method] of PI_METHODS) {
  if (!(name in pi)) pi[name] = (params: any = {}, options: any = {}) => hostCall(method, params, calling(options));
}

// A second registration adds to the first; members that it leaves out stay.
const given = (config: any): any => Object.fromEntries(Object.entries(config).filter(([, value]) => value !== undefined));

routeWith(() => context);
shareProviders(pi.registerProvider, pi.unregisterProvider, providers);

function fileSystem(): any {
  const call = (op: string) => (path: string, ...rest: any[]) => {
    const [first, second] = rest;
    const params: any = { op, path };
    if (op === "write") params.data = first;
    const options = op === "write" ? second : first;
    if (options !== undefined) params.options = options;
    return hostCall("fs", params, calling(options));
  };
  return { read: call("read"), list: call("list"), stat: call("stat"), write: call("write"), mkdir: call("mkdir"), delete: call("delete") };
}

function calling(options: any): any {
  return { signal: options?.signal, timeoutMs: options?.timeout ?? options?.timeoutMs, onChunk: options?.onChunk };
}

// pi's contract: always an answer. A program that is missing or not executable gives code 1 without output; an aborted
// one gives code 0 with its output so far. Only a refusal is an error.
async function exec(command: string, args: string[], options: any): Promise<any> {
  if (typeof command !== "string" || command === "") throw new PrimordialTypeError("pi.exec needs a command");
  const params: any = { op: "run", command, args: args.map((value) => "" + value) };
  if (options?.cwd !== undefined) params.cwd = options.cwd;
  if (options?.env !== undefined) params.env = options.env;
  // The connector's own limit kills the program and keeps its output; the call's limit would lose that.
  if (options?.timeout > 0) params.timeout = options.timeout;
  const said: any = { stdout: [], stderr: [] };
  const answer = (stdout: string, stderr: string, code: number, killed: boolean) => ({ stdout, stderr, code, exitCode: code, killed });
  const heard = (stream: string): string => utf8Decode(joined(said[stream]));
  const signal = options?.signal;
  const streaming = signal ? { signal, onChunk: (chunk: any) => { if (chunk.base64 !== undefined) append(said[chunk.stream], base64Decode(chunk.base64)); } } : {};
  try {
    const done = await hostCall("exec", signal ? { ...params, stream: true } : params, streaming);
    const code = done.code ?? done.exitCode ?? 0;
    return answer(signal ? heard("stdout") : done.stdout ?? "", signal ? heard("stderr") : done.stderr ?? "", code, done.killed === true);
  } catch (error: any) {
    if (signal?.aborted || (error instanceof HostError && error.code === "timeout")) return answer(heard("stdout"), heard("stderr"), 0, true);
    if (error instanceof HostError && error.code === "io") return answer("", "", 1, false);
    throw error;
  }
}

function addCommand(where: string, name: any, options: any): void {
  check.checkCommand(where, name, options);
  commands.set(name, options);
  register("command", { name, description: options.description, completes: typeof options.getArgumentCompletions === "function" });
}

// -- requests of the host ----------------------------------------------------------------------------------------------

const found = (known: any, kind: string, name: string): any => {
  if (known === undefined) throw new PrimordialError(`There is no ${kind} ${name}`);
  return known;
};

// A signal for one inbound event; the host aborts it by the event's id.
function signalled(id: number, run: (signal: AbortSignal | undefined) => any): any {
  const controller = makeController();
  if (controller === undefined) return run(undefined);
  running.set(id, controller);
  return run(controller.signal);
}
afterReply((id) => void running.delete(id));

onInbound("tool", (payload: any, id: number) => {
  const tool = found(tools.get(payload.name), "tool", payload.name);
  return signalled(id, (signal) => tool.execute(payload.callId, payload.params, signal, (partial: any) => progress(id, partial), context));
});

// `ctx.executeTool`: runs this extension's own tools here, and all others through the host.
shareTools(async (name: string, args: any, options: any) => {
  try {
    const mine = tools.get(name);
    const result = mine === undefined
      ? await hostCall("tool", { name, input: args }, calling(options))
      : await mine.execute(`nested:${name}`, args, options.signal ?? makeController()?.signal, options.onUpdate ?? (() => undefined), context);
    return { result: { content: result.content, details: result.details }, isError: false };
  } catch (error: any) {
    return { result: { content: [{ type: "text", text: "" + (error?.message ?? error) }], details: {} }, isError: true };
  }
});

onInbound("prepare", (payload: any) => found(tools.get(payload.name), "tool", payload.name).prepareArguments(payload.params));

onInbound("command", (payload: any) => {
  const command = found(commands.get(payload.name), "command", payload.name);
  return command.handler(payload.args, commandContext);
});

onInbound("complete", (payload: any) => found(commands.get(payload.name), "command", payload.name).getArgumentCompletions(payload.prefix));

onInbound("autocomplete", (payload: any, id: number) => (completes() ? signalled(id, (signal) => suggestions(payload.lines, payload.line, payload.column, signal)) : null));

onInbound("route", (payload: any, id: number) => signalled(id, (signal) => routed(payload, signal, context)));

onInbound("typed", (payload: any) => typed(payload.data) ?? null);

onInbound("shortcut", (payload: any) => {
  const shortcut = found(shortcuts.get(payload.shortcut), "shortcut", payload.shortcut);
  return shortcut.handler(context);
});

// One handler of one event: [its return value, what it may have changed in place, whether it returned anything].
onInbound("hook", (payload: any, id: number) => {
  const event = payload.event;
  const handler = found((handlers.get(event.type) ?? [])[payload.index], "handler", event.type);
  const own = event.type === "before_agent_start" ? promptContext(event.systemPrompt ?? "") : context;
  const outcome = (value: any) => {
    if (event.type === "user_bash" && typeof value?.operations?.exec === "function") {
      shell = value.operations;
      value = { ...value, operations: true };
    }
    const changed = event.type === "tool_call" ? event.input : event.type === "context" ? event.messages : null;
    return [value === undefined ? null : value, changed, value !== undefined];
  };
  if (payload.signal) {
    return signalled(id, async (signal) => {
      event.signal = signal;
      return outcome(await handler(event, own));
    });
  }
  const value = handler(event, own);
  if (value !== null && typeof value === "object" && typeof value.then === "function") return then(resolved(value), outcome, raise);
  return outcome(value);
});
const raise = (error: any): never => {
  throw error;
};

// The operations of the last `user_bash` handler for a person's command; the host uses them if that answer won.
let shell: any;
onInbound("shell", (payload: any, id: number) => signalled(id, async (signal) => {
  const said: Uint8Array[] = [];
  const onData = (data: any): void => {
    const bytes = typeof data === "string" ? utf8Encode(data) : data;
    append(said, bytes);
    progress(id, utf8Decode(bytes));
  };
  const done = await found(shell, "shell", payload.command).exec(payload.command, payload.cwd, { onData, signal });
  return { output: utf8Decode(joined(said)), exitCode: done?.exitCode ?? null };
}));

onInbound("render", (payload: any) => {
  const renderer = found(renderers.get(payload.name), "renderer", payload.name);
  return lines(renderer(payload.message, { expanded: payload.expanded === true }, theme), payload.width);
});

onInbound("render_entry", (payload: any) => {
  const renderer = found(entryRenderers.get(payload.name), "entry renderer", payload.name);
  const keyHint = (_action: string, text: string) => text;
  return lines(renderer(payload.entry, { expanded: payload.expanded === true, keyHint }, theme), payload.width);
});

// Finds the renderer of a tool: the resolvers in their order, then the extension's own tool of that name.
const drawnBy = (name: string, at: number): any => (at < resolvers.length ? resolvers[at](name, () => drawnBy(name, at + 1)) : tools.get(name));

onInbound("markdown", (payload: any) => {
  const made = found(transformer, "transformer", "markdown")(payload.text, payload.context);
  return typeof made === "string" ? made : null;
});

onInbound("render_tool", (payload: any) => {
  const tool = drawnBy(payload.name, 0) ?? {};
  const context = { args: payload.args, toolCallId: payload.callId, invalidate: () => undefined, lastComponent: undefined, state: {}, cwd: environment.cwd, executionStarted: true, argsComplete: true, isPartial: false, expanded: payload.expanded === true, showImages: false, isError: payload.isError === true };
  const component = payload.result === null || payload.result === undefined
    ? tool.renderCall?.(payload.args, theme, context)
    : tool.renderResult?.(payload.result, { expanded: context.expanded, isPartial: false }, theme, context);
  return lines(component, payload.width);
});

onInbound("provider", (payload: any, id: number) => {
  const provider = found(providers.get(payload.name), "provider", payload.name);
  if (typeof provider.streamSimple !== "function") throw new PrimordialError(`The provider ${payload.name} does not stream`);
  return signalled(id, async (signal) => {
    const stream = provider.streamSimple(payload.model, payload.context, { ...payload.options, signal });
    for await (const event of stream) progress(id, event);
    return typeof stream.result === "function" ? await stream.result() : null;
  });
});

onInbound("flag", (payload: any) => void (environment.flags = { ...environment.flags, [payload.name]: payload.value }));

onInbound("agent", (payload: any) => setAgent(payload.state));

onInbound("abort", (payload: any) => {
  const controller = running.get(payload.id);
  if (controller !== undefined) controller.abort();
});

// The host has evaluated the artifact: `module` is the promise of its exports, `id` the request to answer.
export function begin(id: string, module: Promise<any>): void {
  const number = +id;
  then(module, (exports) => {
    starting = exports;
    answer("start", number, null);
  }, (error) => {
    failed = error;
    answer("start_failed", number, null);
  });
}
let starting: any;
let failed: any;

onInbound("start_failed", () => {
  throw failed;
});

onInbound("start", async () => {
  const factory = starting?.default;
  starting = undefined;
  if (typeof factory !== "function") {
    throw new PrimordialTypeError("Extension does not export a valid factory function: its default export must be a function that takes `pi`");
  }
  await factory(pi);
  loading = false;
});
