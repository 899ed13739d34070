// node:zlib, computed by the host.

import { hostCallSync, HostError } from "../bridge";
import { base64Decode, base64Encode, bytesOf } from "../globals/encoding";
import { Buffer, encode } from "./buffer";
import { defineNode } from "./define";
import { Transform } from "./stream";

function squeeze(op: string, format: string) {
  return (data: any, options: any = {}): any => {
    const bytes = typeof data === "string" ? encode(data, "utf8") : bytesOf(data);
    try {
      return Buffer.from(base64Decode(hostCallSync("crypto", { op, format, base64: base64Encode(bytes), ...(options?.level !== undefined ? { level: options.level } : {}) }).base64).slice().buffer);
    } catch (error: any) {
      if (!(error instanceof HostError)) throw error;
      throw Object.assign(new Error(error.message), { code: error.details?.errno ?? "Z_DATA_ERROR", errno: error.details?.errno === "Z_BUF_ERROR" ? -5 : -3 });
    }
  };
}
const zlib: any = { constants: { Z_NO_COMPRESSION: 0, Z_BEST_SPEED: 1, Z_BEST_COMPRESSION: 9, Z_DEFAULT_COMPRESSION: -1, Z_SYNC_FLUSH: 2, Z_FINISH: 4 } };
for (const [name, op, format] of [["gzip", "deflate", "gzip"], ["gunzip", "inflate", "gzip"], ["deflate", "deflate", "zlib"], ["inflate", "inflate", "zlib"], ["deflateRaw", "deflate", "raw"], ["inflateRaw", "inflate", "raw"], ["unzip", "inflate", "auto"]]) {
  const work = squeeze(op, format);
  zlib[`${name}Sync`] = work;
  zlib[name] = (data: any, options: any, done?: any) => {
    if (typeof options === "function") { done = options; options = {}; }
    let value: any;
    let failure: any = null;
    try { value = work(data, options); } catch (error) { failure = error; }
    (globalThis as any).queueMicrotask(() => done(failure, value));
  };
  zlib[`create${name[0].toUpperCase()}${name.slice(1)}`] = (options: any = {}) => {
    const parts: any[] = [];
    return new Transform({ transform(chunk: any, _encoding: any, next: any) { parts.push(chunk); next(); }, flush(this: any, next: any) { try { this.push(work(Buffer.concat(parts), options)); next(); } catch (error) { next(error); } } });
  };
}
zlib.crc32 = (data: any, value = 0): number => {
  let crc = ~value;
  for (const byte of typeof data === "string" ? encode(data, "utf8") : bytesOf(data)) { crc ^= byte; for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0); }
  return ~crc >>> 0;
};
defineNode("zlib", zlib);
