// node:buffer. A Buffer is a Uint8Array with Node's methods; a slice shares its bytes.

import { Blob, File } from "../globals/blob";
import { atob, base64Decode, base64Encode, btoa, bytesOf, hexDecode, hexEncode, latin1Decode, utf16Decode, utf8Decode, utf8Encode, utf8Into, utf8Length } from "../globals/encoding";
import { install } from "../globals/install";
import { argumentError, defineNode } from "./define";
import { custom } from "./inspect";

const NAMES: Record<string, string> = { utf8: "utf8", "utf-8": "utf8", hex: "hex", base64: "base64", base64url: "base64url", ascii: "ascii", latin1: "latin1", binary: "latin1", ucs2: "utf16le", "ucs-2": "utf16le", utf16le: "utf16le", "utf-16le": "utf16le" };

export function encodingOf(name: any): string {
  if (name === undefined || name === null || name === "") return "utf8";
  const found = NAMES[String(name).toLowerCase()];
  if (found === undefined) {
    const error: any = new TypeError(`Unknown encoding: ${name}`);
    error.code = "ERR_UNKNOWN_ENCODING";
    throw error;
  }
  return found;
}

export function encode(text: string, encoding: any): Uint8Array {
  switch (encodingOf(encoding)) {
    case "utf8": return utf8Encode(text);
    case "hex": return hexDecode(text);
    case "base64": case "base64url": return base64Decode(text);
    case "utf16le": {
      const bytes = new Uint8Array(text.length * 2);
      for (let i = 0; i < text.length; i++) { bytes[i * 2] = text.charCodeAt(i) & 255; bytes[i * 2 + 1] = text.charCodeAt(i) >> 8; }
      return bytes;
    }
    default: {
      const bytes = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i) & 255;
      return bytes;
    }
  }
}

export function decode(bytes: Uint8Array, encoding: any): string {
  switch (encodingOf(encoding)) {
    case "utf8": return utf8Decode(bytes);
    case "hex": return hexEncode(bytes);
    case "base64": return base64Encode(bytes);
    case "base64url": return base64Encode(bytes, true);
    case "utf16le": return utf16Decode(bytes);
    case "ascii": return latin1Decode(bytes, 127);
    default: return latin1Decode(bytes);
  }
}

function range(name: string, expected: string, value: any): RangeError {
  const error: any = new RangeError(`The value of "${name}" is out of range. It must be ${expected}. Received ${value}`);
  error.code = "ERR_OUT_OF_RANGE";
  return error;
}

function viewOf(buffer: Uint8Array, offset: any, size: number): [DataView, number] {
  const at = offset ?? 0;
  if (typeof at !== "number") throw argumentError("offset", "of type number", offset);
  if (!Number.isInteger(at)) throw range("offset", "an integer", at);
  if (at < 0 || at + size > buffer.length) {
    if (buffer.length < size) { const error: any = new RangeError("Attempt to access memory outside buffer bounds"); error.code = "ERR_BUFFER_OUT_OF_BOUNDS"; throw error; }
    throw range("offset", `>= 0 and <= ${buffer.length - size}`, at);
  }
  return [new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength), at];
}

function checked(value: any, low: number | bigint, high: number | bigint): any {
  if (value < low || value > high) throw range("value", `>= ${low} and <= ${high}`, value);
  return value;
}

const own = (bytes: Uint8Array): any => Object.setPrototypeOf(bytes, NodeBuffer.prototype);

