// node:child_process over the exec connector: streamed output, collected output, or synchronous.

import { HostError, hostCall, hostCallSync } from "../bridge";
import { base64Decode, base64Encode } from "../globals/encoding";
import { Buffer } from "./buffer";
import { argumentError, defineNode, errnoNumber } from "./define";
import { EventEmitter } from "./events";
import { pathOf } from "./files";
import { ownVariables } from "./process";
import { SIGNALS } from "./os";
import { Readable, Writable } from "./stream";

const MAX_BUFFER = 1024 * 1024;
let lastProcess = 0;

function normalized(args: any, options: any): [string[], any] {
  if (Array.isArray(args)) return [args.map(String), options ?? {}];
  return [[], args !== null && typeof args === "object" ? args : options ?? {}];
}

function request(command: any, args: string[], options: any): any {
  if (typeof command !== "string") throw argumentError("file", "of type string", command);
  if (command === "") throw Object.assign(new TypeError("The argument 'file' cannot be empty. Received ''"), { code: "ERR_INVALID_ARG_VALUE" });
  const env = options.env ? Object.fromEntries(Object.keys(options.env).filter((name) => options.env[name] !== undefined).map((name) => [name, String(options.env[name])])) : ownVariables();
  const params: any = { op: "run", command, args, env, encoding: "base64" };
  if (options.cwd !== undefined && options.cwd !== null) params.cwd = pathOf(options.cwd, "options.cwd");
  if (options.shell) params.shell = options.shell;
  return params;
}

// As Node: `spawn git ENOENT` with the program's name; a refusal is EACCES with its reason.
function spawnError(error: any, command: string, args: string[], syscall: string): any {
  if (!(error instanceof HostError)) return error;
  const code = error.details?.errno ?? (error.code === "denied" ? "EACCES" : error.code === "timeout" ? "ETIMEDOUT" : "EIO");
  const failed: any = new Error(`${syscall} ${command} ${code}${error.code === "denied" ? ` (${error.message})` : ""}`);
  Object.assign(failed, { errno: errnoNumber(code), code, syscall: `${syscall} ${command}`, path: command, spawnargs: args });
  Object.defineProperty(failed, "cause", { value: error, configurable: true, writable: true });
  Object.defineProperty(failed, "hostcall", { value: { code: error.code, details: error.details }, configurable: true, enumerable: false });
  return failed;
}

