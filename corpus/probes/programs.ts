// Programs: pi.exec and node:child_process, their output, codes and failures.
import { exec, execFileSync, execSync, spawn, spawnSync } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(exec);

export default function (pi: any) {
  pi.registerTool({
    name: "programs", label: "Programs", description: "Uses programs", parameters: { type: "object", properties: {} },
    async execute(_id: string, _params: any, _signal: any, _update: any, ctx: any) {
      const said: any = {};
      const { stdout, stderr, code, killed } = await pi.exec("tool", ["a", "b c"]);
      said.exec = { stdout, stderr, code, killed };
      const missing = await pi.exec("no-such-program", []);
      said.missing = { stdout: missing.stdout, stderr: missing.stderr, code: missing.code, killed: missing.killed };
      const controller = new AbortController();
      setTimeout(() => controller.abort(), 700);
      const aborted = await pi.exec("slow", [], { signal: controller.signal });
      said.aborted = { stdout: aborted.stdout, stderr: aborted.stderr, code: aborted.code, killed: aborted.killed };
      const late = await pi.exec("slow", [], { timeout: 700 });
      said.late = { stdout: late.stdout, stderr: late.stderr, code: late.code, killed: late.killed };
      said.sync = execSync("echo hi", { encoding: "utf-8", cwd: ctx.cwd });
      said.file = execFileSync("ok", [], { input: "given", encoding: "utf8" });
      const failed = spawnSync("tool", ["x"], { encoding: "utf-8" });
      said.spawnSync = [failed.status, failed.stdout, failed.stderr];
      try {
        execSync("exit 4", { stdio: "pipe" });
      } catch (error: any) {
        said.thrown = error.status;
      }
      said.promised = (await run("echo promised")).stdout;
      said.rejected = await run("exit 5").catch((error) => error.code);
      said.spawned = await new Promise((done) => {
        const child = spawn("tool", ["s"]);
        let out = "";
        child.stdout.on("data", (data) => (out += data.toString()));
        child.on("close", (status) => done([status, out]));
      });
      said.absent = await new Promise((done) => spawn("no-such-program", []).on("error", (error: any) => done(error.code)));
      return { content: [{ type: "text", text: "done" }], details: said };
    },
  });
}
