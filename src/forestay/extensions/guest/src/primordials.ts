// The parts of the language that the bridge needs, saved before any extension runs: code that later overwrites a global
// or a prototype does not affect the bridge.

export const apply = Reflect.apply;
export const defineProperty = Object.defineProperty;
export const freeze = Object.freeze;
export const isArray = Array.isArray;
export const jsonParse = JSON.parse;
export const jsonStringify = JSON.stringify;
export const dateNow = Date.now;
export const PrimordialPromise = Promise;
export const PrimordialError = Error;
export const PrimordialTypeError = TypeError;

const promiseThen = Promise.prototype.then;
const promiseResolve = Promise.resolve;
const hasOwnProperty = Object.prototype.hasOwnProperty;
const objectKeys = Object.keys;

export const then = (promise: Promise<any>, done: (value: any) => any, failed: (error: any) => any): Promise<any> =>
  apply(promiseThen, promise, [done, failed]);
export const resolved = (value: any): Promise<any> => apply(promiseResolve, PrimordialPromise, [value]);
export const hasOwn = (object: object, key: PropertyKey): boolean => apply(hasOwnProperty, object, [key]);

// A dictionary without a prototype: no lookup in it can find a property of a prototype.
export interface Table<K extends string | number, V> {
  get(key: K): V | undefined;
  set(key: K, value: V): void;
  has(key: K): boolean;
  delete(key: K): boolean;
  keys(): string[];
  clear(): void;
}

export function table<K extends string | number, V>(): Table<K, V> {
  let entries: any = { __proto__: null };
  return freeze({
    __proto__: null,
    get: (key: K) => entries[key],
    set: (key: K, value: V) => void (entries[key] = value),
    has: (key: K) => entries[key] !== undefined,
    delete: (key: K) => entries[key] !== undefined && delete entries[key],
    keys: () => objectKeys(entries),
    clear: () => void (entries = { __proto__: null }),
  } as any) as Table<K, V>;
}

// Returns the JSON text of a string: for a primitive string, JSON ignores a planted toJSON.
export const quote = (text: string): string => jsonStringify("" + text) as string;

// Returns the JSON text of any value; a top-level value that JSON cannot carry (undefined, a function) becomes null.
export const json = (value: any): string => {
  const text = jsonStringify(value);
  return text === undefined ? "null" : text;
};

// Adds to an array without using its prototype: neither `push` nor a setter on an index.
export function append<T>(list: T[], value: T): number {
  const at = list.length;
  defineProperty(list, at, { __proto__: null, value, writable: true, configurable: true, enumerable: true } as any);
  return at + 1;
}
