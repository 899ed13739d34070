// The only connection between an extension and its host. Messages leave through one outbox, which the host empties
// after each tick, and arrive through `deliver`; a synchronous call crosses at once. Envelopes are built by joining
// text around values, so a planted `toJSON` or setter can change only an extension's own values, not the envelope.
// (With `+`: in this engine a template literal calls String.prototype.concat, which any code can replace.)

import {
  PrimordialError, PrimordialPromise, PrimordialTypeError, append, apply, dateNow, defineProperty, isArray, json,
  jsonParse, quote, resolved, table, then,
} from "./primordials";

export type HostCode = "denied" | "timeout" | "io" | "invalid_request" | "internal";

export interface HostCallOptions {
  timeoutMs?: number;
  signal?: AbortSignal;
  onChunk?: (chunk: any) => void;
  // The caller's claim; the host derives the capability itself and refuses a wrong claim.
  capability?: string;
}

export class HostError extends Error {
  code: HostCode;
  details: any;
  retryable: boolean;
  constructor(code: HostCode, message: string, details: any = {}, retryable = false) {
    super(message);
    define(this, "name", "HostError");
    this.code = code;
    this.details = details;
    this.retryable = retryable;
  }
}

type Inbound = (payload: any, id: number) => any;

interface Pending {
  resolve: (value: any) => void;
  reject: (error: any) => void;
  onChunk?: (chunk: any) => void;
  unhook?: () => void;
}

const host: { sync(text: string): string; random(count: number): string; memory(): string } = takeHost();
const pending = table<number, Pending>();
const handlers = table<string, Inbound>();
let outbox = "";
let lastCall = 0;

// -- leaving -------------------------------------------------------------------------------------------------------

export function post(fragment: string): void {
  outbox = outbox === "" ? fragment : outbox + "," + fragment;
}

export function hostCall(method: string, params: object, options: HostCallOptions = {}): Promise<any> {
  return new PrimordialPromise((resolve, reject) => {
    const signal = options.signal;
    if (signal && signal.aborted) {
      reject(abortReason(signal));
      return;
    }
    const body = envelope(method, params, options);
    const id = ++lastCall;
    const entry: Pending = { resolve, reject, onChunk: options.onChunk, unhook: undefined };
    if (signal && typeof signal.addEventListener === "function") {
      const cancel = () => {
        if (!pending.delete(id)) return;
        post('["cancel",' + id + ']');
        reject(abortReason(signal));
      };
      signal.addEventListener("abort", cancel);
      entry.unhook = () => signal.removeEventListener("abort", cancel);
    }
    pending.set(id, entry);
    post('["call",' + id + ',' + body + ']');
  });
}

export function hostCallSync(method: string, params: object, options: HostCallOptions = {}): any {
  const answer = jsonParse(host.sync('[' + ++lastCall + ',' + envelope(method, params, options) + ']'));
  if (answer[0] === 1) return answer[1];
  throw hostError(answer[1]);
}

export function register(kind: string, spec: any): void {
  post('["register",' + quote(kind) + ',' + json(spec) + ']');
}

export function report(error: any, where: string): void {
  post('["error",' + quote(where) + ',' + describe(error) + ']');
}

export function progress(id: number, value: any): void {
  post('["progress",' + number(id) + ',' + json(value) + ']');
}

// -- arriving ------------------------------------------------------------------------------------------------------

export function onInbound(kind: string, handler: Inbound): void {
  handlers.set(kind, handler);
}

// The host calls this for one macrotask: [kind, id, payload]. Its `nextTick` callbacks run before any promise.
export function deliver(text: string): void {
  const message = jsonParse(text);
  const kind = message[0];
  if (kind === "result") settle(message[1], message[2]);
  else answer(kind, message[1], message[2]);
  runTicks();
}

// `process.nextTick`: runs after the current code; if that is a microtask, after all microtasks.
let ticks: (() => void)[] = [];
export function nextTick(run: () => void): void {
  append(ticks, run);
}

function runTicks(): boolean {
  if (ticks.length === 0) return false;
  while (ticks.length > 0) {
    const now = ticks;
    ticks = [];
    for (let i = 0; i < now.length; i++) guarded(now[i], "nextTick");
  }
  return true;
}

export function answer(kind: string, id: number, payload: any): void {
  const handler = handlers.get(kind);
  if (handler === undefined) {
    refuse(id, new PrimordialTypeError('the guest has no handler for ' + kind));
    return;
  }
  try {
    const value = handler(payload, id);
    if (isThenable(value)) settled(value, (found) => reply(id, found), (error) => refuse(id, error));
    else reply(id, value);
  } catch (error) {
    refuse(id, error);
  }
}

// A promise of this realm is used directly; any other object with a `then` is converted to a promise first.
function settled(value: any, done: (found: any) => void, failed: (error: any) => void): void {
  try {
    then(value, done, failed);
  } catch {
    then(resolved(value), done, failed);
  }
}

// The host calls this after the microtasks have settled: returns all new messages as one JSON array. An empty text means
// that callbacks have just run, which may have queued microtasks: the host settles those and calls again.
export function collect(): string {
  if (runTicks()) return "";
  const text = outbox;
  outbox = "";
  return '[' + text + ']';
}

