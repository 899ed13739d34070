// @mariozechner/pi-ai: schemas, streams of events, and completions through the host's model connector.

import { Type } from "typebox";
import { hostCall, hostCallSync } from "../bridge";
import { defineModule } from "../modules";
import { SCOPES, parts, providerStreams } from "./ai_parts";

// A schema of strings for providers that do not support unions.
export function StringEnum(values: readonly string[], options: any = {}): any {
  return (Type as any).Unsafe({ type: "string", enum: [...values], ...(options?.description ? { description: options.description } : {}), ...(options?.default ? { default: options.default } : {}) });
}

export const providers = new Map<string, any>();

export class EventStream {
  #queue: any[] = [];
  #waiting: ((found: any) => void)[] = [];
  #done = false;
  #complete: (event: any) => boolean;
  #extract: (event: any) => any;
  #result: Promise<any>;
  #resolve: (value: any) => void = () => undefined;
  constructor(isComplete: (event: any) => boolean, extractResult: (event: any) => any) {
    this.#complete = isComplete;
    this.#extract = extractResult;
    this.#result = new Promise((resolve) => (this.#resolve = resolve));
  }
  push(event: any): void {
    if (this.#done) return;
    if (this.#complete(event)) { this.#done = true; this.#resolve(this.#extract(event)); }
    const next = this.#waiting.shift();
    if (next) next({ value: event, done: false });
    else this.#queue.push(event);
  }
  end(result?: any): void {
    this.#done = true;
    if (result !== undefined) this.#resolve(result);
    for (const next of this.#waiting.splice(0)) next({ value: undefined, done: true });
  }
  async *[Symbol.asyncIterator](): AsyncGenerator<any> {
    for (;;) {
      if (this.#queue.length) { yield this.#queue.shift(); continue; }
      if (this.#done) return;
      const found: any = await new Promise((resolve) => this.#waiting.push(resolve));
      if (found.done) return;
      yield found.value;
    }
  }
  result(): Promise<any> { return this.#result; }
}

export class AssistantMessageEventStream extends EventStream {
  constructor() { super((event) => event.type === "done" || event.type === "error", (event) => (event.type === "done" ? event.message : event.error)); }
}

const noUsage = (): any => ({ input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } });

function assistant(model: any, found: any): any {
  const message = found?.message ?? found ?? {};
  return { role: "assistant", api: model?.api ?? "forestay", provider: model?.provider ?? "forestay", model: model?.id ?? "", usage: noUsage(), stopReason: "stop", timestamp: Date.now(), ...message, content: Array.isArray(message.content) ? message.content : message.content === undefined ? [] : [{ type: "text", text: String(message.content) }] };
}

function request(model: any, context: any, options: any): any {
  const settings: any = {};
  for (const name of ["temperature", "maxTokens", "reasoning", "toolChoice", "stopSequences"]) if (options?.[name] !== undefined) settings[name] = options[name];
  return { op: "complete", model: { provider: model?.provider, id: model?.id, api: model?.api }, context: { systemPrompt: context?.systemPrompt, messages: context?.messages ?? [], tools: (context?.tools ?? []).map((tool: any) => ({ name: tool.name, description: tool.description, parameters: tool.parameters })) }, options: settings };
}

// The host has the keys; an extension's own key is neither needed nor sent. A provider that the extension registered
// itself answers for the models of its api.
export function stream(model: any, context: any, options: any = {}): any {
  const own = providers.get(model?.api);
  return own === undefined ? byHost(model, context, options) : (own.streamSimple ?? own.stream)(model, context, options);
}
function byHost(model: any, context: any, options: any): AssistantMessageEventStream {
  const events = new AssistantMessageEventStream();
  const partial = assistant(model, { content: [] });
  let text = "";
  events.push({ type: "start", partial });
  hostCall("model", { ...request(model, context, options), stream: true }, {
    signal: options?.signal,
    onChunk: (chunk: any) => {
      if (typeof chunk?.delta !== "string") return;
      if (text === "") { partial.content = [{ type: "text", text: "" }]; events.push({ type: "text_start", contentIndex: 0, partial }); }
      text += chunk.delta;
      partial.content = [{ type: "text", text }];
      events.push({ type: "text_delta", contentIndex: 0, delta: chunk.delta, partial });
    },
  }).then((found: any) => {
    const message = assistant(model, found);
    if (message.content.length === 0 && text !== "") message.content = [{ type: "text", text }];
    if (text !== "") events.push({ type: "text_end", contentIndex: 0, content: text, partial: message });
    message.content.forEach((block: any, contentIndex: number) => {
      if (block?.type !== "toolCall") return;
      events.push({ type: "toolcall_start", contentIndex, partial: message });
      events.push({ type: "toolcall_end", contentIndex, toolCall: block, partial: message });
    });
    events.push({ type: "done", reason: message.stopReason, message });
    events.end();
  }, (error: any) => {
    const reason = options?.signal?.aborted ? "aborted" : "error";
    events.push({ type: "error", reason, error: { ...partial, stopReason: reason, errorMessage: error?.message ?? String(error) } });
    events.end();
  });
  return events;
}
export const complete = (model: any, context: any, options?: any): Promise<any> => stream(model, context, options).result();

const models = (): any[] => { try { return hostCallSync("model", { op: "list" }).models ?? []; } catch { return []; } };
// A model that the host does not know is still returned; a request to it then fails with that reason.
const getModel = (provider: string, id: string): any => models().find((model) => model.provider === provider && model.id === id) ?? { id, name: id, provider, api: "forestay", baseUrl: "", reasoning: false, input: ["text"], cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }, contextWindow: 128000, maxTokens: 8192 };

function calculateCost(model: any, usage: any): any {
  for (const name of ["input", "output", "cacheRead", "cacheWrite"]) usage.cost[name] = ((model.cost?.[name] ?? 0) / 1000000) * (usage[name] ?? 0);
  usage.cost.total = usage.cost.input + usage.cost.output + usage.cost.cacheRead + usage.cost.cacheWrite;
  return usage.cost;
}

const LEVELS = ["off", "minimal", "low", "medium", "high", "xhigh"];
const levels = (model: any): string[] => (!model?.reasoning ? ["off"] : LEVELS.filter((level) => (model.thinkingLevelMap ? level === "off" || model.thinkingLevelMap[level] !== null : level !== "xhigh")));
const clamp = (model: any, level: string): string => { const allowed = levels(model); for (let at = LEVELS.indexOf(level); at >= 0; at--) if (allowed.includes(LEVELS[at])) return LEVELS[at]; return allowed[0]; };

// Parses the longest beginning of unfinished JSON that can be closed to a value.
export function parseStreamingJson(text: string | undefined): any {
  if (!text || text.trim() === "") return {};
  try { return JSON.parse(text); } catch { /* incomplete */ }
  const stack: string[] = [];
  let inside = false;
  for (let i = 0; i < text.length; i++) {
    const one = text[i];
    if (inside) { if (one === "\\") i++; else if (one === '"') inside = false; continue; }
    if (one === '"') inside = true;
    else if (one === "{" || one === "[") stack.push(one === "{" ? "}" : "]");
    else if (one === "}" || one === "]") stack.pop();
  }
  const close = stack.reverse().join("");
  let head = inside ? `${text.replace(/\\$/, "")}"` : text;
  for (let tries = 0; tries < 200; tries++) {
    const plain = head.replace(/[\s,]+$/, "").replace(/,?\s*"(?:[^"\\]|\\.)*"\s*:?\s*$/, (tail) => (/:\s*$/.test(tail) ? "" : tail)).replace(/:\s*$/, ": null");
    for (const attempt of [plain + close, plain.replace(/,?\s*"(?:[^"\\]|\\.)*"\s*$/, "") + close]) { try { return JSON.parse(attempt); } catch { /* try a shorter beginning */ } }
    const shorter = head.replace(/[^\s,{[:]+\s*$/, "");
    if (shorter === head || shorter === "") break;
    head = shorter;
  }
  return {};
}

const repairJson = (text: string): string => text.replace(/"(?:[^"\\]|\\[\s\S])*"/g, (whole) => whole.replace(/\\(?!["\\/bfnrtu])/g, "\\\\").replace(/[\0-\x1f]/g, (one) => JSON.stringify(one).slice(1, -1)));
const OVERFLOW = /prompt is too long|request_too_large|exceeds the context window|input token count.*exceeds|maximum prompt length|reduce the length of the messages|maximum context length|exceeds the available context size|greater than the context length|exceeded model token limit|too large for model/i;
const isContextOverflow = (message: any, contextWindow?: number): boolean => (message?.stopReason === "error" && OVERFLOW.test(message.errorMessage ?? "")) || (contextWindow !== undefined && (message?.usage?.input ?? 0) + (message?.usage?.cacheRead ?? 0) > contextWindow);

// The host converts and validates, with the same rules as before a tool runs.
const validate = (tool: any, call: any): any => {
  try { return hostCallSync("crypto", { op: "arguments", tool: `${tool.name}`, schema: tool.parameters, typebox: "~kind" in tool.parameters, arguments: call.arguments }).value; }
  catch (error: any) { throw new Error(error.message); }
};

export const ai: any = {
  Type, StringEnum, EventStream, AssistantMessageEventStream, createAssistantMessageEventStream: () => new AssistantMessageEventStream(), stream, complete, streamSimple: stream, completeSimple: complete, ...providerStreams(byHost), ...parts,
  getModel, getModels: (provider?: string) => models().filter((model) => provider === undefined || model.provider === provider), getProviders: () => [...new Set(models().map((model) => model.provider))], calculateCost, modelsAreEqual: (a: any, b: any) => !!a && !!b && a.id === b.id && a.provider === b.provider, getSupportedThinkingLevels: levels, clampThinkingLevel: clamp, supportsXhigh: (model: any) => levels(model).includes("xhigh"),
  registerApiProvider: (provider: any) => void providers.set(provider.api, provider), getApiProvider: (api: string) => providers.get(api), getApiProviders: () => [...providers.values()], unregisterApiProviders: () => providers.clear(), clearApiProviders: () => providers.clear(), resetApiProviders: () => providers.clear(),
  // Keys stay with the host.
  getEnvApiKey: () => undefined, parseStreamingJson, repairJson, parseJsonWithRepair: (text: string) => { try { return JSON.parse(text); } catch { return JSON.parse(repairJson(text)); } }, isContextOverflow, getOverflowPatterns: () => [OVERFLOW], validateToolArguments: validate, validateToolCall: (tools: any[], call: any) => { const tool = tools.find((one) => one.name === call.name); if (!tool) throw new Error(`Tool "${call.name}" not found`); return validate(tool, call); },
};
Object.defineProperty(ai, "default", { value: ai, enumerable: false });
for (const scope of SCOPES) {
  for (const path of ["", "/compat"]) defineModule(`${scope}/pi-ai${path}`, ai);
}
