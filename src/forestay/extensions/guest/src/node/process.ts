// process and console: facts from the host, filtered by policy; output goes to the host's log.

import { hostCall, hostCallSync, memoryBytes, nextTick, now, report } from "../bridge";
import { environment } from "../environment";
import { install } from "../globals/install";
import { since } from "../globals/performance";
import { argumentError, defineNode } from "./define";
import { EventEmitter } from "./events";
import { format, inspect } from "./inspect";
import { SIGNALS, system } from "./os";
import { Readable, Writable } from "./stream";

// -- environment variables ---------------------------------------------------------------------------------------------

const written = new Map<string, string>();
const removed = new Set<string>();
const read = new Map<string, string | undefined>();

function variable(name: string): string | undefined {
  if (written.has(name)) return written.get(name);
  if (removed.has(name)) return undefined;
  if (!read.has(name)) {
    let value: string | undefined;
    try {
      value = hostCallSync("env", { op: "get", name }).value ?? undefined;
    } catch {
      value = undefined; // a variable that is not granted counts as unset
    }
    read.set(name, value);
  }
  return read.get(name);
}

function names(): string[] {
  let seen: string[] = [];
  try {
    const all = hostCallSync("env", { op: "all" }).variables;
    for (const name of Object.keys(all)) read.set(name, all[name]);
    seen = Object.keys(all);
  } catch { /* nothing is visible */ }
  return [...new Set([...seen.filter((name) => !removed.has(name)), ...written.keys()])];
}

const env: any = new Proxy(Object.create(null), {
  get: (_target, name) => (typeof name === "string" ? variable(name) : undefined),
  has: (_target, name) => typeof name === "string" && variable(name) !== undefined,
  set: (_target, name, value) => { if (typeof name === "string") { written.set(name, String(value)); removed.delete(name); } return true; },
  deleteProperty: (_target, name) => { if (typeof name === "string") { written.delete(name); removed.add(name); } return true; },
  ownKeys: () => names(),
  getOwnPropertyDescriptor: (_target, name) => { const value = typeof name === "string" ? variable(name) : undefined; return value === undefined ? undefined : { value, writable: true, enumerable: true, configurable: true }; },
  defineProperty: (_target, name, found) => { if (typeof name === "string") { written.set(name, String(found.value)); removed.delete(name); } return true; },
});

// The variables that the extension set itself, for the programs that it starts.
export const ownVariables = (): Record<string, string> => Object.fromEntries(written);

// -- output --------------------------------------------------------------------------------------------------------------

function log(level: string, message: string): void {
  // A refused log entry must not disturb the code that logs.
  hostCall("log", { level, event: "extension.log", message }).then(() => undefined, () => undefined);
}

