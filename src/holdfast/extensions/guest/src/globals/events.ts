// Event, EventTarget, AbortController and DOMException, as the web defines them and Node has them.

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
  constructor(type: string, options: any = {}) {
    this.type = String(type);
    this.bubbles = options?.bubbles === true;
    this.cancelable = options?.cancelable === true;
  }
  get defaultPrevented(): boolean { return this.#prevented; }
  get isTrusted(): boolean { return false; }
  preventDefault(): void { if (this.cancelable) this.#prevented = true; }
  stopPropagation(): void {}
  stopImmediatePropagation(): void { this.#stopped = true; }
  composedPath(): any[] { return this.target ? [this.target] : []; }
  static stopped(event: Event): boolean { return #stopped in event && event.#stopped; }
}
const wasStopped = Event.stopped;
delete (Event as any).stopped;

export class CustomEvent extends Event {
  readonly detail: any;
  constructor(type: string, options: any = {}) {
    super(type, options);
    this.detail = options?.detail ?? null;
  }
}

interface Listener { call: any; once: boolean }

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
    event.target = event.currentTarget = this;
    const own = (this as any)["on" + event.type];
    if (typeof own === "function") invoke(own, this, event);
    for (const item of [...(this.#listeners.get(event.type) ?? [])]) {
      if (wasStopped(event)) break;
      if (item.once) this.removeEventListener(event.type, item.call);
      invoke(item.call, this, event);
    }
    return !event.defaultPrevented;
  }
}

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
  onabort: any = null;
  #aborted = false;
  #reason: any = undefined;
  constructor() {
    super();
    if (!making) throw new TypeError("Illegal constructor");
  }
  get aborted(): boolean { return this.#aborted; }
  get reason(): any { return this.#reason; }
  throwIfAborted(): void { if (this.#aborted) throw this.#reason; }
  static trip(signal: AbortSignal, reason: any): void {
    if (signal.#aborted) return;
    signal.#aborted = true;
    signal.#reason = reason === undefined ? new DOMException("This operation was aborted", "AbortError") : reason;
    signal.dispatchEvent(new Event("abort"));
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
    for (const one of signals) {
      if (one.aborted) {
        trip(signal, one.reason);
        break;
      }
      one.addEventListener("abort", () => trip(signal, one.reason));
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
}

install({ DOMException, Event, CustomEvent, EventTarget, AbortSignal, AbortController });
