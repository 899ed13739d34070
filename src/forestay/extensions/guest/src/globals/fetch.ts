// fetch, Headers, Request and Response over the host's http connector: the answer streams, an abort cancels it.

import { HostError, hostCall } from "../bridge";
import { Blob, FormData, blobBytes, multipart } from "./blob";
import { base64Decode, base64Encode, bytesOf, joined, utf8Decode, utf8Encode } from "./encoding";
import { DOMException } from "./events";
import { install } from "./install";
import { ReadableStream, deferred, isDisturbed } from "./streams";
import { URL, URLSearchParams } from "./url";

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

export class Headers {
  #list: [string, string][] = [];
  constructor(init?: any) {
    if (init === undefined || init === null) return;
    if (typeof init !== "object") throw new TypeError("Headers need an object or a list of pairs");
    const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
    for (const pair of pairs) {
      const [name, value, ...more] = [...pair];
      if (value === undefined || more.length) throw new TypeError("Each header pair must be an iterable [name, value] tuple");
      this.append(name, value);
    }
  }
  append(name: any, value: any): void { this.#list.push([key(name), content(value)]); }
  delete(name: any): void { const wanted = key(name); this.#list = this.#list.filter((pair) => pair[0] !== wanted); }
  get(name: any): string | null {
    const wanted = key(name);
    const found = this.#list.filter((pair) => pair[0] === wanted).map((pair) => pair[1]);
    return found.length ? found.join(wanted === "cookie" ? "; " : ", ") : null;
  }
  getSetCookie(): string[] { return this.#list.filter((pair) => pair[0] === "set-cookie").map((pair) => pair[1]); }
  has(name: any): boolean { const wanted = key(name); return this.#list.some((pair) => pair[0] === wanted); }
  set(name: any, value: any): void { this.delete(name); this.append(name, value); }
  forEach(call: any, self?: any): void { for (const [name, value] of this) call.call(self, value, name, this); }
  *entries(): IterableIterator<[string, string]> {
    const names = [...new Set(this.#list.map((pair) => pair[0]))].sort();
    for (const name of names) {
      if (name === "set-cookie") for (const value of this.getSetCookie()) yield [name, value];
      else yield [name, this.get(name)!];
    }
  }
  *keys(): IterableIterator<string> { for (const [name] of this.entries()) yield name; }
  *values(): IterableIterator<string> { for (const [, value] of this.entries()) yield value; }
  [Symbol.iterator](): IterableIterator<[string, string]> { return this.entries(); }
  get [Symbol.toStringTag](): string { return "Headers"; }
}

function key(name: any): string {
  const text = String(name);
  if (!NAME.test(text)) throw new TypeError(`Headers: "${text}" is an invalid header name.`);
  return text.toLowerCase();
}

function content(value: any): string {
  const text = String(value).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "");
  if (/[\0\r\n]/.test(text)) throw new TypeError(`Headers: "${text}" is an invalid header value.`);
  return text;
}

interface Given { bytes?: Uint8Array; stream?: ReadableStream; type?: string }

function bodyOf(body: any): Given {
  if (body === null || body === undefined) return {};
  if (typeof body === "string") return { bytes: utf8Encode(body), type: "text/plain;charset=UTF-8" };
  if (body instanceof URLSearchParams) return { bytes: utf8Encode(body.toString()), type: "application/x-www-form-urlencoded;charset=UTF-8" };
  if (body instanceof FormData) { const form = multipart(body); return { bytes: form.body, type: form.type }; }
  if (body instanceof Blob) return { bytes: blobBytes(body), type: body.type || undefined };
  if (body instanceof ReadableStream) return { stream: body };
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return { bytes: bytesOf(body).slice() };
  if (typeof body[Symbol.asyncIterator] === "function") return { stream: ReadableStream.from(body) };
  return { bytes: utf8Encode(String(body)), type: "text/plain;charset=UTF-8" };
}

class Body {
  #given: Given;
  #used = false;
  #stream: ReadableStream | null | undefined;
  readonly headers: Headers;
  constructor(given: Given, headers: Headers) {
    this.#given = given;
    this.headers = headers;
    if (given.type !== undefined && !headers.has("content-type")) headers.set("content-type", given.type);
  }
  get body(): ReadableStream | null {
    if (this.#stream === undefined) {
      const bytes = this.#given.bytes;
      this.#stream = this.#given.stream ?? (bytes === undefined ? null : new ReadableStream({
        type: "bytes",
        start(controller: any) { if (bytes.length) controller.enqueue(bytes.slice()); controller.close(); },
      }));
    }
    return this.#stream;
  }
  get bodyUsed(): boolean { return this.#used || (this.#stream instanceof ReadableStream && isDisturbed(this.#stream)); }
  get #unusable(): boolean { return this.bodyUsed || this.#stream?.locked === true; }
  async #take(): Promise<Uint8Array> {
    if (this.#unusable) throw new TypeError("Body is unusable: Body has already been read");
    this.#used = true;
    if (this.#given.bytes && this.#stream === undefined) return this.#given.bytes;
    const parts: Uint8Array[] = [];
    if (this.body) for await (const part of this.body) parts.push(bytesOf(part));
    return joined(parts);
  }
  async text(): Promise<string> { const text = utf8Decode(await this.#take()); return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text; }
  async json(): Promise<any> { return JSON.parse(await this.text()); }
  async arrayBuffer(): Promise<ArrayBuffer> { return (await this.#take()).slice().buffer as ArrayBuffer; }
  async bytes(): Promise<Uint8Array> { return (await this.#take()).slice(); }
  async blob(): Promise<Blob> { return new Blob([await this.#take()], { type: this.headers.get("content-type") ?? "" }); }
  async formData(): Promise<FormData> {
    const form = new FormData();
    const type = this.headers.get("content-type") ?? "";
    if (!type.startsWith("application/x-www-form-urlencoded")) throw new TypeError(`A body of type ${type || "(none)"} is not read as a form here`);
    for (const [name, value] of new URLSearchParams(await this.text())) form.append(name, value);
    return form;
  }
  static split(source: Body): Given {
    if (source.#unusable) throw new TypeError("Body is unusable: Body has already been read");
    if (source.#given.bytes && source.#stream === undefined) return { ...source.#given };
    if (!source.body) return {};
    const [one, two] = source.body.tee();
    source.#stream = one;
    return { stream: two };
  }
  static consume(source: Body): Promise<Uint8Array> { return source.#take(); }
}
const split = Body.split;
const consume = Body.consume;

export class Request extends Body {
  readonly method: string;
  readonly url: string;
  readonly redirect: string;
  readonly signal: any;
  readonly credentials: string;
  readonly cache: string;
  readonly mode: string;
  readonly duplex = "half";
  readonly dispatcher: any;
  constructor(input: any, init: any = {}) {
    const old = input instanceof Request ? input : undefined;
    const method = normal(String(init?.method ?? old?.method ?? "GET"));
    const given = init?.body !== undefined && init.body !== null ? bodyOf(init.body) : old ? split(old) : {};
    if ((given.bytes || given.stream) && (method === "GET" || method === "HEAD")) throw new TypeError("Request with GET/HEAD method cannot have body.");
    super(given, new Headers(init?.headers ?? old?.headers));
    this.method = method;
    this.url = old ? old.url : new URL(String(input)).href;
    this.redirect = init?.redirect ?? old?.redirect ?? "follow";
    this.signal = init?.signal ?? old?.signal ?? new (globalThis as any).AbortController().signal;
    this.credentials = init?.credentials ?? "same-origin";
    this.cache = init?.cache ?? "default";
    this.mode = init?.mode ?? "cors";
    Object.defineProperty(this, "dispatcher", { value: init?.dispatcher ?? old?.dispatcher, enumerable: false });
  }
  clone(): Request { return new Request(this); }
  get [Symbol.toStringTag](): string { return "Request"; }
}

const normal = (method: string): string => (/^(get|head|post|put|delete|options|patch)$/i.test(method) ? method.toUpperCase() : method);

export class Response extends Body {
  readonly status: number;
  readonly statusText: string;
  readonly url: string;
  readonly redirected: boolean;
  readonly type: string;
  constructor(body: any = null, init: any = {}, source: any = {}) {
    const status = init?.status ?? 200;
    if (source.type === undefined && (status < 200 || status > 599)) throw new RangeError(`init["status"] must be in the range of 200 to 599, inclusive.`);
    super(bodyOf(body), init?.headers instanceof Headers && source.own ? init.headers : new Headers(init?.headers));
    this.status = status;
    this.statusText = String(init?.statusText ?? "");
    this.url = source.url ?? "";
    this.redirected = source.redirected === true;
    this.type = source.type ?? "default";
  }
  get ok(): boolean { return this.status >= 200 && this.status < 300; }
  clone(): Response {
    const given = split(this);
    const copy = new Response(given.stream ?? given.bytes ?? null, { status: this.status, statusText: this.statusText, headers: this.headers }, { url: this.url, redirected: this.redirected, type: this.type });
    return copy;
  }
  static json(data: any, init: any = {}): Response {
    const headers = new Headers(init?.headers);
    if (!headers.has("content-type")) headers.set("content-type", "application/json");
    return new Response(JSON.stringify(data), { ...init, headers });
  }
  static error(): Response { return new Response(null, { status: 0 }, { type: "error" }); }
  static redirect(url: any, status = 302): Response { return new Response(null, { status, headers: { location: new URL(url).href } }); }
  get [Symbol.toStringTag](): string { return "Response"; }
}

// Checks whether a request may use a dispatcher; the module that defines dispatchers sets this.
export const dispatching = { check: (_dispatcher: any): void => undefined };

export async function fetch(input: any, init: any = {}): Promise<Response> {
  dispatching.check(init?.dispatcher ?? (input instanceof Request ? input.dispatcher : undefined));
  const request = new Request(input, init);
  const signal = init?.signal ?? (input instanceof Request ? input.signal : undefined);
  if (signal?.aborted) throw signal.reason;
  if (request.url.startsWith("data:")) return dataUrl(request.url);
  const body = request.body === null ? undefined : await consume(request);
  const params: any = { url: request.url.split("#")[0], method: request.method, headers: [...request.headers], redirect: request.redirect, stream: true };
  if (!request.headers.has("user-agent")) params.headers.push(["user-agent", "node"]);
  if (!request.headers.has("accept")) params.headers.push(["accept", "*/*"]);
  if (body) params.base64 = base64Encode(body);
  const head = deferred();
  let sink: any;
  let started = false;
  const abort = new (globalThis as any).AbortController();
  const stop = () => abort.abort(signal?.reason);
  signal?.addEventListener?.("abort", stop);
  const stream = new ReadableStream({ type: "bytes", start(controller: any) { sink = controller; }, cancel: () => abort.abort() });
  const finished = hostCall("http", params, {
    signal: abort.signal,
    onChunk(chunk: any) {
      if (chunk.status !== undefined) { started = true; head.resolve(chunk); }
      else if (chunk.base64 !== undefined) sink.enqueue(base64Decode(chunk.base64));
    },
  });
  finished.then(
    (last: any) => {
      if (!started && last?.status !== undefined) {
        head.resolve(last);
        if (last.base64) sink.enqueue(base64Decode(last.base64));
        else if (last.body) sink.enqueue(utf8Encode(last.body));
      }
      try { sink.close(); } catch { /* cancelled by its reader */ }
    },
    (error: any) => {
      const reason = signal?.aborted ? signal.reason : failure(error);
      head.reject(reason);
      try { sink.error(reason); } catch { /* the reader is gone */ }
    },
  ).finally(() => signal?.removeEventListener?.("abort", stop));
  const found = await head.promise;
  const headers = new Headers(found.headerList ?? found.headers);
  const empty = request.method === "HEAD" || found.status === 204 || found.status === 304;
  return new Response(empty ? null : stream, { status: found.status, statusText: found.statusText, headers }, { url: found.url, redirected: found.redirected, type: "basic", own: true });
}

// As Node: a TypeError "fetch failed" with the cause inside; the cause carries the host's code and reason.
function failure(error: any): any {
  if (!(error instanceof HostError)) return error;
  if (error.code === "timeout" && error.details?.problem !== "cancelled") return new DOMException("The operation was aborted due to timeout", "TimeoutError");
  const failed: any = new TypeError("fetch failed");
  const cause: any = error;
  Object.defineProperty(failed, "cause", { value: cause, configurable: true, writable: true });
  if (error.code === "denied") failed.message = `fetch failed: ${error.message}`;
  failed.code = error.details?.errno;
  return failed;
}

function dataUrl(url: string): Response {
  const found = /^data:([^,]*?)(;base64)?,(.*)$/s.exec(url);
  if (!found) throw new TypeError("fetch failed");
  const text = decodeURIComponent(found[3]);
  return new Response(found[2] ? base64Decode(text) : text, { headers: { "content-type": found[1] || "text/plain;charset=US-ASCII" } });
}

install({ Headers, Request, Response, fetch });
