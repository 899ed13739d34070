// undici: an HTTP client that the platform provides, over the http connector. A dispatcher decides how to make a
// connection; here the host makes it. Options that only tune a connection (timeouts, pipelining, sizes) are accepted.
// Options that change how it is made (sockets, certificates, a proxy, an own dispatch) are refused at the request.

import { defineModule } from "../modules";
import { FormData } from "../globals/blob";
import { Headers, Request, Response, dispatching, fetch } from "../globals/fetch";
import { URL } from "../globals/url";
import { EventEmitter } from "./events";

// -- errors ------------------------------------------------------------------------------------------------------------

class UndiciError extends Error {
  code = "UND_ERR";
  constructor(message?: string, options?: any) { super(message, options); this.name = "UndiciError"; }
}
const errors: any = { UndiciError };
for (const [name, code, words] of [
  ["ConnectTimeoutError", "CONNECT_TIMEOUT", "Connect Timeout Error"], ["HeadersTimeoutError", "HEADERS_TIMEOUT", "Headers Timeout Error"],
  ["HeadersOverflowError", "HEADERS_OVERFLOW", "Headers Overflow Error"], ["BodyTimeoutError", "BODY_TIMEOUT", "Body Timeout Error"],
  ["InvalidArgumentError", "INVALID_ARG", "Invalid Argument Error"], ["InvalidReturnValueError", "INVALID_RETURN_VALUE", "Invalid Return Value Error"],
  ["AbortError", "ABORT", "The operation was aborted"], ["RequestAbortedError", "ABORTED", "Request aborted"], ["InformationalError", "INFO", "Request information"],
  ["RequestContentLengthMismatchError", "REQ_CONTENT_LENGTH_MISMATCH", "Request body length does not match content-length header"],
  ["ResponseContentLengthMismatchError", "RES_CONTENT_LENGTH_MISMATCH", "Response body length does not match content-length header"],
  ["ClientDestroyedError", "DESTROYED", "The client is destroyed"], ["ClientClosedError", "CLOSED", "The client is closed"],
  ["SocketError", "SOCKET", "Socket error"], ["NotSupportedError", "NOT_SUPPORTED", "Not supported error"], ["ResponseExceededMaxSizeError", "RES_EXCEEDED_MAX_SIZE", "Response content exceeded max size"],
]) {
  const made = class extends UndiciError { code = `UND_ERR_${code}`; constructor(message?: string, options?: any) { super(message || words, options); this.name = name; } };
  Object.defineProperty(made, "name", { value: name });
  errors[name] = made;
}
const unsupported = (what: string): any => new errors.NotSupportedError(`${what} is not available: the host makes connections, under its own policy`);

// -- dispatchers ---------------------------------------------------------------------------------------------------------

// Options of a connection that have no effect that a caller could rely on here.
const HARMLESS = new Set(["timeout", "keepAlive", "keepAliveInitialDelay", "autoSelectFamily", "autoSelectFamilyAttemptTimeout", "maxCachedSessions", "allowH2", "noDelay"]);
const OWN_WAYS = ["factory", "interceptors", "socketPath", "localAddress", "tls", "requestTls", "proxyTls", "clientFactory"];

function refused(options: any): string | undefined {
  const connect = options?.connect;
  if (typeof connect === "function") return "A connect function";
  const named = connect && typeof connect === "object" ? Object.keys(connect).find((key) => connect[key] !== undefined && !HARMLESS.has(key)) : undefined;
  if (named !== undefined) return `The connection option ${named}`;
  const way = OWN_WAYS.find((key) => options?.[key] !== undefined && options[key] !== null);
  return way === undefined ? undefined : `The dispatcher option ${way}`;
}

