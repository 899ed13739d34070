// The names of pi's events, and the bus between extensions.

import { hostCall, onInbound, report } from "./bridge";
import { apply, freeze, resolved, table, then } from "./primordials";

export const EVENTS: readonly string[] = freeze([
  "resources_discover", "session_start", "session_before_switch", "session_before_fork", "session_before_compact",
  "session_compact", "session_shutdown", "session_before_tree", "session_tree", "context", "before_provider_request",
  "after_provider_response", "before_agent_start", "agent_start", "agent_end", "turn_start", "turn_end",
  "message_start", "message_update", "message_end", "tool_execution_start", "tool_execution_update",
  "tool_execution_end", "model_select", "thinking_level_select", "tool_call", "tool_result", "user_bash", "input",
]);
// Names that older extensions still listen to.
export const OLDER_EVENTS: readonly string[] = freeze([
  "session_switch", "session_fork", "session_directory", "session_branch",
]);

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
