// node:crypto and the global crypto: randomness comes from the host, which also computes hashes and ciphers.

import { HostError, hostCallSync, randomBytes as hostRandom } from "../bridge";
import { base64Decode, base64Encode, bytesOf, hexEncode, joined } from "../globals/encoding";
import { install } from "../globals/install";
import { Buffer, encode } from "./buffer";
import { argumentError, defineNode } from "./define";
import { Transform } from "./stream";

const HASHES = ["md5", "ripemd160", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3-256", "sha3-384", "sha3-512", "blake2b512", "blake2s256", "shake128", "shake256"];

const input = (data: any, encoding?: any): Uint8Array => {
  if (typeof data === "string") return encode(data, encoding === "buffer" ? undefined : encoding);
  if (ArrayBuffer.isView(data) || data instanceof ArrayBuffer) return bytesOf(data);
  throw argumentError("data", "of type string or an instance of Buffer, TypedArray, or DataView", data);
};
const send = (bytes: Uint8Array): string => base64Encode(bytes);
const keyBytes = (key: any): Uint8Array => (key instanceof KeyObject ? key.export() : input(key));

function compute(params: any): any {
  try {
    return Buffer.from(base64Decode(hostCallSync("crypto", params).base64).slice().buffer);
  } catch (error) {
    if (!(error instanceof HostError)) throw error;
    const plain: any = new Error(error.message);
    plain.code = error.message === "Digest method not supported" ? "ERR_CRYPTO_INVALID_DIGEST" : "ERR_OSSL_EVP";
    throw plain;
  }
}
const out = (bytes: any, encoding?: any): any => (encoding && encoding !== "buffer" ? bytes.toString(encoding) : bytes);

class Digest extends Transform {
  #parts: Uint8Array[] = [];
  #done = false;
  #finish: (bytes: Uint8Array) => any;
  #fork: (() => Digest) | undefined;
  constructor(finish: (bytes: Uint8Array) => any, fork?: () => Digest) {
    super();
    this.#finish = finish;
    this.#fork = fork;
  }
  update(data: any, encoding?: any): this {
    if (this.#done) throw Object.assign(new Error("Digest already called"), { code: "ERR_CRYPTO_HASH_FINALIZED" });
    this.#parts.push(input(data, encoding).slice());
    return this;
  }
  digest(encoding?: any): any {
    if (this.#done) throw Object.assign(new Error("Digest already called"), { code: "ERR_CRYPTO_HASH_FINALIZED" });
    this.#done = true;
    return out(this.#finish(joined(this.#parts)), encoding);
  }
  copy(): Digest {
    const made = this.#fork!();
    made.#parts = [...this.#parts];
    return made;
  }
  _transform(chunk: any, encoding: any, done: any): void { this.update(chunk, encoding); done(); }
  _flush(done: any): void { this.push(this.digest()); done(); }
}

export function createHash(algorithm: any, options: any = {}): Digest {
  if (typeof algorithm !== "string") throw argumentError("algorithm", "of type string", algorithm);
  if (!HASHES.includes(algorithm.toLowerCase().replace(/^rsa-/, ""))) throw Object.assign(new Error("Digest method not supported"), { code: "ERR_CRYPTO_INVALID_DIGEST" });
  return new Digest((bytes) => compute({ op: "hash", algorithm, base64: send(bytes), ...(options?.outputLength ? { length: options.outputLength } : {}) }), () => createHash(algorithm, options));
}
export function createHmac(algorithm: string, key: any): Digest {
  const secret = send(keyBytes(key));
  return new Digest((bytes) => compute({ op: "hmac", algorithm, key: secret, base64: send(bytes) }), () => createHmac(algorithm, key));
}
const hash = (algorithm: string, data: any, encoding: any = "hex"): any => createHash(algorithm).update(data).digest(encoding);

class KeyObject {
  readonly type = "secret";
  #bytes: Uint8Array;
  constructor(bytes: Uint8Array) { this.#bytes = bytes; }
  get symmetricKeySize(): number { return this.#bytes.length; }
  export(options?: any): any { return options?.format === "jwk" ? { kty: "oct", k: base64Encode(this.#bytes, true) } : Buffer.from(this.#bytes); }
}

class Cipher extends Transform {
  #parts: Uint8Array[] = [];
  #o: any;
  #tag: any;
  constructor(algorithm: string, key: any, iv: any, encrypt: boolean) {
    super();
    const match = /^(?:id-)?aes-?(128|192|256)-(cbc|ctr|gcm|ecb)$/i.exec(algorithm);
    if (!match) throw Object.assign(new Error("Unknown cipher"), { code: "ERR_CRYPTO_UNKNOWN_CIPHER" });
    const bytes = keyBytes(key);
    if (bytes.length * 8 !== Number(match[1])) throw Object.assign(new RangeError("Invalid key length"), { code: "ERR_CRYPTO_INVALID_KEYLEN" });
    const vector = iv === null ? new Uint8Array(0) : input(iv);
    if (/cbc|ctr/i.test(match[2]) && vector.length !== 16) throw Object.assign(new TypeError("Invalid initialization vector"), { code: "ERR_CRYPTO_INVALID_IV" });
    this.#o = { algorithm: `aes-${match[1]}-${match[2].toLowerCase()}`, key: send(bytes), iv: send(vector), encrypt, padding: true, gcm: match[2].toLowerCase() === "gcm", aad: undefined };
  }
  setAutoPadding(on = true): this { this.#o.padding = on; return this; }
  setAAD(data: any): this { this.#o.aad = send(input(data)); return this; }
  setAuthTag(tag: any, encoding?: any): this { this.#tag = Buffer.from(input(tag, encoding)); return this; }
  getAuthTag(): any { if (!this.#tag) throw new Error("Invalid state for operation getAuthTag"); return this.#tag; }
  // The host computes everything at once: `final` returns the whole output, and `update` an empty part.
  update(data: any, inputEncoding?: any, outputEncoding?: any): any { this.#parts.push(input(data, inputEncoding).slice()); return out(Buffer.alloc(0), outputEncoding); }
  final(encoding?: any): any {
    const o = this.#o;
    let bytes = compute({ op: "cipher", algorithm: o.algorithm, key: o.key, iv: o.iv, encrypt: o.encrypt, padding: o.padding, aad: o.aad, base64: send(joined(this.#parts)), ...(o.gcm && !o.encrypt ? { tag: this.#tag ? send(this.#tag) : "" } : {}) });
    if (o.gcm && o.encrypt) { this.#tag = Buffer.from(bytes.subarray(bytes.length - 16)); bytes = bytes.subarray(0, bytes.length - 16); }
    return out(bytes, encoding);
  }
  _transform(chunk: any, encoding: any, done: any): void { this.#parts.push(input(chunk, encoding).slice()); done(); }
  _flush(done: any): void { try { this.push(this.final()); done(); } catch (error) { done(error); } }
}

function randomBytes(size: number, done?: any): any {
  if (typeof size !== "number") throw argumentError("size", "of type number", size);
  if (!(size >= 0 && size <= 2147483647)) throw Object.assign(new RangeError(`The value of "size" is out of range. It must be >= 0 && <= 2147483647. Received ${size}`), { code: "ERR_OUT_OF_RANGE" });
  const bytes = Buffer.from(hostRandom(size).buffer);
  if (typeof done !== "function") return bytes;
  (globalThis as any).queueMicrotask(() => done(null, bytes));
}
const ranged = (low: number, high: number): number => {
  const span = high - low;
  if (!(span > 0 && span <= 2 ** 48)) throw Object.assign(new RangeError(`The value of "max" is out of range. It must be greater than the value of "min" (${low}). Received ${high}`), { code: "ERR_OUT_OF_RANGE" });
  const limit = 2 ** 48 - (2 ** 48 % span);
  for (;;) {
    const value = hostRandom(6).reduce((sum, byte) => sum * 256 + byte, 0);
    if (value < limit) return low + (value % span);
  }
};
function randomInt(low: any, high?: any, done?: any): any {
  if (high === undefined || typeof high === "function") { done = high; high = low; low = 0; }
  const value = ranged(low, high);
  if (typeof done !== "function") return value;
  (globalThis as any).queueMicrotask(() => done(null, value));
}
export function randomUUID(): string {
  const bytes = hostRandom(16);
  bytes[6] = (bytes[6] & 15) | 64;
  bytes[8] = (bytes[8] & 63) | 128;
  const hex = hexEncode(bytes);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
const fill = (view: any): any => { bytesOf(view).set(hostRandom(view.byteLength)); return view; };
function getRandomValues(view: any): any {
  if (!ArrayBuffer.isView(view) || view instanceof Float32Array || view instanceof Float64Array || view instanceof DataView) throw new (globalThis as any).DOMException("The data argument must be an integer-type TypedArray", "TypeMismatchError");
  if (view.byteLength > 65536) throw new (globalThis as any).DOMException(`The ArrayBufferView's byte length (${view.byteLength}) exceeds the number of bytes of entropy available via this API (65536)`, "QuotaExceededError");
  return fill(view);
}

const asyncly = (work: (...args: any[]) => any) => (...args: any[]): void => {
  const done = args.pop();
  let value: any;
  let failure: any = null;
  try { value = work(...args); } catch (error) { failure = error; }
  (globalThis as any).queueMicrotask(() => done(failure, value));
};
const pbkdf2Sync = (password: any, salt: any, iterations: number, length: number, algorithm: string): any => compute({ op: "pbkdf2", key: send(input(password)), salt: send(input(salt)), iterations, length, algorithm });
const scryptSync = (password: any, salt: any, length: number, options: any = {}): any => compute({ op: "scrypt", key: send(input(password)), salt: send(input(salt)), length, n: options.N ?? options.cost ?? 16384, r: options.r ?? options.blockSize ?? 8, p: options.p ?? options.parallelization ?? 1 });
function hkdfSync(algorithm: string, key: any, salt: any, info: any, length: number): ArrayBuffer {
  const prk = createHmac(algorithm, input(salt).length ? salt : new Uint8Array(createHash(algorithm).digest().length)).update(keyBytes(key)).digest();
  let block: any = Buffer.alloc(0);
  const parts: any[] = [];
  for (let i = 1, size = 0; size < length; i++) { block = createHmac(algorithm, prk).update(Buffer.concat([block, Buffer.from(input(info)), Buffer.from([i])])).digest(); parts.push(block); size += block.length; }
  return Uint8Array.from(Buffer.concat(parts).subarray(0, length)).buffer as ArrayBuffer;
}
function timingSafeEqual(a: any, b: any): boolean {
  const x = bytesOf(a);
  const y = bytesOf(b);
  if (x.length !== y.length) throw Object.assign(new RangeError("Input buffers must have the same byte length"), { code: "ERR_CRYPTO_TIMING_SAFE_EQUAL_LENGTH" });
  let difference = 0;
  for (let i = 0; i < x.length; i++) difference |= x[i] ^ y[i];
  return difference === 0;
}

const WEB: Record<string, string> = { "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512" };
const webName = (algorithm: any): string => { const name = WEB[String(algorithm?.name ?? algorithm).toUpperCase()]; if (!name) throw new (globalThis as any).DOMException("Unrecognized algorithm name", "NotSupportedError"); return name; };
const plainBuffer = (bytes: any): ArrayBuffer => Uint8Array.from(bytes).buffer as ArrayBuffer;
const unsupported = async (): Promise<never> => { throw new (globalThis as any).DOMException("This operation is not supported here", "NotSupportedError"); };
const subtle: any = {
  digest: async (algorithm: any, data: any) => plainBuffer(createHash(webName(algorithm)).update(bytesOf(data)).digest()),
  importKey: async (format: string, data: any, algorithm: any, extractable: boolean, usages: string[]) => {
    if (format !== "raw") return unsupported();
    return { type: "secret", algorithm: typeof algorithm === "string" ? { name: algorithm } : { ...algorithm }, extractable, usages, bytes: bytesOf(data).slice() };
  },
  sign: async (_algorithm: any, key: any, data: any) => plainBuffer(createHmac(webName(key.algorithm.hash), key.bytes).update(bytesOf(data)).digest()),
  verify: async (algorithm: any, key: any, signature: any, data: any) => { const real = new Uint8Array(await subtle.sign(algorithm, key, data)); const given = bytesOf(signature); return real.length === given.length && timingSafeEqual(real, given); },
  encrypt: async (algorithm: any, key: any, data: any) => { const cipher = new Cipher(`aes-${key.bytes.length * 8}-${algorithm.name.slice(4).toLowerCase()}`, key.bytes, bytesOf(algorithm.iv ?? algorithm.counter), true); if (algorithm.additionalData) cipher.setAAD(bytesOf(algorithm.additionalData)); cipher.update(bytesOf(data)); const text = cipher.final(); return plainBuffer(algorithm.name.toUpperCase() === "AES-GCM" ? Buffer.concat([text, cipher.getAuthTag()]) : text); },
  decrypt: async (algorithm: any, key: any, data: any) => { const gcm = algorithm.name.toUpperCase() === "AES-GCM"; const bytes = bytesOf(data); const cipher = new Cipher(`aes-${key.bytes.length * 8}-${algorithm.name.slice(4).toLowerCase()}`, key.bytes, bytesOf(algorithm.iv ?? algorithm.counter), false); if (algorithm.additionalData) cipher.setAAD(bytesOf(algorithm.additionalData)); if (gcm) cipher.setAuthTag(bytes.subarray(bytes.length - 16)); cipher.update(gcm ? bytes.subarray(0, bytes.length - 16) : bytes); return plainBuffer(cipher.final()); },
  generateKey: async (algorithm: any, extractable: boolean, usages: string[]) => ({ type: "secret", algorithm, extractable, usages, bytes: hostRandom((algorithm.length ?? 256) / 8) }), exportKey: async (format: string, key: any) => (format === "raw" && key.extractable ? plainBuffer(key.bytes) : unsupported()), deriveBits: unsupported, deriveKey: unsupported, wrapKey: unsupported, unwrapKey: unsupported,
};
export const webcrypto: any = { subtle, getRandomValues, randomUUID };

const refuse = (name: string) => (): never => { throw Object.assign(new Error(`crypto.${name} is not available to extensions`), { code: "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM" }); };
install({ crypto: webcrypto });
defineNode("crypto", {
  createHash, createHmac, hash, randomBytes, pseudoRandomBytes: randomBytes, randomInt, randomUUID, randomFillSync: fill, randomFill: asyncly(fill), getRandomValues, timingSafeEqual, pbkdf2: asyncly(pbkdf2Sync), pbkdf2Sync, scrypt: asyncly(scryptSync), scryptSync, hkdf: asyncly(hkdfSync), hkdfSync,
  createCipheriv: (algorithm: string, key: any, iv: any) => new Cipher(algorithm, key, iv, true), createDecipheriv: (algorithm: string, key: any, iv: any) => new Cipher(algorithm, key, iv, false), createSecretKey: (key: any, encoding?: any) => new KeyObject(input(key, encoding).slice()), KeyObject, Hash: Digest, Hmac: Digest,
  getHashes: () => [...HASHES], getCiphers: () => ["aes-128-cbc", "aes-192-cbc", "aes-256-cbc", "aes-128-ctr", "aes-192-ctr", "aes-256-ctr", "aes-128-gcm", "aes-192-gcm", "aes-256-gcm", "aes-128-ecb", "aes-256-ecb"], webcrypto, subtle, constants: {},
  createSign: refuse("createSign"), createVerify: refuse("createVerify"), createPublicKey: refuse("createPublicKey"), createPrivateKey: refuse("createPrivateKey"), generateKeyPairSync: refuse("generateKeyPairSync"), generateKeyPair: refuse("generateKeyPair"), sign: refuse("sign"), verify: refuse("verify"), createDiffieHellman: refuse("createDiffieHellman"), createECDH: refuse("createECDH"),
});