class Dispatcher extends EventEmitter {
  closed = false;
  destroyed = false;
  #refused: string | undefined;
  #origin: string | undefined;
  constructor(refusal?: string, origin?: any) { super(); this.#refused = refusal; this.#origin = origin === undefined ? undefined : new URL(String(origin?.href ?? origin)).origin; }
  // Throws if a request cannot use this dispatcher.
  static usable(dispatcher: any): void {
    if (!(dispatcher instanceof Dispatcher)) throw unsupported("A dispatcher of another client");
    if (dispatcher.dispatch !== Dispatcher.prototype.dispatch) throw unsupported("A dispatcher with a dispatch of its own");
    if (dispatcher.#refused !== undefined) throw unsupported(dispatcher.#refused);
    if (dispatcher.destroyed) throw new errors.ClientDestroyedError();
    if (dispatcher.closed) throw new errors.ClientClosedError();
  }
  #url(options: any): any { return new URL(options.path ?? "/", options.origin ?? this.#origin); }
  request(options: any, done?: any): any { return called(request(this.#url(options), { ...options, dispatcher: this }), done); }
  stream(options: any, factory: any, done?: any): any { return called(stream(this.#url(options), { ...options, dispatcher: this }, factory), done); }
  dispatch(options: any, handler: any): boolean { void dispatch(this.#url(options), { ...options, dispatcher: this }, handler); return true; }
  compose(): Dispatcher { return new Dispatcher("An interceptor", this.#origin); }
  close(done?: any): any { this.closed = true; return called(Promise.resolve(null), done); }
  destroy(...given: any[]): any { this.destroyed = true; return called(Promise.resolve(null), given.find((one) => typeof one === "function")); }
}
class Agent extends Dispatcher { constructor(options: any = {}) { super(refused(options)); } }
class Client extends Dispatcher { constructor(origin: any, options: any = {}) { super(refused(options), origin); } }
class Pool extends Client {}
class ProxyAgent extends Dispatcher { constructor(_options: any) { super("A proxy of the extension's choice"); } }
// The host makes the connection, and knows the proxy of the environment.
class EnvHttpProxyAgent extends Dispatcher { constructor(options: any = {}) { super(options.httpProxy || options.httpsProxy ? "A proxy of the extension's choice" : refused(options)); } }

let everywhere: any = new Agent();
const getGlobalDispatcher = (): any => everywhere;
function setGlobalDispatcher(agent: any): void {
  if (typeof agent?.dispatch !== "function") throw new errors.InvalidArgumentError("Argument agent must implement Agent");
  everywhere = agent;
}
// The global fetch uses the same dispatcher, as in Node.
dispatching.check = (dispatcher: any) => Dispatcher.usable(dispatcher ?? everywhere);

// -- requests --------------------------------------------------------------------------------------------------------------

const find = (globalThis as any).__forestay_modules__;
const clients: any = { "http:": find("pi:node/http").request, "https:": find("pi:node/https").request };
const called = (work: Promise<any>, done: any): any => (done === undefined ? work : void work.then((value) => done(null, value), (error) => done(error, null)));

function target(given: any, options: any): any {
  const base = typeof given === "string" || given instanceof URL ? new URL(String(given)) : new URL(given.path ?? given.pathname ?? "/", given.origin ?? `${given.protocol}//${given.hostname}${given.port ? `:${given.port}` : ""}`);
  const url = new URL(base.href);
  for (const [name, value] of Object.entries(options.query ?? {})) for (const one of Array.isArray(value) ? value : [value]) url.searchParams.append(name, String(one));
  if (clients[url.protocol] === undefined) throw new errors.InvalidArgumentError("Invalid URL protocol: the URL must start with `http:` or `https:`.");
  return url;
}

const pairs = (headers: any): [string, any][] => (headers === undefined || headers === null ? [] : Array.isArray(headers) ? headers.flatMap((one: any, at: number) => (Array.isArray(one) ? [one] : at % 2 ? [] : [[one, headers[at + 1]]])) : typeof headers[Symbol.iterator] === "function" ? [...headers] : Object.entries(headers)) as [string, any][];

async function bytes(body: any): Promise<{ body?: any; type?: string }> {
  if (body === undefined || body === null) return {};
  if (typeof body === "string" || ArrayBuffer.isView(body)) return { body };
  const held = new Response(body);
  return { body: await held.bytes(), type: body instanceof FormData ? held.headers.get("content-type") ?? undefined : undefined };
}

// Returns the answer's head and its body as a stream; a redirect is an answer like any other.
async function send(given: any, options: any): Promise<any> {
  Dispatcher.usable(options.dispatcher ?? everywhere);
  for (const gone of ["maxRedirections", "throwOnError"]) if (options[gone]) throw new errors.InvalidArgumentError(`${gone} is not supported`);
  if (options.upgrade) throw unsupported("An upgrade of a connection");
  const { signal } = options;
  if (signal?.aborted) throw signal.reason ?? new errors.RequestAbortedError();
  const url = target(given, options);
  const { body, type } = await bytes(options.body);
  return new Promise((resolve, reject) => {
    const asked = clients[url.protocol](url.href, { method: options.method ?? (body === undefined ? "GET" : "PUT"), headers: pairs(options.headers) });
    const clock = limit(options.headersTimeout, () => asked.destroy(new errors.HeadersTimeoutError()));
    const stop = () => asked.destroy(signal.reason ?? new errors.RequestAbortedError());
    if (type !== undefined && !asked.hasHeader("content-type")) asked.setHeader("content-type", type);
    signal?.addEventListener?.("abort", stop, { once: true });
    asked.on("error", (error: any) => { clock.stop(); reject(signal?.aborted ? signal.reason ?? new errors.RequestAbortedError() : error); });
    asked.on("response", (answer: any) => {
      clock.stop();
      const idle = limit(options.bodyTimeout, () => answer.destroy(new errors.BodyTimeoutError()));
      const push = answer.push;
      answer.push = (chunk: any): boolean => { if (chunk === null) idle.stop(); else idle.again(); return push.call(answer, chunk); };
      answer.on("close", () => { idle.stop(); signal?.removeEventListener?.("abort", stop); });
      resolve(answer);
    });
    asked.end(body);
  });
}

function limit(ms: any, late: () => void): { again: () => void; stop: () => void } {
  const { setTimeout, clearTimeout } = globalThis as any;
  let timer: any;
  const stop = () => { if (timer !== undefined) clearTimeout(timer); timer = undefined; };
  const again = () => { stop(); if (ms > 0) timer = setTimeout(late, ms); };
  again();
  return { again, stop };
}

// The body of `request()`: a stream that can also be read whole, once.
function readable(answer: any): any {
  let held: any;
  const whole = (): any => (held ??= new Response(answer, { headers: { "content-type": String(answer.headers["content-type"] ?? "") } }));
  for (const way of ["text", "json", "arrayBuffer", "bytes", "blob"]) answer[way] = async () => {
    if (held !== undefined) throw new TypeError("unusable");
    return whole()[way]();
  };
  answer.dump = async () => { answer.resume(); await new Promise<void>((done) => (answer.readableEnded ? done() : answer.once("close", () => done()))); };
  Object.defineProperty(answer, "bodyUsed", { get: () => held !== undefined || answer.readableEnded === true, configurable: true });
  return answer;
}

async function request(given: any, options: any = {}): Promise<any> {
  const answer = await send(given, options);
  return { statusCode: answer.statusCode, statusText: answer.statusMessage, headers: answer.headers, trailers: {}, opaque: options.opaque ?? null, body: readable(answer), context: {} };
}

async function stream(given: any, options: any, factory: any): Promise<any> {
  const answer = await send(given, options);
  const into = factory({ statusCode: answer.statusCode, headers: answer.headers, opaque: options.opaque ?? null, context: {} });
  if (typeof into?.write !== "function" || typeof into?.end !== "function") throw new errors.InvalidReturnValueError("expected Writable");
  await new Promise<void>((resolve, reject) => {
    into.on?.("error", reject);
    into.on?.("finish", resolve);
    answer.on("error", reject);
    answer.pipe(into);
  });
  return { opaque: options.opaque ?? null, trailers: {} };
}

// A handler of either generation: with `onHeaders` and so on, or with `onResponseStart` and so on.
async function dispatch(given: any, options: any, handler: any): Promise<void> {
  const control = new (globalThis as any).AbortController();
  const controller = { abort: (reason?: any) => control.abort(reason ?? new errors.RequestAbortedError()), pause() {}, resume() {}, paused: false, get aborted() { return control.signal.aborted; }, get reason() { return control.signal.reason ?? null; } };
  const newer = typeof handler.onRequestStart === "function";
  try {
    if (newer) handler.onRequestStart(controller, {});
    else handler.onConnect?.(controller.abort);
    const answer = await send(given, { ...options, signal: control.signal });
    const raw = answer.rawHeaders.map((text: string) => find("pi:node/buffer").Buffer.from(text));
    if (newer) handler.onResponseStart?.(controller, answer.statusCode, answer.headers, answer.statusMessage);
    else handler.onHeaders?.(answer.statusCode, raw, () => undefined, answer.statusMessage);
    for await (const chunk of answer) { if (newer) handler.onResponseData?.(controller, chunk); else handler.onData?.(chunk); }
    if (newer) handler.onResponseEnd?.(controller, {});
    else handler.onComplete?.([]);
  } catch (error) {
    if (newer) handler.onResponseError?.(controller, error);
    else handler.onError?.(error);
  }
}

const socketOnly = (name: string) => (): never => { throw unsupported(name); };
const undici: any = {
  Dispatcher, Agent, Client, Pool, BalancedPool: Pool, RoundRobinPool: Pool, ProxyAgent, EnvHttpProxyAgent, errors, setGlobalDispatcher, getGlobalDispatcher,
  fetch, Headers, Request, Response, FormData, File: (globalThis as any).File, WebSocket: (globalThis as any).WebSocket, EventSource: (globalThis as any).EventSource,
  request: (url: any, options?: any, done?: any) => (typeof options === "function" ? called(request(url), options) : called(request(url, options ?? {}), done)), stream,
  connect: socketOnly("connect()"), upgrade: socketOnly("upgrade()"), pipeline: socketOnly("pipeline()"), buildConnector: socketOnly("buildConnector()"),
};
Object.defineProperty(undici, "default", { value: undici, enumerable: false });
defineModule("pi:web/undici", undici);
defineModule("undici", undici); // for `createRequire`
