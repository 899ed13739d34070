// Failures: a handler that blocks by throwing, others that go on, a tool that throws, a tool that rejects.
const nothing = { type: "object", properties: {} };

export default function (pi: any) {
  pi.on("tool_call", () => {
    throw new Error("guard broke");
  });
  pi.on("agent_start", async () => {
    throw new TypeError("first");
  });
  pi.on("agent_start", (_event: any, ctx: any) => ctx.ui.notify("second"));
  pi.on("turn_start", () => Promise.reject(new RangeError("late")));
  pi.registerTool({ name: "throws", label: "T", description: "Throws", parameters: nothing, execute() { throw new Error("thrown"); } });
  pi.registerTool({ name: "rejects", label: "R", description: "Rejects", parameters: nothing, execute: async () => Promise.reject(new Error("rejected")) });
  pi.registerCommand("fails", { handler: async () => { throw new Error("command failed"); } });
}
