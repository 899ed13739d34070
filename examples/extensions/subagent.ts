// Gives a task to an agent of its own, in a pi that it starts, and tells how far that one is.

import { spawn } from "node:child_process";
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { Type } from "typebox";

export default function (pi: ExtensionAPI) {
  pi.registerTool({
    name: "delegate",
    label: "Delegate",
    description: "Give a task to another agent that only looks, and get its answer.",
    parameters: Type.Object({ task: Type.String() }),
    execute: (_id, params, signal, update) => new Promise((resolve, reject) => {
      const args = ["--mode", "json", "-p", "--no-session", "--tools", "read,ls,grep,find", `Task: ${params.task}`];
      const child = spawn("pi", args, { stdio: ["ignore", "pipe", "pipe"] });
      let rest = "", errors = "", last: any, calls = 0;
      const heard = (line: string) => {
        const event = line.trim() ? JSON.parse(line) : {};
        if (event.type === "tool_execution_start") update?.({ content: [{ type: "text", text: `${++calls} tool calls` }], details: {} });
        if (event.type === "message_end" && event.message.role === "assistant") last = event.message;
      };
      child.stdout.on("data", (data) => {
        const lines = (rest + data).split("\n");
        rest = lines.pop()!;
        lines.forEach(heard);
      });
      child.stderr.on("data", (data) => (errors += data));
      signal?.addEventListener("abort", () => child.kill());
      child.on("error", reject);
      child.on("close", (code) => {
        const text = (last?.content ?? []).filter((part: any) => part.type === "text").map((part: any) => part.text).join("\n");
        if (code === 0 && text) resolve({ content: [{ type: "text", text }], details: { calls } });
        else reject(new Error(errors || `the agent ended with ${code}`));
      });
    }),
  });
}
