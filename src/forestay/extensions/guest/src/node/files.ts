// The base of fs, its callbacks and its promises: one description of each operation, and two ways to perform it.

import { HostError, hostCall, hostCallSync } from "../bridge";
import { base64Decode, base64Encode, wellFormed } from "../globals/encoding";
import { Buffer, decode, encodingOf } from "./buffer";
import { argumentError, systemError } from "./define";
import { fileURLToPath } from "./url";
import { basename, join } from "./path";

export function pathOf(value: any, name = "path"): string {
  if (typeof value === "string") {
    if (value.includes("\0")) { const error: any = new TypeError(`The argument '${name}' must be a string, Uint8Array, or URL without null bytes. Received '${value.replace(/\0/g, "\\x00")}'`); error.code = "ERR_INVALID_ARG_VALUE"; throw error; }
    return value;
  }
  if (value instanceof Uint8Array) return decode(value, "utf8");
  if (value && typeof value === "object" && typeof value.href === "string") return fileURLToPath(value);
  throw argumentError(name, "of type string or an instance of Buffer or URL", value);
}

// An operation: its parameters, the system call that Node names in errors, and the conversion of the answer.
export interface Operation { params: any; syscall: string; path?: string; dest?: string; then?: (output: any) => any }

export function failure(error: any, op: Operation): any {
  if (!(error instanceof HostError)) return error;
  const code = error.details?.errno ?? (error.code === "denied" ? "EACCES" : error.code === "timeout" ? "ETIMEDOUT" : error.code === "invalid_request" ? "EINVAL" : "EIO");
  if (code === "EISDIR" && op.params.op === "read") return systemError(code, "read", undefined, undefined, error);
  if (code === "ENOENT" && (op.syscall === "rm" || op.syscall === "realpath")) return systemError(code, "lstat", op.path, undefined, error);
  return systemError(code, op.syscall, op.path, op.dest, error);
}

export function performSync(op: Operation): any {
  let output: any;
  try {
    output = hostCallSync("fs", op.params);
  } catch (error) {
    throw failure(error, op);
  }
  return op.then ? op.then(output) : undefined;
}

export async function perform(op: Operation, signal?: any): Promise<any> {
  let output: any;
  try {
    output = await hostCall("fs", op.params, { signal });
  } catch (error) {
    throw failure(error, op);
  }
  return op.then ? op.then(output) : undefined;
}

const encodingIn = (options: any): any => (typeof options === "string" ? options : options?.encoding);
const kindBits: Record<string, number> = { file: 0o100000, directory: 0o040000, symlink: 0o120000, fifo: 0o010000, socket: 0o140000, character: 0o020000, block: 0o060000 };

class Kinds {
  isFile(): boolean { return kindOf(this) === "file"; }
  isDirectory(): boolean { return kindOf(this) === "directory"; }
  isSymbolicLink(): boolean { return kindOf(this) === "symlink"; }
  isFIFO(): boolean { return kindOf(this) === "fifo"; }
  isSocket(): boolean { return kindOf(this) === "socket"; }
  isCharacterDevice(): boolean { return kindOf(this) === "character"; }
  isBlockDevice(): boolean { return kindOf(this) === "block"; }
}
const kinds = new WeakMap<object, string>();
const kindOf = (value: object): string => kinds.get(value) ?? "unknown";

export class Stats extends Kinds {
  declare mtimeMs: number;
  constructor(output: any, big = false) {
    super();
    kinds.set(this, output.kind);
    const self: any = this;
    const number = (value: number): any => (big ? BigInt(Math.floor(value)) : value);
    for (const name of ["dev", "mode", "nlink", "uid", "gid", "ino", "size", "blksize", "blocks"]) self[name] = number(output[name]);
    self.rdev = number(0);
    for (const name of ["atime", "mtime", "ctime", "birthtime"]) {
      self[name + "Ms"] = number(output[name + "_ms"]);
      if (big) self[name + "Ns"] = BigInt(Math.floor(output[name + "_ms"] * 1e6));
      Object.defineProperty(self, name, { value: new Date(output[name + "_ms"]), writable: true, configurable: true, enumerable: true });
    }
  }
}

