// node:fs and node:fs/promises: the real file system; each operation is a host call (P6). A descriptor is a path, a
// position and a mode in the guest: the host has no open files.

import { hostCall } from "../bridge";
import { defineNode, systemError } from "./define";
import { Buffer } from "./buffer";
import { EventEmitter } from "./events";
import { Dirent, Stats, deepEntries, failure, isMissing, operations as op, pathOf, perform, performSync } from "./files";
import { join, dirname } from "./path";
import { Readable, Writable } from "./stream";

export const constants = { F_OK: 0, X_OK: 1, W_OK: 2, R_OK: 4, COPYFILE_EXCL: 1, COPYFILE_FICLONE: 2, COPYFILE_FICLONE_FORCE: 4, O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_EXCL: 128, O_TRUNC: 512, O_APPEND: 1024, O_SYNC: 1052672, S_IFMT: 61440, S_IFREG: 32768, S_IFDIR: 16384, S_IFLNK: 40960, S_IRUSR: 256, S_IWUSR: 128, S_IXUSR: 64 };

// -- descriptors ---------------------------------------------------------------------------------------------------------

interface Opened { path: string; at: number; read: boolean; write: boolean; append: boolean }
const open = new Map<number, Opened>();
let nextDescriptor = 10;

function flagsOf(flags: any): string {
  if (typeof flags !== "number") return flags ?? "r";
  const way = flags & 3;
  if (way === 0) return "r";
  const plus = way === 2 ? "+" : "";
  if (flags & constants.O_APPEND) return `a${flags & constants.O_EXCL ? "x" : ""}${plus}`;
  if (flags & constants.O_CREAT) return flags & constants.O_TRUNC || flags & constants.O_EXCL ? `w${flags & constants.O_EXCL ? "x" : ""}${plus}` : `a${plus}`;
  return "r+";
}

function opening(path: any, flags: any, mode?: any): [any, Opened] {
  const name = pathOf(path);
  const flag = flagsOf(flags).replace("s", "");
  const state: Opened = { path: name, at: 0, read: flag.startsWith("r") || flag.includes("+"), write: !flag.startsWith("r") || flag.includes("+"), append: flag.startsWith("a") };
  if (flag.startsWith("r")) return [{ ...op.access(name, flag === "r+" ? 6 : 4), syscall: "open" }, state];
  return [op.writeFile(name, "", { flag, mode }, flag.startsWith("a") ? "a" : "w"), state];
}

function keep(state: Opened): number {
  open.set(nextDescriptor, state);
  return nextDescriptor++;
}

function opened(fd: any, syscall: string): Opened {
  const found = open.get(fd);
  if (!found) throw systemError("EBADF", syscall);
  return found;
}

function readPlan(fd: any, buffer: any, rest: any[]): { state: Opened; target: Uint8Array; where: number | null; size: number } {
  const state = opened(fd, "read");
  let [offset, length, position] = rest;
  if (offset !== null && typeof offset === "object") ({ offset = 0, length, position = null } = offset as any);
  const from = offset ?? 0;
  const size = length ?? buffer.byteLength - from;
  const target = new Uint8Array(buffer.buffer, buffer.byteOffset + from, size);
  return { state, target, where: position === undefined || position === null || position < 0 ? null : Number(position), size };
}

function readDone(state: Opened, target: Uint8Array, where: number | null, bytes: Uint8Array): number {
  target.set(bytes);
  if (where === null) state.at += bytes.length;
  return bytes.length;
}

function writePlan(fd: any, data: any, rest: any[]): { state: Opened; action: any; position: number | null } {
  const state = opened(fd, "write");
  if (!state.write) throw systemError("EBADF", "write");
  let chunk = data;
  let position: any;
  let encoding: any;
  if (typeof data === "string") [position, encoding] = rest;
  else {
    let [offset, length, where] = rest;
    if (offset !== null && typeof offset === "object") ({ offset, length, position: where } = offset as any);
    position = where;
    const from = offset ?? 0;
    chunk = new Uint8Array(data.buffer, data.byteOffset + from, length ?? data.byteLength - from);
  }
  const where = position === undefined || position === null ? null : Number(position);
  return { state, action: op.writeAt(state.path, state.append ? null : where ?? state.at, chunk, encoding), position: where };
}

