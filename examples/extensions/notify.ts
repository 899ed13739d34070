// Tells when the agent is done, and how long it took.

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

export default function (pi: ExtensionAPI) {
  let began = 0;
  pi.on("agent_start", (_event, ctx) => {
    began = Date.now();
    ctx.ui.setTitle("working");
    ctx.ui.setWorkingMessage("The agent is at it");
  });
  pi.on("agent_end", (event, ctx) => {
    const calls = (event as any).messages.filter((message: any) => message.role === "toolResult").length;
    ctx.ui.setWorkingMessage();
    ctx.ui.setTitle("done");
    if (ctx.hasUI) ctx.ui.notify(`Done after ${Math.max(1, Math.round((Date.now() - began) / 1000))} s and ${calls} tool calls`);
  });
}
