// Web streams: readable, writable and transform, with queues, backpressure by desiredSize, and async iteration.

import { TextDecoder, TextEncoder, bytesOf } from "./encoding";
import { install } from "./install";

interface Waiting { resolve: (value: any) => void; reject: (error: any) => void }
const sizeOf = (strategy: any): ((chunk: any) => number) => (typeof strategy?.size === "function" ? strategy.size : () => 1);

export class ReadableStream {
  #queue: any[] = [];
  #sizes: number[] = [];
  #total = 0;
  #state: "open" | "closing" | "closed" | "failed" = "open";
  #error: any;
  #source: any;
  #mark: number;
  #size: (chunk: any) => number;
  #waiting: Waiting[] = [];
  #pulling = false;
  #again = false;
  #started = false;
  #reader: any = undefined;
  #disturbed = false;
  #ended: Waiting & { promise: Promise<void> };
  #controller: any;

  constructor(source: any = {}, strategy: any = {}) {
    this.#source = source ?? {};
    this.#mark = strategy?.highWaterMark ?? (this.#source.type === "bytes" ? 0 : 1);
    this.#size = sizeOf(strategy);
    this.#ended = deferred();
    this.#ended.promise.catch(() => undefined);
    const self = this;
    this.#controller = {
      get desiredSize() { return self.#state === "failed" ? null : self.#state === "closed" ? 0 : self.#mark - self.#total; },
      get byobRequest() { return null; },
      enqueue: (chunk: any) => this.#enqueue(chunk),
      close: () => this.#close(),
      error: (error: any) => this.#fail(error),
    };
    Promise.resolve(this.#source.start?.(this.#controller)).then(
      () => { this.#started = true; this.#pull(); },
      (error) => this.#fail(error),
    );
  }

  get locked(): boolean { return this.#reader !== undefined; }
  static disturbed(stream: ReadableStream): boolean { return stream.#disturbed; }

  #enqueue(chunk: any): void {
    if (this.#state !== "open") throw new TypeError("Invalid state: Controller is already closed");
    const next = this.#waiting.shift();
    if (next) next.resolve({ value: chunk, done: false });
    else {
      const size = this.#size(chunk);
      this.#queue.push(chunk);
      this.#sizes.push(size);
      this.#total += size;
    }
    this.#pull();
  }

  #close(): void {
    if (this.#state !== "open") throw new TypeError("Invalid state: Controller is already closed");
    this.#state = this.#queue.length > 0 ? "closing" : "closed";
    if (this.#state === "closed") this.#finish();
  }

  #finish(): void {
    this.#state = "closed";
    for (const waiting of this.#waiting.splice(0)) waiting.resolve({ value: undefined, done: true });
    this.#ended.resolve(undefined);
  }

  #fail(error: any): void {
    if (this.#state === "closed" || this.#state === "failed") return;
    this.#state = "failed";
    this.#error = error;
    this.#queue = [];
    for (const waiting of this.#waiting.splice(0)) waiting.reject(error);
    this.#ended.reject(error);
  }

  #pull(): void {
    if (!this.#started || this.#state !== "open" || !this.#source.pull) return;
    if (this.#waiting.length === 0 && this.#mark - this.#total <= 0) return;
    if (this.#pulling) { this.#again = true; return; }
    this.#pulling = true;
    new Promise((resolve) => resolve(this.#source.pull(this.#controller))).then(
      () => {
        this.#pulling = false;
        if (this.#again) { this.#again = false; this.#pull(); }
      },
      (error) => this.#fail(error),
    );
  }

  #read(): Promise<any> {
    this.#disturbed = true;
    if (this.#queue.length > 0) {
      const value = this.#queue.shift();
      this.#total -= this.#sizes.shift()!;
      if (this.#state === "closing" && this.#queue.length === 0) this.#finish();
      else this.#pull();
      return Promise.resolve({ value, done: false });
    }
    if (this.#state === "failed") return Promise.reject(this.#error);
    if (this.#state === "closed") return Promise.resolve({ value: undefined, done: true });
    const waiting = deferred();
    this.#waiting.push(waiting);
    this.#pull();
    return waiting.promise;
  }

  async #cancel(reason: any): Promise<void> {
    this.#disturbed = true;
    if (this.#state === "closed") return;
    if (this.#state === "failed") throw this.#error;
    this.#queue = [];
    this.#finish();
    await this.#source.cancel?.(reason);
  }

  getReader(_options?: any): any {
    if (this.#reader !== undefined) throw new TypeError("Invalid state: ReadableStream is locked");
    const self = this;
    const reader = {
      closed: this.#ended.promise,
      read: () => (self.#reader === reader ? self.#read() : Promise.reject(new TypeError("The reader was released"))),
      cancel: (reason?: any) => self.#cancel(reason),
      releaseLock: () => { if (self.#reader === reader) self.#reader = undefined; },
    };
    return (this.#reader = reader);
  }

  cancel(reason?: any): Promise<void> {
    return this.locked ? Promise.reject(new TypeError("Invalid state: ReadableStream is locked")) : this.#cancel(reason);
  }

  tee(): [ReadableStream, ReadableStream] {
    const reader = this.getReader();
    const controllers: any[] = [];
    let gone = 0;
    let ended = false;
    let reading: Promise<void> | undefined; // one read serves both branches
    const copies = this.#source.type === "bytes"; // so that neither branch sees the other's writes to its bytes
    const pull = async () => {
      const { value, done } = await reader.read();
      if (done) ended = true;
      for (const controller of controllers) {
        if (controller.gone) continue;
        if (done) controller.own.close();
        else controller.own.enqueue(copies && controller.index === 1 ? bytesOf(value).slice() : value);
      }
    };
    const branch = (index: number) => new ReadableStream({
      type: this.#source.type,
      start(own: any) { controllers[index] = { own, index, gone: false }; },
      pull: () => (ended ? undefined : (reading ??= pull().catch((error) => { for (const one of controllers) one.own.error(error); }).finally(() => (reading = undefined)))),
      cancel: (reason: any) => { controllers[index].gone = true; if (++gone === 2) return reader.cancel(reason); },
    });
    return [branch(0), branch(1)];
  }

  async pipeTo(target: any, options: any = {}): Promise<void> {
    const reader = this.getReader();
    const writer = target.getWriter();
    try {
      for (;;) {
        options?.signal?.throwIfAborted();
        const { value, done } = await reader.read();
        if (done) break;
        await writer.write(value);
      }
      if (!options?.preventClose) await writer.close();
    } catch (error) {
      if (!options?.preventAbort) await writer.abort(error).catch(() => undefined);
      if (!options?.preventCancel) await reader.cancel(error).catch(() => undefined);
      throw error;
    } finally {
      reader.releaseLock();
      writer.releaseLock();
    }
  }

  pipeThrough(pair: any, options?: any): any {
    this.pipeTo(pair.writable, options).catch(() => undefined);
    return pair.readable;
  }

  values(options: any = {}): any {
    const reader = this.getReader();
    return {
      async next() {
        const result = await reader.read();
        if (result.done) reader.releaseLock();
        return result;
      },
      async return(value: any) {
        if (!options?.preventCancel) await reader.cancel(value);
        reader.releaseLock();
        return { value, done: true };
      },
      [Symbol.asyncIterator]() { return this; },
    };
  }
  [Symbol.asyncIterator](): any { return this.values(); }

  static from(items: any): ReadableStream {
    const list = items[Symbol.asyncIterator]?.() ?? items[Symbol.iterator]();
    return new ReadableStream({
      async pull(controller: any) {
        const { value, done } = await list.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: (reason: any) => list.return?.(reason),
    });
  }
  get [Symbol.toStringTag](): string { return "ReadableStream"; }
}

export const isDisturbed = ReadableStream.disturbed;
delete (ReadableStream as any).disturbed;

export class WritableStream {
  #sink: any;
  #tail: Promise<any>;
  #state: "open" | "closed" | "failed" = "open";
  #error: any;
  #writer: any;
  #queued = 0;
  #mark: number;
  #ended = deferred();
  #controller: any;
  constructor(sink: any = {}, strategy: any = {}) {
    this.#sink = sink ?? {};
    this.#mark = strategy?.highWaterMark ?? 1;
    this.#ended.promise.catch(() => undefined);
    this.#controller = { signal: new (globalThis as any).AbortController().signal, error: (error: any) => this.#fail(error) };
    this.#tail = Promise.resolve(this.#sink.start?.(this.#controller)).catch((error) => this.#fail(error));
  }
  get locked(): boolean { return this.#writer !== undefined; }
  #fail(error: any): void {
    if (this.#state !== "open") return;
    this.#state = "failed";
    this.#error = error;
    this.#ended.reject(error);
  }
  #step(work: () => any): Promise<any> {
    if (this.#state === "failed") return Promise.reject(this.#error);
    if (this.#state === "closed") return Promise.reject(new TypeError("Invalid state: WritableStream is closed"));
    this.#queued++;
    const result = this.#tail.then(() => {
      if (this.#state === "failed") throw this.#error;
      return work();
    });
    this.#tail = result.then(() => { this.#queued--; }, (error) => { this.#queued--; this.#fail(error); });
    return result;
  }
  getWriter(): any {
    if (this.#writer) throw new TypeError("Invalid state: WritableStream is locked");
    const self = this;
    return (this.#writer = {
      closed: this.#ended.promise,
      get ready() { return self.#queued < self.#mark ? Promise.resolve() : self.#tail; },
      get desiredSize() { return self.#state === "failed" ? null : self.#mark - self.#queued; },
      write: (chunk: any) => self.#step(() => self.#sink.write?.(chunk, self.#controller)),
      close: () => self.#close(),
      abort: (reason: any) => self.#abort(reason),
      releaseLock: () => { self.#writer = undefined; },
    });
  }
  async #close(): Promise<void> {
    const done = this.#step(() => this.#sink.close?.(this.#controller));
    await done;
    this.#state = "closed";
    this.#ended.resolve(undefined);
  }
  async #abort(reason: any): Promise<void> {
    if (this.#state !== "open") return;
    this.#fail(reason);
    await this.#sink.abort?.(reason);
  }
  close(): Promise<void> { return this.#close(); }
  abort(reason?: any): Promise<void> { return this.#abort(reason); }
  get [Symbol.toStringTag](): string { return "WritableStream"; }
}

export class TransformStream {
  readonly readable: ReadableStream;
  readonly writable: WritableStream;
  constructor(transformer: any = {}, writableStrategy: any = {}, readableStrategy: any = {}) {
    let controller: any;
    let wake: () => void = () => undefined;
    this.readable = new ReadableStream({
      start(own: any) { controller = own; },
      pull() { wake(); },
      cancel: (reason: any) => transformer?.cancel?.(reason),
    }, { highWaterMark: readableStrategy?.highWaterMark ?? 0, size: readableStrategy?.size });
    const out = {
      enqueue: (chunk: any) => controller.enqueue(chunk),
      error: (error: any) => controller.error(error),
      terminate: () => controller.close(),
      get desiredSize() { return controller.desiredSize; },
    };
    const room = async () => {
      while (controller.desiredSize !== null && controller.desiredSize < 0) await new Promise<void>((resolve) => (wake = resolve));
    };
    this.writable = new WritableStream({
      start: () => transformer?.start?.(out),
      async write(chunk: any) {
        await room();
        try {
          if (transformer?.transform) await transformer.transform(chunk, out);
          else out.enqueue(chunk);
        } catch (error) {
          controller.error(error);
          throw error;
        }
      },
      async close() {
        await transformer?.flush?.(out);
        try { controller.close(); } catch { /* terminated already */ }
      },
      abort: (reason: any) => controller.error(reason),
    }, writableStrategy);
  }
}

export class TextDecoderStream extends TransformStream {
  readonly encoding: string;
  constructor(label = "utf-8", options: any = {}) {
    const decoder = new TextDecoder(label, options);
    super({
      transform: (chunk: any, controller: any) => { const text = decoder.decode(bytesOf(chunk), { stream: true }); if (text) controller.enqueue(text); },
      flush: (controller: any) => { const text = decoder.decode(); if (text) controller.enqueue(text); },
    });
    this.encoding = decoder.encoding;
  }
}

export class TextEncoderStream extends TransformStream {
  constructor() {
    const encoder = new TextEncoder();
    super({ transform: (chunk: any, controller: any) => controller.enqueue(encoder.encode(String(chunk))) });
  }
}

export class CountQueuingStrategy {
  readonly highWaterMark: number;
  constructor(options: any) { this.highWaterMark = options.highWaterMark; }
  size(): number { return 1; }
}
export class ByteLengthQueuingStrategy {
  readonly highWaterMark: number;
  constructor(options: any) { this.highWaterMark = options.highWaterMark; }
  size(chunk: any): number { return chunk.byteLength; }
}

export function deferred(): Waiting & { promise: Promise<any> } {
  let resolve: any;
  let reject: any;
  const promise = new Promise((yes, no) => { resolve = yes; reject = no; });
  return { promise, resolve, reject };
}

install({ ReadableStream, WritableStream, TransformStream, TextDecoderStream, TextEncoderStream, CountQueuingStrategy, ByteLengthQueuingStrategy });
