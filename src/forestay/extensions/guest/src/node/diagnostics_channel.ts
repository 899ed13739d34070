// node:diagnostics_channel: named channels inside one extension, and the five channels of a traced operation.

import { nextTick, report } from "../bridge";
import { argumentError, defineNode } from "./define";

type Subscriber = (message: any, name: string | symbol) => void;

export class Channel {
  readonly name: string | symbol;
  #subscribers: Subscriber[] = [];
  #stores = new Map<any, ((data: any) => any) | undefined>();
  constructor(name: string | symbol) { this.name = name; }
  get hasSubscribers(): boolean { return this.#subscribers.length > 0 || this.#stores.size > 0; }
  subscribe(subscriber: Subscriber): void {
    if (typeof subscriber !== "function") throw argumentError("subscription", "of type function", subscriber);
    this.#subscribers = [...this.#subscribers, subscriber];
  }
  unsubscribe(subscriber: Subscriber): boolean {
    const at = this.#subscribers.indexOf(subscriber);
    this.#subscribers = this.#subscribers.filter((_one, index) => index !== at);
    return at >= 0;
  }
  publish(message: any): void {
    for (const subscriber of this.#subscribers) {
      try {
        subscriber(message, this.name);
      } catch (error) {
        nextTick(() => report(error, "diagnostics_channel"));
      }
    }
  }
  bindStore(store: any, transform?: (data: any) => any): void { this.#stores.set(store, transform); }
  unbindStore(store: any): boolean { return this.#stores.delete(store); }
  runStores(data: any, call: any, self?: any, ...args: any[]): any {
    let run = () => { this.publish(data); return Reflect.apply(call, self, args); };
    for (const [store, transform] of this.#stores) {
      const inner = run;
      run = () => {
        let kept: any;
        try {
          kept = transform ? transform(data) : data;
        } catch (error) {
          nextTick(() => report(error, "diagnostics_channel"));
          return inner();
        }
        return store.run(kept, inner);
      };
    }
    return run();
  }
}

const channels = new Map<string | symbol, Channel>();
function channel(name: string | symbol): Channel {
  if (typeof name !== "string" && typeof name !== "symbol") throw argumentError("channel", "of type string or symbol", name);
  let known = channels.get(name);
  if (known === undefined) channels.set(name, (known = new Channel(name)));
  return known;
}

const EVENTS = ["start", "end", "asyncStart", "asyncEnd", "error"] as const;

class TracingChannel {
  declare start: Channel;
  declare end: Channel;
  declare asyncStart: Channel;
  declare asyncEnd: Channel;
  declare error: Channel;
  constructor(given: any) {
    for (const event of EVENTS) this[event] = typeof given === "string" ? channel(`tracing:${given}:${event}`) : given[event];
  }
  get hasSubscribers(): boolean { return EVENTS.some((event) => this[event]?.hasSubscribers); }
  subscribe(handlers: any): void { for (const event of EVENTS) if (handlers[event]) this[event].subscribe(handlers[event]); }
  unsubscribe(handlers: any): boolean {
    let all = true;
    for (const event of EVENTS) if (handlers[event] && !this[event].unsubscribe(handlers[event])) all = false;
    return all;
  }
  traceSync(call: any, context: any = {}, self?: any, ...args: any[]): any {
    if (!this.hasSubscribers) return Reflect.apply(call, self, args);
    return this.start.runStores(context, () => {
      try {
        return (context.result = Reflect.apply(call, self, args));
      } catch (error) {
        context.error = error;
        this.error.publish(context);
        throw error;
      } finally {
        this.end.publish(context);
      }
    });
  }
  tracePromise(call: any, context: any = {}, self?: any, ...args: any[]): any {
    if (!this.hasSubscribers) return Reflect.apply(call, self, args);
    const settle = (key: "result" | "error") => (value: any) => {
      context[key] = value;
      if (key === "error") this.error.publish(context);
      this.asyncStart.publish(context);
      this.asyncEnd.publish(context);
      return key === "error" ? Promise.reject(value) : value;
    };
    return this.start.runStores(context, () => {
      try {
        return Promise.resolve(Reflect.apply(call, self, args)).then(settle("result"), settle("error"));
      } catch (error) {
        context.error = error;
        this.error.publish(context);
        throw error;
      } finally {
        this.end.publish(context);
      }
    });
  }
  traceCallback(call: any, position = -1, context: any = {}, self?: any, ...args: any[]): any {
    if (!this.hasSubscribers) return Reflect.apply(call, self, args);
    const at = position < 0 ? args.length + position : position;
    const callback = args[at];
    if (typeof callback !== "function") throw argumentError("callback", "of type function", callback);
    const tracing = this;
    args[at] = function (this: any, error: any, result: any, ...rest: any[]) {
      if (error) { context.error = error; tracing.error.publish(context); }
      else context.result = result;
      return tracing.asyncStart.runStores(context, () => {
        try { return Reflect.apply(callback, this, [error, result, ...rest]); } finally { tracing.asyncEnd.publish(context); }
      });
    };
    return this.start.runStores(context, () => {
      try {
        return Reflect.apply(call, self, args);
      } catch (error) {
        context.error = error;
        this.error.publish(context);
        throw error;
      } finally {
        this.end.publish(context);
      }
    });
  }
}

defineNode("diagnostics_channel", {
  Channel, channel, tracingChannel: (given: any) => new TracingChannel(given),
  hasSubscribers: (name: any) => channels.get(name)?.hasSubscribers ?? false,
  subscribe: (name: any, subscriber: Subscriber) => channel(name).subscribe(subscriber),
  unsubscribe: (name: any, subscriber: Subscriber) => channel(name).unsubscribe(subscriber),
});
