// util.inspect: any value as text, in Node's form.

import { graphemes } from "../globals/intl";

export const custom = Symbol.for("nodejs.util.inspect.custom");

const COLORS: Record<string, [number, number]> = {
  special: [36, 39], number: [33, 39], bigint: [33, 39], boolean: [33, 39], undefined: [90, 39], null: [1, 22], string: [32, 39],
  symbol: [32, 39], date: [35, 39], regexp: [31, 39],
};

interface Context {
  depth: number; colors: boolean; compact: any; breakLength: number; showHidden: boolean; maxArrayLength: number; maxStringLength: number;
  sorted: any; getters: boolean; seen: any[]; level: number; current: number; indent: number; circular: Map<any, number>; customInspect: boolean; numericSeparator: boolean; given: any;
}

export const defaults = { depth: 2, colors: false, compact: 3, breakLength: 80, showHidden: false, maxArrayLength: 100, maxStringLength: 10000, sorted: false, getters: false, customInspect: true, numericSeparator: false };

export function inspect(value: any, options: any = {}, depth?: any, colors?: any): string {
  if (typeof options === "boolean") options = { showHidden: options, ...(depth !== undefined ? { depth } : {}), ...(colors !== undefined ? { colors } : {}) };
  const o: any = { ...defaults, ...options };
  const limit = (given: any) => (given === null ? Infinity : given);
  const context: Context = { ...o, depth: limit(o.depth), maxArrayLength: limit(o.maxArrayLength), maxStringLength: limit(o.maxStringLength), seen: [], level: 0, current: 0, indent: 0, circular: new Map(), given: options };
  return show(value, context, true);
}
(inspect as any).custom = custom;
(inspect as any).defaultOptions = defaults;
(inspect as any).colors = Object.fromEntries(Object.entries({ reset: [0, 0], bold: [1, 22], dim: [2, 22], italic: [3, 23], underline: [4, 24], inverse: [7, 27], hidden: [8, 28], strikethrough: [9, 29], black: [30, 39], red: [31, 39], green: [32, 39], yellow: [33, 39], blue: [34, 39], magenta: [35, 39], cyan: [36, 39], white: [37, 39], gray: [90, 39], grey: [90, 39], redBright: [91, 39], greenBright: [92, 39], yellowBright: [93, 39], blueBright: [94, 39], magentaBright: [95, 39], cyanBright: [96, 39], whiteBright: [97, 39], bgBlack: [40, 49], bgRed: [41, 49], bgGreen: [42, 49], bgYellow: [43, 49], bgBlue: [44, 49], bgMagenta: [45, 49], bgCyan: [46, 49], bgWhite: [47, 49] }));
(inspect as any).styles = Object.fromEntries(Object.keys(COLORS).map((name) => [name, name]));

const paint = (text: string, kind: string, c: Context): string => (c.colors && COLORS[kind] ? `\u001b[${COLORS[kind][0]}m${text}\u001b[${COLORS[kind][1]}m` : text);