class Output extends Writable {
  isTTY = false;
  fd: number;
  columns = 80;
  rows = 24;
  #line = "";
  #level: string;
  constructor(fd: number, level: string) {
    super({ decodeStrings: false });
    this.fd = fd;
    this.#level = level;
  }
  _write(chunk: any, _encoding: any, done: any): void {
    const lines = (this.#line + (typeof chunk === "string" ? chunk : chunk.toString())).split("\n");
    this.#line = lines.pop()!;
    for (const line of lines) log(this.#level, line);
    done();
  }
  getWindowSize(): number[] { return [this.columns, this.rows]; }
  getColorDepth(): number { return 1; }
  hasColors(): boolean { return false; }
  clearLine(): boolean { return true; }
  cursorTo(): boolean { return true; }
  moveCursor(): boolean { return true; }
  clearScreenDown(): boolean { return true; }
}

let streams: any;
const standard = (): any => (streams ??= { stdout: new Output(1, "info"), stderr: new Output(2, "error"), stdin: Object.assign(new Readable({ read() { this.push(null); } }), { fd: 0, isTTY: false, setRawMode() { return this; }, ref() {}, unref() {} }) });

const counts = new Map<string, number>();
const timers = new Map<string, number>();
let indent = "";
const write = (level: string, args: any[]): void => log(level, format(...args).split("\n").map((line: string) => indent + line).join("\n"));

export const console: any = {
  log: (...args: any[]) => write("info", args), info: (...args: any[]) => write("info", args), debug: (...args: any[]) => write("debug", args),
  warn: (...args: any[]) => write("warn", args), error: (...args: any[]) => write("error", args), trace: (...args: any[]) => write("error", ["Trace: " + format(...args)]),
  dir: (value: any, options: any = {}) => write("info", [inspect(value, { customInspect: false, ...options })]), dirxml: (...args: any[]) => write("info", args),
  assert: (test: any, ...args: any[]) => { if (!test) write("error", typeof args[0] === "string" ? [`Assertion failed: ${args[0]}`, ...args.slice(1)] : ["Assertion failed", ...args]); },
  count: (label = "default") => { const next = (counts.get(label) ?? 0) + 1; counts.set(label, next); write("info", [`${label}: ${next}`]); }, countReset: (label = "default") => void counts.delete(label),
  group: (...args: any[]) => { if (args.length) write("info", args); indent += "  "; }, groupCollapsed: (...args: any[]) => console.group(...args), groupEnd: () => { indent = indent.slice(2); },
  time: (label = "default") => void timers.set(label, now()), timeLog: (label = "default", ...args: any[]) => write("info", [`${label}: ${now() - (timers.get(label) ?? now())}ms`, ...args]),
  timeEnd: (label = "default") => { console.timeLog(label); timers.delete(label); }, table: (value: any) => write("info", [inspect(value, { depth: 3 })]), clear: () => undefined,
};
console.Console = class Console { constructor() { Object.assign(this, console); } };

// -- process ---------------------------------------------------------------------------------------------------------------

const uptime = (): number => since() / 1000;
// The memory belongs to this extension alone, and all of it counts as used.
const memoryUsage = (): any => { const bytes = memoryBytes(); return { rss: bytes, heapTotal: bytes, heapUsed: bytes, external: 0, arrayBuffers: 0 }; };
const refuse = (name: string) => (): never => { const error: any = new Error(`${name} is not available to extensions`); error.code = "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM"; throw error; };

function hrtime(previous?: [number, number]): [number, number] {
  const ms = since();
  const found: [number, number] = [Math.floor(ms / 1000), Math.round((ms % 1000) * 1e6)];
  if (!previous) return found;
  const borrow = found[1] < previous[1];
  return [found[0] - previous[0] - (borrow ? 1 : 0), found[1] - previous[1] + (borrow ? 1e9 : 0)];
}
hrtime.bigint = (): bigint => BigInt(Math.round(since() * 1e6));

class Process extends EventEmitter {}
export const process: any = new Process();
Object.assign(process, {
  title: "node", argv: ["node", "extension"], argv0: "node", execArgv: [], execPath: "/usr/bin/node", pid: 1, ppid: 0, exitCode: undefined, version: "v22.19.0", release: { name: "node" }, config: { variables: {} }, features: {}, debugPort: 0, env, hrtime, uptime,
  versions: { node: "22.19.0", modules: "127", v8: "0.0.0", uv: "0.0.0", zlib: "1.3.1", openssl: "3.0.0" },
  cwd: () => environment.cwd, chdir: refuse("process.chdir()"), umask: () => 0o22, abort: refuse("process.abort()"),
  exit: (code?: number) => { const error: any = new Error(`process.exit(${code ?? ""}) was called; an extension cannot end its host`); error.code = "ERR_PROCESS_EXIT"; throw error; },
  kill: (pid: number, signal: any = "SIGTERM") => {
    const error: any = new Error(`kill ${signal === 0 || SIGNALS[signal] ? "EPERM" : "EINVAL"}`);
    Object.assign(error, { code: "EPERM", syscall: "kill", errno: -1 });
    void pid;
    throw error;
  },
  nextTick: (call: any, ...args: any[]) => {
    if (typeof call !== "function") throw argumentError("callback", "of type function", call);
    nextTick(() => call(...args));
  },
  emitWarning: (warning: any) => log("warn", typeof warning === "string" ? `Warning: ${warning}` : String(warning)),
  memoryUsage: Object.assign(memoryUsage, { rss: memoryBytes }), cpuUsage: () => ({ user: 0, system: 0 }), resourceUsage: () => ({ userCPUTime: 0, systemCPUTime: 0, maxRSS: Math.ceil(memoryBytes() / 1024) }),
  getuid: () => system().uid, getgid: () => system().gid, geteuid: () => system().uid, getegid: () => system().gid, getgroups: () => [], setUncaughtExceptionCaptureCallback: () => undefined, hasUncaughtExceptionCaptureCallback: () => false, setSourceMapsEnabled: () => undefined,
});
for (const name of ["stdout", "stderr", "stdin"]) Object.defineProperty(process, name, { get: () => standard()[name], configurable: true, enumerable: true });
Object.defineProperty(process, "platform", { get: () => system().platform, configurable: true, enumerable: true });
Object.defineProperty(process, "arch", { get: () => system().arch, configurable: true, enumerable: true });
Object.defineProperty(process, Symbol.toStringTag, { value: "process", configurable: true });

install({ process, console, global: globalThis });
defineNode("process", process);
defineNode("console", console);
void report;
