// node:events. Listeners are called in order, from a copy of the list; an `error` without a listener is thrown.

import { argumentError, defineNode } from "./define";

const captured = Symbol.for("nodejs.rejection");
const errorMonitor = Symbol("events.errorMonitor");

// Old code makes a subclass with `util.inherits` and calls `Base.call(this, options)`. A class cannot be called. But if
// the root constructor returns an object, the class initializes that object, including its private members.
let adopted: any;
function Root(): any {
  const self = adopted;
  adopted = undefined;
  return self;
}
Root.prototype = Object.prototype;

export function callable(Class: any): any {
  const made: any = new Proxy(Class, {
    apply(target, self, args) {
      if (!(self instanceof target)) return target === EventEmitter ? self : new target(...args);
      adopted = self;
      try {
        return Reflect.construct(target, args);
      } finally {
        adopted = undefined;
      }
    },
  });
  Class.prototype.constructor = made;
  return made;
}

export class EventEmitter extends (Root as unknown as new () => object) {
  declare _events: Map<PropertyKey, any[]> | undefined;
  declare _max: number | undefined;
  static defaultMaxListeners = 10;
  static errorMonitor = errorMonitor;
  static captureRejectionSymbol = captured;
  static EventEmitter: any;
  static once: any;
  static on: any;
  static getEventListeners: any;
  static listenerCount: any;
  static setMaxListeners: any;
  static addAbortListener: any;
  #table(): Map<PropertyKey, any[]> {
    if (!this._events || !Object.prototype.hasOwnProperty.call(this, "_events")) {
      Object.defineProperty(this, "_events", { value: new Map(), writable: true, configurable: true, enumerable: false });
    }
    return this._events!;
  }
  static table(emitter: any): Map<PropertyKey, any[]> {
    if (!Object.prototype.hasOwnProperty.call(emitter, "_events") || !(emitter._events instanceof Map)) {
      Object.defineProperty(emitter, "_events", { value: new Map(), writable: true, configurable: true, enumerable: false });
    }
    return emitter._events;
  }
  on(name: PropertyKey, listener: any): this { return add(this, name, listener, false); }
  declare addListener: (name: PropertyKey, listener: any) => this;
  prependListener(name: PropertyKey, listener: any): this { return add(this, name, listener, true); }
  // Calls `on`, which a subclass may override.
  once(name: PropertyKey, listener: any): this { return this.on(name, wrapped(this, name, listener)); }
  prependOnceListener(name: PropertyKey, listener: any): this { return this.prependListener(name, wrapped(this, name, listener)); }
  removeListener(name: PropertyKey, listener: any): this {
    const list = tableOf(this).get(name);
    if (!list) return this;
    for (let i = list.length - 1; i >= 0; i--) {
      if (list[i] === listener || list[i].listener === listener) {
        const rest = list.filter((_, index) => index !== i);
        if (rest.length) tableOf(this).set(name, rest);
        else tableOf(this).delete(name);
        if (tableOf(this).has("removeListener")) this.emit("removeListener", name, rest.length ? listener : list[i].listener ?? listener);
        break;
      }
    }
    return this;
  }
  declare off: (name: PropertyKey, listener: any) => this;
  removeAllListeners(name?: PropertyKey): this {
    const table = tableOf(this);
    if (!table.has("removeListener")) {
      if (name === undefined) table.clear();
      else table.delete(name);
      return this;
    }
    // Listeners of `removeListener` get each removal, so they are removed last.
    for (const one of name === undefined ? [...[...table.keys()].filter((key) => key !== "removeListener"), "removeListener"] : [name]) {
      for (const listener of [...(table.get(one) ?? [])].reverse()) this.removeListener(one, listener);
    }
    return this;
  }
  emit(name: PropertyKey, ...args: any[]): boolean {
    const list = tableOf(this).get(name);
    if (name === "error") {
      for (const listener of tableOf(this).get(errorMonitor) ?? []) listener.apply(this, args);
      if (!list) {
        if (args[0] instanceof Error) throw args[0];
        const error: any = new Error(`Unhandled error. (${args[0] === undefined ? "undefined" : typeof args[0] === "string" ? `'${args[0]}'` : String(args[0])})`);
        error.code = "ERR_UNHANDLED_ERROR";
        error.context = args[0];
        throw error;
      }
    }
    if (!list) return false;
    for (const listener of [...list]) listener.apply(this, args);
    return true;
  }
  listenerCount(name: PropertyKey, listener?: any): number {
    const list = tableOf(this).get(name) ?? [];
    return listener === undefined ? list.length : list.filter((one) => one === listener || one.listener === listener).length;
  }
  listeners(name: PropertyKey): any[] { return (tableOf(this).get(name) ?? []).map((one) => one.listener ?? one); }
  rawListeners(name: PropertyKey): any[] { return [...(tableOf(this).get(name) ?? [])]; }
  eventNames(): PropertyKey[] { return [...tableOf(this).keys()]; }
  setMaxListeners(count: number): this { Object.defineProperty(this, "_max", { value: count, writable: true, configurable: true, enumerable: false }); return this; }
  getMaxListeners(): number { return this._max ?? EventEmitter.defaultMaxListeners; }
}
// One function under two names each: a subclass that overrides one can call the other without recursion.
for (const [alias, name] of [["addListener", "on"], ["off", "removeListener"]]) {
  Object.defineProperty(EventEmitter.prototype, alias, { value: (EventEmitter.prototype as any)[name], writable: true, configurable: true, enumerable: false });
}
const tableOf = EventEmitter.table;
delete (EventEmitter as any).table;

