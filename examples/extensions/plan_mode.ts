// Plan first: while the mode is on, the agent can only look; then the person says whether the plan is carried out.

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

export default function (pi: ExtensionAPI) {
  let planning = false;
  const toggle = (ctx: any) => {
    planning = !planning;
    pi.setActiveTools(planning ? ["read", "ls", "grep", "find"] : pi.getAllTools().map((tool) => tool.name));
    ctx.ui.setStatus("plan", planning ? "plan mode: looking only" : undefined);
    ctx.ui.notify(planning ? "Plan mode is on" : "Plan mode is off");
  };
  pi.registerCommand("plan", { description: "Plan before anything is changed", handler: async (_args, ctx) => toggle(ctx) });
  pi.registerShortcut("ctrl+o", { description: "Turn plan mode on or off", handler: async (ctx) => toggle(ctx) });
  pi.on("before_agent_start", (event) => planning ? { systemPrompt: `${event.systemPrompt}\n\nMake a plan. Change nothing.` } : undefined);
  pi.on("tool_call", (event) => planning && ["bash", "write", "edit"].includes(event.toolName) ? { block: true, reason: "Plan mode: looking only" } : undefined);
  pi.on("agent_end", async (_event, ctx) => {
    if (!planning || !ctx.hasUI) return;
    const choice = await ctx.ui.select("The plan is there. What now?", ["Carry it out", "Go on planning"]);
    if (choice !== "Carry it out") return;
    toggle(ctx);
    pi.sendUserMessage("Carry out the plan.");
  });
}