export class Dirent extends Kinds {
  name: any;
  parentPath: string;
  path: string;
  constructor(name: any, parent: string, kind: string) {
    super();
    kinds.set(this, kind);
    this.name = name;
    this.parentPath = parent;
    this.path = parent;
  }
}

export const isMissing = (error: any): boolean => error?.code === "ENOENT" || error?.code === "ENOTDIR";

export const operations = {
  readFile(path: any, options: any): Operation {
    const name = pathOf(path);
    const encoding = encodingIn(options);
    if (encoding && encoding !== "buffer" && !Buffer.isEncoding(encoding)) throw Object.assign(new TypeError(`The argument 'encoding' is invalid encoding. Received '${encoding}'`), { code: "ERR_INVALID_ARG_VALUE" });
    if (encoding && encoding !== "buffer" && encodingOf(encoding) === "utf8") return { params: { op: "read", path: name, encoding: "utf8" }, syscall: "open", path: name, then: (output) => output.text };
    return { params: { op: "read", path: name }, syscall: "open", path: name, then: (output) => { const bytes = Buffer.from(base64Decode(output.base64).slice().buffer); return encoding && encoding !== "buffer" ? bytes.toString(encoding) : bytes; } };
  },
  writeFile(path: any, data: any, options: any, flag = "w"): Operation {
    const name = pathOf(path);
    const given = typeof options === "object" && options !== null ? options : {};
    const params: any = { op: flag === "a" ? "append" : "write", path: name, flag: given.flag ?? flag };
    if (params.flag.startsWith("a") && params.op === "write") params.op = "append";
    if (given.mode !== undefined && given.mode !== null) params.mode = modeOf(given.mode);
    return { params: { ...params, ...content(data, encodingIn(options)) }, syscall: "open", path: name };
  },
  stat(path: any, options: any, follow = true): Operation { const name = pathOf(path); return { params: { op: "stat", path: name, follow }, syscall: follow ? "stat" : "lstat", path: name, then: (output) => new Stats(output, options?.bigint === true) }; },
  readdir(path: any, options: any): Operation {
    const name = pathOf(path);
    const typed = options?.withFileTypes === true;
    const buffers = encodingIn(options) === "buffer";
    const label = (text: string): any => (buffers ? Buffer.from(text) : text);
    return { params: { op: "list", path: name }, syscall: "scandir", path: name, then: (output) => output.entries.map((entry: any) => (typed ? new Dirent(label(entry.name), name, entry.kind) : label(entry.name))) };
  },
  mkdir(path: any, options: any): Operation {
    const name = pathOf(path);
    const recursive = options?.recursive === true;
    const mode = typeof options === "number" || typeof options === "string" ? options : options?.mode;
    return { params: { op: "mkdir", path: name, recursive, ...(mode === undefined ? {} : { mode: modeOf(mode) }) }, syscall: "mkdir", path: name, then: (output) => (recursive ? output.first ?? undefined : undefined) };
  },
  mkdtemp(prefix: any): Operation { const name = pathOf(prefix, "prefix"); return { params: { op: "mkdtemp", prefix: name }, syscall: "mkdtemp", path: name + "XXXXXX", then: (output) => output.path }; },
  unlink(path: any): Operation { const name = pathOf(path); return { params: { op: "delete", path: name, kind: "file" }, syscall: "unlink", path: name }; },
  rmdir(path: any, options: any): Operation { const name = pathOf(path); return { params: { op: "delete", path: name, kind: "directory", recursive: options?.recursive === true }, syscall: "rmdir", path: name }; },
  rm(path: any, options: any): Operation {
    const name = pathOf(path);
    const recursive = options?.recursive === true;
    return { params: { op: "delete", path: name, recursive, force: options?.force === true, ...(recursive ? {} : { kind: "file" }) }, syscall: "rm", path: name };
  },
  rename(from: any, to: any): Operation { const name = pathOf(from, "oldPath"); const dest = pathOf(to, "newPath"); return { params: { op: "rename", path: name, to: dest }, syscall: "rename", path: name, dest }; },
  copyFile(from: any, to: any, mode = 0): Operation { const name = pathOf(from, "src"); const dest = pathOf(to, "dest"); return { params: { op: "copy", path: name, to: dest, exclusive: (mode & 1) !== 0 }, syscall: "copyfile", path: name, dest }; },
  access(path: any, mode = 0): Operation { const name = pathOf(path); return { params: { op: "access", path: name, mode }, syscall: "access", path: name }; },
  exists(path: any): Operation { const name = pathOf(path); return { params: { op: "exists", path: name }, syscall: "access", path: name, then: (output) => output.exists }; },
  realpath(path: any): Operation { const name = pathOf(path); return { params: { op: "realpath", path: name }, syscall: "realpath", path: name, then: (output) => output.path }; },
  readlink(path: any): Operation { const name = pathOf(path); return { params: { op: "readlink", path: name }, syscall: "readlink", path: name, then: (output) => output.path }; },
  symlink(target: any, path: any): Operation { const name = pathOf(path); const goal = pathOf(target, "target"); return { params: { op: "symlink", path: name, target: goal }, syscall: "symlink", path: goal, dest: name }; },
  chmod(path: any, mode: any): Operation { const name = pathOf(path); return { params: { op: "chmod", path: name, mode: modeOf(mode) }, syscall: "chmod", path: name }; },
  utimes(path: any, atime: any, mtime: any): Operation { const name = pathOf(path); return { params: { op: "utimes", path: name, atime_ms: timeOf(atime), mtime_ms: timeOf(mtime) }, syscall: "utime", path: name }; },
  truncate(path: any, length = 0): Operation { const name = pathOf(path); return { params: { op: "truncate", path: name, length: length ?? 0 }, syscall: "open", path: name }; },
  readAt(path: string, offset: number, length: number): Operation { return { params: { op: "read", path, offset, length }, syscall: "read", path, then: (output) => base64Decode(output.base64) }; },
  writeAt(path: string, offset: number | null, data: any, encoding: any): Operation { return { params: offset === null ? { op: "append", path, ...content(data, encoding) } : { op: "write", path, flag: "r+", offset, ...content(data, encoding) }, syscall: "write", path, then: (output) => output.bytes }; },
};

export function content(data: any, encoding?: any): any {
  if (typeof data === "string") return encodingOf(encoding === "buffer" ? undefined : encoding) === "utf8" ? { text: wellFormed(data) } : { base64: base64Encode(Buffer.from(data, encoding)) };
  if (ArrayBuffer.isView(data)) return { base64: base64Encode(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) };
  throw argumentError("data", "of type string or an instance of Buffer, TypedArray, or DataView", data);
}

export const modeOf = (mode: any): number => (typeof mode === "string" ? parseInt(mode, 8) : Number(mode)) & 0o7777;
const timeOf = (time: any): number => Math.round(time instanceof Date ? time.getTime() : typeof time === "string" && isNaN(+time) ? Date.parse(time) : +time * 1000);

// The entries below a folder, for `recursive: true`; links are listed and not followed.
export function deepEntries(list: (path: string) => any[], path: string): any[] {
  const out: any[] = [];
  const visit = (here: string, prefix: string): void => {
    for (const entry of list(here)) {
      out.push({ entry, relative: prefix + entry.name });
      if (entry.isDirectory()) visit(join(here, entry.name), `${prefix}${entry.name}/`);
    }
  };
  visit(path, "");
  return out;
}
export { basename, kindBits };
