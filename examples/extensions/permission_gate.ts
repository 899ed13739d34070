// Asks before a command that destroys something; without a person it is blocked.

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

const DANGEROUS = [/\brm\s+-[a-z]*[rf]/, /\bsudo\b/, /\bchmod\b.*777/, /\bgit\s+push\s+.*--force/];

export default function (pi: ExtensionAPI) {
  pi.on("tool_call", async (event, ctx) => {
    const command = event.toolName === "bash" ? String((event.input as any).command) : "";
    if (!DANGEROUS.some((pattern) => pattern.test(command))) return undefined;
    if (!ctx.hasUI) return { block: true, reason: "Dangerous, and nobody is here to ask" };
    const choice = await ctx.ui.select(`Dangerous: ${command}`, ["Allow once", "Block"]);
    return choice === "Allow once" ? undefined : { block: true, reason: "The person blocked it" };
  });
}
