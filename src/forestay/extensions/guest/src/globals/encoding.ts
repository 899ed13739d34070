// Text and bytes: UTF-8, UTF-16, Latin 1, base64, hex. Everything binary in the guest goes through here.

import { install } from "./install";

const fromCharCode = String.fromCharCode;
const PART = 8192;
// The engine's own functions are much faster than JavaScript; the lenient ones below handle input that those refuse.
const nativeFromBase64: any = (Uint8Array as any).fromBase64;
const nativeToBase64: any = (Uint8Array.prototype as any).toBase64;
const WIDE = /[^\x00-\x7f]/;

export function wellFormed(text: string): string {
  const own = (text as any).toWellFormed;
  return typeof own === "function" ? own.call(text) : text;
}

export function utf8Length(text: string): number {
  let size = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code < 0x80) size += 1;
    else if (code < 0x800) size += 2;
    else if (code >= 0xd800 && code < 0xdc00 && i + 1 < text.length && (text.charCodeAt(i + 1) & 0xfc00) === 0xdc00) {
      size += 4;
      i++;
    } else size += 3;
  }
  return size;
}

// Writes `text` from `at` on, whole characters only; returns how many units were read and bytes written.
export function utf8Into(text: string, bytes: Uint8Array, at = 0): { read: number; written: number } {
  const start = at;
  const end = bytes.length;
  let i = 0;
  for (; i < text.length; i++) {
    let code = text.charCodeAt(i);
    if (code < 0x80) {
      if (at >= end) break;
      bytes[at++] = code;
      continue;
    }
    let wide = false;
    if (code >= 0xd800 && code < 0xe000) {
      const next = i + 1 < text.length ? text.charCodeAt(i + 1) : 0;
      if (code < 0xdc00 && (next & 0xfc00) === 0xdc00) {
        code = 0x10000 + ((code & 0x3ff) << 10) + (next & 0x3ff);
        wide = true;
      } else code = 0xfffd;
    }
    const size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (at + size > end) break;
    if (size === 2) bytes[at++] = 0xc0 | (code >> 6);
    else {
      if (size === 3) bytes[at++] = 0xe0 | (code >> 12);
      else {
        bytes[at++] = 0xf0 | (code >> 18);
        bytes[at++] = 0x80 | ((code >> 12) & 0x3f);
      }
      bytes[at++] = 0x80 | ((code >> 6) & 0x3f);
    }
    bytes[at++] = 0x80 | (code & 0x3f);
    if (wide) i++;
  }
  return { read: i, written: at - start };
}

export function utf8Encode(text: string): Uint8Array {
  const bytes = new Uint8Array(utf8Length(text));
  utf8Into(text, bytes);
  return bytes;
}

// Invalid sequences become U+FFFD by the encoding standard's rule of maximal subparts.
export function utf8Decode(bytes: Uint8Array, start = 0, end = bytes.length, fatal = false): string {
  let text = "";
  let units: number[] = [];
  let i = start;
  while (i < end) { // large parts, while the text is plain ASCII
    const part: string = fromCharCode.apply(null, bytes.subarray(i, i + PART < end ? i + PART : end) as any);
    if (WIDE.test(part)) break;
    text += part;
    i += part.length;
  }
  while (i < end) {
    const first = bytes[i++];
    let code = first;
    if (first >= 0x80) {
      let needed = 0;
      let low = 0x80;
      let high = 0xbf;
      if (first >= 0xc2 && first <= 0xdf) { needed = 1; code = first & 0x1f; }
      else if (first >= 0xe0 && first <= 0xef) {
        needed = 2;
        code = first & 0xf;
        if (first === 0xe0) low = 0xa0;
        if (first === 0xed) high = 0x9f;
      } else if (first >= 0xf0 && first <= 0xf4) {
        needed = 3;
        code = first & 7;
        if (first === 0xf0) low = 0x90;
        if (first === 0xf4) high = 0x8f;
      }
      let valid = needed > 0;
      while (needed > 0) {
        if (i >= end || bytes[i] < low || bytes[i] > high) { valid = false; break; }
        code = (code << 6) | (bytes[i++] & 0x3f);
        low = 0x80;
        high = 0xbf;
        needed--;
      }
      if (!valid) {
        if (fatal) throw Object.assign(new TypeError("The encoded data was not valid for encoding utf-8"), { code: "ERR_ENCODING_INVALID_ENCODED_DATA" });
        code = 0xfffd;
      }
    }
    if (code > 0xffff) {
      code -= 0x10000;
      units.push(0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
    } else units.push(code);
    if (units.length >= PART) {
      text += fromCharCode.apply(null, units);
      units = [];
    }
  }
  return text + fromCharCode.apply(null, units);
}

// Returns how many bytes at the end belong to an incomplete character.
export function utf8Incomplete(bytes: Uint8Array, end = bytes.length): number {
  for (let back = 1; back <= 3 && back <= end; back++) {
    const byte = bytes[end - back];
    if ((byte & 0xc0) === 0x80) continue;
    const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return size > back ? back : 0;
  }
  return 0;
}

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const VALUES = new Int8Array(256).fill(-1);
for (let i = 0; i < 64; i++) VALUES[ALPHABET.charCodeAt(i)] = i;
VALUES[45] = 62; // - and _ of the URL alphabet
VALUES[95] = 63;

export function base64Encode(bytes: Uint8Array, url = false): string {
  if (nativeToBase64 !== undefined) return nativeToBase64.call(bytes, { __proto__: null, alphabet: url ? "base64url" : "base64", omitPadding: url });
  let text = "";
  let part = "";
  const size = bytes.length;
  for (let i = 0; i < size; i += 3) {
    const word = (bytes[i] << 16) | ((i + 1 < size ? bytes[i + 1] : 0) << 8) | (i + 2 < size ? bytes[i + 2] : 0);
    part += ALPHABET[word >> 18] + ALPHABET[(word >> 12) & 63];
    part += i + 1 < size ? ALPHABET[(word >> 6) & 63] : url ? "" : "=";
    part += i + 2 < size ? ALPHABET[word & 63] : url ? "" : "=";
    if (part.length > PART) { text += part; part = ""; }
  }
  text += part;
  return url ? text.replace(/\+/g, "-").replace(/\//g, "_") : text;
}

// Lenient, as Node: skips white space and foreign characters, reads both alphabets, and stops at padding.
export function base64Decode(text: string): Uint8Array {
  if (nativeFromBase64 !== undefined) {
    try { return nativeFromBase64.call(Uint8Array, text, { __proto__: null, alphabet: "base64", lastChunkHandling: "loose" }); } catch { /* not strict base64 */ }
  }
  const bytes = new Uint8Array((text.length * 3) >> 2);
  let at = 0;
  let word = 0;
  let bits = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 61) break;
    const value = code < 256 ? VALUES[code] : -1;
    if (value < 0) continue;
    word = (word << 6) | value;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes[at++] = (word >> bits) & 255;
    }
  }
  return bytes.subarray(0, at);
}

