// node:http and node:https as clients of the http connector.

import { hostCall, HostError } from "../bridge";
import { base64Decode, base64Encode } from "../globals/encoding";
import { URL } from "../globals/url";
import { Buffer } from "./buffer";
import { defineNode, systemError } from "./define";
import { callable, EventEmitter } from "./events";
import { Readable, Writable } from "./stream";

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

// The host makes the connections; an agent only stores its options, and names requests as Node does.
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
