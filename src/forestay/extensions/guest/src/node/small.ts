// The small modules: url, querystring, string_decoder, timers, os, console, tty, constants and the like.

import { hostCallSync } from "../bridge";
import { environment } from "../environment";
import { utf8Decode, utf8Incomplete, bytesOf } from "../globals/encoding";
import { URL, URLSearchParams, percentDecode, punycode } from "../globals/url";
import * as loop from "../loop";
import { Buffer, decode, encodingOf } from "./buffer";
import { argumentError, defineNode } from "./define";
import { resolve } from "./path";

// -- url -------------------------------------------------------------------------------------------------------------

export function fileURLToPath(value: any): string {
  const url = typeof value === "string" ? new URL(value) : value;
  if (!url || typeof url.protocol !== "string") throw argumentError("path", "of type string or an instance of URL", value);
  if (url.protocol !== "file:") { const error: any = new TypeError("The URL must be of scheme file"); error.code = "ERR_INVALID_URL_SCHEME"; throw error; }
  if (url.hostname !== "") { const error: any = new TypeError(`File URL host must be "localhost" or empty on linux`); error.code = "ERR_INVALID_FILE_URL_HOST"; throw error; }
  if (/%2f/i.test(url.pathname)) { const error: any = new TypeError("File URL path must not include encoded / characters"); error.code = "ERR_INVALID_FILE_URL_PATH"; throw error; }
  return percentDecode(url.pathname);
}

