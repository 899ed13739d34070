// Starts the MCP servers of .pi/mcp.json when the session begins, and offers their tools to the model.

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

class Server {
  private waiting = new Map<number, { resolve: (value: any) => void; reject: (error: Error) => void }>();
  private child: ChildProcess;
  private next = 1;
  private rest = "";

  constructor(command: string, args: string[]) {
    this.child = spawn(command, args, { stdio: ["pipe", "pipe", "ignore"] });
    this.child.stdout!.on("data", (data) => this.heard("" + data));
    this.child.on("close", () => this.waiting.forEach(({ reject }) => reject(new Error("the server ended"))));
  }
  private heard(data: string) {
    const lines = (this.rest + data).split("\n");
    this.rest = lines.pop()!;
    for (const line of lines.filter(Boolean)) {
      const message = JSON.parse(line);
      const asked = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      if (message.error) asked?.reject(new Error(message.error.message));
      else asked?.resolve(message.result);
    }
  }
  private send(message: object) {
    this.child.stdin!.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }
  ask(method: string, params: object = {}): Promise<any> {
    const id = this.next++;
    this.send({ id, method, params });
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }
  async begin() {
    await this.ask("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "adapter", version: "1" } });
    this.send({ method: "notifications/initialized" });
    return (await this.ask("tools/list")).tools as any[];
  }
  end() {
    this.child.kill();
  }
}

export default function (pi: ExtensionAPI) {
  const running: Server[] = [];
  pi.on("session_start", async (_event, ctx) => {
    if (running.length || !existsSync(".pi/mcp.json")) return;
    const { mcpServers } = JSON.parse(readFileSync(".pi/mcp.json", "utf8"));
    for (const [name, entry] of Object.entries<any>(mcpServers)) {
      const server = new Server(entry.command, entry.args ?? []);
      running.push(server);
      const tools = await server.begin();
      for (const tool of tools) {
        pi.registerTool({
          name: `${name}_${tool.name}`,
          label: tool.name,
          description: tool.description ?? tool.name,
          parameters: tool.inputSchema,
          execute: async (_id, params) => ({ content: (await server.ask("tools/call", { name: tool.name, arguments: params })).content, details: {} }),
        });
      }
      ctx.ui.setStatus(`mcp:${name}`, `${name}: ${tools.length} tools`);
    }
  });
  pi.on("session_shutdown", () => running.splice(0).forEach((server) => server.end()));
}
