// URL and URLSearchParams by the URL standard, for the schemes that extensions use.

import { utf8Decode, utf8Encode } from "./encoding";
import { install } from "./install";

const DEFAULT_PORTS: Record<string, string> = { "http:": "80", "https:": "443", "ws:": "80", "wss:": "443", "ftp:": "21", "file:": "" };
const PATH = " \"#<>?`{}^";
const QUERY = " \"#<>";
const FRAGMENT = " \"<>`";
const USER = " \"#<>?`{}/:;=@[\\]^|";

function encodeSet(text: string, set: string, special = false): string {
  let out = "";
  for (const character of text) {
    const code = character.codePointAt(0)!;
    if (code > 0x7e || code < 0x20 || set.includes(character) || (special && character === "'")) out += percent(character);
    else out += character;
  }
  return out;
}

function percent(text: string): string {
  let out = "";
  for (const byte of utf8Encode(text)) out += "%" + (byte < 16 ? "0" : "") + byte.toString(16).toUpperCase();
  return out;
}

export function percentDecode(text: string): string {
  if (!text.includes("%")) return text;
  const bytes: number[] = [];
  const raw = utf8Encode(text);
  for (let i = 0; i < raw.length; i++) {
    const pair = raw[i] === 37 && i + 2 < raw.length ? String.fromCharCode(raw[i + 1], raw[i + 2]) : "";
    if (/^[0-9a-fA-F]{2}$/.test(pair)) {
      bytes.push(parseInt(pair, 16));
      i += 2;
    } else bytes.push(raw[i]);
  }
  return utf8Decode(Uint8Array.from(bytes));
}

interface Parts {
  scheme: string; username: string; password: string; host: string | null; port: string; path: string[] | string;
  query: string | null; fragment: string | null;
}

const isSpecial = (scheme: string): boolean => scheme in DEFAULT_PORTS;

function invalid(input: string): TypeError {
  const error: any = new TypeError("Invalid URL");
  error.code = "ERR_INVALID_URL";
  error.input = input;
  return error;
}

