// Blob, File and FormData: bytes with a type and a name, and their encoding in a form.

import { randomBytes } from "../bridge";
import { bytesOf, hexEncode, joined, utf8Decode, utf8Encode } from "./encoding";
import { install } from "./install";
import { ReadableStream } from "./streams";

export class Blob {
  #bytes: Uint8Array;
  readonly type: string;
  constructor(parts: Iterable<any> = [], options: any = {}) {
    const list: Uint8Array[] = [];
    for (const part of parts) list.push(part instanceof Blob ? part.#bytes : typeof part === "object" ? bytesOf(part) : utf8Encode(String(part)));
    this.#bytes = joined(list);
    this.type = String(options?.type ?? "").toLowerCase();
  }
  static bytes(blob: Blob): Uint8Array { return blob.#bytes; }
  get size(): number { return this.#bytes.length; }
  async text(): Promise<string> { return utf8Decode(this.#bytes); }
  async arrayBuffer(): Promise<ArrayBuffer> { return this.#bytes.slice().buffer as ArrayBuffer; }
  async bytes(): Promise<Uint8Array> { return this.#bytes.slice(); }
  slice(start = 0, end = this.size, type = ""): Blob {
    return new Blob([this.#bytes.slice(start, end)], { type });
  }
  stream(): ReadableStream {
    const bytes = this.#bytes;
    return new ReadableStream({ start(controller: any) { if (bytes.length) controller.enqueue(bytes.slice()); controller.close(); } });
  }
  get [Symbol.toStringTag](): string { return "Blob"; }
}
export const blobBytes = Blob.bytes;
delete (Blob as any).bytes;

export class File extends Blob {
  readonly name: string;
  readonly lastModified: number;
  constructor(parts: Iterable<any>, name: string, options: any = {}) {
    super(parts, options);
    this.name = String(name);
    this.lastModified = options?.lastModified ?? Date.now();
  }
  get [Symbol.toStringTag](): string { return "File"; }
}

export class FormData {
  #list: [string, any][] = [];
  append(name: any, value: any, filename?: string): void { this.#list.push([String(name), entry(value, filename)]); }
  set(name: any, value: any, filename?: string): void {
    const at = this.#list.findIndex((pair) => pair[0] === String(name));
    if (at < 0) return this.append(name, value, filename);
    this.#list = this.#list.filter((pair, index) => index === at || pair[0] !== String(name));
    this.#list[at][1] = entry(value, filename);
  }
  delete(name: any): void { this.#list = this.#list.filter((pair) => pair[0] !== String(name)); }
  get(name: any): any { return this.#list.find((pair) => pair[0] === String(name))?.[1] ?? null; }
  getAll(name: any): any[] { return this.#list.filter((pair) => pair[0] === String(name)).map((pair) => pair[1]); }
  has(name: any): boolean { return this.#list.some((pair) => pair[0] === String(name)); }
  forEach(call: any, self?: any): void { for (const [name, value] of this.#list) call.call(self, value, name, this); }
  *entries(): IterableIterator<[string, any]> { for (const pair of this.#list) yield [pair[0], pair[1]]; }
  *keys(): IterableIterator<string> { for (const pair of this.#list) yield pair[0]; }
  *values(): IterableIterator<any> { for (const pair of this.#list) yield pair[1]; }
  [Symbol.iterator](): IterableIterator<[string, any]> { return this.entries(); }
  get [Symbol.toStringTag](): string { return "FormData"; }
}

function entry(value: any, filename?: string): any {
  if (!(value instanceof Blob)) return String(value);
  return value instanceof File && filename === undefined ? value : new File([value], filename ?? "blob", { type: value.type });
}

const escape = (text: string): string => text.replace(/\n/g, "%0A").replace(/\r/g, "%0D").replace(/"/g, "%22");

export function multipart(form: FormData): { body: Uint8Array; type: string } {
  const boundary = "----formdata-forestay-" + hexEncode(randomBytes(12));
  const parts: Uint8Array[] = [];
  for (const [name, value] of form) {
    let head = `--${boundary}\r\nContent-Disposition: form-data; name="${escape(name)}"`;
    if (value instanceof File) {
      head += `; filename="${escape(value.name)}"\r\nContent-Type: ${value.type || "application/octet-stream"}\r\n\r\n`;
      parts.push(utf8Encode(head), blobBytes(value), utf8Encode("\r\n"));
    } else parts.push(utf8Encode(`${head}\r\n\r\n${value.replace(/\r?\n|\r/g, "\r\n")}\r\n`));
  }
  parts.push(utf8Encode(`--${boundary}--\r\n`));
  return { body: joined(parts), type: `multipart/form-data; boundary=${boundary}` };
}

install({ Blob, File, FormData });
