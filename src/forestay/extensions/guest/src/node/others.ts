// node:zlib, node:readline, node:module, and node:http/https as clients of the http connector.

import { NODE_BUILTINS } from "@forestay/table";
import { HostError, hostCall, hostCallSync } from "../bridge";
import { hasModule } from "../modules";
import { base64Decode, base64Encode, bytesOf } from "../globals/encoding";
import { URL } from "../globals/url";
import { Buffer, encode } from "./buffer";
import { argumentError, defineNode, systemError } from "./define";
import { EventEmitter, callable } from "./events";
import { dirname, join, resolve } from "./path";
import { fileURLToPath, pathToFileURL, StringDecoder } from "./small";
import { Readable, Transform, Writable } from "./stream";

// -- zlib --------------------------------------------------------------------------------------------------------------

function squeeze(op: string, format: string) {
  return (data: any, options: any = {}): any => {
    const bytes = typeof data === "string" ? encode(data, "utf8") : bytesOf(data);
    try {
      return Buffer.from(base64Decode(hostCallSync("crypto", { op, format, base64: base64Encode(bytes), ...(options?.level !== undefined ? { level: options.level } : {}) }).base64).slice().buffer);
    } catch (error: any) {
      if (!(error instanceof HostError)) throw error;
      throw Object.assign(new Error(error.message), { code: error.details?.errno ?? "Z_DATA_ERROR", errno: error.details?.errno === "Z_BUF_ERROR" ? -5 : -3 });
    }
  };
}
const zlib: any = { constants: { Z_NO_COMPRESSION: 0, Z_BEST_SPEED: 1, Z_BEST_COMPRESSION: 9, Z_DEFAULT_COMPRESSION: -1, Z_SYNC_FLUSH: 2, Z_FINISH: 4 } };
for (const [name, op, format] of [["gzip", "deflate", "gzip"], ["gunzip", "inflate", "gzip"], ["deflate", "deflate", "zlib"], ["inflate", "inflate", "zlib"], ["deflateRaw", "deflate", "raw"], ["inflateRaw", "inflate", "raw"], ["unzip", "inflate", "auto"]]) {
  const work = squeeze(op, format);
  zlib[`${name}Sync`] = work;
  zlib[name] = (data: any, options: any, done?: any) => {
    if (typeof options === "function") { done = options; options = {}; }
    let value: any;
    let failure: any = null;
    try { value = work(data, options); } catch (error) { failure = error; }
    (globalThis as any).queueMicrotask(() => done(failure, value));
  };
  zlib[`create${name[0].toUpperCase()}${name.slice(1)}`] = (options: any = {}) => {
    const parts: any[] = [];
    return new Transform({ transform(chunk: any, _encoding: any, next: any) { parts.push(chunk); next(); }, flush(this: any, next: any) { try { this.push(work(Buffer.concat(parts), options)); next(); } catch (error) { next(error); } } });
  };
}
zlib.crc32 = (data: any, value = 0): number => {
  let crc = ~value;
  for (const byte of typeof data === "string" ? encode(data, "utf8") : bytesOf(data)) { crc ^= byte; for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0); }
  return ~crc >>> 0;
};
defineNode("zlib", zlib);

// -- readline ------------------------------------------------------------------------------------------------------------

