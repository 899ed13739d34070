// The bus between extensions.

import { hostCall, onInbound, report } from "./bridge";
import { apply, resolved, table, then } from "./primordials";

type Listener = (data: any) => any;

const listeners = table<string, Listener[]>();

function deliver(channel: string, data: any): void {
  const known = listeners.get(channel);
  if (known === undefined) return;
  const list = [...known];
  for (let i = 0; i < list.length; i++) {
    try {
      const value = list[i](data);
      if (value !== null && typeof value === "object" && typeof value.then === "function") {
        then(resolved(value), () => undefined, (error) => report(error, `events:${channel}`));
      }
    } catch (error) {
      report(error, `events:${channel}`);
    }
  }
}

onInbound("bus", (payload: any) => deliver(payload.channel, payload.data));

export const bus = {
  emit(channel: string, data?: any): void {
    deliver(channel, data);
    then(hostCall("events", { op: "emit", channel: "" + channel, data }), () => undefined, () => undefined);
  },
  on(channel: string, handler: Listener): () => void {
    if (typeof handler !== "function") throw new TypeError("pi.events.on needs a function");
    const list = listeners.get(channel) ?? [];
    listeners.set(channel, [...list, handler]);
    return () => {
      const now = listeners.get(channel) ?? [];
      const at = now.indexOf(handler);
      if (at >= 0) listeners.set(channel, [...now.slice(0, at), ...now.slice(at + 1)]);
    };
  },
  clear(): void {
    apply(listeners.clear, listeners, []);
  },
};