const HEX = "0123456789abcdef";
export function hexEncode(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i++) text += HEX[bytes[i] >> 4] + HEX[bytes[i] & 15];
  return text;
}

export function hexDecode(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length >> 1);
  let at = 0;
  for (let i = 0; i + 1 < text.length; i += 2) {
    const value = parseInt(text.substr(i, 2), 16);
    if (!/^[0-9a-fA-F]{2}$/.test(text.substr(i, 2))) break;
    bytes[at++] = value;
  }
  return bytes.subarray(0, at);
}

export function latin1Decode(bytes: Uint8Array, mask = 255): string {
  let text = "";
  for (let i = 0; i < bytes.length; i += PART) {
    const part: number[] = [];
    for (let j = i; j < bytes.length && j < i + PART; j++) part.push(bytes[j] & mask);
    text += fromCharCode.apply(null, part);
  }
  return text;
}

export function utf16Decode(bytes: Uint8Array): string {
  let text = "";
  let units: number[] = [];
  for (let i = 0; i + 1 < bytes.length; i += 2) {
    units.push(bytes[i] | (bytes[i + 1] << 8));
    if (units.length >= PART) { text += fromCharCode.apply(null, units); units = []; }
  }
  return text + fromCharCode.apply(null, units);
}

export function bytesOf(value: any): Uint8Array {
  if (value instanceof Uint8Array) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  throw new TypeError("The argument must be an instance of ArrayBuffer or ArrayBufferView");
}

export class TextEncoder {
  get encoding(): string { return "utf-8"; }
  encode(text: any = ""): Uint8Array { return utf8Encode(String(text)); }
  encodeInto(text: string, bytes: Uint8Array): { read: number; written: number } { return utf8Into(String(text), bytes); }
}

const LABELS: Record<string, string> = {
  utf8: "utf-8", "utf-8": "utf-8", "unicode-1-1-utf-8": "utf-8", "utf-16le": "utf-16le", utf16le: "utf-16le", "utf-16": "utf-16le",
  latin1: "windows-1252", ascii: "windows-1252", "us-ascii": "windows-1252", "iso-8859-1": "windows-1252", "windows-1252": "windows-1252",
};

export class TextDecoder {
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  #rest = new Uint8Array(0);
  #started = false;
  constructor(label: any = "utf-8", options: any = {}) {
    const found = LABELS[String(label).trim().toLowerCase()];
    if (found === undefined) throw new RangeError(`The "${label}" encoding is not supported`);
    this.encoding = found;
    this.fatal = options?.fatal === true;
    this.ignoreBOM = options?.ignoreBOM === true;
  }
  decode(input?: any, options: any = {}): string {
    let bytes = input === undefined ? new Uint8Array(0) : bytesOf(input);
    if (this.#rest.length > 0) bytes = joined([this.#rest, bytes]);
    const more = options?.stream === true;
    let end = bytes.length;
    if (more) end -= this.encoding === "utf-8" ? utf8Incomplete(bytes) : this.encoding === "utf-16le" ? end % 2 : 0;
    this.#rest = more ? bytes.slice(end) : new Uint8Array(0);
    let text: string;
    if (this.encoding === "utf-8") text = utf8Decode(bytes, 0, end, this.fatal);
    else text = this.encoding === "utf-16le" ? utf16Decode(bytes.subarray(0, end)) : latin1Decode(bytes);
    if (!this.#started && !this.ignoreBOM && text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    this.#started = more && (this.#started || end > 0);
    return text;
  }
}

export function joined(parts: Uint8Array[]): Uint8Array {
  let size = 0;
  for (const part of parts) size += part.length;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function atob(text: any): string {
  const plain = String(text).replace(/[\t\n\f\r ]/g, "");
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(plain) || plain.replace(/=+$/, "").length % 4 === 1) {
    throw new (globalThis as any).DOMException("The string to be decoded is not correctly encoded.", "InvalidCharacterError");
  }
  return latin1Decode(base64Decode(plain));
}

function btoa(text: any): string {
  const plain = String(text);
  const bytes = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i++) {
    if (plain.charCodeAt(i) > 255) throw new (globalThis as any).DOMException("Invalid character", "InvalidCharacterError");
    bytes[i] = plain.charCodeAt(i);
  }
  return base64Encode(bytes);
}

install({ TextEncoder, TextDecoder, atob, btoa });
export { atob, btoa };
