// node:stream. Readable, Writable, Duplex, Transform and PassThrough with flowing and paused modes, and pipeline.

import { nextTick } from "../bridge";
import { ReadableStream, WritableStream } from "../globals/streams";
import { Buffer, encode } from "./buffer";
import { argumentError, defineNode } from "./define";
import { EventEmitter, callable } from "./events";
import { StringDecoder } from "./string_decoder";

const later = nextTick;
const highMark = (options: any, own: any, object: boolean): number => own ?? options?.highWaterMark ?? (object ? 16 : 65536);

function coded(code: string, message: string): any {
  const error: any = new Error(message);
  error.code = code;
  return error;
}

export class Stream extends EventEmitter {
  pipe(target: any, options: any = {}): any {
    const source: any = this;
    const onData = (chunk: any) => { if (target.write(chunk) === false) source.pause?.(); };
    const onDrain = () => source.resume?.();
    const onEnd = () => target.end();
    source.on("data", onData);
    target.on("drain", onDrain);
    if (options?.end !== false && target !== (globalThis as any).process?.stdout) source.once("end", onEnd);
    source.pipes ??= [];
    source.pipes.push({ target, stop: () => { source.off("data", onData); source.off("end", onEnd); target.off("drain", onDrain); } });
    target.emit("pipe", source);
    return target;
  }
}

function hide(target: any, name: string, value: any): void {
  Object.defineProperty(target, name, { value, writable: true, configurable: true, enumerable: false });
}

