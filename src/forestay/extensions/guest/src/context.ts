// ctx, as handlers, tools and commands receive it. Values that can change are read from the host at each access.

import { HostError, hostCall, hostCallSync, report } from "./bridge";
import { environment } from "./environment";
import { type Table, table, then } from "./primordials";
import { ui } from "./ui";
import { virtualModels } from "./virtual_models";

export const session = (op: string, ...args: any[]): any => {
  const value = hostCallSync("session", { op, args }).value;
  return value === null ? undefined : value;
};
export const sessionAsync = (op: string, ...args: any[]): Promise<any> =>
  then(hostCall("session", { op, args }), (body) => (body.value === null ? undefined : body.value), (error) => Promise.reject(error));
// For actions that pi performs without an answer: no caller waits, so a failure is reported.
export const sessionAction = (op: string, ...args: any[]): void =>
  void then(hostCall("session", { op, args }), () => undefined, (error) => report(error, `session.${op}`));

const READS = [
  "getCwd", "getSessionDir", "getSessionId", "getSessionFile", "getLeafId", "getLeafEntry", "getEntry", "getLabel",
  "getHeader", "getSessionName", "getChildren",
];
const LISTS = ["getEntries", "getBranch", "getTree"];

const sessionManager: any = {};
for (const name of READS) sessionManager[name] = (...args: any[]) => session(name, ...args);
for (const name of LISTS) sessionManager[name] = (...args: any[]) => session(name, ...args) ?? [];
sessionManager.buildSessionContext = () => session("buildSessionContext");
sessionManager.isPersisted = () => session("getSessionFile") !== undefined;

// Without a connected model the list is empty; a refusal is still an error, unless the extension has its own models.
function models(): any[] {
  const own = registered();
  const virtual = virtualModels();
  try {
    const known = hostCallSync("model", { op: "list" }).models ?? [];
    const physical = [...known.filter((model: any) => !own.some((mine) => mine.provider === model.provider)), ...own];
    return [...physical.filter((model: any) => !virtual.some((mine) => mine.provider === model.provider && mine.id === model.id)), ...virtual];
  } catch (error) {
    if (own.length > 0 || virtual.length > 0 || (error instanceof HostError && error.code === "invalid_request")) return [...own, ...virtual];
    throw error;
  }
}

// The models of the providers that this extension registered, as pi describes them.
const DESCRIBED = ["name", "reasoning", "thinkingLevelMap", "input", "cost", "contextWindow", "maxTokens", "compat"];
let providers: Table<string, any> = table<string, any>();
function registered(): any[] {
  return providers.keys().flatMap((provider) => {
    const config = providers.get(provider);
    return (config.models ?? []).map((model: any) => ({
      id: model.id, provider, api: model.api ?? config.api, baseUrl: model.baseUrl ?? config.baseUrl,
      ...Object.fromEntries(DESCRIBED.filter((name) => model[name] !== undefined).map((name) => [name, model[name]])),
    }));
  });
}

// The key that an extension gave for its own provider: the name of a variable, or the key itself. Only a valid name is
// looked up, so that a key itself is never sent as the name of a variable.
function ownKey(provider: string): string | undefined {
  const key = providers.get(provider)?.apiKey;
  if (typeof key !== "string") return undefined;
  return /^[A-Z_][A-Z0-9_]*$/.test(key) ? (globalThis as any).process.env[key] ?? key : key;
}

// The host authenticates the model calls that it makes for an extension, and keeps its keys. An extension that requires
// a key before it asks for a completion gets this one, which is valid nowhere else.
const MANAGED = "managed-by-the-host";
const offered = (provider: string): boolean => providers.has(provider) ? keyOf(provider) !== undefined : models().some((model) => model.provider === provider);
const keyOf = (provider: string): string | undefined => (providers.has(provider) ? ownKey(provider) : offered(provider) ? MANAGED : undefined);

const modelRegistry: any = {
  getAll: models,
  getAvailable: () => models().filter((model) => !providers.has(model.provider) || keyOf(model.provider) !== undefined),
  find: (provider: string, id: string) => (providers.has(provider) ? [...registered(), ...virtualModels()] : models()).find((model) => model.provider === provider && model.id === id),
  hasConfiguredAuth: (model: any) => offered(model?.provider),
  isUsingOAuth: () => false,
  refresh: () => undefined,
  getError: () => undefined,
  getProviderDisplayName: (provider: string) => providers.get(provider)?.name ?? providers.get(provider)?.oauth?.name ?? "" + provider,
  getProviderAuthStatus: (provider: string) => ({ configured: offered(provider) }),
  getApiKey: async (model: any) => keyOf(model?.provider),
  getApiKeyForProvider: async (provider: string) => keyOf(provider),
  getApiKeyAndHeaders: async (model: any) => {
    const apiKey = keyOf(model?.provider);
    const own = providers.get(model?.provider);
    if (apiKey === undefined) return { ok: false, error: `No API key found for "${model?.provider}"` };
    return { ok: true, apiKey, headers: { ...own?.headers, ...(own?.authHeader ? { Authorization: `Bearer ${apiKey}` } : {}) } };
  },
};

