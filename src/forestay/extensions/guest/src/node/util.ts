// node:util.

import { TextDecoder, TextEncoder } from "../globals/encoding";
import { argumentError, defineNode } from "./define";
import { Buffer } from "./buffer";
import { custom as inspectCustom, format, formatWithOptions, inspect } from "./inspect";
import { isDeepStrictEqual } from "./deep";

const promisifyCustom = Symbol.for("nodejs.util.promisify.custom");

export function promisify(original: any): any {
  if (typeof original !== "function") throw argumentError("original", "of type function", original);
  if (original[promisifyCustom]) return original[promisifyCustom];
  const wrapped = function (this: any, ...args: any[]): Promise<any> {
    return new Promise((resolve, reject) => original.call(this, ...args, (error: any, ...values: any[]) => (error ? reject(error) : resolve(values[0]))));
  };
  Object.setPrototypeOf(wrapped, Object.getPrototypeOf(original));
  Object.defineProperty(wrapped, promisifyCustom, { value: wrapped, configurable: true });
  return Object.defineProperties(wrapped, Object.getOwnPropertyDescriptors(original));
}
promisify.custom = promisifyCustom;

export function callbackify(original: any): any {
  return function (this: any, ...args: any[]) {
    const callback = args.pop();
    if (typeof callback !== "function") throw argumentError("last argument", "of type function", callback);
    original.apply(this, args).then(
      (value: any) => queueMicrotask(() => callback(null, value)),
      (error: any) => queueMicrotask(() => callback(error || Object.assign(new Error("Promise was rejected with falsy value"), { reason: error }))),
    );
  };
}

export function inherits(child: any, parent: any): void {
  Object.defineProperty(child, "super_", { value: parent, writable: true, configurable: true });
  Object.setPrototypeOf(child.prototype, parent.prototype);
}

const warned = new Set<string>();
export function deprecate(call: any, message: string, code?: string): any {
  return function (this: any, ...args: any[]) {
    const key = code ?? message;
    if (!warned.has(key)) { warned.add(key); (globalThis as any).console.warn(`DeprecationWarning: ${message}`); }
    return new.target ? Reflect.construct(call, args, new.target) : call.apply(this, args);
  };
}

