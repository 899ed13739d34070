// Every event of the contract: says that it came, with what, and answers what an event may be answered with.
const EVENTS = [
  "resources_discover", "session_start", "session_before_switch", "session_before_fork", "session_before_compact",
  "session_compact", "session_shutdown", "session_before_tree", "session_tree", "context", "before_provider_request",
  "after_provider_response", "before_agent_start", "agent_start", "agent_end", "turn_start", "turn_end", "message_start",
  "message_update", "message_end", "tool_execution_start", "tool_execution_update", "tool_execution_end", "model_select",
  "thinking_level_select", "tool_call", "tool_result", "user_bash", "input",
];

const ANSWERS: Record<string, (event: any) => any> = {
  resources_discover: () => ({ skillPaths: ["./skills"], promptPaths: ["./prompts"] }),
  session_before_fork: () => ({ cancel: true }),
  session_before_compact: () => ({ compaction: { summary: "s", firstKeptEntryId: "a", tokensBefore: 1 } }),
  context: (event) => ({ messages: [...event.messages, { role: "user", content: "added", timestamp: 2 }] }),
  before_provider_request: (event) => ({ ...event.payload, extra: true }),
  before_agent_start: (event) => ({
    systemPrompt: `${event.systemPrompt} More.`, message: { customType: "note", content: "noted", display: true },
  }),
  message_end: (event) => ({ message: { ...event.message, content: [{ type: "text", text: "changed" }] } }),
  tool_call: (event) => {
    event.input.command = `${event.input.command} -la`;
    return undefined;
  },
  tool_result: () => ({ content: [{ type: "text", text: "replaced" }], isError: true }),
  user_bash: () => ({ result: { output: "mine", exitCode: 0, cancelled: false, truncated: false } }),
  input: (event) => ({ action: "transform", text: event.text.toUpperCase() }),
};

export default function (pi: any) {
  for (const name of EVENTS) {
    pi.on(name, async (event: any, ctx: any) => {
      ctx.ui.notify(`${name}: ${Object.keys(event).filter((key) => key !== "signal").sort().join(" ")}`, "info");
      return ANSWERS[name]?.(event);
    });
  }
}