export class Interface extends EventEmitter {
  line = "";
  cursor = 0;
  terminal = false;
  closed = false;
  #input: any;
  #output: any;
  #prompt: string;
  #rest = "";
  #questions: ((line: string) => void)[] = [];
  #decoder = new StringDecoder("utf8");
  constructor(options: any, output?: any) {
    super();
    const given = options?.input !== undefined ? options : { input: options, output };
    this.#input = given.input;
    this.#output = given.output;
    this.#prompt = given.prompt ?? "> ";
    this.#input?.on?.("data", (chunk: any) => this.#feed(typeof chunk === "string" ? chunk : this.#decoder.write(chunk)));
    this.#input?.on?.("end", () => { const tail = this.#rest + this.#decoder.end(); this.#rest = ""; if (tail !== "") this.#emit(tail); this.close(); });
    given.signal?.addEventListener("abort", () => this.close());
  }
  #feed(text: string): void {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop()!;
    for (const line of lines) this.#emit(line);
  }
  #emit(line: string): void {
    const ask = this.#questions.shift();
    if (ask) ask(line);
    else this.emit("line", line);
  }
  question(text: string, options: any, done?: any): void {
    if (typeof options === "function") { done = options; options = {}; }
    if (this.closed) throw Object.assign(new Error("readline was closed"), { code: "ERR_USE_AFTER_CLOSE" });
    this.#output?.write?.(text);
    // Nobody types into an extension's own input; a person is asked through the host.
    if (this.#input === (globalThis as any).process.stdin) hostCall("ui", { op: "input", title: text, placeholder: "" }, { signal: options?.signal }).then((body: any) => done(body.value ?? ""), () => { done(""); });
    else this.#questions.push(done);
  }
  setPrompt(text: string): void { this.#prompt = text; }
  getPrompt(): string { return this.#prompt; }
  prompt(): void { this.#output?.write?.(this.#prompt); }
  write(text: any): void { if (typeof text === "string") this.#feed(text); }
  pause(): this { this.#input?.pause?.(); this.emit("pause"); return this; }
  resume(): this { this.#input?.resume?.(); this.emit("resume"); return this; }
  close(): void { if (this.closed) return; this.closed = true; this.#input?.pause?.(); this.emit("close"); }
  [Symbol.asyncIterator](): any {
    const queue: string[] = [];
    let wake: (() => void) | undefined;
    this.on("line", (line: string) => { queue.push(line); wake?.(); });
    this.on("close", () => wake?.());
    const self = this;
    return (async function* () {
      for (;;) {
        while (queue.length) yield queue.shift()!;
        if (self.closed) return;
        await new Promise<void>((resolve) => (wake = resolve));
      }
    })();
  }
}
const custom = Symbol.for("nodejs.util.promisify.custom");
Object.defineProperty(Interface.prototype.question, custom, { value(this: any, text: string, options: any) { return new Promise((resolve) => this.question(text, options ?? {}, resolve)); } });
class PromisesInterface extends Interface {
  question(text: string, options: any = {}): any { return new Promise((resolve) => super.question(text, options, resolve)); }
}
const move = (sequence: string) => (stream: any, ...args: any[]): boolean => { stream?.write?.(sequence.replace(/%(\d)/g, (_all, index) => String(args[index] ?? ""))); const done = args[args.length - 1]; if (typeof done === "function") done(); return true; };
const readline: any = { Interface, createInterface: (options: any, output?: any) => new Interface(options, output), clearLine: move("\u001b[2K"), cursorTo: (stream: any, x: number, y?: any) => { stream?.write?.(typeof y === "number" ? `\u001b[${y + 1};${x + 1}H` : `\u001b[${x + 1}G`); return true; }, moveCursor: () => true, clearScreenDown: move("\u001b[0J"), emitKeypressEvents: () => undefined };
const promises: any = { Interface: PromisesInterface, createInterface: (options: any, output?: any) => new PromisesInterface(options, output) };
readline.promises = promises;
defineNode("readline", readline);
defineNode("readline_promises", promises);

// -- module ----------------------------------------------------------------------------------------------------------------

export const builtinName = (specifier: string): string => `pi:node/${specifier.replace(/^node:/, "").replace(/\//g, "_")}`;
export const isBuiltin = (specifier: string): boolean => NODE_BUILTINS.includes(String(specifier).replace(/^node:/, ""));

// Finds what is built in, what is bundled under its name, and JSON files beside the extension.
export function createRequire(from: any): any {
  const base = typeof from === "string" && !from.startsWith("file:") ? from : fileURLToPath(from);
  const find = (globalThis as any).__forestay_modules__;
  const load = (specifier: string): any => {
    if (isBuiltin(specifier)) return find(builtinName(specifier));
    if (hasModule(specifier)) return find(specifier);
    const path = located(specifier, base, REQUIRED);
    if (path?.endsWith(".json")) return JSON.parse(find("pi:node/fs").readFileSync(path, "utf8"));
    throw notFound(specifier, base);
  };
  const require: any = { require: (specifier: string): any => load(specifier) }.require; // its name is part of it
  require.resolve = (specifier: string): string => {
    if (typeof specifier !== "string") throw argumentError("request", "of type string", specifier);
    const found = isBuiltin(specifier) ? specifier : located(specifier, base, REQUIRED) ?? (hasModule(specifier) ? specifier : undefined);
    if (found === undefined) throw notFound(specifier, base);
    return found;
  };
  require.resolve.paths = (specifier: string) => (isBuiltin(specifier) ? null : /^\.{1,2}(\/|$)/.test(specifier) ? [dirname(base)] : folders(base));
  require.cache = Object.create(null);
  require.main = undefined;
  return require;
}

// `import.meta.resolve`: an address.
function resolveModule(specifier: string, base: string): string {
  if (isBuiltin(specifier)) return specifier.startsWith("node:") ? specifier : `node:${specifier}`;
  if (/^[a-z][a-z0-9+.-]*:/i.test(specifier) || /^\.{0,2}\//.test(specifier)) return new URL(specifier, pathToFileURL(base)).href;
  const found = located(specifier, base, IMPORTED);
  if (found === undefined) throw Object.assign(new Error(`Cannot find package '${specifier}' imported from ${base}`), { code: "ERR_MODULE_NOT_FOUND" });
  return pathToFileURL(found).href;
}

const notFound = (specifier: string, base: string): any => Object.assign(new Error(`Cannot find module '${specifier}'\nRequire stack:\n- ${base}`), { code: "MODULE_NOT_FOUND", requireStack: [base] });

// -- where a module lies: Node's search, over the files that the extension may read --

const REQUIRED = ["node", "require", "default"];
const IMPORTED = ["node", "import", "default"];

function kindOf(path: string): "file" | "folder" | undefined {
  const found = (globalThis as any).__forestay_modules__("pi:node/fs").statSync(path, { throwIfNoEntry: false });
  return found === undefined ? undefined : found.isDirectory() ? "folder" : "file";
}
const isFile = (path: string): boolean => { try { return kindOf(path) === "file"; } catch { return false; } };
const about = (folder: string): any => { try { return JSON.parse((globalThis as any).__forestay_modules__("pi:node/fs").readFileSync(join(folder, "package.json"), "utf8")); } catch { return undefined; } };
const asFile = (path: string): string | undefined => [path, `${path}.js`, `${path}.json`, `${path}.node`].find(isFile);
const asFolder = (path: string): string | undefined => {
  const main = about(path)?.main;
  return (typeof main === "string" ? asFile(join(path, main)) ?? asFile(join(path, main, "index")) : undefined) ?? asFile(join(path, "index"));
};

function folders(base: string): string[] {
  const parts = dirname(base).split("/");
  return parts.map((_, at) => `${parts.slice(0, parts.length - at).join("/")}/node_modules`).filter((folder) => !folder.endsWith("/node_modules/node_modules"));
}

function located(specifier: string, base: string, conditions: string[]): string | undefined {
  if (/^(\.{1,2}(\/|$)|\/)/.test(specifier)) {
    const path = resolve(dirname(base), specifier);
    return (specifier.endsWith("/") ? undefined : asFile(path)) ?? asFolder(path);
  }
  const [, name, rest] = /^((?:@[^/]+\/)?[^/]+)(\/.*)?$/.exec(specifier) ?? [];
  for (const folder of name === undefined ? [] : folders(base)) {
    const home = join(folder, name);
    const said = about(home);
    if (said?.exports !== undefined && said.exports !== null) {
      const target = exported(said.exports, `.${rest ?? ""}`, conditions);
      if (target !== undefined) return join(home, target);
      throw Object.assign(new Error(rest ? `Package subpath './${rest.slice(1)}' is not defined by "exports" in ${home}/package.json` : `No "exports" main defined in ${home}/package.json`), { code: "ERR_PACKAGE_PATH_NOT_EXPORTED" });
    }
    const found = rest === undefined ? asFolder(home) : asFile(home + rest) ?? asFolder(home + rest);
    if (found !== undefined) return found;
  }
  return undefined;
}

// A package's `exports`: the subpath, or the longest pattern that fits it, under the first condition that holds.
function exported(exports: any, subpath: string, conditions: string[]): string | undefined {
  const listed = typeof exports === "object" && !Array.isArray(exports) && Object.keys(exports).some((key) => key.startsWith(".")) ? exports : { ".": exports };
  if (Object.hasOwn(listed, subpath) && !subpath.includes("*")) return chosen(listed[subpath], conditions, "");
  const fits = Object.keys(listed).filter((key) => { const [head, tail, ...more] = key.split("*"); return tail !== undefined && more.length === 0 && subpath.length >= key.length && subpath.startsWith(head) && subpath.endsWith(tail); });
  const best = fits.sort((a, b) => b.indexOf("*") - a.indexOf("*") || b.length - a.length)[0];
  return best === undefined ? undefined : chosen(listed[best], conditions, subpath.slice(best.indexOf("*"), subpath.length - (best.length - best.indexOf("*") - 1)));
}
function chosen(target: any, conditions: string[], star: string): string | undefined {
  if (typeof target === "string") return target.startsWith("./") ? target.replaceAll("*", star) : undefined;
  if (target === null || typeof target !== "object") return undefined;
  const entries = Array.isArray(target) ? target : Object.keys(target).filter((key) => conditions.includes(key)).map((key) => target[key]);
  for (const entry of entries) {
    const found = chosen(entry, conditions, star);
    if (found !== undefined) return found;
  }
  return undefined;
}

class Module {
  static builtinModules = [...NODE_BUILTINS];
  static createRequire = createRequire;
  static isBuiltin = isBuiltin;
  static Module: any;
  static register(): void {}
  static findSourceMap(): undefined { return undefined; }
  static syncBuiltinESMExports(): void {}
}
Module.Module = Module;
Object.defineProperty(Module, "resolveModule", { value: resolveModule, enumerable: false });
defineNode("module", Module as any);

// -- http and https ----------------------------------------------------------------------------------------------------------

const STATUS: Record<number, string> = { 200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 206: "Partial Content", 301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified", 307: "Temporary Redirect", 308: "Permanent Redirect", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 410: "Gone", 413: "Payload Too Large", 415: "Unsupported Media Type", 422: "Unprocessable Entity", 429: "Too Many Requests", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout" };

class IncomingMessage extends Readable {
  statusCode: number;
  statusMessage: string;
  headers: any = {};
  rawHeaders: string[] = [];
  httpVersion = "1.1";
  complete = false;
  socket: any = new EventEmitter();
  url = "";
  constructor(head: any) {
    super({ read() { /* the host pushes */ } });
    this.statusCode = head.status;
    this.statusMessage = head.statusText;
    for (const [name, value] of head.headerList ?? Object.entries(head.headers)) {
      this.rawHeaders.push(name, value);
      if (name === "set-cookie") (this.headers[name] ??= []).push(value);
      else this.headers[name] = this.headers[name] === undefined ? value : `${this.headers[name]}, ${value}`;
    }
  }
  setTimeout(): this { return this; }
}

class ClientRequest extends Writable {
  method: string;
  path: string;
  host: string;
  protocol: string;
  aborted = false;
  reusedSocket = false;
  socket: any = new EventEmitter();
  #headers = new Map<string, [string, any]>();
  #parts: any[] = [];
  #url: string;
  #control = new (globalThis as any).AbortController();
  #timeout = 0;
  constructor(url: string, options: any, done: any) {
    super({ autoDestroy: false, write: (chunk: any, _encoding: any, next: any) => { this.#parts.push(chunk); next(); }, final: (next: any) => { this.#send(); next(); } });
    const parsed = new URL(url);
    this.#url = url;
    this.method = String(options.method ?? "GET").toUpperCase();
    this.path = parsed.pathname + parsed.search;
    this.host = parsed.hostname;
    this.protocol = parsed.protocol;
    const headers = Array.isArray(options.headers) ? options.headers : Object.entries(options.headers ?? {});
    for (const [name, value] of headers) this.setHeader(name, value);
    if (options.auth) this.setHeader("Authorization", "Basic " + Buffer.from(options.auth).toString("base64"));
    if (done) this.once("response", done);
    if (options.timeout) this.setTimeout(options.timeout);
    options.signal?.addEventListener("abort", () => this.destroy(options.signal.reason));
  }
  setHeader(name: string, value: any): this { this.#headers.set(name.toLowerCase(), [name, value]); return this; }
  getHeader(name: string): any { return this.#headers.get(name.toLowerCase())?.[1]; }
  hasHeader(name: string): boolean { return this.#headers.has(name.toLowerCase()); }
  removeHeader(name: string): void { this.#headers.delete(name.toLowerCase()); }
  getHeaders(): any { return Object.fromEntries([...this.#headers].map(([key, [, value]]) => [key, value])); }
  getHeaderNames(): string[] { return [...this.#headers.keys()]; }
  flushHeaders(): void {}
  setNoDelay(): void {}
  setSocketKeepAlive(): void {}
  setTimeout(ms: number, done?: any): this { this.#timeout = ms; if (done) this.once("timeout", done); return this; }
  abort(): void { this.aborted = true; this.destroy(); }
  _destroy(error: any, done: any): void { this.#control.abort(); done(error); }
  #send(): void {
    let response: IncomingMessage | undefined;
    const timer = this.#timeout > 0 ? (globalThis as any).setTimeout(() => { if (!response) this.emit("timeout"); }, this.#timeout) : undefined;
    const headers = [...this.#headers.values()].flatMap(([name, value]) => (Array.isArray(value) ? value.map((one: any) => [name, String(one)]) : [[name, String(value)]]));
    const open = (head: any) => {
      response = new IncomingMessage(head);
      if (!this.emit("response", response)) response.resume();
    };
    hostCall("http", { url: this.#url, method: this.method, headers, redirect: "manual", stream: true, ...(this.#parts.length ? { base64: base64Encode(Buffer.concat(this.#parts)) } : {}) }, {
      signal: this.#control.signal,
      onChunk: (chunk: any) => { if (chunk.status !== undefined) open(chunk); else if (chunk.base64 !== undefined) response?.push(Buffer.from(base64Decode(chunk.base64))); },
    }).then((last: any) => {
      if (!response && last.status !== undefined) { open(last); if (last.base64 || last.body) response!.push(last.base64 ? Buffer.from(base64Decode(last.base64)) : Buffer.from(last.body)); }
      response!.complete = true;
      response!.push(null);
    }, (error: any) => {
      if (this.destroyed && this.#control.signal.aborted) { if (!response) this.emit("error", Object.assign(new Error("socket hang up"), { code: "ECONNRESET" })); response?.destroy(); return; }
      const failed = error instanceof HostError ? connectError(error, this.host) : error;
      if (response) response.destroy(failed);
      else { this.emit("error", failed); this.emit("close"); }
    }).finally(() => { if (timer) (globalThis as any).clearTimeout(timer); });
  }
}

function connectError(error: any, host: string): any {
  const code = error.details?.errno ?? (error.code === "denied" ? "EACCES" : error.code === "timeout" ? "ETIMEDOUT" : "EIO");
  if (code === "ENOTFOUND") return Object.assign(new Error(`getaddrinfo ENOTFOUND ${host}`), { code, errno: -3008, syscall: "getaddrinfo", hostname: host, hostcall: { code: error.code, details: error.details } });
  return systemError(code, "connect", host, undefined, error);
}

// Connections are the host's; an agent keeps what its owner set, and names requests as Node does.
class HttpAgent extends EventEmitter {
  defaultPort = 80;
  protocol = "http:";
  options: any;
  requests: any = Object.create(null);
  sockets: any = Object.create(null);
  freeSockets: any = Object.create(null);
  keepAliveMsecs: number;
  keepAlive: boolean;
  maxSockets: number;
  maxFreeSockets: number;
  maxTotalSockets: number;
  scheduling: string;
  totalSocketCount = 0;
  constructor(options: any = {}) {
    super();
    this.options = { ...options, path: null, noDelay: options?.noDelay ?? true };
    this.keepAliveMsecs = options?.keepAliveMsecs || 1000;
    this.keepAlive = options?.keepAlive || false;
    this.maxSockets = options?.maxSockets || Infinity;
    this.maxFreeSockets = options?.maxFreeSockets || 256;
    this.maxTotalSockets = options?.maxTotalSockets ?? Infinity;
    this.scheduling = options?.scheduling || "lifo";
  }
  getName(options: any = {}): string {
    const family = options.family === 4 || options.family === 6 ? `:${options.family}` : "";
    return `${options.host || "localhost"}:${options.port || ""}:${options.localAddress || ""}${family}${options.socketPath ? `:${options.socketPath}` : ""}`;
  }
  createConnection(): never { throw Object.assign(new Error("An extension opens no sockets of its own; the host makes the request"), { code: "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM" }); }
  createSocket(): never { return this.createConnection(); }
  addRequest(): void {}
  keepSocketAlive(): boolean { return true; }
  reuseSocket(): void {}
  removeSocket(): void {}
  destroy(): void {}
}
class HttpsAgent extends HttpAgent {
  defaultPort = 443;
  protocol = "https:";
  maxCachedSessions: number;
  constructor(options: any = {}) {
    super(options);
    this.maxCachedSessions = options?.maxCachedSessions ?? 100;
  }
  getName(options: any = {}): string {
    const told = ["ca", "cert", "clientCertEngine", "ciphers", "key", "pfx", "rejectUnauthorized", "servername", "minVersion", "maxVersion", "secureProtocol", "crl", "honorCipherOrder", "ecdhCurve", "dhparam", "secureOptions", "sessionIdContext", "sigalgs", "privateKeyIdentifier", "privateKeyEngine"];
    const said = told.map((name) => (name === "servername" && options.servername === options.host ? "" : options[name] ?? ""));
    return `${super.getName(options)}:${said.join(":")}`;
  }
}
const PlainAgent = callable(HttpAgent);
const SecureAgent = callable(HttpsAgent);

function client(scheme: string): any {
  const make = (...args: any[]): ClientRequest => {
    let url: any;
    let options: any = {};
    let done: any;
    for (const arg of args) {
      if (typeof arg === "function") done = arg;
      else if (typeof arg === "string") url = new URL(arg);
      else if (arg instanceof URL || (arg && typeof arg.href === "string" && typeof arg.searchParams === "object")) url = arg;
      else if (arg) options = { ...options, ...arg };
    }
    if (!url) {
      const host = options.hostname ?? String(options.host ?? "localhost").replace(/:\d+$/, "");
      url = new URL(`${options.protocol ?? scheme + ":"}//${host.includes(":") && !host.startsWith("[") ? `[${host}]` : host}${options.port ? `:${options.port}` : ""}${options.path ?? "/"}`);
    } else {
      url = new URL(url.href);
      if (options.path) { const [path, query] = String(options.path).split(/\?(.*)/s); url.pathname = path; url.search = query ?? ""; }
      if (options.port) url.port = String(options.port);
    }
    if (url.username && !options.auth) options.auth = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
    url.username = url.password = "";
    url.hash = "";
    if (url.protocol !== scheme + ":") throw Object.assign(new TypeError(`Protocol "${url.protocol}" not supported. Expected "${scheme}:"`), { code: "ERR_INVALID_PROTOCOL" });
    return new ClientRequest(url.href, options, done);
  };
  const Agent = scheme === "http" ? PlainAgent : SecureAgent;
  const createServer = (): never => { throw Object.assign(new Error(`${scheme}.createServer() is not available: extensions do not listen on ports`), { code: "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM" }); };
  return { request: make, get: (...args: any[]) => { const request = make(...args); request.end(); return request; }, Agent, globalAgent: new Agent(), createServer, Server: class Server { constructor() { createServer(); } }, IncomingMessage, ClientRequest, OutgoingMessage: Writable, ServerResponse: class ServerResponse {}, STATUS_CODES: STATUS, METHODS: ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"], maxHeaderSize: 16384 };
}
defineNode("http", client("http"));
defineNode("https", client("https"));