function writeDone(state: Opened, position: number | null, count: number): number {
  if (position === null) state.at += count;
  return count;
}

// -- synchronous ----------------------------------------------------------------------------------------------------------

const sync: any = {
  readFileSync: (path: any, options?: any) => (Number.isInteger(path) ? readDescriptor(path, options) : performSync(op.readFile(path, options))),
  writeFileSync: (path: any, data: any, options?: any) => (typeof path === "number" ? void sync.writeSync(path, data) : performSync(op.writeFile(path, text(data), options))),
  appendFileSync: (path: any, data: any, options?: any) => (typeof path === "number" ? void sync.writeSync(path, data) : performSync(op.writeFile(path, text(data), options, "a"))),
  existsSync: (path: any) => { try { return performSync(op.exists(path)) === true; } catch { return false; } },
  statSync: (path: any, options: any = {}) => quiet(options, () => performSync(op.stat(path, options))),
  lstatSync: (path: any, options: any = {}) => quiet(options, () => performSync(op.stat(path, options, false))),
  fstatSync: (fd: any, options?: any) => performSync(op.stat(opened(fd, "fstat").path, options)),
  readdirSync: (path: any, options?: any) => (options?.recursive ? recursiveList(pathOf(path), options) : performSync(op.readdir(path, options))),
  mkdirSync: (path: any, options?: any) => performSync(op.mkdir(path, options)), mkdtempSync: (prefix: any) => performSync(op.mkdtemp(prefix)),
  unlinkSync: (path: any) => performSync(op.unlink(path)), rmdirSync: (path: any, options?: any) => performSync(op.rmdir(path, options)), rmSync: (path: any, options?: any) => removed(() => performSync(op.rm(path, options)), path),
  renameSync: (from: any, to: any) => performSync(op.rename(from, to)), copyFileSync: (from: any, to: any, mode?: number) => performSync(op.copyFile(from, to, mode)), accessSync: (path: any, mode?: number) => performSync(op.access(path, mode)),
  realpathSync: Object.assign((path: any) => performSync(op.realpath(path)), { native: (path: any) => performSync(op.realpath(path)) }), readlinkSync: (path: any) => performSync(op.readlink(path)), symlinkSync: (target: any, path: any) => performSync(op.symlink(target, path)),
  chmodSync: (path: any, mode: any) => performSync(op.chmod(path, mode)), utimesSync: (path: any, atime: any, mtime: any) => performSync(op.utimes(path, atime, mtime)), truncateSync: (path: any, length?: number) => performSync(op.truncate(path, length)),
  ftruncateSync: (fd: any, length?: number) => performSync(op.truncate(opened(fd, "ftruncate").path, length)), fsyncSync: (fd: any) => void opened(fd, "fsync"), fdatasyncSync: (fd: any) => void opened(fd, "fdatasync"),
  openSync: (path: any, flags?: any, mode?: any) => { const [action, state] = opening(path, flags, mode); performSync(action); return keep(state); },
  closeSync: (fd: any) => { opened(fd, "close"); open.delete(fd); },
  readSync: (fd: any, buffer: any, ...rest: any[]) => { const { state, target, where, size } = readPlan(fd, buffer, rest); return size === 0 ? 0 : readDone(state, target, where, performSync(op.readAt(state.path, where ?? state.at, size))); },
  writeSync: (fd: any, data: any, ...rest: any[]) => { const { state, action, position } = writePlan(fd, text(data), rest); return writeDone(state, position, performSync(action)); },
  cpSync: (from: any, to: any, options: any = {}) => copyTree(pathOf(from), pathOf(to), options),
  opendirSync: (path: any) => directory(pathOf(path)),
  chownSync: () => undefined, lchownSync: () => undefined, lutimesSync: (path: any, atime: any, mtime: any) => performSync(op.utimes(path, atime, mtime)), futimesSync: (fd: any, atime: any, mtime: any) => performSync(op.utimes(opened(fd, "futime").path, atime, mtime)), fchmodSync: (fd: any, mode: any) => performSync(op.chmod(opened(fd, "fchmod").path, mode)),
  globSync: (pattern: any, options: any = {}) => [pattern].flat().flatMap((one: string) => deepEntries((where) => sync.readdirSync(where, { withFileTypes: true }), options.cwd ?? ".").map((found: any) => found.relative).filter((name: string) => glob(one).test(name))),
};

