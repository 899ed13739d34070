// node:string_decoder: decodes bytes that arrive in parts.

import { bytesOf, utf8Decode, utf8Incomplete } from "../globals/encoding";
import { decode, encodingOf } from "./buffer";
import { defineNode } from "./define";

export class StringDecoder {
  encoding: string;
  #rest: Uint8Array = new Uint8Array(0);
  constructor(encoding?: any) { this.encoding = encodingOf(encoding); }
  write(input: any): string {
    if (typeof input === "string") return input;
    let bytes = bytesOf(input);
    if (this.#rest.length) { const whole = new Uint8Array(this.#rest.length + bytes.length); whole.set(this.#rest); whole.set(bytes, this.#rest.length); bytes = whole; }
    const keep = this.encoding === "utf8" ? utf8Incomplete(bytes) : this.encoding === "utf16le" ? bytes.length % 2 : this.encoding.startsWith("base64") ? bytes.length % 3 : 0;
    const end = bytes.length - keep;
    this.#rest = bytes.slice(end);
    return this.encoding === "utf8" ? utf8Decode(bytes, 0, end) : decode(bytes.subarray(0, end), this.encoding);
  }
  end(input?: any): string {
    let text = input === undefined ? "" : this.write(input);
    if (this.#rest.length) text += this.encoding === "utf8" ? "\ufffd" : decode(this.#rest, this.encoding);
    this.#rest = new Uint8Array(0);
    return text;
  }
}
defineNode("string_decoder", { StringDecoder });
