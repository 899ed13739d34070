// Keeps what is worth knowing in .pi/memory.md, and tells it to the model at the beginning of each turn.

import { appendFileSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { Type } from "typebox";

const FILE = ".pi/memory.md";

export default function (pi: ExtensionAPI) {
  const kept = () => (existsSync(FILE) ? readFileSync(FILE, "utf8").trim() : "");
  pi.registerTool({
    name: "remember",
    label: "Remember",
    description: "Keep a fact for later conversations.",
    parameters: Type.Object({ fact: Type.String() }),
    async execute(_id, params) {
      mkdirSync(".pi", { recursive: true });
      appendFileSync(FILE, `- ${params.fact}\n`);
      return { content: [{ type: "text", text: `Kept: ${params.fact}` }], details: {} };
    },
  });
  pi.on("before_agent_start", (event) => (kept() ? { systemPrompt: `${event.systemPrompt}\n\nWhat you remember:\n${kept()}` } : undefined));
  pi.registerCommand("memory", { description: "Show what is remembered", handler: async (_args, ctx) => ctx.ui.notify(kept() || "nothing yet") });
}
