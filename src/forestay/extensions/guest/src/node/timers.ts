// node:timers and node:timers/promises, over the event loop.

import { defineNode } from "./define";
import * as loop from "../loop";

const waitFor = (start: any) => (ms?: number, value?: any, options: any = {}): Promise<any> => new Promise((resolve_, reject) => {
  if (options?.signal?.aborted) return reject(options.signal.reason);
  const timer = start(() => resolve_(value), ms);
  options?.signal?.addEventListener("abort", () => { loop.clearTimeout(timer); reject(options.signal.reason); });
});
export const timersPromises: any = {
  setTimeout: waitFor((call: any, ms: any) => loop.setTimeout(call, ms)),
  setImmediate: (value?: any, options?: any) => waitFor((call: any) => loop.setImmediate(call))(0, value, options),
  async *setInterval(ms: number, value?: any, options: any = {}) { for (;;) { await timersPromises.setTimeout(ms, undefined, options); yield value; } },
  scheduler: { wait: (ms: number, options?: any) => timersPromises.setTimeout(ms, undefined, options), yield: () => timersPromises.setImmediate() },
};
const custom = Symbol.for("nodejs.util.promisify.custom");
Object.defineProperty(loop.setTimeout, custom, { value: timersPromises.setTimeout, configurable: true });
Object.defineProperty(loop.setImmediate, custom, { value: timersPromises.setImmediate, configurable: true });
defineNode("timers_promises", timersPromises);
defineNode("timers", { setTimeout: loop.setTimeout, clearTimeout: loop.clearTimeout, setInterval: loop.setInterval, clearInterval: loop.clearInterval, setImmediate: loop.setImmediate, clearImmediate: loop.clearImmediate, promises: timersPromises });