const text = (data: any): any => (typeof data === "number" || typeof data === "boolean" ? String(data) : data);
function glob(pattern: string): RegExp {
  return new RegExp("^" + pattern.replace(/^\.\//, "").replace(/[.+^$()|[\]\\]/g, "\\$&").replace(/\{([^}]*)\}/g, (_all, list) => `(?:${list.replace(/,/g, "|")})`).replace(/\*\*\/?/g, "\0").replace(/\*/g, "[^/]*").replace(/\?/g, "[^/]").replace(/\0/g, "(?:.*/)?") + "$");
}

function readDescriptor(fd: number, options: any): any {
  const state = opened(fd, "read");
  const whole = performSync(op.readFile(state.path, options));
  return whole;
}

function quiet(options: any, work: () => any): any {
  try { return work(); } catch (error) {
    if (options?.throwIfNoEntry === false && isMissing(error)) return undefined;
    throw error;
  }
}

// rm has its own error for a folder without `recursive`.
function removed(work: () => any, path: any): any {
  try { return work(); } catch (error: any) {
    if (error?.code !== "EISDIR") throw error;
    const named: any = new Error(`Path is a directory: rm returned EISDIR (is a directory) ${pathOf(path)}`);
    Object.assign(named, { code: "ERR_FS_EISDIR", name: "SystemError", errno: 21, syscall: "rm", path: pathOf(path) });
    throw named;
  }
}

function recursiveList(path: string, options: any): any[] {
  const found = deepEntries((where) => sync.readdirSync(where, { withFileTypes: true }), path);
  return found.map(({ entry, relative }: any) => (options.withFileTypes ? entry : relative));
}

function copyTree(from: string, to: string, options: any): void {
  const facts = options.dereference ? sync.statSync(from) : sync.lstatSync(from);
  if (options.filter && !options.filter(from, to)) return;
  if (facts.isDirectory()) {
    if (!options.recursive) { const error: any = new Error(`Recursive option not enabled, cannot copy a directory: ${from}`); error.code = "ERR_FS_EISDIR"; throw error; }
    sync.mkdirSync(to, { recursive: true });
    for (const name of sync.readdirSync(from)) copyTree(join(from, name), join(to, name), options);
  } else if (facts.isSymbolicLink()) sync.symlinkSync(sync.readlinkSync(from), to);
  else {
    sync.mkdirSync(dirname(to), { recursive: true });
    if (options.force === false && sync.existsSync(to)) { if (options.errorOnExist) throw systemError("EEXIST", "cp", from, to); return; }
    sync.copyFileSync(from, to);
  }
}

function directory(path: string): any {
  const entries: any[] = sync.readdirSync(path, { withFileTypes: true });
  return { path, readSync: () => entries.shift() ?? null, read: async () => entries.shift() ?? null, closeSync: () => undefined, close: async () => undefined, async *[Symbol.asyncIterator]() { yield* entries; } };
}

// -- promises ----------------------------------------------------------------------------------------------------------------

class FileHandle extends EventEmitter {
  readonly fd: number;
  constructor(fd: number) { super(); this.fd = fd; }
  async read(buffer: any = Buffer.alloc(16384), ...rest: any[]): Promise<any> {
    const given = ArrayBuffer.isView(buffer) ? buffer : buffer?.buffer ?? Buffer.alloc(16384);
    const { state, target, where, size } = readPlan(this.fd, given, ArrayBuffer.isView(buffer) ? rest : [buffer]);
    return { bytesRead: readDone(state, target, where, await perform(op.readAt(state.path, where ?? state.at, size))), buffer: given };
  }
  async write(data: any, ...rest: any[]): Promise<any> { const { state, action, position } = writePlan(this.fd, data, rest); return { bytesWritten: writeDone(state, position, await perform(action)), buffer: data }; }
  readFile(options?: any): Promise<any> { return perform(op.readFile(opened(this.fd, "read").path, options)); }
  async writeFile(data: any, options?: any): Promise<void> { return perform(op.writeFile(opened(this.fd, "write").path, data, options)); }
  appendFile(data: any, options?: any): Promise<void> { return perform(op.writeFile(opened(this.fd, "write").path, data, options, "a")); }
  stat(options?: any): Promise<any> { return perform(op.stat(opened(this.fd, "fstat").path, options)); }
  truncate(length?: number): Promise<void> { return perform(op.truncate(opened(this.fd, "ftruncate").path, length)); }
  chmod(mode: any): Promise<void> { return perform(op.chmod(opened(this.fd, "fchmod").path, mode)); }
  utimes(atime: any, mtime: any): Promise<void> { return perform(op.utimes(opened(this.fd, "futime").path, atime, mtime)); }
  async sync(): Promise<void> { opened(this.fd, "fsync"); }
  async datasync(): Promise<void> { opened(this.fd, "fdatasync"); }
  async close(): Promise<void> { sync.closeSync(this.fd); this.emit("close"); }
  createReadStream(options: any = {}): any { return createReadStream(opened(this.fd, "read").path, options); }
  createWriteStream(options: any = {}): any { return createWriteStream(opened(this.fd, "write").path, { flags: "r+", ...options }); }
  async *readLines(): AsyncGenerator<string> { yield* String(await this.readFile("utf8")).replace(/\n$/, "").split("\n"); }
  async [Symbol.for("Symbol.asyncDispose")](): Promise<void> { await this.close(); }
}

const target = (path: any): any => (path instanceof FileHandle ? opened(path.fd, "open").path : path);
export const promises: any = {
  constants,
  readFile: (path: any, options?: any) => perform(op.readFile(target(path), options), options?.signal), writeFile: async (path: any, data: any, options?: any) => perform(op.writeFile(target(path), await whole(data), options), options?.signal), appendFile: (path: any, data: any, options?: any) => perform(op.writeFile(target(path), data, options, "a")),
  stat: (path: any, options?: any) => perform(op.stat(path, options)), lstat: (path: any, options?: any) => perform(op.stat(path, options, false)), readdir: async (path: any, options?: any) => (options?.recursive ? recursiveList(pathOf(path), options) : perform(op.readdir(path, options))),
  mkdir: (path: any, options?: any) => perform(op.mkdir(path, options)), mkdtemp: (prefix: any) => perform(op.mkdtemp(prefix)), unlink: (path: any) => perform(op.unlink(path)), rmdir: (path: any, options?: any) => perform(op.rmdir(path, options)),
  rm: async (path: any, options?: any) => { try { await perform(op.rm(path, options)); } catch (error) { removed(() => { throw error; }, path); } }, rename: (from: any, to: any) => perform(op.rename(from, to)), copyFile: (from: any, to: any, mode?: number) => perform(op.copyFile(from, to, mode)), access: (path: any, mode?: number) => perform(op.access(path, mode)),
  realpath: (path: any) => perform(op.realpath(path)), readlink: (path: any) => perform(op.readlink(path)), symlink: (goal: any, path: any) => perform(op.symlink(goal, path)), chmod: (path: any, mode: any) => perform(op.chmod(path, mode)), utimes: (path: any, atime: any, mtime: any) => perform(op.utimes(path, atime, mtime)), truncate: (path: any, length?: number) => perform(op.truncate(path, length)),
  open: async (path: any, flags?: any, mode?: any) => { const [action, state] = opening(path, flags, mode); await perform(action); return new FileHandle(keep(state)); }, cp: async (from: any, to: any, options: any = {}) => copyTree(pathOf(from), pathOf(to), options), opendir: async (path: any) => directory(pathOf(path)), chown: async () => undefined, lutimes: (path: any, atime: any, mtime: any) => perform(op.utimes(path, atime, mtime)),
  async *watch(path: any, options: any = {}) {
    const watcher = watch(path, options);
    const queue: any[] = [];
    let wake: () => void = () => undefined;
    let ended = false;
    watcher.on("change", (eventType: string, filename: string) => { queue.push({ eventType, filename }); wake(); });
    watcher.on("close", () => { ended = true; wake(); });
    options?.signal?.addEventListener("abort", () => watcher.close());
    try { for (;;) { while (queue.length) yield queue.shift(); if (ended) { if (options?.signal?.aborted) throw options.signal.reason; return; } await new Promise<void>((resolve) => (wake = resolve)); } } finally { watcher.close(); }
  },
};

async function whole(data: any): Promise<any> {
  if (typeof data === "string" || ArrayBuffer.isView(data) || data === null || typeof data !== "object") return data;
  if (typeof data[Symbol.asyncIterator] !== "function" && typeof data[Symbol.iterator] !== "function") return data;
  const parts: any[] = [];
  for await (const part of data) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

// -- callbacks: every promise function, with its result passed to a callback ----------------------------------------------------

const callbacks: any = {};
for (const name of ["readFile", "writeFile", "appendFile", "stat", "lstat", "readdir", "mkdir", "mkdtemp", "unlink", "rmdir", "rm", "rename", "copyFile", "access", "realpath", "readlink", "symlink", "chmod", "utimes", "truncate", "cp", "opendir", "chown", "lutimes"]) {
  callbacks[name] = (...args: any[]) => {
    const done = args.pop();
    if (typeof done !== "function") throw Object.assign(new TypeError(`The "cb" argument must be of type function. Received ${done === undefined ? "undefined" : typeof done}`), { code: "ERR_INVALID_ARG_TYPE" });
    promises[name](...args).then((value: any) => done(null, value), (error: any) => done(error));
  };
}
Object.assign(callbacks, {
  exists: Object.assign((path: any, done: any) => void promises.access(path).then(() => done(true), () => done(false)), {}),
  open: (path: any, ...rest: any[]) => { const done = rest.pop(); promises.open(path, ...rest).then((handle: any) => done(null, handle.fd), done); },
  close: (fd: any, done?: any) => { try { sync.closeSync(fd); (globalThis as any).queueMicrotask(() => done?.(null)); } catch (error) { (globalThis as any).queueMicrotask(() => done?.(error)); } },
  read: (fd: any, buffer: any, ...rest: any[]) => { const done = rest.pop(); new FileHandle(fd).read(buffer, ...rest).then((found) => done(null, found.bytesRead, found.buffer), done); },
  write: (fd: any, data: any, ...rest: any[]) => { const done = typeof rest[rest.length - 1] === "function" ? rest.pop() : () => undefined; new FileHandle(fd).write(data, ...rest).then((found) => done(null, found.bytesWritten, data), done); },
  fstat: (fd: any, ...rest: any[]) => { const done = rest.pop(); new FileHandle(fd).stat(rest[0]).then((found) => done(null, found), done); },
  fsync: (_fd: any, done: any) => (globalThis as any).queueMicrotask(() => done(null)), ftruncate: (fd: any, ...rest: any[]) => { const done = rest.pop(); new FileHandle(fd).truncate(rest[0]).then(() => done(null), done); },
});

// -- streams and watching ----------------------------------------------------------------------------------------------------------

export function createReadStream(path: any, options: any = {}): any {
  const name = pathOf(path);
  const given = typeof options === "string" ? { encoding: options } : options ?? {};
  let at = given.start ?? 0;
  const end = given.end ?? Infinity;
  // A file that cannot be opened is an error even without a reader.
  const ready = perform({ ...op.access(name, constants.R_OK), syscall: "open" });
  const stream: any = new Readable({
    encoding: given.encoding, highWaterMark: given.highWaterMark ?? 65536, signal: given.signal,
    read(this: any, size: number) {
      const count = Math.min(size, end - at + 1);
      if (count <= 0) { this.push(null); return; }
      ready.then(() => perform(op.readAt(name, at, count))).then((bytes: Uint8Array) => {
        at += bytes.length;
        stream.bytesRead += bytes.length;
        this.push(bytes.length ? Buffer.from(bytes) : null);
      }, (error) => this.destroy(error));
    },
  });
  stream.path = name;
  stream.bytesRead = 0;
  ready.then(() => { stream.emit("open", 0); stream.emit("ready"); }, (error: any) => stream.destroy(error));
  stream.close = (done?: any) => { stream.destroy(); if (done) stream.once("close", done); };
  return stream;
}

export function createWriteStream(path: any, options: any = {}): any {
  const name = pathOf(path);
  const given = typeof options === "string" ? { encoding: options } : options ?? {};
  const [action, state] = opening(name, given.flags ?? "w", given.mode);
  if (given.start !== undefined) state.at = given.start;
  const ready = perform(action);
  const stream: any = new Writable({
    defaultEncoding: given.encoding ?? "utf8", signal: given.signal, highWaterMark: given.highWaterMark,
    write(chunk: any, encoding: any, done: any) {
      ready.then(() => perform(op.writeAt(name, state.append ? null : state.at, chunk, encoding))).then((count: number) => { state.at += count; stream.bytesWritten += count; done(); }, done);
    },
    final(done: any) { ready.then(() => done(), done); },
  });
  stream.path = name;
  stream.bytesWritten = 0;
  ready.then(() => { stream.emit("open", 0); stream.emit("ready"); }, (error: any) => stream.destroy(error));
  stream.close = (done?: any) => { stream.end(); if (done) stream.once("close", done); };
  return stream;
}

export function watch(path: any, options?: any, listener?: any): any {
  if (typeof options === "function") { listener = options; options = {}; }
  const name = pathOf(path);
  const watcher: any = new EventEmitter();
  const control = new (globalThis as any).AbortController();
  let closed = false;
  watcher.close = () => { if (!closed) { closed = true; control.abort(); (globalThis as any).queueMicrotask(() => watcher.emit("close")); } };
  watcher.ref = watcher.unref = () => watcher;
  if (listener) watcher.on("change", listener);
  options?.signal?.addEventListener("abort", watcher.close);
  // A path that cannot be watched is an error at once, as in Node.
  performSync({ ...op.access(name), syscall: "watch" });
  hostCall("fs", { op: "watch", path: name, recursive: options?.recursive === true, stream: true }, {
    signal: control.signal,
    onChunk: (chunk: any) => { if (!closed && chunk.name !== undefined) watcher.emit("change", chunk.event, options?.encoding === "buffer" ? Buffer.from(chunk.name) : chunk.name); },
  }).then(() => watcher.close(), (error: any) => { if (!closed) { closed = true; watcher.emit("error", failure(error, { params: {}, syscall: "watch", path: name })); } });
  return watcher;
}

const watched = new Map<string, { timer: any; listeners: any[]; stop: () => void }>();
function watchFile(path: any, options: any, listener?: any): any {
  if (typeof options === "function") { listener = options; options = {}; }
  const name = pathOf(path);
  const look = () => { try { return sync.statSync(name); } catch { return new Stats({ kind: "unknown", size: 0, mode: 0, dev: 0, nlink: 0, uid: 0, gid: 0, ino: 0, blksize: 0, blocks: 0, atime_ms: 0, mtime_ms: 0, ctime_ms: 0, birthtime_ms: 0 }); } };
  const known = watched.get(name);
  if (known) { known.listeners.push(listener); return; }
  let before = look();
  const entry = { timer: undefined as any, listeners: [listener], stop: () => (globalThis as any).clearInterval(entry.timer) };
  entry.timer = (globalThis as any).setInterval(() => { const after = look(); if ((after as any).mtimeMs !== (before as any).mtimeMs || (after as any).size !== (before as any).size) { const old = before; before = after; for (const call of entry.listeners) call(after, old); } }, options?.interval ?? 5007);
  watched.set(name, entry);
}
function unwatchFile(path: any, listener?: any): void {
  const entry = watched.get(pathOf(path));
  if (!entry) return;
  entry.listeners = listener ? entry.listeners.filter((one) => one !== listener) : [];
  if (!entry.listeners.length) { entry.stop(); watched.delete(pathOf(path)); }
}

promises.default = promises;
defineNode("fs_promises", promises);
export const fs = defineNode("fs", { ...sync, ...callbacks, promises, constants, ...constants, Stats, Dirent, FileHandle, createReadStream, createWriteStream, watch, watchFile, unwatchFile, ReadStream: Readable, WriteStream: Writable });
