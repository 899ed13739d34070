// State in the session: entries, name, tools, thinking level.
import { Type } from "typebox";

export default function (pi: any) {
  let restored: any[] = [];
  pi.on("session_start", async (_event: any, ctx: any) => {
    restored = ctx.sessionManager.getEntries().map((entry: any) => entry.type);
  });
  pi.registerTool({
    name: "state", label: "State", description: "Keeps state", parameters: Type.Object({ value: Type.Optional(Type.String()) }),
    async execute(_id: string, { value }: any, _signal: any, _update: any, ctx: any) {
      if (value !== undefined) pi.appendEntry("state", { value });
      const kept = ctx.sessionManager.getBranch().filter((entry: any) => entry.customType === "state").map((entry: any) => entry.data.value);
      return { content: [{ type: "text", text: kept.join(",") }], details: { kept, restored, leaf: ctx.sessionManager.getLeafId(), id: ctx.sessionManager.getSessionId() } };
    },
  });
  pi.registerCommand("name", {
    handler: async (args: string, ctx: any) => {
      pi.setSessionName(args);
      ctx.ui.notify(`${pi.getSessionName()}`);
    },
  });
  pi.registerCommand("tools", {
    handler: async (_args: string, ctx: any) => {
      pi.setActiveTools(["read", "state"]);
      ctx.ui.notify(pi.getActiveTools().join(" "));
      ctx.ui.notify(pi.getAllTools().map((tool: any) => tool.name).join(" "));
    },
  });
  pi.registerCommand("level", {
    handler: async (_args: string, ctx: any) => {
      pi.setThinkingLevel("high");
      ctx.ui.notify(pi.getThinkingLevel());
      pi.setLabel("a", "mark");
      pi.sendMessage({ customType: "t", content: "c", display: true }, { triggerTurn: true });
      pi.sendUserMessage("hello", { deliverAs: "steer" });
      ctx.ui.notify(String(ctx.isIdle()));
      ctx.abort();
    },
  });
}
