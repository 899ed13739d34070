// Uses what pi 1.5.0 added: virtual models, servers that come and go, and the end of an agent's work.
import { complete } from "@mariozechner/pi-ai";

export default function (pi: any) {
  const told: any[] = [];
  let asked = 0;
  pi.registerMcpServer("charts", { command: "charts-server", env: { CHARTS_KEY: "k" } });
  pi.registerVirtualModel({
    provider: "sea", id: "auto", name: "Whichever", contextWindow: 1000,
    route: (request: any, ctx: any) => ({ model: ctx.modelRegistry.find("sea", request.messages.length > 1 ? "flood" : "ebb"), thinkingLevel: "off" }),
  });
  pi.on("mcp_servers_change", (event: any) => void told.push(event.servers.map((server: any) => server.name)));
  pi.on("agent_before_settle", (event: any) => {
    told.push([event.outcome, event.context.contextMessages.length]);
    asked += 1;
    return { entries: [...event.entries, { type: "custom", customType: "log", data: { asked } }], continue: asked === 1 };
  });
  const command = (name: string, handler: any) => pi.registerCommand(name, { handler: (args: string, ctx: any) => handler(ctx, args) });
  command("models", (ctx: any) => ctx.modelRegistry.getAll().map((model: any) => `${model.provider}/${model.id}`));
  command("choose", async (ctx: any) => [await pi.setModel(ctx.modelRegistry.find("sea", "auto")), ctx.model.id]);
  command("complete", async (ctx: any, args: string) => {
    const messages = args.split(" ").map((content) => ({ role: "user", content }));
    const answer = await complete(ctx.modelRegistry.find("sea", "auto"), { messages });
    return [answer.model, answer.stopReason, answer.errorMessage ?? ""];
  });
  command("drop", (ctx: any) => { pi.unregisterVirtualModel("sea", "auto"); return ctx.modelRegistry.find("sea", "auto") ?? null; });
  command("servers", () => pi.getMcpServers());
  command("rename", async () => { pi.unregisterMcpServer("charts"); pi.registerMcpServer("tides", { url: "https://tides.example" }); await 0; });
  command("told", () => told.splice(0));
}