class NodeBuffer extends Uint8Array {
  static poolSize = 8192;
  static from(value: any, encodingOrOffset?: any, length?: any): any {
    if (typeof value === "string") return own(encode(value, encodingOrOffset));
    if (value instanceof ArrayBuffer || (typeof SharedArrayBuffer !== "undefined" && value instanceof SharedArrayBuffer)) {
      return own(new Uint8Array(value as ArrayBuffer, encodingOrOffset ?? 0, length ?? (value as ArrayBuffer).byteLength - (encodingOrOffset ?? 0)));
    }
    if (value === null || value === undefined || typeof value === "number" || typeof value === "boolean") {
      throw argumentError("first argument", "of type string or an instance of Buffer, ArrayBuffer, or Array or an Array-like Object", value);
    }
    if (ArrayBuffer.isView(value)) return own(Uint8Array.prototype.slice.call(value instanceof Uint8Array ? value : new Uint8Array(value as any)));
    const plain = typeof value.valueOf === "function" ? value.valueOf() : value;
    if (plain !== value && plain !== null && plain !== undefined) return NodeBuffer.from(plain, encodingOrOffset, length);
    if (value.type === "Buffer" && Array.isArray(value.data)) return own(Uint8Array.from(value.data));
    if (typeof value.length === "number") return own(Uint8Array.from(value as any, (item: any) => Number(item) & 255));
    throw argumentError("first argument", "of type string or an instance of Buffer, ArrayBuffer, or Array or an Array-like Object", value);
  }
  static alloc(size: number, fill?: any, encoding?: any): any {
    const made = NodeBuffer.allocUnsafe(size);
    return fill === undefined || fill === 0 ? made : made.fill(fill, encoding);
  }
  static allocUnsafe(size: number): any {
    if (typeof size !== "number") throw argumentError("size", "of type number", size);
    if (!(size >= 0 && size <= 2 ** 31)) throw range("size", ">= 0 && <= 2147483648", size);
    return own(new Uint8Array(size));
  }
  static allocUnsafeSlow(size: number): any { return NodeBuffer.allocUnsafe(size); }
  static byteLength(value: any, encoding?: any): number {
    if (typeof value !== "string") {
      if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return value.byteLength;
      throw argumentError("string", "of type string or an instance of Buffer or ArrayBuffer", value);
    }
    const name = NAMES[String(encoding ?? "utf8").toLowerCase()] ?? "utf8";
    if (name === "utf8") return utf8Length(value);
    if (name === "base64" || name === "base64url") return Math.floor((value.replace(/=+$/, "").length * 3) / 4);
    return name === "hex" ? value.length >>> 1 : name === "utf16le" ? value.length * 2 : value.length;
  }
  static compare(a: Uint8Array, b: Uint8Array): number {
    for (let i = 0; i < a.length && i < b.length; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
    return Math.sign(a.length - b.length);
  }
  static concat(list: Uint8Array[], total?: number): any {
    if (!Array.isArray(list)) throw argumentError("list", "an instance of Array", list);
    const size = total ?? list.reduce((sum, part) => sum + part.length, 0);
    const whole = NodeBuffer.alloc(size);
    let at = 0;
    for (const part of list) {
      if (at >= size) break;
      whole.set(part.subarray(0, size - at), at);
      at += part.length;
    }
    return whole;
  }
  static isBuffer(value: any): boolean { return value instanceof NodeBuffer; }
  static isEncoding(name: any): boolean { return typeof name === "string" && name.toLowerCase() in NAMES; }
  static of(...items: number[]): any { return own(Uint8Array.from(items)); }
  static copyBytesFrom(view: any, offset = 0, length?: number): any { return NodeBuffer.from(bytesOf(view.subarray(offset, length === undefined ? undefined : offset + length))); }

  get parent(): any { return this.buffer; }
  get offset(): number { return this.byteOffset; }
  toString(encoding?: any, start = 0, end = this.length): string {
    const from = Math.max(0, start | 0);
    const to = Math.min(this.length, end === undefined ? this.length : end | 0);
    if (from >= to) return "";
    return decode(from === 0 && to === this.length ? this : Uint8Array.prototype.subarray.call(this, from, to), encoding);
  }
  toLocaleString(encoding?: any): string { return this.toString(encoding); }
  toJSON(): any { return { type: "Buffer", data: Array.from(this) }; }
  equals(other: any): boolean {
    if (!(other instanceof Uint8Array)) throw argumentError("otherBuffer", "an instance of Buffer or Uint8Array", other);
    return NodeBuffer.compare(this, other) === 0;
  }
  compare(target: Uint8Array, targetStart = 0, targetEnd = target.length, start = 0, end = this.length): number {
    return NodeBuffer.compare(Uint8Array.prototype.subarray.call(this, start, end), Uint8Array.prototype.subarray.call(target, targetStart, targetEnd));
  }
  copy(target: Uint8Array, targetStart = 0, start = 0, end = this.length): number {
    const part = Uint8Array.prototype.subarray.call(this, start, Math.min(end, start + target.length - targetStart));
    target.set(part, targetStart);
    return part.length;
  }
  slice(start?: number, end?: number): any { return own(Uint8Array.prototype.subarray.call(this, start, end)); }
  subarray(start?: number, end?: number): any { return own(Uint8Array.prototype.subarray.call(this, start, end)); }
  write(text: string, offset?: any, length?: any, encoding?: any): number {
    if (typeof offset === "string") { encoding = offset; offset = 0; length = undefined; }
    else if (typeof length === "string") { encoding = length; length = undefined; }
    const at = offset ?? 0;
    const room = Math.min(length ?? this.length - at, this.length - at);
    if (encodingOf(encoding) === "utf8") return utf8Into(text, Uint8Array.prototype.subarray.call(this, at, at + room) as Uint8Array).written;
    const bytes = encode(text, encoding).subarray(0, room);
    this.set(bytes, at);
    return bytes.length;
  }
  fill(value: any, start?: any, end?: any, encoding?: any): any {
    if (typeof start === "string") { encoding = start; start = 0; end = this.length; }
    else if (typeof end === "string") { encoding = end; end = this.length; }
    const from = start ?? 0;
    const to = end ?? this.length;
    if (typeof value === "number" || typeof value === "boolean") { Uint8Array.prototype.fill.call(this, Number(value) & 255, from, to); return this; }
    const bytes = typeof value === "string" ? encode(value, encoding) : value;
    if (bytes.length === 0) { Uint8Array.prototype.fill.call(this, 0, from, to); return this; }
    for (let i = from, j = 0; i < to; i++, j = (j + 1) % bytes.length) this[i] = bytes[j];
    return this;
  }
  indexOf(value: any, offset?: any, encoding?: any): number { return search(this, value, offset, encoding, false); }
  lastIndexOf(value: any, offset?: any, encoding?: any): number { return search(this, value, offset, encoding, true); }
  includes(value: any, offset?: any, encoding?: any): boolean { return this.indexOf(value, offset, encoding) >= 0; }
  swap16(): any { return swap(this, 2); }
  swap32(): any { return swap(this, 4); }
  swap64(): any { return swap(this, 8); }
  [custom](_depth: any, _options: any): string {
    const shown = [...Uint8Array.prototype.subarray.call(this, 0, 50)].map((byte: any) => byte.toString(16).padStart(2, "0")).join(" ");
    const left = this.length - 50;
    return `<Buffer${shown ? " " + shown : ""}${left > 0 ? ` ... ${left} more byte${left > 1 ? "s" : ""}` : ""}>`;
  }
  readUIntBE(offset: number, size: number): number { viewOf(this, offset, size); let value = 0; for (let i = 0; i < size; i++) value = value * 256 + this[offset + i]; return value; }
  readUIntLE(offset: number, size: number): number { viewOf(this, offset, size); let value = 0; for (let i = size - 1; i >= 0; i--) value = value * 256 + this[offset + i]; return value; }
  readIntBE(offset: number, size: number): number { const value = this.readUIntBE(offset, size); return value >= 2 ** (size * 8 - 1) ? value - 2 ** (size * 8) : value; }
  readIntLE(offset: number, size: number): number { const value = this.readUIntLE(offset, size); return value >= 2 ** (size * 8 - 1) ? value - 2 ** (size * 8) : value; }
  writeUIntBE(value: number, offset: number, size: number): number { viewOf(this, offset, size); checked(value, 0, 2 ** (size * 8) - 1); for (let i = size - 1; i >= 0; i--) { this[offset + i] = value % 256; value = Math.floor(value / 256); } return offset + size; }
  writeUIntLE(value: number, offset: number, size: number): number { viewOf(this, offset, size); checked(value, 0, 2 ** (size * 8) - 1); for (let i = 0; i < size; i++) { this[offset + i] = value % 256; value = Math.floor(value / 256); } return offset + size; }
  writeIntBE(value: number, offset: number, size: number): number { checked(value, -(2 ** (size * 8 - 1)), 2 ** (size * 8 - 1) - 1); return this.writeUIntBE(value < 0 ? value + 2 ** (size * 8) : value, offset, size); }
  writeIntLE(value: number, offset: number, size: number): number { checked(value, -(2 ** (size * 8 - 1)), 2 ** (size * 8 - 1) - 1); return this.writeUIntLE(value < 0 ? value + 2 ** (size * 8) : value, offset, size); }
}

const KINDS: [string, string, number, any, any][] = [
  ["UInt8", "Uint8", 1, 0, 255], ["Int8", "Int8", 1, -128, 127], ["UInt16", "Uint16", 2, 0, 65535], ["Int16", "Int16", 2, -32768, 32767],
  ["UInt32", "Uint32", 4, 0, 4294967295], ["Int32", "Int32", 4, -2147483648, 2147483647],
  ["BigUInt64", "BigUint64", 8, 0n, 0xffffffffffffffffn], ["BigInt64", "BigInt64", 8, -0x8000000000000000n, 0x7fffffffffffffffn],
  ["Float", "Float32", 4, -Infinity, Infinity], ["Double", "Float64", 8, -Infinity, Infinity],
];
for (const [name, kind, size, low, high] of KINDS) {
  for (const end of size === 1 ? [""] : ["LE", "BE"]) {
    const read = function (this: any, offset?: any) { const [view, at] = viewOf(this, offset, size); return (view as any)["get" + kind](at, end === "LE"); };
    const write = function (this: any, value: any, offset?: any) {
      const [view, at] = viewOf(this, offset, size);
      if (name !== "Float" && name !== "Double") checked(value, low, high);
      (view as any)["set" + kind](at, value, end === "LE");
      return at + size;
    };
    for (const alias of new Set([name, name.replace("UInt", "Uint")])) {
      Object.defineProperty(NodeBuffer.prototype, `read${alias}${end}`, { value: read, writable: true, configurable: true });
      Object.defineProperty(NodeBuffer.prototype, `write${alias}${end}`, { value: write, writable: true, configurable: true });
    }
  }
}
for (const [old, now] of [["readUintBE", "readUIntBE"], ["readUintLE", "readUIntLE"], ["writeUintBE", "writeUIntBE"], ["writeUintLE", "writeUIntLE"]]) {
  Object.defineProperty(NodeBuffer.prototype, old, { value: (NodeBuffer.prototype as any)[now], writable: true, configurable: true });
}

function swap(buffer: any, size: number): any {
  if (buffer.length % size) { const error: any = new RangeError(`Buffer size must be a multiple of ${size * 8}-bits`); error.code = "ERR_INVALID_BUFFER_SIZE"; throw error; }
  for (let i = 0; i < buffer.length; i += size) Uint8Array.prototype.subarray.call(buffer, i, i + size).reverse();
  return buffer;
}

function search(buffer: any, value: any, offset: any, encoding: any, backwards: boolean): number {
  if (typeof offset === "string") { encoding = offset; offset = undefined; }
  const needle: Uint8Array = typeof value === "number" ? Uint8Array.of(value & 255) : typeof value === "string" ? encode(value, encoding) : value;
  const last = buffer.length - needle.length;
  let at = offset === undefined || Number.isNaN(+offset) ? (backwards ? last : 0) : Math.trunc(+offset);
  if (at < 0) at += buffer.length;
  if (backwards) {
    for (let i = Math.min(at, last); i >= 0; i--) if (matches(buffer, needle, i)) return i;
    return -1;
  }
  if (needle.length === 0) return Math.min(Math.max(at, 0), buffer.length);
  for (let i = Math.max(at, 0); i <= last; i++) if (matches(buffer, needle, i)) return i;
  return -1;
}

function matches(buffer: Uint8Array, needle: Uint8Array, at: number): boolean {
  for (let i = 0; i < needle.length; i++) if (buffer[at + i] !== needle[i]) return false;
  return true;
}

// Old code calls `Buffer(…)` and `new Buffer(…)` with text; a subclass of Uint8Array supports neither.
const build = (value: any, encoding?: any, length?: any): any => (typeof value === "number" ? NodeBuffer.alloc(value) : NodeBuffer.from(value, encoding, length));
export const Buffer: any = new Proxy(NodeBuffer, {
  apply: (_target, _self, [value, encoding, length]) => build(value, encoding, length),
  construct: (_target, [value, encoding, length], made) => (made === Buffer ? build(value, encoding, length) : Reflect.construct(NodeBuffer, [value, encoding, length], made)),
});
Object.defineProperty(NodeBuffer, "name", { value: "Buffer" });
Object.defineProperty(NodeBuffer.prototype, "constructor", { value: Buffer, writable: true, configurable: true });

export const constants = { MAX_LENGTH: 2 ** 31, MAX_STRING_LENGTH: 2 ** 29 - 24 };
install({ Buffer });
defineNode("buffer", { Buffer, SlowBuffer: Buffer, Blob, File, atob, btoa, constants, kMaxLength: constants.MAX_LENGTH, kStringMaxLength: constants.MAX_STRING_LENGTH, INSPECT_MAX_BYTES: 50, isUtf8: (bytes: any) => { try { utf8Decode(bytesOf(bytes), 0, undefined, true); return true; } catch { return false; } }, isAscii: (bytes: any) => bytesOf(bytes).every((byte) => byte < 128), transcode: (bytes: any, from: any, to: any) => Buffer.from(decode(bytes, from), to) });
