// Event, EventTarget, AbortController and DOMException, as the web defines them and Node implements them.

import { report } from "../bridge";
import { setTimeout } from "../loop";
import { install } from "./install";

const CODES: Record<string, number> = {
  IndexSizeError: 1, NotFoundError: 8, NotSupportedError: 9, InvalidStateError: 11, SyntaxError: 12, InvalidAccessError: 15,
  InvalidCharacterError: 5, NetworkError: 19, AbortError: 20, URLMismatchError: 21, QuotaExceededError: 22, TimeoutError: 23,
  DataCloneError: 25,
};

export class DOMException extends Error {
  #name: string;
  constructor(message: any = "", options: any = "Error") {
    super(String(message));
    const named = options !== null && typeof options === "object";
    this.#name = String(named ? options.name ?? "Error" : options);
    if (named && "cause" in options) Object.defineProperty(this, "cause", { value: options.cause, configurable: true, writable: true });
  }
  get name(): string { return this.#name; }
  get code(): number { return CODES[this.#name] ?? 0; }
}

export class Event {
  readonly type: string;
  readonly bubbles: boolean;
  readonly cancelable: boolean;
  readonly timeStamp = 0;
  target: any = null;
  currentTarget: any = null;
  #prevented = false;
  #stopped = false;
  #phase = 0;
  constructor(type: string, options: any = {}) {
    this.type = String(type);
    this.bubbles = options?.bubbles === true;
    this.cancelable = options?.cancelable === true;
  }
  get defaultPrevented(): boolean { return this.#prevented; }
  get isTrusted(): boolean { return trusted.has(this); }
  get eventPhase(): number { return this.#phase; }
  preventDefault(): void { if (this.cancelable) this.#prevented = true; }
  stopPropagation(): void {}
  stopImmediatePropagation(): void { this.#stopped = true; }
  composedPath(): any[] { return this.target ? [this.target] : []; }
  get [Symbol.toStringTag](): string { return "Event"; }
  static stopped(event: Event): boolean { return #stopped in event && event.#stopped; }
  static phase(event: any, phase: number): void { if (#phase in event) event.#phase = phase; }
}
const wasStopped = Event.stopped;
const setPhase = Event.phase;
for (const name of ["stopped", "phase"]) delete (Event as any)[name];
const trusted = new WeakSet<Event>(); // events that the runtime made, not the extension

export class CustomEvent extends Event {
  readonly detail: any;
  constructor(type: string, options: any = {}) {
    super(type, options);
    this.detail = options?.detail ?? null;
  }
}

interface Listener { call: any; once: boolean; own?: boolean }

export class EventTarget {
  #listeners = new Map<string, Listener[]>();
  addEventListener(type: string, call: any, options: any = {}): void {
    if (call === null || call === undefined) return;
    const once = typeof options === "object" && options?.once === true;
    const signal = typeof options === "object" ? options?.signal : undefined;
    if (signal?.aborted) return;
    const list = this.#listeners.get(type) ?? [];
    if (!list.some((item) => item.call === call)) list.push({ call, once });
    this.#listeners.set(type, list);
    signal?.addEventListener("abort", () => this.removeEventListener(type, call));
  }
  removeEventListener(type: string, call: any): void {
    const list = this.#listeners.get(type);
    if (list) this.#listeners.set(type, list.filter((item) => item.call !== call));
  }
  dispatchEvent(event: any): boolean {
    setPhase(event, 2);
    try {
      dispatch(this, event);
    } finally {
      setPhase(event, 0);
    }
    return !event.defaultPrevented;
  }
  get [Symbol.toStringTag](): string { return "EventTarget"; }
  static dispatch(target: EventTarget, event: any): void {
    event.target = event.currentTarget = target;
    for (const item of [...(target.#listeners.get(event.type) ?? [])]) {
      if (wasStopped(event)) break;
      if (item.once) target.removeEventListener(event.type, item.call);
      invoke(item.call, target, event);
    }
  }
  // `on…` is a listener like any other: it keeps its position from when it was first set.
  static own(target: EventTarget, type: string, call: any): void {
    const list = target.#listeners.get(type) ?? [];
    const known = list.find((item) => item.own);
    if (typeof call !== "function") target.#listeners.set(type, list.filter((item) => !item.own));
    else if (known) known.call = call;
    else target.#listeners.set(type, [...list, { call, once: false, own: true }]);
  }
}
const dispatch = EventTarget.dispatch;
const setOwn = EventTarget.own;
for (const name of ["dispatch", "own"]) delete (EventTarget as any)[name];

function invoke(call: any, target: any, event: any): void {
  try {
    if (typeof call === "function") call.call(target, event);
    else call.handleEvent(event);
  } catch (error) {
    report(error, `event ${event.type}`);
  }
}

let making = false;
export class AbortSignal extends EventTarget {
  #aborted = false;
  #reason: any = undefined;
  #onabort: any = null;
  #sources: AbortSignal[] = [];
  #dependents: AbortSignal[] = [];
  constructor() {
    super();
    if (!making) throw new TypeError("Illegal constructor");
  }
  get onabort(): any { return this.#onabort; }
  set onabort(call: any) { this.#onabort = typeof call === "function" ? call : null; setOwn(this, "abort", call); }
  get [Symbol.toStringTag](): string { return "AbortSignal"; }
  get aborted(): boolean { return this.#aborted; }
  get reason(): any { return this.#reason; }
  throwIfAborted(): void { if (this.#aborted) throw this.#reason; }
  static trip(signal: AbortSignal, reason: any): void {
    if (signal.#aborted) return;
    // All dependent signals are aborted before any listener runs; their listeners run after this signal's.
    const together = [signal, ...signal.#dependents.filter((one) => !one.#aborted)];
    for (const one of together) {
      one.#aborted = true;
      one.#reason = one !== signal ? signal.#reason : reason === undefined ? new DOMException("This operation was aborted", "AbortError") : reason;
    }
    signal.#dependents = [];
    for (const one of together) {
      const event = new Event("abort");
      trusted.add(event);
      dispatch(one, event);
    }
  }
  static abort(reason?: any): AbortSignal {
    const signal = newSignal();
    trip(signal, reason);
    return signal;
  }
  static timeout(ms: number): AbortSignal {
    const signal = newSignal();
    setTimeout(() => trip(signal, new DOMException("The operation was aborted due to timeout", "TimeoutError")), ms).unref();
    return signal;
  }
  static any(signals: Iterable<AbortSignal>): AbortSignal {
    const signal = newSignal();
    const given = [...signals];
    const done = given.find((one) => one.aborted);
    if (done) {
      trip(signal, done.reason);
      return signal;
    }
    // For a signal that depends on others, use its sources.
    for (const source of new Set(given.flatMap((one) => (one.#sources.length > 0 ? one.#sources : [one])))) {
      signal.#sources.push(source);
      source.#dependents.push(signal);
    }
    return signal;
  }
}
const trip = AbortSignal.trip;
delete (AbortSignal as any).trip;

function newSignal(): AbortSignal {
  making = true;
  try {
    return new AbortSignal();
  } finally {
    making = false;
  }
}

export class AbortController {
  readonly signal: AbortSignal = newSignal();
  abort(reason?: any): void { trip(this.signal, reason); }
  get [Symbol.toStringTag](): string { return "AbortController"; }
}

install({ DOMException, Event, CustomEvent, EventTarget, AbortSignal, AbortController });
