// A footer of its own: the model, how full its window is, and how often it answered.

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

export default function (pi: ExtensionAPI) {
  pi.on("session_start", (_event, ctx) => show(ctx));
  pi.registerCommand("footer", { description: "Show the footer, or hide it", handler: async (args, ctx) => (args.trim() === "off" ? ctx.ui.setFooter(undefined) : show(ctx)) });

  function show(ctx: any) {
    ctx.ui.setFooter((tui: any, theme: any) => {
      pi.on("agent_end", () => tui.requestRender());
      return {
        invalidate() {},
        render(width: number): string[] {
          const answers = ctx.sessionManager.getBranch().filter((entry: any) => entry.type === "message" && entry.message.role === "assistant");
          const usage = ctx.getContextUsage();
          const full = usage?.tokens ? ` · ${usage.tokens} tokens` : "";
          return [theme.fg("dim", `${ctx.model?.id ?? "no model"} · ${answers.length} answers${full}`).slice(0, width)];
        },
      };
    });
  }
}