export function pathToFileURL(path: string): URL {
  let full = resolve(path);
  if (path.endsWith("/") && !full.endsWith("/")) full += "/";
  const url = new URL("file:///");
  url.pathname = full.replace(/%/g, "%25").replace(/\\/g, "%5C").replace(/\n/g, "%0A").replace(/\r/g, "%0D").replace(/\t/g, "%09").replace(/\?/g, "%3F").replace(/#/g, "%23");
  return url;
}

function parseUrl(text: string, query = false): any {
  if (typeof text !== "string") throw argumentError("url", "of type string", text);
  const found = /^([a-zA-Z][a-zA-Z0-9+.-]*:)?(\/\/)?(?:([^@/?#]*)@)?([^/?#]*)?([^?#]*)(\?[^#]*)?(#.*)?$/s.exec(text.trim())!;
  const protocol = found[1]?.toLowerCase() ?? null;
  const slashes = found[2] ? true : null;
  const rest = slashes ? null : (found[4] ?? "") + (found[5] ?? "");
  const host = slashes ? (found[4] ?? "").toLowerCase() : null;
  const port = host ? /:(\d+)$/.exec(host)?.[1] ?? null : null;
  const out: any = { protocol, slashes, auth: slashes && found[3] ? decodeURIComponent(found[3]) : null, host, port, hostname: host ? host.replace(/:\d*$/, "").replace(/^\[|\]$/g, "") : host, hash: found[7] ?? null, search: found[6] ?? null, query: found[6] ? found[6].slice(1) : null, pathname: (slashes ? found[5] || (protocol && /^(https?|ftp|file|wss?):$/.test(protocol) ? "/" : null) : rest || null) };
  if (query) { out.query = parseQuery(out.query ?? ""); out.search ??= ""; }
  out.path = out.pathname === null && out.search === null ? null : (out.pathname ?? "") + (out.search ?? "");
  out.href = formatUrl(out);
  return out;
}

function formatUrl(value: any, options: any = {}): string {
  if (typeof value === "string") return parseUrl(value).href;
  if (value instanceof URL) {
    const copy = new URL(value.href);
    if (options.fragment === false) copy.hash = "";
    if (options.search === false) copy.search = "";
    if (options.auth === false) copy.username = copy.password = "";
    return copy.href;
  }
  let protocol = value.protocol ?? "";
  if (protocol && !protocol.endsWith(":")) protocol += ":";
  const host = value.host ?? (value.hostname ? (value.hostname.includes(":") ? `[${value.hostname}]` : value.hostname) + (value.port ? `:${value.port}` : "") : "");
  const auth = value.auth ? encodeURIComponent(value.auth).replace(/%3A/i, ":") + "@" : "";
  const slashes = value.slashes || (/^(https?|ftp|file|wss?):$/.test(protocol) && host !== null && host !== "");
  let pathname = value.pathname ?? "";
  if (slashes && pathname && pathname[0] !== "/") pathname = "/" + pathname;
  let search = value.search ?? (value.query && typeof value.query === "object" && Object.keys(value.query).length ? "?" + stringifyQuery(value.query) : "");
  if (search && search[0] !== "?") search = "?" + search;
  let hash = value.hash ?? "";
  if (hash && hash[0] !== "#") hash = "#" + hash;
  return protocol + (slashes ? "//" : "") + auth + (host ?? "") + pathname.replace(/[?#]/g, encodeURIComponent) + search.replace(/#/g, "%23") + hash;
}

const legacyResolve = (from: string, to: string): string => {
  try { return new URL(to, from).href; } catch { return new URL(to, new URL(from, "resolve://base/")).href.replace(/^resolve:\/\/base/, ""); }
};

defineNode("url", {
  URL, URLSearchParams, fileURLToPath, pathToFileURL, parse: parseUrl, format: formatUrl, resolve: legacyResolve,
  domainToASCII: (name: string) => name.toLowerCase().split(".").map(punycode).join("."), domainToUnicode: (name: string) => name,
  urlToHttpOptions: (url: URL) => ({ protocol: url.protocol, hostname: url.hostname.replace(/^\[|\]$/g, ""), hash: url.hash, search: url.search, pathname: url.pathname, path: url.pathname + url.search, href: url.href, ...(url.port ? { port: Number(url.port) } : {}), ...(url.username || url.password ? { auth: `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}` } : {}) }),
});

// -- querystring ------------------------------------------------------------------------------------------------------

const escapeQuery = (text: any): string => encodeURIComponent(String(text)).replace(/%20/g, "%20");
const unescapeQuery = (text: string): string => percentDecode(text);

function parseQuery(text: string, separator = "&", equals = "=", options: any = {}): any {
  const out: any = Object.create(null);
  const most = options?.maxKeys ?? 1000;
  const read = options?.decodeURIComponent ?? unescapeQuery;
  if (typeof text !== "string" || text === "") return out;
  let parts = text.split(separator);
  if (most > 0) parts = parts.slice(0, most);
  for (const part of parts) {
    if (part === "") continue;
    const at = part.indexOf(equals);
    const name = read((at < 0 ? part : part.slice(0, at)).replace(/\+/g, " "));
    const value = at < 0 ? "" : read(part.slice(at + equals.length).replace(/\+/g, " "));
    if (!(name in out)) out[name] = value;
    else if (Array.isArray(out[name])) out[name].push(value);
    else out[name] = [out[name], value];
  }
  return out;
}

function stringifyQuery(value: any, separator = "&", equals = "=", options: any = {}): string {
  if (value === null || typeof value !== "object") return "";
  const write = options?.encodeURIComponent ?? escapeQuery;
  const plain = (item: any): string => (typeof item === "string" ? item : typeof item === "number" && isFinite(item) ? String(item) : typeof item === "bigint" || typeof item === "boolean" ? String(item) : "");
  return Object.keys(value).map((name) => (Array.isArray(value[name]) ? value[name].map((item: any) => write(name) + equals + write(plain(item))).join(separator) : write(name) + equals + write(plain(value[name])))).filter((part) => part !== "").join(separator);
}
defineNode("querystring", { parse: parseQuery, decode: parseQuery, stringify: stringifyQuery, encode: stringifyQuery, escape: escapeQuery, unescape: unescapeQuery });

// -- string_decoder ---------------------------------------------------------------------------------------------------

export class StringDecoder {
  encoding: string;
  #rest: Uint8Array = new Uint8Array(0);
  constructor(encoding?: any) { this.encoding = encodingOf(encoding); }
  write(input: any): string {
    if (typeof input === "string") return input;
    let bytes = bytesOf(input);
    if (this.#rest.length) { const whole = new Uint8Array(this.#rest.length + bytes.length); whole.set(this.#rest); whole.set(bytes, this.#rest.length); bytes = whole; }
    const keep = this.encoding === "utf8" ? utf8Incomplete(bytes) : this.encoding === "utf16le" ? bytes.length % 2 : this.encoding.startsWith("base64") ? bytes.length % 3 : 0;
    const end = bytes.length - keep;
    this.#rest = bytes.slice(end);
    return this.encoding === "utf8" ? utf8Decode(bytes, 0, end) : decode(bytes.subarray(0, end), this.encoding);
  }
  end(input?: any): string {
    let text = input === undefined ? "" : this.write(input);
    if (this.#rest.length) text += this.encoding === "utf8" ? "\ufffd" : decode(this.#rest, this.encoding);
    this.#rest = new Uint8Array(0);
    return text;
  }
}
defineNode("string_decoder", { StringDecoder });

// -- timers -----------------------------------------------------------------------------------------------------------

const waitFor = (start: any) => (ms?: number, value?: any, options: any = {}): Promise<any> => new Promise((resolve_, reject) => {
  if (options?.signal?.aborted) return reject(options.signal.reason);
  const timer = start(() => resolve_(value), ms);
  options?.signal?.addEventListener("abort", () => { loop.clearTimeout(timer); reject(options.signal.reason); });
});
export const timersPromises: any = {
  setTimeout: waitFor((call: any, ms: any) => loop.setTimeout(call, ms)),
  setImmediate: (value?: any, options?: any) => waitFor((call: any) => loop.setImmediate(call))(0, value, options),
  async *setInterval(ms: number, value?: any, options: any = {}) { for (;;) { await timersPromises.setTimeout(ms, undefined, options); yield value; } },
  scheduler: { wait: (ms: number, options?: any) => timersPromises.setTimeout(ms, undefined, options), yield: () => timersPromises.setImmediate() },
};
const custom = Symbol.for("nodejs.util.promisify.custom");
Object.defineProperty(loop.setTimeout, custom, { value: timersPromises.setTimeout, configurable: true });
Object.defineProperty(loop.setImmediate, custom, { value: timersPromises.setImmediate, configurable: true });
defineNode("timers_promises", timersPromises);
defineNode("timers", { setTimeout: loop.setTimeout, clearTimeout: loop.clearTimeout, setInterval: loop.setInterval, clearInterval: loop.clearInterval, setImmediate: loop.setImmediate, clearImmediate: loop.clearImmediate, promises: timersPromises });

// -- os ---------------------------------------------------------------------------------------------------------------

let facts: any, temporary: string | undefined;
// What the host says about the machine; refused, it is a plain Linux box without a name.
export function system(): any {
  if (facts === undefined) {
    try {
      facts = hostCallSync("env", { op: "system" });
    } catch {
      return { platform: "linux", arch: "x64", machine: "x86_64", type: "Linux", release: "", version: "", hostname: "localhost", homedir: environment.cwd, cpus: 1, user: "user", shell: null, uid: -1, gid: -1 };
    }
  }
  return facts;
}
const SIGNALS: any = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGILL: 4, SIGTRAP: 5, SIGABRT: 6, SIGBUS: 7, SIGFPE: 8, SIGKILL: 9, SIGUSR1: 10, SIGSEGV: 11, SIGUSR2: 12, SIGPIPE: 13, SIGALRM: 14, SIGTERM: 15, SIGCHLD: 17, SIGCONT: 18, SIGSTOP: 19, SIGTSTP: 20, SIGTTIN: 21, SIGTTOU: 22, SIGWINCH: 28 };
export const os = defineNode("os", {
  EOL: "\n", devNull: "/dev/null",
  platform: () => system().platform, type: () => system().type, release: () => system().release, version: () => system().version, arch: () => system().arch, machine: () => system().machine,
  hostname: () => system().hostname, homedir: () => system().homedir, tmpdir: () => (temporary ??= hostCallSync("env", { op: "temp" }).tmpdir), endianness: () => "LE", uptime: () => 0, loadavg: () => [0, 0, 0],
  totalmem: () => 0, freemem: () => 0, availableParallelism: () => system().cpus, cpus: () => Array.from({ length: system().cpus }, () => ({ model: "", speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } })),
  networkInterfaces: () => ({}), userInfo: () => ({ username: system().user, uid: system().uid, gid: system().gid, shell: system().shell, homedir: system().homedir }),
  getPriority: () => 0, setPriority: () => undefined, constants: { signals: SIGNALS, errno: {}, priority: {} },
});
export { SIGNALS };

// -- others -----------------------------------------------------------------------------------------------------------

defineNode("tty", { isatty: () => false, ReadStream: class ReadStream {}, WriteStream: class WriteStream {} });
defineNode("constants", { ...SIGNALS, F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1 });
defineNode("punycode", { toASCII: (name: string) => name.split(".").map(punycode).join("."), encode: (text: string) => punycode(text).replace(/^xn--/, ""), ucs2: { decode: (text: string) => [...text].map((one) => one.codePointAt(0)), encode: (points: number[]) => String.fromCodePoint(...points) } });

class AsyncLocalStorage {
  #store: any;
  run(store: any, call: any, ...args: any[]): any { const before = this.#store; this.#store = store; try { return call(...args); } finally { this.#store = before; } }
  exit(call: any, ...args: any[]): any { return this.run(undefined, call, ...args); }
  getStore(): any { return this.#store; }
  enterWith(store: any): void { this.#store = store; }
  disable(): void { this.#store = undefined; }
  static bind(call: any): any { return call; }
  static snapshot(): any { return (call: any, ...args: any[]) => call(...args); }
}
class AsyncResource {
  readonly type: string;
  constructor(type: string) { this.type = type; }
  runInAsyncScope(call: any, self?: any, ...args: any[]): any { return call.apply(self, args); }
  emitDestroy(): this { return this; }
  asyncId(): number { return 1; }
  triggerAsyncId(): number { return 0; }
  bind(call: any): any { return call.bind(this); }
  static bind(call: any): any { return call; }
}
defineNode("async_hooks", { AsyncLocalStorage, AsyncResource, executionAsyncId: () => 1, triggerAsyncId: () => 0, createHook: () => ({ enable: () => undefined, disable: () => undefined }) });
void Buffer;