function add(emitter: any, name: PropertyKey, listener: any, first: boolean): any {
  if (typeof listener !== "function") throw argumentError("listener", "of type function", listener);
  const table = tableOf(emitter);
  if (table.has("newListener")) emitter.emit("newListener", name, listener.listener ?? listener);
  const list = table.get(name);
  table.set(name, list ? (first ? [listener, ...list] : [...list, listener]) : [listener]);
  return emitter;
}

function wrapped(emitter: any, name: PropertyKey, listener: any): any {
  if (typeof listener !== "function") throw argumentError("listener", "of type function", listener);
  let fired = false;
  const once = function (this: any, ...args: any[]): any {
    if (fired) return undefined;
    fired = true;
    emitter.removeListener(name, once);
    return listener.apply(emitter, args);
  };
  (once as any).listener = listener;
  return once;
}

function abortError(signal: any): any {
  const error: any = new Error("The operation was aborted");
  error.name = "AbortError";
  error.code = "ABORT_ERR";
  if (signal?.reason !== undefined) error.cause = signal.reason;
  return error;
}

function once(emitter: any, name: PropertyKey, options: any = {}): Promise<any[]> {
  return new Promise((resolve, reject) => {
    const signal = options?.signal;
    if (signal?.aborted) return reject(abortError(signal));
    if (typeof emitter.addEventListener === "function" && typeof emitter.on !== "function") {
      emitter.addEventListener(name, (event: any) => resolve([event]), { once: true });
      return;
    }
    const failed = (error: any) => { emitter.removeListener(name, done); reject(error); };
    const done = (...args: any[]) => { emitter.removeListener("error", failed); resolve(args); };
    emitter.once(name, done);
    if (name !== "error") emitter.once("error", failed);
    signal?.addEventListener("abort", () => { emitter.removeListener(name, done); emitter.removeListener("error", failed); reject(abortError(signal)); });
  });
}

function on(emitter: any, name: PropertyKey, options: any = {}): any {
  const queue: any[] = [];
  const waiting: any[] = [];
  let failure: any;
  let ended = false;
  const push = (...args: any[]) => { const next = waiting.shift(); if (next) next.resolve({ value: args, done: false }); else queue.push(args); };
  const fail = (error: any) => { const next = waiting.shift(); if (next) next.reject(error); else failure = error; };
  const stop = () => {
    emitter.removeListener(name, push);
    emitter.removeListener("error", fail);
    ended = true;
    for (const next of waiting.splice(0)) next.resolve({ value: undefined, done: true });
  };
  emitter.on(name, push);
  if (name !== "error") emitter.on("error", fail);
  options?.signal?.addEventListener("abort", () => fail(abortError(options.signal)));
  return {
    next() {
      if (queue.length) return Promise.resolve({ value: queue.shift(), done: false });
      if (failure) { const error = failure; failure = undefined; return Promise.reject(error); }
      if (ended) return Promise.resolve({ value: undefined, done: true });
      return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
    },
    return() { stop(); return Promise.resolve({ value: undefined, done: true }); },
    throw(error: any) { stop(); return Promise.reject(error); },
    [Symbol.asyncIterator]() { return this; },
  };
}

Object.assign(EventEmitter, {
  EventEmitter, once, on,
  getEventListeners: (emitter: any, name: PropertyKey) => emitter.listeners?.(name) ?? [],
  listenerCount: (emitter: any, name: PropertyKey) => emitter.listenerCount(name),
  setMaxListeners: (count: number, ...emitters: any[]) => { for (const one of emitters) one.setMaxListeners?.(count); if (!emitters.length) EventEmitter.defaultMaxListeners = count; },
  addAbortListener: (signal: any, listener: any) => { signal.addEventListener("abort", listener, { once: true }); return { [Symbol.for("Symbol.dispose")]: () => signal.removeEventListener("abort", listener) }; },
});

export const CallableEventEmitter = callable(EventEmitter);
CallableEventEmitter.EventEmitter = CallableEventEmitter;
CallableEventEmitter.default = CallableEventEmitter;
defineNode("events", CallableEventEmitter);