export class ChildProcess extends EventEmitter {
  stdin: any = null;
  stdout: any = null;
  stderr: any = null;
  stdio: any[] = [];
  pid: number | undefined = undefined;
  connected = false;
  killed = false;
  exitCode: number | null = null;
  signalCode: string | null = null;
  spawnfile = "";
  spawnargs: string[] = [];
  #id = "";
  #waiting: string[] = [];
  static start(child: ChildProcess, command: string, args: string[], options: any): void {
    child.spawnfile = command;
    child.spawnargs = [command, ...args];
    child.#id = `p${++lastProcess}`;
    const stdio = typeof options.stdio === "string" ? [options.stdio, options.stdio, options.stdio] : options.stdio ?? ["pipe", "pipe", "pipe"];
    const piped = (index: number) => stdio[index] === undefined || stdio[index] === null || stdio[index] === "pipe" || stdio[index] === "overlapped";
    child.stdout = piped(1) ? new Readable({ read() { /* the host pushes */ } }) : null;
    child.stderr = piped(2) ? new Readable({ read() { /* the host pushes */ } }) : null;
    child.stdin = piped(0) ? child.#input() : null;
    child.stdio = [child.stdin, child.stdout, child.stderr];
    child.#run(request(command, args, options), options, command, args, stdio);
  }
  #input(): any {
    return new Writable({
      write: (chunk: any, _encoding: any, done: any) => this.#steer({ op: "write", process: this.#id, base64: base64Encode(chunk) }, done),
      final: (done: any) => this.#steer({ op: "write", process: this.#id, base64: "", end: true }, done),
    });
  }
  #steer(params: any, done: (error?: any) => void): void {
    if (this.pid === undefined && this.exitCode === null && this.signalCode === null) {
      this.once("spawn", () => this.#steer(params, done));
      return;
    }
    hostCall("exec", params).then(() => done(), (error: any) => done(error?.details?.errno === "ESRCH" ? undefined : error));
  }
  #run(params: any, options: any, command: string, args: string[], stdio: any[]): void {
    let finished: any;
    const inherit = (index: number, bytes: any) => { if (stdio[index] === "inherit") ((globalThis as any).process[index === 1 ? "stdout" : "stderr"]).write(bytes); };
    const timer = options.timeout > 0 ? (globalThis as any).setTimeout(() => this.kill(options.killSignal ?? "SIGTERM"), options.timeout) : undefined;
    const call = hostCall("exec", { ...params, stream: true, process: this.#id, ...(stdio[0] === "ignore" || stdio[0] === "inherit" ? { input: "" } : {}) }, {
      onChunk: (chunk: any) => {
        if (chunk.pid !== undefined) {
          this.pid = chunk.pid;
          this.emit("spawn");
          for (const signal of this.#waiting.splice(0)) this.kill(signal);
          return;
        }
        if (chunk.stream === undefined) return;
        const bytes = Buffer.from(base64Decode(chunk.base64));
        const sink = chunk.stream === "stdout" ? this.stdout : this.stderr;
        if (sink) sink.push(bytes);
        else inherit(chunk.stream === "stdout" ? 1 : 2, bytes);
      },
    });
    const abort = () => { this.kill(options.killSignal ?? "SIGTERM"); const error: any = new Error("The operation was aborted"); error.name = "AbortError"; error.code = "ABORT_ERR"; if (options.signal?.reason !== undefined) error.cause = options.signal.reason; this.emit("error", error); };
    if (options.signal?.aborted) (globalThis as any).queueMicrotask(abort);
    else options.signal?.addEventListener("abort", abort, { once: true });
    call.then((output: any) => { finished = output; }, (error: any) => { finished = { error }; }).then(() => {
      if (timer) (globalThis as any).clearTimeout(timer);
      options.signal?.removeEventListener?.("abort", abort);
      this.#end(finished, command, args);
    });
  }
  #end(finished: any, command: string, args: string[]): void {
    this.stdin?.destroy();
    if (finished.error) {
      const failed = spawnError(finished.error, command, args, "spawn");
      if (this.pid === undefined) this.exitCode = errnoNumber(failed.code) || -1;
      this.stdout?.push(null);
      this.stderr?.push(null);
      this.emit("error", failed);
      if (this.pid === undefined) { this.#closeAfter(() => this.emit("close", this.exitCode ?? -1, null)); return; }
      finished = { code: null, signal: "SIGKILL" };
    }
    this.exitCode = finished.code ?? null;
    this.signalCode = finished.signal ?? null;
    this.emit("exit", this.exitCode, this.signalCode);
    this.stdout?.push(null);
    this.stderr?.push(null);
    this.#closeAfter(() => this.emit("close", this.exitCode, this.signalCode));
  }
  // `close` comes when both outputs have been read to their end.
  #closeAfter(done: () => void): void {
    let open = 0;
    const ready = () => { if (--open <= 0) done(); };
    for (const stream of [this.stdout, this.stderr]) {
      if (!stream || stream.readableEnded || stream.destroyed) continue;
      open++;
      stream.once("end", ready);
      if (stream.readableFlowing === null && stream.listenerCount("readable") === 0) stream.resume();
    }
    if (open === 0) (globalThis as any).queueMicrotask(done);
  }
  kill(signal: any = "SIGTERM"): boolean {
    if (this.exitCode !== null || this.signalCode !== null) return false;
    if (signal === 0) return true;
    const name = typeof signal === "number" ? Object.keys(SIGNALS).find((key) => SIGNALS[key] === signal) : signal;
    if (!SIGNALS[name as string]) throw Object.assign(new TypeError(`Unknown signal: ${signal}`), { code: "ERR_UNKNOWN_SIGNAL" });
    this.killed = true;
    if (this.pid === undefined) { this.#waiting.push(name as string); return true; }
    hostCall("exec", { op: "kill", process: this.#id, signal: name }).then(() => undefined, () => undefined);
    return true;
  }
  ref(): void {}
  unref(): void {}
  disconnect(): void {}
  send(): boolean { return false; }
}
const startChild = ChildProcess.start;
delete (ChildProcess as any).start;

export function spawn(command: any, args?: any, options?: any): ChildProcess {
  const [list, given] = normalized(args, options);
  request(command, list, given); // throws malformed arguments now, not later
  const child = new ChildProcess();
  startChild(child, command, list, given);
  return child;
}

function collected(command: string, args: string[], options: any, shown: string, done: any): ChildProcess {
  const child = spawn(command, args, { ...options, timeout: undefined, signal: undefined });
  const parts: Record<string, any[]> = { stdout: [], stderr: [] };
  const limit = options.maxBuffer ?? MAX_BUFFER;
  let failure: any;
  let timedOut = false;
  let over = false;
  const timer = options.timeout > 0 ? (globalThis as any).setTimeout(() => { timedOut = true; child.kill(options.killSignal ?? "SIGTERM"); }, options.timeout) : undefined;
  options.signal?.addEventListener("abort", () => { const error: any = new Error("The operation was aborted"); error.name = "AbortError"; error.code = "ABORT_ERR"; failure = error; child.kill(options.killSignal ?? "SIGTERM"); });
  for (const name of ["stdout", "stderr"]) {
    let size = 0;
    (child as any)[name]?.on("data", (chunk: any) => {
      size += chunk.length;
      if (size > limit && !failure) {
        failure = Object.assign(new RangeError(`${name} maxBuffer length exceeded`), { code: "ERR_CHILD_PROCESS_STDIO_MAXBUFFER" });
        parts[name].push(chunk.subarray(0, chunk.length - (size - limit)));
        child.kill(options.killSignal ?? "SIGTERM");
      } else if (!failure) parts[name].push(chunk);
    });
  }
  const read = (name: string): any => { const bytes = Buffer.concat(parts[name]); return options.encoding === "buffer" || options.encoding === null ? bytes : bytes.toString(options.encoding ?? "utf8"); };
  const finish = (code: any, signal: any) => {
    if (over) return;
    over = true;
    if (timer) (globalThis as any).clearTimeout(timer);
    const stdout = read("stdout");
    const stderr = read("stderr");
    if (!done) return;
    if (!failure && code === 0 && signal === null) return done(null, stdout, stderr);
    const error: any = failure ?? new Error(`Command failed: ${shown}\n${stderr}`);
    if (!failure) Object.assign(error, { code: code ?? null, killed: child.killed || timedOut, signal });
    if (error.cmd === undefined) error.cmd = shown;
    error.stdout ??= stdout;
    error.stderr ??= stderr;
    done(error, stdout, stderr);
  };
  child.on("close", finish);
  child.on("error", (error: any) => { failure ??= error; failure.cmd ??= shown; finish(null, null); });
  return child;
}

const splitCallback = (rest: any[]): [any[], any] => { const list = [...rest]; const done = typeof list[list.length - 1] === "function" ? list.pop() : undefined; return [list, done]; };

export const exec: any = (command: string, ...rest: any[]): ChildProcess => {
  const [list, done] = splitCallback(rest);
  const options = list[0] ?? {};
  return collected(command, [], { ...options, shell: typeof options.shell === "string" ? options.shell : true }, command, done);
};
export const execFile: any = (file: string, ...rest: any[]): ChildProcess => {
  const [list, done] = splitCallback(rest);
  const [args, options] = normalized(list[0], list[1]);
  return collected(file, args, options, [file, ...args].join(" "), done);
};
const custom = Symbol.for("nodejs.util.promisify.custom");
for (const call of [exec, execFile]) {
  Object.defineProperty(call, custom, { configurable: true, value: (...args: any[]) => {
    let child: any;
    const promise: any = new Promise((resolve, reject) => { child = call(...args, (error: any, stdout: any, stderr: any) => (error ? reject(error) : resolve({ stdout, stderr }))); });
    promise.child = child;
    return promise;
  } });
}

export function spawnSync(command: any, args?: any, options?: any): any {
  const [list, given] = normalized(args, options);
  const params = request(command, list, given);
  if (given.input !== undefined && given.input !== null) params.input = { base64: base64Encode(typeof given.input === "string" ? Buffer.from(given.input) : new Uint8Array(given.input.buffer, given.input.byteOffset, given.input.byteLength)) };
  if (given.timeout > 0) params.timeout = given.timeout;
  params.max_output_bytes = Math.min(given.maxBuffer ?? MAX_BUFFER, 16 * 1024 * 1024);
  const coded = (bytes: any): any => (given.encoding && given.encoding !== "buffer" ? bytes.toString(given.encoding) : bytes);
  try {
    const found = hostCallSync("exec", params);
    const stdout = Buffer.from(base64Decode(found.stdout.base64));
    const stderr = Buffer.from(base64Decode(found.stderr.base64));
    const stdio = typeof given.stdio === "string" ? [given.stdio, given.stdio, given.stdio] : given.stdio ?? [];
    if (stdio[1] === "inherit") (globalThis as any).process.stdout.write(stdout);
    if (stdio[2] === "inherit") (globalThis as any).process.stderr.write(stderr);
    const hidden = (index: number) => stdio[index] === "inherit" || stdio[index] === "ignore";
    const result: any = { pid: 0, status: found.code ?? null, signal: found.signal ?? null, stdout: hidden(1) ? null : coded(stdout), stderr: hidden(2) ? null : coded(stderr) };
    result.output = [null, result.stdout, result.stderr];
    if (found.timed_out || found.truncated) {
      const code = found.timed_out ? "ETIMEDOUT" : "ENOBUFS";
      result.error = Object.assign(new Error(`spawnSync ${command} ${code}`), { errno: errnoNumber(code), code, syscall: `spawnSync ${command}`, path: command, spawnargs: list });
      result.status = null;
      result.signal = given.killSignal ?? "SIGTERM";
    }
    return result;
  } catch (error) {
    return { pid: 0, status: null, signal: null, stdout: null, stderr: null, output: null, error: spawnError(error, command, list, "spawnSync") };
  }
}

function checked(result: any, shown: string, options: any): any {
  if (result.error) throw Object.assign(result.error, { ...result, error: result.error });
  if (options?.stdio === undefined && result.stderr?.length) (globalThis as any).process.stderr.write(result.stderr);
  if (result.status !== 0) {
    const stderr = result.stderr === null ? "" : result.stderr.toString();
    throw Object.assign(new Error(`Command failed: ${shown}${stderr ? `\n${stderr}` : ""}`), result);
  }
  return result.stdout;
}
export function execSync(command: string, options: any = {}): any {
  return checked(spawnSync(command, [], { ...options, shell: typeof options.shell === "string" ? options.shell : true }), command, options);
}
export function execFileSync(file: string, args?: any, options?: any): any {
  const [list, given] = normalized(args, options);
  return checked(spawnSync(file, list, given), [file, ...list].join(" "), given);
}
const fork = (): never => { const error: any = new Error("child_process.fork() is not available: this host has no Node.js"); error.code = "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM"; throw error; };

defineNode("child_process", { ChildProcess, spawn, spawnSync, exec, execSync, execFile, execFileSync, fork });