// The signal of the agent's current operation; the host reports when one begins, ends or is aborted.
let agent: AbortController | undefined;

export function setAgent(state: string): void {
  if (state === "start") agent = makeController();
  else if (state === "abort") agent?.abort();
  else agent = undefined;
}

const Controller = (globalThis as any).AbortController;
export const makeController = (): AbortController | undefined => (Controller === undefined ? undefined : new Controller());

// `pi.registerProvider`, shared with the model registry.
export function shareProviders(register: any, unregister: any, known: Table<string, any>): void {
  providers = known;
  modelRegistry.registerProvider = register;
  modelRegistry.unregisterProvider = unregister;
}

// How `ctx.executeTool` runs a tool; the registry of tools sets it.
let runTool: any;
export function shareTools(run: any): void {
  runTool = run;
}

function makeContext(): any {
  return {
    get ui() { return ui; },
    get hasUI() { return environment.hasUI; },
    get cwd() { return environment.cwd; },
    get sessionManager() { return sessionManager; },
    get modelRegistry() { return modelRegistry; },
    get model() { return session("getModel"); },
    // pi's two modes: a person is at the front end of this session, or nobody is.
    get mode() { return environment.hasUI ? "tui" : "print"; },
    get scopedModels() { return session("getScopedModels") ?? []; },
    get thinkingLevel() { return session("getThinkingLevel") ?? "off"; },
    // An extension runs only after a person has trusted the project's content.
    isProjectTrusted: () => true,
    get signal() { return agent?.signal; },
    isIdle: () => session("isIdle") !== false,
    abort: () => sessionAction("abort"),
    hasPendingMessages: () => session("hasPendingMessages") === true,
    shutdown: () => sessionAction("shutdown"),
    getContextUsage: () => session("getContextUsage"),
    compact(options: any = {}) {
      const { onComplete, onError, ...rest } = options;
      then(hostCall("session", { op: "compact", args: [rest] }), (body) => onComplete?.(body.value), (error) => (onError ? onError(error) : report(error, "session.compact")));
    },
    getSystemPrompt: () => session("getSystemPrompt") ?? "",
    get tools() { return session("getAllTools") ?? []; },
    executeTool: (name: string, args: any, options: any = {}) => runTool(name, args, options),
  };
}

// A context has nothing that belongs to one call, so all calls share one.
export const context = makeContext();

export function promptContext(systemPrompt: string): any {
  const own = makeContext();
  own.getSystemPrompt = () => systemPrompt;
  return own;
}

const cancellable = (value: any): any => value ?? { cancelled: false };

function makeCommandContext(): any {
  const context = makeContext();
  context.getSystemPromptOptions = () => ({ cwd: environment.cwd, selectedTools: session("getActiveTools") ?? [], customPrompt: session("getSystemPrompt") || undefined });
  context.waitForIdle = async () => void (await sessionAsync("waitForIdle"));
  context.reload = async () => void (await sessionAsync("reload"));
  context.navigateTree = async (targetId: string, options?: any) => cancellable(await sessionAsync("navigateTree", targetId, options));
  // The session is replaced, then the caller's continuation runs with a context of the new one.
  const replace = (op: string) => async (...args: any[]) => {
    const options = op === "newSession" ? args[0] : args[1];
    const { withSession, setup, ...plain } = options ?? {};
    const sent = op === "newSession" ? [plain] : [args[0], plain];
    const answer = cancellable(await sessionAsync(op, ...sent));
    if (!answer.cancelled && typeof setup === "function") await setup(sessionManager);
    if (!answer.cancelled && typeof withSession === "function") {
      const next = makeCommandContext();
      next.sendMessage = async (message: any, how?: any) => void (await sessionAsync("sendMessage", message, how));
      next.sendUserMessage = async (content: any, how?: any) => void (await sessionAsync("sendUserMessage", content, how));
      await withSession(next);
    }
    return answer;
  };
  context.newSession = replace("newSession");
  context.fork = replace("fork");
  context.switchSession = replace("switchSession");
  return context;
}

export const commandContext = makeCommandContext();