function parse(input: string, base?: Parts): Parts {
  const text = input.replace(/^[\0- ]+|[\0- ]+$/g, "").replace(/[\t\n\r]/g, "");
  const found = /^([a-zA-Z][a-zA-Z0-9+.-]*):/.exec(text);
  if (!found) {
    if (!base) throw invalid(input);
    return relative(text, base, input);
  }
  const scheme = found[1].toLowerCase() + ":";
  let rest = text.slice(found[0].length);
  if (base && base.scheme === scheme && isSpecial(scheme) && scheme !== "file:" && !/^[\\/]{2}/.test(rest)) return relative(rest, base, input);
  const parts: Parts = { scheme, username: "", password: "", host: null, port: "", path: "", query: null, fragment: null };
  rest = cutTail(rest, parts);
  if (isSpecial(scheme)) {
    rest = rest.replace(/\\/g, "/");
    if (scheme === "file:") {
      if (rest.startsWith("//")) authority(rest.slice(2), parts, input);
      else {
        parts.host = "";
        parts.path = base && base.scheme === "file:" && !rest.startsWith("/") ? merge(base.path as string[], rest) : segments(rest, []);
      }
    } else authority(rest.replace(/^\/*/, ""), parts, input);
  } else if (rest.startsWith("//")) authority(rest.slice(2), parts, input);
  else if (rest.startsWith("/")) parts.path = segments(rest, []);
  else parts.path = encodeSet(rest, "", false);
  return parts;
}

function cutTail(rest: string, parts: Parts): string {
  const hash = rest.indexOf("#");
  if (hash >= 0) {
    parts.fragment = encodeSet(rest.slice(hash + 1), FRAGMENT);
    rest = rest.slice(0, hash);
  }
  const mark = rest.indexOf("?");
  if (mark >= 0) {
    parts.query = encodeSet(rest.slice(mark + 1), QUERY, isSpecial(parts.scheme));
    rest = rest.slice(0, mark);
  }
  return rest;
}

function relative(text: string, base: Parts, input: string): Parts {
  const parts: Parts = { ...base, path: base.path, query: null, fragment: null };
  if (typeof base.path === "string") {
    if (!text.startsWith("#")) throw invalid(input);
    parts.query = base.query;
    parts.fragment = encodeSet(text.slice(1), FRAGMENT);
    return parts;
  }
  let rest = cutTail(text, parts);
  if (isSpecial(base.scheme)) rest = rest.replace(/\\/g, "/");
  if (rest === "") {
    if (parts.query === null) parts.query = text.startsWith("?") ? "" : base.query;
    return parts;
  }
  if (rest.startsWith("//")) {
    parts.username = parts.password = parts.port = "";
    authority(rest.slice(2), parts, input);
  } else parts.path = rest.startsWith("/") ? segments(rest, []) : merge(base.path, rest);
  return parts;
}

const merge = (base: string[], rest: string): string[] => segments("/" + rest, base.slice(0, -1));

function segments(path: string, start: string[]): string[] {
  const out = [...start];
  const list = path.replace(/^\//, "").split("/");
  list.forEach((raw, index) => {
    const last = index === list.length - 1;
    const plain = raw.replace(/%2e/gi, ".");
    if (plain === "..") {
      out.pop();
      if (last) out.push("");
    } else if (plain === ".") {
      if (last) out.push("");
    } else out.push(encodeSet(raw, PATH));
  });
  return out;
}

function authority(text: string, parts: Parts, input: string): void {
  const slash = text.search(/\//);
  let named = slash < 0 ? text : text.slice(0, slash);
  parts.path = slash < 0 && !isSpecial(parts.scheme) ? [] : segments(slash < 0 ? "/" : text.slice(slash), []);
  const at = named.lastIndexOf("@");
  if (at >= 0) {
    const [user, ...word] = named.slice(0, at).split(":");
    parts.username = encodeSet(user, USER);
    parts.password = encodeSet(word.join(":"), USER);
    named = named.slice(at + 1);
  }
  const found = /^(\[[^\]]*\]|[^:]*)(?::(\d*))?$/.exec(named);
  if (!found) throw invalid(input);
  if (parts.scheme !== "file:" && found[1] === "" && isSpecial(parts.scheme)) throw invalid(input);
  parts.host = hostname(found[1], parts.scheme, input);
  parts.port = portOf(found[2] ?? "", parts.scheme, input);
  if (parts.scheme === "file:" && parts.host === "localhost") parts.host = "";
}

function portOf(text: string, scheme: string, input: string): string {
  if (text === "") return "";
  const value = Number(text);
  if (value > 65535) throw invalid(input);
  return String(value) === DEFAULT_PORTS[scheme] ? "" : String(value);
}

function hostname(text: string, scheme: string, input: string): string {
  if (text.startsWith("[")) return "[" + ipv6(text.slice(1, -1), input) + "]";
  if (!isSpecial(scheme)) {
    if (/[\0\t\n\r #/<>?@[\\\]^|]/.test(text)) throw invalid(input);
    return encodeSet(text, "");
  }
  let host = percentDecode(text).toLowerCase();
  if (/[^\0-\x7f]/.test(host)) host = host.normalize("NFKC").toLowerCase().split(/[.。．｡]/).map(punycode).join(".");
  if (/[\0-\x20#%/:<>?@[\\\]^`{|}\x7f]/.test(host)) throw invalid(input);
  const labels = host.replace(/\.$/, "").split(".");
  if (/^(0x[0-9a-f]*|[0-9]+)$/.test(labels[labels.length - 1])) return ipv4(labels, input);
  return host;
}

function ipv4(labels: string[], input: string): string {
  if (labels.length > 4) throw invalid(input);
  const values = labels.map((label) => {
    const value = label === "" ? NaN : /^0x/.test(label) ? parseInt(label.slice(2) || "0", 16) : /^0[0-7]*$/.test(label) ? parseInt(label, 8) : /^\d+$/.test(label) ? Number(label) : NaN;
    if (!(value >= 0)) throw invalid(input);
    return value;
  });
  const last = values.pop()!;
  if (values.some((value) => value > 255) || last >= 256 ** (4 - values.length)) throw invalid(input);
  let number = last;
  values.forEach((value, index) => (number += value * 256 ** (3 - index)));
  return [24, 16, 8, 0].map((shift) => Math.floor(number / 2 ** shift) % 256).join(".");
}

function ipv6(text: string, input: string): string {
  const dotted = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(text);
  if (dotted) {
    const bytes = dotted[2].split(".").map(Number);
    if (bytes.some((byte) => byte > 255)) throw invalid(input);
    text = dotted[1] + ((bytes[0] << 8) | bytes[1]).toString(16) + ":" + ((bytes[2] << 8) | bytes[3]).toString(16);
  }
  const halves = text.split("::");
  if (halves.length > 2) throw invalid(input);
  const read = (half: string): number[] => (half === "" ? [] : half.split(":").map((piece) => {
    if (!/^[0-9a-fA-F]{1,4}$/.test(piece)) throw invalid(input);
    return parseInt(piece, 16);
  }));
  const head = read(halves[0]);
  const tail = halves.length === 2 ? read(halves[1]) : [];
  if (halves.length === 1 ? head.length !== 8 : head.length + tail.length > 7) throw invalid(input);
  const pieces = [...head, ...new Array(8 - head.length - tail.length).fill(0), ...tail];
  let best = -1;
  let size = 1;
  for (let i = 0; i < 8; i++) {
    let run = 0;
    while (i + run < 8 && pieces[i + run] === 0) run++;
    if (run > size) { best = i; size = run; }
    i += run;
  }
  if (best < 0) return pieces.map((piece) => piece.toString(16)).join(":");
  const hex = (list: number[]) => list.map((piece) => piece.toString(16)).join(":");
  return hex(pieces.slice(0, best)) + "::" + hex(pieces.slice(best + size));
}

// RFC 3492.
export function punycode(label: string): string {
  const points = [...label].map((character) => character.codePointAt(0)!);
  const basic = points.filter((point) => point < 128);
  if (basic.length === points.length) return label;
  let out = String.fromCharCode(...basic) + (basic.length ? "-" : "");
  let n = 128, delta = 0, bias = 72, done = basic.length;
  const adapt = (change: number, count: number, first: boolean): number => {
    change = Math.floor(first ? change / 700 : change / 2);
    change += Math.floor(change / count);
    let k = 0;
    for (; change > 455; k += 36) change = Math.floor(change / 35);
    return k + Math.floor((36 * change) / (change + 38));
  };
  const digit = (value: number): string => String.fromCharCode(value < 26 ? value + 97 : value + 22);
  while (done < points.length) {
    const next = Math.min(...points.filter((point) => point >= n));
    delta += (next - n) * (done + 1);
    n = next;
    for (const point of points) {
      if (point < n) delta++;
      if (point !== n) continue;
      let q = delta;
      for (let k = 36; ; k += 36) {
        const limit = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
        if (q < limit) break;
        out += digit(limit + ((q - limit) % (36 - limit)));
        q = Math.floor((q - limit) / (36 - limit));
      }
      out += digit(q);
      bias = adapt(delta, done + 1, done === basic.length);
      delta = 0;
      done++;
    }
    delta++;
    n++;
  }
  return "xn--" + out;
}

const formEncode = (text: string): string => {
  let out = "";
  for (const character of text) {
    if (/[A-Za-z0-9*\-._]/.test(character)) out += character;
    else out += character === " " ? "+" : percent(character);
  }
  return out;
};
const formDecode = (text: string): string => percentDecode(text.replace(/\+/g, " "));

export class URLSearchParams {
  #list: [string, string][] = [];
  #changed: (() => void) | undefined;
  constructor(init: any = "") {
    if (init === null || init === undefined) return;
    if (typeof init === "object" || typeof init === "function") {
      if (typeof init[Symbol.iterator] === "function") {
        for (const pair of init) {
          const [name, value, ...more] = [...pair];
          if (value === undefined || more.length) throw new TypeError("Each query pair must be an iterable [name, value] tuple");
          this.#list.push([String(name), String(value)]);
        }
      } else for (const name of Object.keys(init)) this.#list.push([name, String(init[name])]);
    } else this.#list = URLSearchParams.parse(String(init));
  }
  static parse(text: string): [string, string][] {
    return text.replace(/^\?/, "").split("&").filter((part) => part !== "").map((part) => {
      const at = part.indexOf("=");
      return at < 0 ? [formDecode(part), ""] : [formDecode(part.slice(0, at)), formDecode(part.slice(at + 1))];
    });
  }
  static link(params: URLSearchParams, changed: () => void, text?: string): void {
    params.#changed = changed;
    if (text !== undefined) params.#list = URLSearchParams.parse(text);
  }
  #touch(): void { this.#changed?.(); }
  get size(): number { return this.#list.length; }
  append(name: any, value: any): void { this.#list.push([String(name), String(value)]); this.#touch(); }
  delete(name: any, value?: any): void {
    this.#list = this.#list.filter((pair) => pair[0] !== String(name) || (value !== undefined && pair[1] !== String(value)));
    this.#touch();
  }
  get(name: any): string | null { return this.#list.find((pair) => pair[0] === String(name))?.[1] ?? null; }
  getAll(name: any): string[] { return this.#list.filter((pair) => pair[0] === String(name)).map((pair) => pair[1]); }
  has(name: any, value?: any): boolean { return this.#list.some((pair) => pair[0] === String(name) && (value === undefined || pair[1] === String(value))); }
  set(name: any, value: any): void {
    const first = this.#list.find((pair) => pair[0] === String(name));
    if (!first) return this.append(name, value);
    first[1] = String(value);
    this.#list = this.#list.filter((pair) => pair === first || pair[0] !== String(name));
    this.#touch();
  }
  sort(): void { this.#list.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)); this.#touch(); }
  forEach(call: any, self?: any): void { for (const [name, value] of [...this.#list]) call.call(self, value, name, this); }
  *entries(): IterableIterator<[string, string]> { for (let i = 0; i < this.#list.length; i++) yield [...this.#list[i]] as [string, string]; }
  *keys(): IterableIterator<string> { for (const [name] of this.entries()) yield name; }
  *values(): IterableIterator<string> { for (const [, value] of this.entries()) yield value; }
  [Symbol.iterator](): IterableIterator<[string, string]> { return this.entries(); }
  toString(): string { return this.#list.map(([name, value]) => formEncode(name) + "=" + formEncode(value)).join("&"); }
  get [Symbol.toStringTag](): string { return "URLSearchParams"; }
}
const link = URLSearchParams.link;
delete (URLSearchParams as any).link;
const parseParams = URLSearchParams.parse;
Object.defineProperty(URLSearchParams, "parse", { value: parseParams, enumerable: false });

export class URL {
  #parts: Parts;
  #params: URLSearchParams | undefined;
  constructor(input: any, base?: any) {
    this.#parts = parse(String(input), base === undefined ? undefined : parse(String(base)));
  }
  static canParse(input: any, base?: any): boolean {
    try { new URL(input, base); return true; } catch { return false; }
  }
  static parse(input: any, base?: any): URL | null {
    try { return new URL(input, base); } catch { return null; }
  }
  static createObjectURL(): string { throw new TypeError("object URLs are not available here"); }
  static revokeObjectURL(): void {}
  get href(): string {
    const p = this.#parts;
    let text = p.scheme;
    if (p.host !== null) {
      text += "//";
      if (p.username || p.password) text += p.username + (p.password ? ":" + p.password : "") + "@";
      text += this.host;
    }
    return text + (p.host === null && Array.isArray(p.path) && p.path.length > 1 && p.path[0] === "" ? "/." : "") + this.pathname + (p.query === null ? "" : "?" + p.query) + (p.fragment === null ? "" : "#" + p.fragment);
  }
  set href(value: string) { this.#parts = parse(String(value)); this.#refresh(); }
  get origin(): string {
    if (this.#parts.scheme === "blob:") {
      const inner = URL.parse(this.pathname);
      return inner && /^https?:$/.test(inner.protocol) ? inner.origin : "null";
    }
    return isSpecial(this.#parts.scheme) && this.#parts.scheme !== "file:" ? this.#parts.scheme + "//" + this.host : "null";
  }
  get protocol(): string { return this.#parts.scheme; }
  set protocol(value: string) {
    const scheme = String(value).replace(/:.*$/, "").toLowerCase() + ":";
    if (/^[a-z][a-z0-9+.-]*:$/.test(scheme) && isSpecial(scheme) === isSpecial(this.#parts.scheme)) {
      this.#parts.scheme = scheme;
      if (this.#parts.port === DEFAULT_PORTS[scheme]) this.#parts.port = "";
    }
  }
  get username(): string { return this.#parts.username; }
  set username(value: string) { if (this.#parts.host) this.#parts.username = encodeSet(String(value), USER); }
  get password(): string { return this.#parts.password; }
  set password(value: string) { if (this.#parts.host) this.#parts.password = encodeSet(String(value), USER); }
  get host(): string { return (this.#parts.host ?? "") + (this.#parts.port === "" ? "" : ":" + this.#parts.port); }
  set host(value: string) {
    const found = /^(\[[^\]]*\]|[^:/?#]*)(?::(\d+))?/.exec(String(value));
    if (!found || typeof this.#parts.path === "string" || found[1] === "") return;
    this.hostname = found[1];
    if (found[2]) this.port = found[2];
  }
  get hostname(): string { return this.#parts.host ?? ""; }
  set hostname(value: string) {
    if (typeof this.#parts.path === "string") return;
    try { this.#parts.host = hostname(String(value).replace(/[/?#].*$/, ""), this.#parts.scheme, ""); } catch { /* an invalid host changes nothing */ }
  }
  get port(): string { return this.#parts.port; }
  set port(value: string) {
    const digits = /^\d*/.exec(String(value))![0];
    if (this.#parts.host && (digits !== "" || String(value) === "")) {
      try { this.#parts.port = portOf(digits, this.#parts.scheme, ""); } catch { /* an invalid port changes nothing */ }
    }
  }
  get pathname(): string { return typeof this.#parts.path === "string" ? this.#parts.path : this.#parts.path.length || isSpecial(this.#parts.scheme) ? "/" + this.#parts.path.join("/") : ""; }
  set pathname(value: string) { if (typeof this.#parts.path !== "string") this.#parts.path = segments(isSpecial(this.#parts.scheme) ? String(value).replace(/\\/g, "/") : String(value), []).map((part) => encodeSet(part, "?#")); }
  get search(): string { return this.#parts.query ? "?" + this.#parts.query : ""; }
  set search(value: string) {
    const text = String(value);
    this.#parts.query = text === "" ? null : encodeSet(text.replace(/^\?/, ""), QUERY, isSpecial(this.#parts.scheme));
    this.#refresh();
  }
  get searchParams(): URLSearchParams {
    if (!this.#params) {
      this.#params = new URLSearchParams();
      this.#refresh();
    }
    return this.#params;
  }
  #refresh(): void {
    if (!this.#params) return;
    const params = this.#params;
    link(params, () => {
      const text = params.toString();
      this.#parts.query = text === "" ? null : text;
    }, this.#parts.query ?? "");
  }
  get hash(): string { return this.#parts.fragment ? "#" + this.#parts.fragment : ""; }
  set hash(value: string) { this.#parts.fragment = String(value) === "" ? null : encodeSet(String(value).replace(/^#/, ""), FRAGMENT); }
  toString(): string { return this.href; }
  toJSON(): string { return this.href; }
  get [Symbol.toStringTag](): string { return "URL"; }
}

install({ URL, URLSearchParams });