let replied: (id: number) => void = () => undefined;
export function afterReply(hook: (id: number) => void): void {
  replied = hook;
}

function reply(id: number, value: any): void {
  if (id === 0) return;
  replied(id);
  let text: string;
  try {
    text = json(value);
  } catch (error) {
    refuse(id, error);
    return;
  }
  post('["reply",' + number(id) + ',1,' + text + ']');
}

function refuse(id: number, error: any): void {
  replied(id);
  if (id === 0) report(error, "handler");
  else post('["reply",' + number(id) + ',0,' + describe(error) + ']');
}

// A result is [isError, isLast, isChunk, body].
function settle(id: number, result: any): void {
  const entry = pending.get(id);
  if (entry === undefined) return;
  const body = result[3];
  const onChunk = entry.onChunk;
  if (result[2] && !result[0] && onChunk) guarded(() => onChunk(body), "onChunk");
  if (!result[1]) return;
  pending.delete(id);
  if (entry.unhook) guarded(entry.unhook, "signal");
  if (result[0]) entry.reject(hostError(body));
  else entry.resolve(body);
}

// Runs the extension's own function; its exceptions must not leave a delivery.
function guarded(run: () => void, where: string): void {
  try {
    run();
  } catch (error) {
    report(error, where);
  }
}

// -- time and randomness come from the host -------------------------------------------------------------------------

export const now = (): number => dateNow();

export function randomBytes(count: number): Uint8Array {
  const bytes = new Uint8Array(count);
  for (let at = 0; at < count; ) {
    const part = host.random(count - at > 32768 ? 32768 : count - at);
    for (let i = 0; i < part.length && at < count; i += 2) bytes[at++] = nibble(part, i) * 16 + nibble(part, i + 1);
  }
  return bytes;
}

export const memoryBytes = (): number => +host.memory();

const charCodeAt = String.prototype.charCodeAt;
function nibble(text: string, at: number): number {
  const code = apply(charCodeAt, text, [at]);
  return code < 58 ? code - 48 : code - 87;
}

// -- errors --------------------------------------------------------------------------------------------------------

function hostError(body: any): HostError {
  return new HostError(body[0], body[1], body[2], body[3]);
}

// Returns the JSON text of any thrown value, whatever its getters do.
export function describe(error: any): string {
  const parts = ['"name":' + (quote(read(error, "name", "Error"))), '"message":' + (quote(messageOf(error)))];
  let text = parts[0] + "," + parts[1] + ',"stack":' + (quote(read(error, "stack", "")));
  const code = read(error, "code", "");
  if (code !== "") text += ',"code":' + quote(code);
  const refused = hostErrorBehind(error);
  if (refused !== undefined) {
    try {
      text += ',"hostcall":{"code":' + quote(refused.code) + ',"details":' + json(refused.details) + '}';
    } catch {
      // details that JSON cannot carry are left out; the code is what matters
    }
  }
  return '{' + text + '}';
}

// A shim turns a host call's failure into the error that Node's callers expect, and keeps the HostError as its cause.
function hostErrorBehind(error: any): HostError | undefined {
  try {
    for (let depth = 0, current = error; depth < 4 && current !== null && typeof current === "object"; depth++) {
      if (current instanceof HostError) return current;
      current = current.cause;
    }
  } catch {
    // a hostile getter: the cause stays unknown
  }
  return undefined;
}

function messageOf(error: any): string {
  if (error !== null && typeof error === "object") return read(error, "message", "");
  try {
    return "" + error;
  } catch {
    return "an unprintable value was thrown";
  }
}

function read(error: any, key: string, otherwise: string): string {
  try {
    if (error === null || typeof error !== "object") return otherwise;
    const value = error[key];
    return typeof value === "string" ? value : value === undefined || value === null ? otherwise : "" + value;
  } catch {
    return otherwise;
  }
}

// -- small parts ---------------------------------------------------------------------------------------------------

function envelope(method: string, params: any, options: HostCallOptions): string {
  if (params === null || typeof params !== "object" || isArray(params)) {
    throw new HostError("invalid_request", "the parameters of a host call are an object");
  }
  const timeout = options.timeoutMs;
  const limit = typeof timeout === "number" && timeout >= 0 && timeout < 9e15 ? Math_round(timeout) : "null";
  const claimed = options.capability === undefined ? '""' : quote(options.capability ?? "");
  return quote(method) + ',' + json(params) + ',' + limit + ',' + claimed;
}

const Math_round = Math.round;
const number = (value: number): string => (typeof value === "number" && value === value ? "" + value : "0");
const isThenable = (value: any): boolean => value !== null && typeof value === "object" && typeof value.then === "function";

function abortReason(signal: AbortSignal): any {
  if (signal.reason !== undefined) return signal.reason;
  const error = new PrimordialError("This operation was aborted");
  define(error, "name", "AbortError");
  return error;
}

function define(target: object, key: string, value: any): void {
  defineProperty(target, key, { __proto__: null, value, writable: true, configurable: true, enumerable: false } as any);
}

// The host puts its three functions on the global object; only this module ever sees them.
function takeHost(): any {
  const names = globalThis as any;
  const found = { sync: names.__host_sync__, random: names.__host_random__, memory: names.__host_memory__ };
  delete names.__host_sync__;
  delete names.__host_random__;
  delete names.__host_memory__;
  return found;
}
