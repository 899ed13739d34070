// node:async_hooks: storage that follows a call, without hooks.

import { defineNode } from "./define";

class AsyncLocalStorage {
  #store: any;
  run(store: any, call: any, ...args: any[]): any { const before = this.#store; this.#store = store; try { return call(...args); } finally { this.#store = before; } }
  exit(call: any, ...args: any[]): any { return this.run(undefined, call, ...args); }
  getStore(): any { return this.#store; }
  enterWith(store: any): void { this.#store = store; }
  disable(): void { this.#store = undefined; }
  static bind(call: any): any { return call; }
  static snapshot(): any { return (call: any, ...args: any[]) => call(...args); }
}
class AsyncResource {
  readonly type: string;
  constructor(type: string) { this.type = type; }
  runInAsyncScope(call: any, self?: any, ...args: any[]): any { return call.apply(self, args); }
  emitDestroy(): this { return this; }
  asyncId(): number { return 1; }
  triggerAsyncId(): number { return 0; }
  bind(call: any): any { return call.bind(this); }
  static bind(call: any): any { return call; }
}
defineNode("async_hooks", { AsyncLocalStorage, AsyncResource, executionAsyncId: () => 1, triggerAsyncId: () => 0, createHook: () => ({ enable: () => undefined, disable: () => undefined }) });