// eslint-disable-next-line no-control-regex
const ANSI = /[\u001B\u009B][[\]()#;?]*(?:(?:(?:(?:;[-a-zA-Z\d\/#&.:=?%@~_]+)*|[a-zA-Z\d]+(?:;[-a-zA-Z\d\/#&.:=?%@~_]*)*)?(?:\u0007|\u001B\u005C|\u009C))|(?:(?:\d{1,4}(?:;\d{0,4})*)?[\dA-PR-TZcf-nq-uy=><~]))/g;
export function stripVTControlCharacters(text: string): string {
  if (typeof text !== "string") throw argumentError("str", "of type string", text);
  return text.replace(ANSI, "");
}

export function styleText(style: any, text: string): string {
  let out = text;
  for (const name of (Array.isArray(style) ? [...style] : [style]).reverse()) {
    const pair = (inspect as any).colors[name];
    if (!pair) throw argumentError("format", "a valid style", name);
    out = `\u001b[${pair[0]}m${out}\u001b[${pair[1]}m`;
  }
  return out;
}

export function parseArgs(config: any = {}): any {
  const options = config.options ?? {};
  const strict = config.strict ?? true;
  const positionalsAllowed = config.allowPositionals ?? !strict;
  const args: string[] = [...(config.args ?? (globalThis as any).process.argv.slice(2))];
  const values: any = Object.create(null);
  const positionals: string[] = [];
  const tokens: any[] = [];
  const fail = (code: string, message: string): never => { const error: any = new TypeError(message); error.code = code; throw error; };
  const store = (name: string, value: any, raw: string): void => {
    const spec = options[name];
    if (spec === undefined && strict) fail("ERR_PARSE_ARGS_UNKNOWN_OPTION", `Unknown option '${raw}'${positionalsAllowed ? `. To specify a positional argument starting with a '-', place it at the end of the command after '--', as in '-- "${raw}"` : ""}`);
    if (strict && spec?.type === "string" && typeof value !== "string") fail("ERR_PARSE_ARGS_INVALID_OPTION_VALUE", `Option '${spec.short ? `-${spec.short}, ` : ""}--${name} <value>' argument missing`);
    if (strict && spec?.type === "boolean" && typeof value === "string") fail("ERR_PARSE_ARGS_INVALID_OPTION_VALUE", `Option '${spec.short ? `-${spec.short}, ` : ""}--${name}' does not take an argument`);
    tokens.push({ kind: "option", name, rawName: raw, value: typeof value === "string" ? value : undefined });
    if (spec?.multiple) (values[name] ??= []).push(value);
    else values[name] = value;
  };
  for (let i = 0; i < args.length; i++) {
    const arg = args[i];
    if (arg === "--") { positionals.push(...args.slice(i + 1)); tokens.push({ kind: "option-terminator", index: i }); break; }
    const long = /^--([^=]+)(?:=(.*))?$/s.exec(arg);
    if (long) {
      let name = long[1];
      let value: any = long[2];
      if (value === undefined && config.allowNegative && name.startsWith("no-") && options[name.slice(3)]?.type === "boolean") { store(name.slice(3), false, `--${name}`); continue; }
      if (value === undefined) value = options[name]?.type === "string" && i + 1 < args.length && (!args[i + 1].startsWith("-") || !strict || args[i + 1] === "-") ? args[++i] : true;
      store(name, value, `--${name}`);
      continue;
    }
    if (/^-[^-]/.test(arg)) {
      for (let j = 1; j < arg.length; j++) {
        const short = arg[j];
        const name = Object.keys(options).find((key) => options[key].short === short) ?? short;
        if (options[name]?.type === "string") {
          const rest = arg.slice(j + 1);
          store(name, rest !== "" ? rest : i + 1 < args.length && !args[i + 1].startsWith("-") ? args[++i] : true, `-${short}`);
          break;
        }
        store(name, true, `-${short}`);
      }
      continue;
    }
    if (!positionalsAllowed) fail("ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL", `Unexpected argument '${arg}'. This command does not take positional arguments`);
    positionals.push(arg);
    tokens.push({ kind: "positional", index: i, value: arg });
  }
  for (const name of Object.keys(options)) if (options[name].default !== undefined && !(name in values)) values[name] = options[name].default;
  return config.tokens ? { values, positionals, tokens } : { values, positionals };
}

const tagOf = (value: any): string => Object.prototype.toString.call(value).slice(8, -1);
export const types: any = {
  isPromise: (value: any) => value instanceof Promise, isRegExp: (value: any) => value instanceof RegExp, isDate: (value: any) => value instanceof Date,
  isMap: (value: any) => value instanceof Map, isSet: (value: any) => value instanceof Set, isWeakMap: (value: any) => value instanceof WeakMap, isWeakSet: (value: any) => value instanceof WeakSet,
  isNativeError: (value: any) => value instanceof Error, isArrayBuffer: (value: any) => value instanceof ArrayBuffer, isAnyArrayBuffer: (value: any) => /^(Shared)?ArrayBuffer$/.test(tagOf(value)),
  isArrayBufferView: (value: any) => ArrayBuffer.isView(value), isTypedArray: (value: any) => ArrayBuffer.isView(value) && !(value instanceof DataView), isUint8Array: (value: any) => value instanceof Uint8Array,
  isDataView: (value: any) => value instanceof DataView, isAsyncFunction: (value: any) => tagOf(value) === "AsyncFunction", isGeneratorFunction: (value: any) => /GeneratorFunction$/.test(tagOf(value)),
  isGeneratorObject: (value: any) => tagOf(value) === "Generator", isSymbolObject: (value: any) => typeof value === "object" && value instanceof Symbol, isBoxedPrimitive: (value: any) => value instanceof Number || value instanceof String || value instanceof Boolean || (typeof value === "object" && value instanceof Symbol),
  isNumberObject: (value: any) => value instanceof Number, isStringObject: (value: any) => value instanceof String, isBooleanObject: (value: any) => value instanceof Boolean, isProxy: () => false, isExternal: () => false, isModuleNamespaceObject: (value: any) => tagOf(value) === "Module",
};

export function debuglog(section: string): any {
  const wanted = String((globalThis as any).process?.env?.NODE_DEBUG ?? "").toLowerCase().split(",").includes(section.toLowerCase());
  const log: any = (...args: any[]) => { if (wanted) (globalThis as any).console.error(`${section.toUpperCase()} ${format(...args)}`); };
  log.enabled = wanted;
  return log;
}

class MIMEType {
  type: string;
  subtype: string;
  params = new Map<string, string>();
  constructor(text: string) {
    const [essence, ...rest] = String(text).split(";");
    [this.type, this.subtype] = essence.trim().toLowerCase().split("/");
    for (const part of rest) { const [name, value] = part.split("="); if (value) this.params.set(name.trim().toLowerCase(), value.trim().replace(/^"|"$/g, "")); }
  }
  get essence(): string { return `${this.type}/${this.subtype}`; }
  toString(): string { return this.essence + [...this.params].map(([name, value]) => `;${name}=${value}`).join(""); }
}

const is = (name: string) => (value: any) => typeof value === name;
export const util = defineNode("util", {
  inspect, format, formatWithOptions, promisify, callbackify, inherits, deprecate, debuglog, debug: debuglog, stripVTControlCharacters, styleText, parseArgs, types, isDeepStrictEqual, TextEncoder, TextDecoder, MIMEType,
  toUSVString: (text: any) => { const plain: any = String(text); return plain.toWellFormed(); },
  aborted: (signal: any) => new Promise<void>((resolve) => (signal.aborted ? resolve() : signal.addEventListener("abort", () => resolve()))),
  getSystemErrorName: (number: number) => `E${number}`, transferableAbortController: () => new (globalThis as any).AbortController(),
  isArray: Array.isArray, isBoolean: is("boolean"), isNumber: is("number"), isString: is("string"), isSymbol: is("symbol"), isUndefined: is("undefined"), isFunction: is("function"),
  isNull: (value: any) => value === null, isNullOrUndefined: (value: any) => value === null || value === undefined, isObject: (value: any) => value !== null && typeof value === "object",
  isRegExp: types.isRegExp, isDate: types.isDate, isError: types.isNativeError, isPrimitive: (value: any) => value === null || (typeof value !== "object" && typeof value !== "function"), isBuffer: (value: any) => Buffer.isBuffer(value),
  log: (...args: any[]) => (globalThis as any).console.log(...args), _extend: Object.assign,
});
defineNode("util_types", types);
export { inspectCustom };