export function quoted(text: string): string {
  const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes("`") && !text.includes("${") ? "`" : "'";
  const escapes: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\v": "\\v", "\\": "\\\\" };
  // eslint-disable-next-line no-control-regex
  const body = text.replace(/[\0-\x1f\x7f-\x9f\\]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, (one) => {
    const code = one.charCodeAt(0);
    return escapes[one] ?? (code > 255 ? `\\u${code.toString(16).toUpperCase()}` : `\\x${code.toString(16).toUpperCase().padStart(2, "0")}`);
  });
  return mark + (mark === "'" ? body.replace(/'/g, "\\'") : body) + mark;
}

function primitive(value: any, c: Context, top: boolean): string {
  switch (typeof value) {
    case "string": {
      let tail = "";
      let text = value;
      if (text.length > c.maxStringLength) {
        const left = text.length - c.maxStringLength;
        text = text.slice(0, c.maxStringLength);
        tail = `... ${left} more character${left > 1 ? "s" : ""}`;
      }
      if (c.compact !== true && text.length > 16 && text.length > c.breakLength - c.indent - 4) {
        return text.split(/(?<=\n)/).map((line) => paint(quoted(line), "string", c)).join(` +\n${" ".repeat(c.indent + 2)}`) + tail;
      }
      return paint(quoted(text), "string", c) + tail;
    }
    case "number": return paint(Object.is(value, -0) ? "-0" : String(value), "number", c);
    case "bigint": return paint(`${value}n`, "bigint", c);
    case "boolean": return paint(String(value), "boolean", c);
    case "undefined": return paint("undefined", "undefined", c);
    default: return paint(String(value), "symbol", c);
  }
}

function nameOf(value: any): string | null {
  let proto = value;
  while (proto) {
    const found = Object.getOwnPropertyDescriptor(proto, "constructor");
    if (found && typeof found.value === "function" && found.value.name !== "" && (proto !== value || value === found.value.prototype)) return found.value.name;
    proto = Object.getPrototypeOf(proto);
  }
  return null;
}

function show(value: any, c: Context, top = false): string {
  if (value === null) return paint("null", "null", c);
  if (typeof value !== "object" && typeof value !== "function") return primitive(value, c, top);
  if (c.customInspect) {
    const own = value[custom];
    if (typeof own === "function" && own !== inspect) {
      const depth = c.depth - c.level;
      const result = own.call(value, depth, { ...c.given, depth: depth === Infinity ? null : depth, stylize: (text: any, kind: string) => paint(String(text), kind, c) }, inspect);
      if (result !== value) return typeof result === "string" ? result.replace(/\n/g, `\n${" ".repeat(c.indent)}`) : show(result, c);
    }
  }
  if (c.seen.includes(value)) {
    if (!c.circular.has(value)) c.circular.set(value, c.circular.size + 1);
    return paint(`[Circular *${c.circular.get(value)}]`, "special", c);
  }
  return complex(value, c);
}

function complex(value: any, c: Context): string {
  const constructor = nameOf(value);
  let tag = "";
  try { tag = value[Symbol.toStringTag] ?? ""; } catch { /* a getter that throws gives no tag */ }
  if (typeof tag !== "string" || tag === constructor) tag = "";
  const keys = keysOf(value, c);
  const label = (fallback: string, size?: number): string => {
    const head = constructor === null ? `[${fallback}${size === undefined ? "" : `(${size})`}: null prototype] ` : constructor + (size === undefined ? "" : `(${size})`) + " ";
    return tag !== "" ? `${head}[${tag}] ` : head;
  };
  let open = "{";
  let close = "}";
  let prefix = "";
  let items: (() => string[]) | undefined;
  let list = false;
  if (Array.isArray(value)) {
    prefix = constructor !== "Array" || tag ? label("Array", value.length) : "";
    open = "[";
    close = "]";
    list = true;
    if (value.length === 0 && keys.length === 0) return `${prefix}[]`;
    items = () => arrayItems(value, c);
  } else if (value instanceof Set) {
    prefix = label("Set", value.size);
    items = () => limited([...value], c, (item) => show(item, c));
    if (value.size === 0 && keys.length === 0) return `${prefix}{}`;
  } else if (value instanceof Map) {
    prefix = label("Map", value.size);
    items = () => limited([...value], c, ([key, item]) => `${show(key, c)} => ${show(item, c)}`);
    if (value.size === 0 && keys.length === 0) return `${prefix}{}`;
  } else if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    const typed: any = value;
    prefix = label("TypedArray", typed.length);
    open = "[";
    close = "]";
    list = true;
    if (typed.length === 0 && keys.length === 0) return `${prefix}[]`;
    items = () => limited([...typed], c, (item) => show(item, c));
  } else if (typeof value === "function") {
    const kind = Object.getOwnPropertyDescriptor(value, "prototype")?.writable === false && value.constructor?.name === "Function" ? "class" : value.constructor?.name ?? "Function";
    const base = kind === "class" ? `[class ${value.name || "(anonymous)"}${Object.getPrototypeOf(value)?.name ? ` extends ${Object.getPrototypeOf(value).name}` : ""}]` : `[${kind}${value.name ? `: ${value.name}` : " (anonymous)"}]`;
    if (keys.length === 0) return paint(base, "special", c);
    prefix = base + " ";
  } else if (value instanceof RegExp) {
    const base = paint(RegExp.prototype.toString.call(value), "regexp", c);
    if (keys.length === 0) return base;
    prefix = base + " ";
  } else if (value instanceof Date) {
    const base = paint(Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString(), "date", c);
    if (keys.length === 0) return base;
    prefix = base + " ";
  } else if (value instanceof Error) {
    const base = errorText(value, keys, c);
    if (keys.length === 0) return base;
    prefix = base + " ";
  } else if (value instanceof ArrayBuffer) {
    const bytes = new Uint8Array(value);
    const hex = [...bytes.subarray(0, 50)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    return `${constructor} { ${paint("[Uint8Contents]", "special", c)}: <${hex}${bytes.length > 50 ? ` ... ${bytes.length - 50} more byte${bytes.length > 51 ? "s" : ""}` : ""}>, byteLength: ${show(value.byteLength, c)} }`;
  } else if (value instanceof Promise) {
    prefix = "Promise ";
    items = () => [paint("<pending>", "special", c)];
  } else if (value instanceof WeakSet || value instanceof WeakMap) {
    return `${constructor} { ${paint("<items unknown>", "special", c)} }`;
  } else if (value instanceof Number || value instanceof String || value instanceof Boolean) {
    const kind = value instanceof Number ? "Number" : value instanceof String ? "String" : "Boolean";
    const base = paint(`[${kind}: ${show(value.valueOf(), { ...c, colors: false }, true)}]`, "string", c);
    const rest = kind === "String" ? keys.filter((key) => !/^\d+$/.test(String(key))) : keys;
    if (rest.length === 0) return base;
    prefix = base + " ";
  } else if (Object.prototype.toString.call(value) === "[object Arguments]") {
    prefix = "[Arguments] ";
    open = "[";
    close = "]";
    list = true;
    items = () => arrayItems(Array.from(value as any), c);
  } else {
    prefix = constructor === "Object" && tag === "" ? "" : label("Object");
    if (keys.length === 0) return `${prefix}{}`;
  }
  if (c.level > c.depth) return paint(`[${list ? "Array" : (prefix.replace(/ $/, "") || constructor || "Object")}]`, "special", c);
  c.seen.push(value);
  c.current = c.level;
  c.level++;
  const before = c.indent;
  c.indent += 2;
  const output = items ? items() : [];
  for (const key of keys) {
    if ((list || value instanceof String) && typeof key === "string" && /^(0|[1-9]\d*)$/.test(key)) continue;
    output.push(property(value, key, c, list));
  }
  c.indent = before;
  c.level--;
  c.seen.pop();
  if (c.sorted) output.sort(c.sorted === true ? undefined : c.sorted);
  const mark = c.circular.has(value) ? `${paint(`<ref *${c.circular.get(value)}>`, "special", c)} ` : "";
  return mark + layout(output, prefix, open, close, c, list, value);
}

function keysOf(value: any, c: Context): PropertyKey[] {
  const names: PropertyKey[] = c.showHidden ? Object.getOwnPropertyNames(value) : Object.keys(value);
  const symbols = Object.getOwnPropertySymbols(value).filter((one) => c.showHidden || Object.prototype.propertyIsEnumerable.call(value, one));
  const all = [...names, ...symbols];
  if (ArrayBuffer.isView(value) || Array.isArray(value)) return all.filter((key) => typeof key === "symbol" || !/^(0|[1-9]\d*)$/.test(String(key)));
  if (value instanceof Error) return all.filter((key) => !["stack", "message"].includes(String(key)) || false).filter((key) => !(key === "name" && String(value.stack).startsWith(String(value.name))));
  return all;
}

function limited<T>(list: T[], c: Context, text: (item: T) => string): string[] {
  const out = list.slice(0, c.maxArrayLength).map(text);
  const left = list.length - out.length;
  if (left > 0) out.push(`... ${left} more item${left > 1 ? "s" : ""}`);
  return out;
}

function arrayItems(list: any[], c: Context): string[] {
  const out: string[] = [];
  let i = 0;
  while (i < list.length && out.length < c.maxArrayLength) {
    if (i in list) { out.push(show(list[i++], c)); continue; }
    let holes = 0;
    while (i < list.length && !(i in list)) { holes++; i++; }
    out.push(paint(`<${holes} empty item${holes > 1 ? "s" : ""}>`, "undefined", c));
  }
  if (i < list.length) out.push(`... ${list.length - i} more item${list.length - i > 1 ? "s" : ""}`);
  return out;
}

function property(value: any, key: PropertyKey, c: Context, list: boolean): string {
  const found = Object.getOwnPropertyDescriptor(value, key) ?? { value: value[key], enumerable: true };
  let text: string;
  if (found.get) text = paint(found.set ? "[Getter/Setter]" : "[Getter]", "special", c);
  else if (found.set) text = paint("[Setter]", "special", c);
  else text = show(found.value, c);
  const name = typeof key === "symbol" ? `[${paint(String(key), "symbol", c)}]` : /^[a-zA-Z_$][a-zA-Z_$0-9]*$/.test(String(key)) ? String(key) : paint(quoted(String(key)), "string", c);
  void list;
  return found.enumerable === false && typeof key !== "symbol" ? `[${String(key)}]: ${text}` : `${name}: ${text}`;
}

function errorText(error: any, keys: PropertyKey[], c: Context): string {
  const name = error.name ?? "Error";
  const head = error.message ? `${name}: ${error.message}` : String(name);
  let stack = typeof error.stack === "string" && error.stack !== "" ? error.stack : "";
  // This engine's stack has only the frames; Node's begins with the error itself.
  if (stack === head) stack = `[${head}]`; // an error without a stack
  else if (!stack.startsWith(head)) stack = stack.trim() === "" ? `[${head}]` : /^\s*at /.test(stack) ? `${head}\n${stack.replace(/\n+$/, "")}` : stack.includes("\n    at") ? stack : head;
  if ("cause" in error && !keys.includes("cause")) keys.push("cause");
  if (Array.isArray(error.errors) && !keys.includes("errors")) keys.push("errors");
  return c.indent ? stack.replace(/\n/g, `\n${" ".repeat(c.indent)}`) : stack;
}

const width = (text: string): number => graphemes(text.replace(/\u001b\[[0-9;]*m/g, "")).length;

function layout(output: string[], prefix: string, open: string, close: string, c: Context, list: boolean, value: any): string {
  const start = `${prefix}${open}`;
  if (c.compact !== true && typeof c.compact === "number" && c.compact >= 1) {
    const entries = output.length;
    if (list && entries > 6) output = grouped(output, c, value);
    // One line has at most three inner levels, and stays within the requested length.
    if (c.current - c.level < c.compact && entries === output.length) {
      let total = output.length * 2 + c.indent + open.length + prefix.trimEnd().length + 10;
      for (const text of output) total += c.colors ? width(text) : text.length;
      if (total <= c.breakLength && !prefix.includes("\n") && !output.some((text) => text.includes("\n"))) return `${start} ${output.join(", ")} ${close}`;
    }
  } else if (c.compact === true) {
    const one = `${start} ${output.join(", ")} ${close}`;
    if (one.length + c.indent <= c.breakLength && !one.includes("\n")) return one;
  }
  const pad = `\n${" ".repeat(c.indent)}`;
  return `${start}${pad}  ${output.join(`,${pad}  `)}${pad}${close}`;
}

// More than six short entries of a list are shown in columns.
function grouped(output: string[], c: Context, value: any): string[] {
  let total = 0;
  let most = 0;
  let i = 0;
  let length = output.length;
  const extra = Array.isArray(value) && value.length > length - 1 && /^\.\.\. \d+ more item/.test(output[length - 1]) ? 1 : 0;
  length -= extra;
  const sizes: number[] = [];
  for (; i < length; i++) {
    const size = width(output[i]);
    sizes[i] = size;
    total += size + 2;
    most = Math.max(most, size);
  }
  const actual = most + 2;
  if (actual * 3 + c.indent >= c.breakLength || !(total / actual > 5 || most <= 6) || output.some((text) => text.includes("\n"))) return output;
  const bias = Math.sqrt(actual - total / output.length);
  const room = Math.max(actual - 3 - bias, 1);
  const columns = Math.min(Math.round(Math.sqrt(2.5 * room * length) / room), Math.floor((c.breakLength - c.indent) / actual), c.compact * 4, 15);
  if (columns <= 1) return output;
  const result: string[] = [];
  const widths: number[] = [];
  for (let column = 0; column < columns; column++) {
    let wide = 0;
    for (let j = column; j < length; j += columns) wide = Math.max(wide, sizes[j]);
    widths.push(wide + 2);
  }
  const numbers = Array.isArray(value) || ArrayBuffer.isView(value) ? [...(value as any)].slice(0, length).every((item: any) => typeof item === "number" || typeof item === "bigint") : false;
  for (let row = 0; row < length; row += columns) {
    const end = Math.min(row + columns, length);
    let text = "";
    let j = row;
    for (; j < end - 1; j++) {
      const cell = `${output[j]}, `;
      const fill = " ".repeat(Math.max(0, widths[j - row] - sizes[j] - 2));
      text += numbers ? fill + cell : cell + fill;
    }
    text += numbers ? " ".repeat(Math.max(0, widths[j - row] - sizes[j] - 2)) + output[j] : output[j];
    result.push(text);
  }
  if (extra) result.push(output[length]);
  return result;
}

export function format(...args: any[]): string { return formatWithOptions({}, ...args); }

export function formatWithOptions(options: any, ...args: any[]): string {
  let out = "";
  let used = 0;
  if (typeof args[0] === "string") {
    const pattern = args[0];
    used = 1;
    if (args.length === 1) return pattern;
    out = pattern.replace(/%([sdifjoOc%])/g, (whole: string, kind: string) => {
      if (kind === "%") return "%";
      if (used >= args.length) return whole;
      const value = args[used++];
      switch (kind) {
        case "s": return typeof value === "bigint" ? `${value}n` : typeof value === "number" && Object.is(value, -0) ? "-0" : typeof value === "object" && value !== null ? (hasOwnText(value) ? String(value) : inspect(value, { ...options, depth: 0, colors: false, compact: 3 })) : String(value);
        case "d": return typeof value === "bigint" ? `${value}n` : typeof value === "symbol" || typeof value === "object" ? "NaN" : Object.is(Number(value), -0) ? "-0" : String(Number(value));
        case "i": return typeof value === "bigint" ? `${value}n` : typeof value === "symbol" || typeof value === "object" ? "NaN" : String(parseInt(value, 10));
        case "f": return typeof value === "symbol" ? "NaN" : String(parseFloat(value));
        case "j": try { return JSON.stringify(value) ?? "undefined"; } catch { return "[Circular]"; }
        case "o": return inspect(value, { ...options, showHidden: true, depth: 4 });
        case "O": return inspect(value, options);
        default: return "";
      }
    });
  }
  for (; used < args.length; used++) {
    const value = args[used];
    out += (used > 0 ? " " : "") + (typeof value === "string" ? value : inspect(value, options));
  }
  return out;
}

function hasOwnText(value: any): boolean {
  if (value instanceof Error || value instanceof Date) return true;
  const proto = Object.getPrototypeOf(value);
  return proto !== null && proto !== Object.prototype && !Array.isArray(value) && typeof value.toString === "function" && value.toString !== Object.prototype.toString;
}
