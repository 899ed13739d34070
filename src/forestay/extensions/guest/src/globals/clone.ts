// structuredClone: copies what the web's algorithm copies, cycles included, and refuses the rest.

import { Blob } from "./blob";
import { DOMException } from "./events";
import { install } from "./install";

const ERRORS: Record<string, any> = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

export function structuredClone(value: any, _options?: any): any {
  return copy(value, new Map());
}

function refuse(value: any): never {
  const what = typeof value === "symbol" ? value.toString() : String(value);
  throw new DOMException(`${what} could not be cloned.`, "DataCloneError");
}

function copy(value: any, seen: Map<any, any>): any {
  if (typeof value === "function" || typeof value === "symbol") refuse(value);
  if (value === null || typeof value !== "object") return value;
  if (seen.has(value)) return seen.get(value);
  const keep = (made: any): any => { seen.set(value, made); return made; };
  if (Array.isArray(value)) {
    const list = keep(new Array(value.length));
    for (const key of Object.keys(value)) list[key] = copy(value[key as any], seen);
    return list;
  }
  if (value instanceof Date) return keep(new Date(value.getTime()));
  if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
  if (value instanceof Map) {
    const made = keep(new Map());
    for (const [key, item] of value) made.set(copy(key, seen), copy(item, seen));
    return made;
  }
  if (value instanceof Set) {
    const made = keep(new Set());
    for (const item of value) made.add(copy(item, seen));
    return made;
  }
  if (value instanceof ArrayBuffer) return keep(value.slice(0));
  if (value instanceof DataView) return keep(new DataView(copy(value.buffer, seen), value.byteOffset, value.byteLength));
  if (ArrayBuffer.isView(value)) {
    // A Buffer clones to a plain Uint8Array, as in Node.
    const Kind: any = value instanceof Uint8Array ? Uint8Array : (value as any).constructor;
    return keep(new Kind(copy(value.buffer, seen), value.byteOffset, (value as any).length));
  }
  if (value instanceof Error) {
    const Kind = ERRORS[value.name] ?? Error;
    const made = keep(new Kind(value.message));
    Object.defineProperty(made, "stack", { value: value.stack, configurable: true, writable: true });
    if ("cause" in value) Object.defineProperty(made, "cause", { value: copy((value as any).cause, seen), configurable: true, writable: true });
    return made;
  }
  if (value instanceof Blob) return value;
  if (value instanceof Number || value instanceof String || value instanceof Boolean) return keep(Object(value.valueOf()));
  if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) refuse(Object.prototype.toString.call(value));
  const made = keep({});
  for (const key of Object.keys(value)) made[key] = copy(value[key], seen);
  return made;
}

install({ structuredClone });
