// Holds the agent's commands to rules of the project (.pi/sandbox.json): words that no command may have, and an empty
// environment around each.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type ExtensionAPI, createBashTool } from "@earendil-works/pi-coding-agent";

export default function (pi: ExtensionAPI) {
  const cwd = process.cwd();
  const path = join(cwd, ".pi", "sandbox.json");
  const rules = (): { deny: string[] } => (existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : { deny: [] });
  const checked = (command: string) => {
    const word = rules().deny.find((denied) => command.includes(denied));
    if (word) throw new Error(`The sandbox of this project denies ${JSON.stringify(word)}`);
    return command;
  };
  const bash = createBashTool(cwd, { spawnHook: (context: any) => ({ ...context, env: { PATH: process.env.PATH, SANDBOXED: "1" } }) } as any);
  pi.registerTool({
    ...bash,
    label: "bash (sandboxed)",
    execute: async (id, params, signal, update, ctx) => bash.execute(id, { ...params, command: checked(params.command) }, signal, update, ctx),
  });
  pi.on("user_bash", (event) => {
    try {
      checked(event.command);
      return undefined;
    } catch (error: any) {
      return { result: { output: error.message, exitCode: 1, cancelled: false, truncated: false } };
    }
  });
  pi.registerCommand("sandbox", { description: "Show the rules", handler: async (_args, ctx) => ctx.ui.notify(`denied: ${rules().deny.join(", ") || "nothing"}`) });
}
