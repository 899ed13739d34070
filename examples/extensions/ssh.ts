// Runs the agent's commands, and the person's own, on another machine: set the flag `ssh` to its name.

import { spawn } from "node:child_process";
import { type ExtensionAPI, createBashTool } from "@earendil-works/pi-coding-agent";

export default function (pi: ExtensionAPI) {
  pi.registerFlag("ssh", { type: "string", description: "The machine that commands run on" });
  const cwd = process.cwd();
  const local = createBashTool(cwd);
  const remote = () => pi.getFlag("ssh") as string | undefined;

  const operations = (machine: string) => ({
    exec: (command: string, _cwd: string, { onData, signal }: any) => new Promise<{ exitCode: number | null }>((resolve, reject) => {
      const child = spawn("ssh", [machine, command], { stdio: ["ignore", "pipe", "pipe"] });
      child.stdout.on("data", onData);
      child.stderr.on("data", onData);
      signal?.addEventListener("abort", () => child.kill());
      child.on("error", reject);
      child.on("close", (code) => resolve({ exitCode: code }));
    }),
  });
  pi.registerTool({
    ...local,
    execute: (id, params, signal, update, ctx) => {
      const machine = remote();
      const tool = machine ? createBashTool(cwd, { operations: operations(machine) }) : local;
      return tool.execute(id, params, signal, update, ctx);
    },
  });
  pi.on("user_bash", () => (remote() ? { operations: operations(remote()!) } : undefined));
  pi.on("session_start", (_event, ctx) => ctx.ui.setStatus("ssh", remote() ? `commands run on ${remote()}` : undefined));
}
