// The guest's half of the event loop (Pi §1A.4.5): it has the callbacks; the host has deadlines and order.

import { onInbound, post, report } from "./bridge";
import { PrimordialPromise, PrimordialTypeError, apply, defineProperty, hasOwn, table, then } from "./primordials";

interface Timer {
  callback: (...args: any[]) => void;
  args: any[];
  ms: number;
  repeats: boolean;
}

const timers = table<number, Timer>();
let lastTimer = 0;

// Node's Timeout: an object that converts to its number, with `ref` and `unref`.
class Handle {
  #id: number;
  #ref = true;
  constructor(id: number) {
    this.#id = id;
  }
  ref() { this.#ref = true; return this; }
  unref() { this.#ref = false; return this; }
  hasRef() { return this.#ref; }
  static idOf(value: any): number {
    if (typeof value === "number") return value;
    if (typeof value === "string") return +value;
    return value !== null && typeof value === "object" && #id in value ? value.#id : 0;
  }
}
const idOf = Handle.idOf;
delete (Handle as any).idOf;

class Timeout extends Handle {
  refresh() {
    const timer = timers.get(idOf(this));
    if (timer !== undefined) post('["timer",' + idOf(this) + ',' + timer.ms + ']');
    return this;
  }
  close() { stop(this); return this; }
  [Symbol.toPrimitive]() { return idOf(this); }
}
class Immediate extends Handle {}

function start(callback: any, ms: any, args: any[], repeat: boolean): Timeout {
  if (typeof callback !== "function") throw new PrimordialTypeError("The callback of a timer must be a function");
  const delay = clamp(ms);
  const id = ++lastTimer;
  timers.set(id, { callback, args, ms: delay, repeats: repeat });
  post('["timer",' + id + ',' + delay + ']');
  return new Timeout(id);
}

// As Node: a delay that is not a number, below 1 or beyond 31 bits becomes one millisecond; fractions are cut.
function clamp(ms: any): number {
  const value = +ms;
  return value >= 1 && value <= 2147483647 ? value - (value % 1) : 1;
}

function stop(handle: any): void {
  const id = idOf(handle);
  if (timers.delete(id)) post('["clear",' + id + ']');
}

onInbound("timer", (payload: number) => {
  const timer = timers.get(payload);
  if (timer === undefined) return;
  if (!timer.repeats) timers.delete(payload);
  try {
    apply(timer.callback, undefined, timer.args);
  } catch (error) {
    report(error, "timer");
  }
  // An interval is a repeated timeout: it is set again after its callback, unless that cleared it.
  if (timer.repeats && timers.get(payload) === timer) post('["timer",' + payload + ',' + timer.ms + ']');
});

export const setTimeout = (callback: any, ms?: any, ...args: any[]) => start(callback, ms, args, false);
export const setInterval = (callback: any, ms?: any, ...args: any[]) => start(callback, ms, args, true);
export const clearTimeout = stop;
export const clearInterval = stop;

// An immediate is a timer without delay: it runs in its own tick, after the timers that are already due.
export function setImmediate(callback: any, ...args: any[]): Immediate {
  if (typeof callback !== "function") throw new PrimordialTypeError("The callback of an immediate must be a function");
  const id = ++lastTimer;
  timers.set(id, { callback, args, ms: 0, repeats: false });
  post('["timer",' + id + ',0]');
  return new Immediate(id);
}
export const clearImmediate = stop;

const done = PrimordialPromise.resolve();
export function queueMicrotask(callback: () => void): void {
  if (typeof callback !== "function") throw new PrimordialTypeError("queueMicrotask needs a function");
  then(done, () => {
    try {
      callback();
    } catch (error) {
      report(error, "microtask");
    }
  }, () => undefined);
}

const globals: Record<string, any> = {
  setTimeout, clearTimeout, setInterval, clearInterval, setImmediate, clearImmediate, queueMicrotask,
};
for (const name in globals) {
  if (hasOwn(globals, name)) {
    defineProperty(globalThis, name, {
      __proto__: null, value: globals[name], writable: true, configurable: true, enumerable: true,
    } as any);
  }
}
