// node:readline and node:readline/promises.

import { hostCall } from "../bridge";
import { defineNode } from "./define";
import { EventEmitter } from "./events";
import { resolve } from "./path";
import { StringDecoder } from "./string_decoder";

export class Interface extends EventEmitter {
  line = "";
  cursor = 0;
  terminal = false;
  closed = false;
  #input: any;
  #output: any;
  #prompt: string;
  #rest = "";
  #questions: ((line: string) => void)[] = [];
  #decoder = new StringDecoder("utf8");
  constructor(options: any, output?: any) {
    super();
    const given = options?.input !== undefined ? options : { input: options, output };
    this.#input = given.input;
    this.#output = given.output;
    this.#prompt = given.prompt ?? "> ";
    this.#input?.on?.("data", (chunk: any) => this.#feed(typeof chunk === "string" ? chunk : this.#decoder.write(chunk)));
    this.#input?.on?.("end", () => { const tail = this.#rest + this.#decoder.end(); this.#rest = ""; if (tail !== "") this.#emit(tail); this.close(); });
    given.signal?.addEventListener("abort", () => this.close());
  }
  #feed(text: string): void {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop()!;
    for (const line of lines) this.#emit(line);
  }
  #emit(line: string): void {
    const ask = this.#questions.shift();
    if (ask) ask(line);
    else this.emit("line", line);
  }
  question(text: string, options: any, done?: any): void {
    if (typeof options === "function") { done = options; options = {}; }
    if (this.closed) throw Object.assign(new Error("readline was closed"), { code: "ERR_USE_AFTER_CLOSE" });
    this.#output?.write?.(text);
    // An extension has no standard input of its own, so the host asks a person.
    if (this.#input === (globalThis as any).process.stdin) hostCall("ui", { op: "input", title: text, placeholder: "" }, { signal: options?.signal }).then((body: any) => done(body.value ?? ""), () => { done(""); });
    else this.#questions.push(done);
  }
  setPrompt(text: string): void { this.#prompt = text; }
  getPrompt(): string { return this.#prompt; }
  prompt(): void { this.#output?.write?.(this.#prompt); }
  write(text: any): void { if (typeof text === "string") this.#feed(text); }
  pause(): this { this.#input?.pause?.(); this.emit("pause"); return this; }
  resume(): this { this.#input?.resume?.(); this.emit("resume"); return this; }
  close(): void { if (this.closed) return; this.closed = true; this.#input?.pause?.(); this.emit("close"); }
  [Symbol.asyncIterator](): any {
    const queue: string[] = [];
    let wake: (() => void) | undefined;
    this.on("line", (line: string) => { queue.push(line); wake?.(); });
    this.on("close", () => wake?.());
    const self = this;
    return (async function* () {
      for (;;) {
        while (queue.length) yield queue.shift()!;
        if (self.closed) return;
        await new Promise<void>((resolve) => (wake = resolve));
      }
    })();
  }
}
const custom = Symbol.for("nodejs.util.promisify.custom");
Object.defineProperty(Interface.prototype.question, custom, { value(this: any, text: string, options: any) { return new Promise((resolve) => this.question(text, options ?? {}, resolve)); } });
class PromisesInterface extends Interface {
  question(text: string, options: any = {}): any { return new Promise((resolve) => super.question(text, options, resolve)); }
}
const move = (sequence: string) => (stream: any, ...args: any[]): boolean => { stream?.write?.(sequence.replace(/%(\d)/g, (_all, index) => String(args[index] ?? ""))); const done = args[args.length - 1]; if (typeof done === "function") done(); return true; };
const readline: any = { Interface, createInterface: (options: any, output?: any) => new Interface(options, output), clearLine: move("\u001b[2K"), cursorTo: (stream: any, x: number, y?: any) => { stream?.write?.(typeof y === "number" ? `\u001b[${y + 1};${x + 1}H` : `\u001b[${x + 1}G`); return true; }, moveCursor: () => true, clearScreenDown: move("\u001b[0J"), emitKeypressEvents: () => undefined };
const promises: any = { Interface: PromisesInterface, createInterface: (options: any, output?: any) => new PromisesInterface(options, output) };
readline.promises = promises;
defineNode("readline", readline);
defineNode("readline_promises", promises);