export class Readable extends Stream {
  declare _r: any;
  readable = true;
  destroyed = false;
  constructor(options: any = {}) {
    super();
    const object = options?.objectMode === true || options?.readableObjectMode === true;
    hide(this, "_r", { queue: [] as any[], size: 0, object, mark: highMark(options, options?.readableHighWaterMark, object), flowing: null as boolean | null, ended: false, emittedEnd: false, reading: false, decoder: null as any, encoding: options?.encoding ?? null, errored: null, scheduled: false, autoDestroy: options?.autoDestroy !== false, closed: false });
    if (options?.encoding) this._r.decoder = new StringDecoder(options.encoding);
    if (typeof options?.read === "function") this._read = options.read;
    if (typeof options?.destroy === "function") this._destroy = options.destroy;
    if (typeof options?.construct === "function") options.construct.call(this, (error: any) => { if (error) this.destroy(error); });
    options?.signal?.addEventListener("abort", () => this.destroy(options.signal.reason));
  }
  get readableFlowing(): boolean | null { return this._r.flowing; }
  get readableEnded(): boolean { return this._r.emittedEnd; }
  get readableLength(): number { return this._r.size; }
  get readableHighWaterMark(): number { return this._r.mark; }
  get readableObjectMode(): boolean { return this._r.object; }
  get readableEncoding(): any { return this._r.encoding; }
  get errored(): any { return this._r.errored; }
  get closed(): boolean { return this._r.closed; }
  get readableAborted(): boolean { return this.destroyed && !this._r.emittedEnd; }
  _read(_size?: number): void { /* a subclass overrides it or pushes data itself */ }
  _destroy(error: any, done: (error?: any) => void): void { done(error); }
  setEncoding(encoding: any): this { this._r.decoder = new StringDecoder(encoding); this._r.encoding = encoding; return this; }
  push(chunk: any, encoding?: any): boolean {
    const r = this._r;
    r.reading = false;
    if (chunk === null) {
      if (r.ended) return false;
      r.ended = true;
      const rest = r.decoder?.end();
      if (rest) this.#store(rest);
      this.#flow();
      return false;
    }
    if (r.ended) { this.destroy(coded("ERR_STREAM_PUSH_AFTER_EOF", "stream.push() after EOF")); return false; }
    if (!r.object) {
      if (typeof chunk === "string") chunk = r.decoder && (!encoding || encoding === r.encoding) ? chunk : Buffer.from(chunk, encoding);
      else if (chunk instanceof Uint8Array) chunk = Buffer.isBuffer(chunk) ? chunk : Buffer.from(chunk);
      else throw argumentError("chunk", "of type string or an instance of Buffer or Uint8Array", chunk);
      if (r.decoder && typeof chunk !== "string") chunk = r.decoder.write(chunk);
      if (chunk.length === 0) { this.#flow(); return r.size < r.mark; }
    }
    this.#store(chunk);
    this.#flow();
    return r.size < r.mark;
  }
  #store(chunk: any): void {
    this._r.queue.push(chunk);
    this._r.size += this._r.object ? 1 : chunk.length;
  }
  unshift(chunk: any): void {
    const r = this._r;
    const plain = r.object || typeof chunk !== "string" || r.decoder ? chunk : Buffer.from(chunk);
    r.queue.unshift(plain);
    r.size += r.object ? 1 : plain.length;
    this.#flow();
  }
  #flow(): void {
    const r = this._r;
    if (r.scheduled) return;
    r.scheduled = true;
    later(() => {
      r.scheduled = false;
      if (this.destroyed) return;
      if (r.flowing) {
        while (r.flowing && r.queue.length) this.emit("data", this.#shift());
        if (r.flowing && !r.queue.length) this.#more();
      } else if (this.listenerCount("readable") && (r.queue.length || r.ended)) this.emit("readable");
      this.#finish();
    });
  }
  #shift(): any {
    const chunk = this._r.queue.shift();
    this._r.size -= this._r.object ? 1 : chunk.length;
    return chunk;
  }
  #more(): void {
    const r = this._r;
    if (r.reading || r.ended || this.destroyed || r.size >= Math.max(1, r.mark)) return;
    r.reading = true;
    try { this._read(r.mark); } catch (error) { this.destroy(error as any); }
  }
  #finish(): void {
    const r = this._r;
    if (!r.ended || r.queue.length || r.emittedEnd || r.flowing === null && !this.listenerCount("readable") && !this.listenerCount("end")) return;
    if (r.flowing === false && !this.listenerCount("readable")) return;
    r.emittedEnd = true;
    this.readable = false;
    this.emit("end");
    const twin: any = this;
    if (r.autoDestroy && (!twin._w || twin._w.finished || twin.allowHalfOpen === false)) later(() => this.destroy());
    else if (twin._w && twin.allowHalfOpen === false) twin.end();
  }
  read(size?: number): any {
    const r = this._r;
    if (!r.queue.length) {
      this.#more();
      if (!r.queue.length) { if (r.ended) later(() => this.#endNow()); return null; }
    }
    let out: any;
    if (r.object || size === undefined) {
      if (r.object) out = this.#shift();
      else {
        const parts = r.queue.splice(0);
        r.size = 0;
        out = typeof parts[0] === "string" ? parts.join("") : Buffer.concat(parts);
      }
    } else {
      if (size > r.size && !r.ended) { this.#more(); return null; }
      const whole: any = typeof r.queue[0] === "string" ? r.queue.join("") : Buffer.concat(r.queue);
      out = whole.slice(0, size);
      const rest = whole.slice(size);
      r.queue = rest.length ? [rest] : [];
      r.size = rest.length;
    }
    this.#more();
    if (r.ended && !r.queue.length) later(() => this.#endNow());
    return out;
  }
  #endNow(): void { if (this._r.flowing !== false || this.listenerCount("readable")) this.#finish(); }
  on(name: any, listener: any): this {
    super.on(name, listener);
    if (name === "data" && this._r.flowing !== false) this.resume();
    if (name === "readable") { if (this._r.flowing === null) this._r.flowing = false; this.#more(); this.#flow(); }
    if (name === "end" && this._r.ended) this.#flow();
    return this;
  }
  addListener(name: any, listener: any): this { return this.on(name, listener); }
  pause(): this { if (this._r.flowing !== false) { this._r.flowing = false; this.emit("pause"); } return this; }
  resume(): this { if (!this._r.flowing) { this._r.flowing = true; this.emit("resume"); this.#more(); this.#flow(); } return this; }
  isPaused(): boolean { return this._r.flowing === false; }
  unpipe(target?: any): this {
    for (const pipe of (this as any).pipes ?? []) if (target === undefined || pipe.target === target) { pipe.stop(); pipe.target.emit("unpipe", this); }
    (this as any).pipes = ((this as any).pipes ?? []).filter((pipe: any) => target !== undefined && pipe.target !== target);
    return this;
  }
  destroy(error?: any): this {
    if (this.destroyed) return this;
    this.destroyed = true;
    this.readable = false;
    if (error) this._r.errored = error;
    this._destroy(error ?? null, (failure?: any) => later(() => {
      if (failure) this.emit("error", failure);
      this._r.closed = true;
      this.emit("close");
    }));
    return this;
  }
  async *[Symbol.asyncIterator](): AsyncGenerator<any> {
    const waiting: { wake?: () => void } = {};
    let failure: any;
    let done = this._r.emittedEnd || (this.destroyed && !this._r.queue.length);
    const wake = () => { waiting.wake?.(); };
    this.on("readable", wake);
    this.on("end", () => { done = true; wake(); });
    this.on("close", () => { done = true; wake(); });
    this.on("error", (error: any) => { failure = error; wake(); });
    try {
      for (;;) {
        const chunk = this.destroyed && failure ? null : this.read();
        if (chunk !== null) { yield chunk; continue; }
        if (failure) throw failure;
        if (done) return;
        await new Promise<void>((resolve) => (waiting.wake = resolve));
      }
    } finally {
      if (!this.destroyed) this.destroy();
    }
  }
  iterator(): any { return this[Symbol.asyncIterator](); }
  async toArray(): Promise<any[]> { const out: any[] = []; for await (const chunk of this) out.push(chunk); return out; }
  async forEach(call: any): Promise<void> { for await (const chunk of this) await call(chunk); }
  map(call: any): Readable { const source = this; return Readable.from((async function* () { for await (const chunk of source) yield await call(chunk); })()); }
  filter(call: any): Readable { const source = this; return Readable.from((async function* () { for await (const chunk of source) if (await call(chunk)) yield chunk; })()); }
  static from(items: any, options: any = {}): Readable {
    if (typeof items === "string" || items instanceof Uint8Array) items = [items];
    const list = items[Symbol.asyncIterator]?.() ?? items[Symbol.iterator]();
    let busy = false;
    const stream = new Readable({ objectMode: true, highWaterMark: 1, ...options, read() {
      if (busy) return;
      busy = true;
      Promise.resolve(list.next()).then(async ({ value, done }: any) => { busy = false; if (done) stream.push(null); else stream.push(await value); }, (error: any) => stream.destroy(error));
    } });
    return stream;
  }
  static fromWeb(web: any, options: any = {}): Readable { return Readable.from(web, { objectMode: false, highWaterMark: 65536, ...options }); }
  static toWeb(stream: any): any {
    return new ReadableStream({
      start(controller: any) {
        stream.on("data", (chunk: any) => { controller.enqueue(typeof chunk === "string" ? chunk : new Uint8Array(chunk)); if (controller.desiredSize <= 0) stream.pause(); });
        stream.on("end", () => controller.close());
        stream.on("error", (error: any) => controller.error(error));
      },
      pull() { stream.resume(); },
      cancel(reason: any) { stream.destroy(reason); },
    });
  }
  static isDisturbed(stream: any): boolean { return stream?._r?.flowing !== null; }
}

// The writable half as functions over a state, which Writable and Duplex share.
function startWritable(stream: any, options: any): void {
  const object = options?.objectMode === true || options?.writableObjectMode === true;
  hide(stream, "_w", { queue: [] as any[], size: 0, object, mark: highMark(options, options?.writableHighWaterMark, object), busy: false, ending: false, finished: false, needDrain: false, corked: 0, encoding: options?.defaultEncoding ?? "utf8", decode: options?.decodeStrings !== false, errored: null, done: [] as any[], autoDestroy: options?.autoDestroy !== false });
  for (const name of ["write", "writev", "final", "destroy"]) if (typeof options?.[name] === "function") stream["_" + name] = options[name];
  options?.signal?.addEventListener("abort", () => stream.destroy(options.signal.reason));
}

function writeTo(stream: any, chunk: any, encoding: any, done: any): boolean {
  const w = stream._w;
  if (typeof encoding === "function") { done = encoding; encoding = undefined; }
  if (chunk === null) throw coded("ERR_STREAM_NULL_VALUES", "May not write null values to stream");
  if (!w.object && typeof chunk !== "string" && !(chunk instanceof Uint8Array)) throw argumentError("chunk", "of type string or an instance of Buffer or Uint8Array", chunk);
  if (w.ending || stream.destroyed) {
    const error = w.ending ? coded("ERR_STREAM_WRITE_AFTER_END", "write after end") : coded("ERR_STREAM_DESTROYED", "Cannot call write after a stream was destroyed");
    later(() => { done?.(error); if (w.ending) stream.destroy(error); });
    return false;
  }
  if (!w.object && typeof chunk === "string" && w.decode) { chunk = Buffer.from(encode(chunk, encoding ?? w.encoding)); encoding = "buffer"; }
  else if (!w.object && typeof chunk !== "string" && !Buffer.isBuffer(chunk)) chunk = Buffer.from(chunk);
  w.size += w.object ? 1 : chunk.length;
  w.queue.push({ chunk, encoding: encoding ?? (typeof chunk === "string" ? w.encoding : "buffer"), done });
  const room = w.size < w.mark;
  if (!room) w.needDrain = true;
  drainWrites(stream);
  return room;
}

function drainWrites(stream: any): void {
  const w = stream._w;
  if (w.busy || w.corked > 0 || stream.destroyed) return;
  if (w.queue.length === 0) return finishWrites(stream);
  w.busy = true;
  const batch = typeof stream._writev === "function" && w.queue.length > 1 ? w.queue.splice(0) : [w.queue.shift()];
  let sync = true;
  const done = (error?: any) => {
    const settle = () => {
      w.busy = false;
      for (const item of batch) { w.size -= w.object ? 1 : item.chunk.length; }
      if (error) { for (const item of batch) item.done?.(error); stream.destroy(error); return; }
      for (const item of batch) item.done?.(null);
      if (w.needDrain && w.size === 0 && !w.ending) { w.needDrain = false; stream.emit("drain"); }
      drainWrites(stream);
    };
    if (sync) later(settle);
    else settle();
  };
  try {
    if (batch.length > 1) stream._writev(batch, done);
    else if (typeof stream._write === "function") stream._write(batch[0].chunk, batch[0].encoding, done);
    else done(coded("ERR_METHOD_NOT_IMPLEMENTED", "The _write() method is not implemented"));
  } catch (error) {
    done(error);
  }
  sync = false;
}

function endTo(stream: any, chunk: any, encoding: any, done: any): any {
  const w = stream._w;
  if (typeof chunk === "function") { done = chunk; chunk = undefined; }
  else if (typeof encoding === "function") { done = encoding; encoding = undefined; }
  if (chunk !== undefined && chunk !== null) writeTo(stream, chunk, encoding, undefined);
  if (typeof done === "function") { if (w.finished) later(() => done()); else w.done.push(done); }
  w.corked = 0;
  if (!w.ending) { w.ending = true; stream.writable = false; drainWrites(stream); }
  return stream;
}

function finishWrites(stream: any): void {
  const w = stream._w;
  if (!w.ending || w.finished || w.finishing || w.busy) return;
  w.finishing = true;
  const done = (error?: any) => later(() => {
    if (error) { stream.destroy(error); return; }
    if (w.finished) return;
    w.finished = true;
    stream.emit("finish");
    for (const call of w.done.splice(0)) call();
    if (w.autoDestroy && (!stream._r || stream._r.emittedEnd)) stream.destroy();
  });
  if (typeof stream._final === "function") { try { stream._final(done); } catch (error) { done(error); } }
  else done();
}

const writableGetters: PropertyDescriptorMap = {
  writableEnded: { get(this: any) { return this._w.ending; }, configurable: true }, writableFinished: { get(this: any) { return this._w.finished; }, configurable: true },
  writableLength: { get(this: any) { return this._w.size; }, configurable: true }, writableHighWaterMark: { get(this: any) { return this._w.mark; }, configurable: true },
  writableObjectMode: { get(this: any) { return this._w.object; }, configurable: true }, writableNeedDrain: { get(this: any) { return this._w.needDrain; }, configurable: true }, writableCorked: { get(this: any) { return this._w.corked; }, configurable: true },
};

export class Writable extends Stream {
  declare _w: any;
  writable = true;
  destroyed = false;
  declare writableEnded: boolean;
  declare writableFinished: boolean;
  closed = false;
  // A duplex stream counts as Writable, although it does not inherit from it.
  static [Symbol.hasInstance](value: any): boolean {
    return Function.prototype[Symbol.hasInstance].call(this, value) || (this.prototype === Writable.prototype && value instanceof Duplex);
  }
  constructor(options: any = {}) { super(); startWritable(this, options); }
  get errored(): any { return this._w.errored; }
  write(chunk: any, encoding?: any, done?: any): boolean { return writeTo(this, chunk, encoding, done); }
  end(chunk?: any, encoding?: any, done?: any): any { return endTo(this, chunk, encoding, done); }
  cork(): void { this._w.corked++; }
  uncork(): void { if (this._w.corked > 0) { this._w.corked--; drainWrites(this); } }
  setDefaultEncoding(encoding: any): this { this._w.encoding = encoding; return this; }
  _destroy(error: any, done: (error?: any) => void): void { done(error); }
  pipe(): any { this.emit("error", coded("ERR_STREAM_CANNOT_PIPE", "Cannot pipe, not readable")); }
  destroy(error?: any): this {
    if (this.destroyed) return this;
    this.destroyed = true;
    this.writable = false;
    if (error) this._w.errored = error;
    for (const item of this._w.queue.splice(0)) item.done?.(error ?? coded("ERR_STREAM_DESTROYED", "Cannot call write after a stream was destroyed"));
    this._destroy(error ?? null, (failure?: any) => later(() => { if (failure) this.emit("error", failure); this.closed = true; this.emit("close"); }));
    return this;
  }
  static toWeb(stream: any): any { return new WritableStream({ write: (chunk: any) => new Promise<void>((resolve, reject) => stream.write(chunk, (error: any) => (error ? reject(error) : resolve()))), close: () => new Promise<void>((resolve) => stream.end(() => resolve())), abort: (reason: any) => stream.destroy(reason) }); }
  static fromWeb(web: any): Writable { const writer = web.getWriter(); return new Writable({ write: (chunk: any, _e: any, done: any) => writer.write(chunk).then(() => done(), done), final: (done: any) => writer.close().then(() => done(), done) }); }
}
Object.defineProperties(Writable.prototype, writableGetters);

export class Duplex extends Readable {
  declare _w: any;
  writable = true;
  allowHalfOpen: boolean;
  constructor(options: any = {}) {
    super(options);
    startWritable(this, { ...options, destroy: undefined });
    this.allowHalfOpen = options?.allowHalfOpen !== false;
    if (options?.readable === false) { this.readable = false; this._r.ended = this._r.emittedEnd = true; }
    if (options?.writable === false) { this.writable = false; this._w.ending = this._w.finished = true; }
  }
  write(chunk: any, encoding?: any, done?: any): boolean { return writeTo(this, chunk, encoding, done); }
  end(chunk?: any, encoding?: any, done?: any): any { return endTo(this, chunk, encoding, done); }
  cork(): void { this._w.corked++; }
  uncork(): void { if (this._w.corked > 0) { this._w.corked--; drainWrites(this); } }
  setDefaultEncoding(encoding: any): this { this._w.encoding = encoding; return this; }
  static from(source: any): any { return source instanceof Duplex ? source : Readable.from(source); }
}
Object.defineProperties(Duplex.prototype, writableGetters);

export class Transform extends Duplex {
  constructor(options: any = {}) {
    super(options);
    if (typeof options?.transform === "function") this._transform = options.transform;
    if (typeof options?.flush === "function") this._flush = options.flush;
  }
  _transform(_chunk: any, _encoding: any, done: any): void { done(coded("ERR_METHOD_NOT_IMPLEMENTED", "The _transform() method is not implemented")); }
  _flush(done: any): void { done(); }
  _write(chunk: any, encoding: any, done: any): void {
    this._transform(chunk, encoding, (error?: any, value?: any) => { if (!error && value !== null && value !== undefined) this.push(value); done(error); });
  }
  _final(done: any): void {
    this._flush((error?: any, value?: any) => { if (error) return done(error); if (value !== null && value !== undefined) this.push(value); this.push(null); done(); });
  }
}
(Transform.prototype as any)._read = function (): void { /* the written data is the data to read */ };

export class PassThrough extends Transform {
  _transform(chunk: any, _encoding: any, done: any): void { done(null, chunk); }
}

export function finished(stream: any, options: any, done?: any): () => void {
  if (typeof options === "function") { done = options; options = {}; }
  let called = false;
  const call = (error?: any) => { if (!called) { called = true; done(error ?? undefined); } };
  const readable = stream._r !== undefined && options?.readable !== false;
  const writable = stream._w !== undefined && options?.writable !== false;
  const check = () => { if ((!readable || stream._r.emittedEnd) && (!writable || stream._w.finished)) call(); };
  const closed = () => { if ((readable && !stream._r.emittedEnd) || (writable && !stream._w.finished)) call(coded("ERR_STREAM_PREMATURE_CLOSE", "Premature close")); else call(); };
  stream.on("end", check).on("finish", check).on("error", call).on("close", closed);
  if (stream._r?.errored) later(() => call(stream._r.errored));
  else if ((readable || writable) && (!readable || stream._r.emittedEnd) && (!writable || stream._w.finished)) later(() => call());
  options?.signal?.addEventListener("abort", () => call(options.signal.reason));
  return () => { stream.off("end", check); stream.off("finish", check); stream.off("error", call); stream.off("close", closed); };
}

export function pipeline(...args: any[]): any {
  const done = typeof args[args.length - 1] === "function" && args.length > 1 && !args[args.length - 1].length !== undefined && args[args.length - 1].constructor?.name !== "AsyncGeneratorFunction" ? args.pop() : (error: any) => { if (error) throw error; };
  const parts = (args.length === 1 && Array.isArray(args[0]) ? args[0] : args).map((part: any) => part);
  const options = parts.length && typeof parts[parts.length - 1] === "object" && parts[parts.length - 1] !== null && !parts[parts.length - 1].on && parts[parts.length - 1].signal ? parts.pop() : {};
  const streams: any[] = [];
  let current: any = parts[0];
  if (typeof current === "function") current = Readable.from(current());
  else if (typeof current?.on !== "function") current = Readable.from(current);
  streams.push(current);
  let over = false;
  const finish = (error?: any, value?: any) => {
    if (over) return;
    over = true;
    if (error) for (const stream of streams) stream.destroy?.();
    done(error, value);
  };
  for (let i = 1; i < parts.length; i++) {
    const next: any = parts[i];
    if (typeof next === "function") {
      const result = next(current, { signal: options.signal });
      if (i === parts.length - 1 && typeof result?.then === "function") { result.then((value: any) => finish(undefined, value), finish); for (const stream of streams) stream.on("error", finish); return current; }
      current = Readable.from(result);
      streams.push(current);
      continue;
    }
    streams.push(next);
    current.pipe(next);
    current = next;
  }
  for (const stream of streams) stream.on("error", finish);
  options.signal?.addEventListener("abort", () => finish(options.signal.reason));
  finished(current, { readable: false }, finish);
  return current;
}

const promises = {
  pipeline: (...args: any[]) => new Promise((resolve, reject) => pipeline(...args, (error: any, value: any) => (error ? reject(error) : resolve(value)))),
  finished: (stream: any, options: any = {}) => new Promise<void>((resolve, reject) => finished(stream, options, (error: any) => (error ? reject(error) : resolve()))),
};
const api: any = callable(Stream);
Object.assign(api, { Stream: api, Readable: callable(Readable), Writable: callable(Writable), Duplex: callable(Duplex), Transform: callable(Transform), PassThrough: callable(PassThrough), finished, pipeline, promises, addAbortSignal: (signal: any, stream: any) => { signal.addEventListener("abort", () => stream.destroy(signal.reason)); return stream; }, getDefaultHighWaterMark: (object: boolean) => (object ? 16 : 65536), isReadable: (stream: any) => stream?.readable === true });
const collect = async (stream: any): Promise<any> => { const parts: any[] = []; for await (const chunk of stream) parts.push(typeof chunk === "string" ? Buffer.from(chunk) : chunk); return Buffer.concat(parts); };
defineNode("stream", api);
defineNode("stream_promises", promises);
defineNode("stream_web", { ReadableStream, WritableStream, TransformStream: (globalThis as any).TransformStream, TextDecoderStream: (globalThis as any).TextDecoderStream, TextEncoderStream: (globalThis as any).TextEncoderStream });
defineNode("stream_consumers", { buffer: collect, text: async (stream: any) => (await collect(stream)).toString(), json: async (stream: any) => JSON.parse((await collect(stream)).toString()), arrayBuffer: async (stream: any) => { const found = await collect(stream); return found.buffer.slice(found.byteOffset, found.byteOffset + found.length); } });
