// Registers a module of Node under its reserved name, with itself as the default export.

import { defineModule } from "../modules";

export function defineNode(name: string, members: Record<string, any>): any {
  // A live object (process, a class) is its own namespace; a list of members becomes one.
  const namespace: any = typeof members === "object" && Object.getPrototypeOf(members) === Object.prototype ? { ...members } : members;
  Object.defineProperty(namespace, "default", { value: namespace, configurable: true, writable: true, enumerable: false });
  defineModule(`pi:node/${name}`, namespace);
  return namespace;
}

// Node's system errors: `ENOENT: no such file or directory, open 'x'` with code, errno, syscall and path.
const NUMBERS: Record<string, [number, string]> = {
  EPERM: [1, "operation not permitted"], ENOENT: [2, "no such file or directory"], ESRCH: [3, "no such process"], EIO: [5, "i/o error"],
  E2BIG: [7, "argument list too long"], EBADF: [9, "bad file descriptor"], EAGAIN: [11, "resource temporarily unavailable"],
  ENOMEM: [12, "not enough memory"], EACCES: [13, "permission denied"], EBUSY: [16, "resource busy or locked"],
  EEXIST: [17, "file already exists"], EXDEV: [18, "cross-device link not permitted"], ENOTDIR: [20, "not a directory"],
  EISDIR: [21, "illegal operation on a directory"], EINVAL: [22, "invalid argument"], EMFILE: [24, "too many open files"],
  EFBIG: [27, "file too large"], ENOSPC: [28, "no space left on device"], EROFS: [30, "read-only file system"], EPIPE: [32, "broken pipe"],
  ENAMETOOLONG: [36, "name too long"], ENOTEMPTY: [39, "directory not empty"], ELOOP: [40, "too many symbolic links encountered"],
  EOVERFLOW: [75, "value too large for defined data type"], ETIMEDOUT: [110, "connection timed out"], ECONNREFUSED: [111, "connection refused"],
  ENOBUFS: [105, "no buffer space available"],
};

export function systemError(code: string, syscall: string, path?: string, dest?: string, cause?: any): any {
  const [number, words] = NUMBERS[code] ?? [0, "unknown error"];
  let message = `${code}: ${words}, ${syscall}`;
  if (path !== undefined) message += ` '${path}'`;
  if (dest !== undefined) message += ` -> '${dest}'`;
  const why = cause?.code === "denied" ? cause.message : undefined;
  if (why) message += ` (${why})`;
  const error: any = new Error(message);
  error.errno = -number;
  error.code = code;
  error.syscall = syscall;
  if (path !== undefined) error.path = path;
  if (dest !== undefined) error.dest = dest;
  if (cause !== undefined) {
    // Keep the host's error on this one: the taxonomy's code and the details.
    Object.defineProperty(error, "cause", { value: cause, configurable: true, writable: true });
    Object.defineProperty(error, "hostcall", { value: { code: cause.code, details: cause.details }, configurable: true, enumerable: false });
  }
  return error;
}

export const errnoNumber = (code: string): number => -(NUMBERS[code]?.[0] ?? 0);

export function argumentError(name: string, expected: string, value: any): TypeError {
  const received = value === null || value === undefined ? String(value) : typeof value === "function" ? `function ${value.name}` : typeof value === "object" ? `an instance of ${value.constructor?.name ?? "Object"}` : `type ${typeof value} (${typeof value === "string" ? `'${value.length > 25 ? value.slice(0, 25) + "..." : value}'` : String(value)})`;
  const error: any = new TypeError(`The "${name}" argument must be ${expected}. Received ${received}`);
  error.code = "ERR_INVALID_ARG_TYPE";
  return error;
}
