// Remembers the files as they were before each turn, in git, and brings them back.

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

export default function (pi: ExtensionAPI) {
  const git = (...args: string[]) => pi.exec("git", ["-c", "user.name=checkpoint", "-c", "user.email=checkpoint@localhost", ...args]);

  pi.on("turn_start", async (event, ctx) => {
    if ((event as any).turnIndex > 0) return;
    const made = await git("stash", "create");
    const ref = made.stdout.trim() || (await git("rev-parse", "HEAD")).stdout.trim();
    if (made.code === 0 && ref) pi.appendEntry("checkpoint", { ref, leaf: ctx.sessionManager.getLeafId() });
  });
  pi.registerCommand("restore", {
    description: "Bring the files back to a checkpoint",
    handler: async (_args, ctx) => {
      const made = ctx.sessionManager.getEntries().filter((entry: any) => entry.customType === "checkpoint") as any[];
      if (made.length === 0) return ctx.ui.notify("There is no checkpoint", "warning");
      const names = made.map((entry, at) => `checkpoint ${at + 1}: ${entry.data.ref.slice(0, 8)}`);
      const chosen = await ctx.ui.select("Which one?", names);
      if (chosen === undefined || !(await ctx.ui.confirm("Restore?", "What was changed since is lost."))) return;
      const { ref } = made[names.indexOf(chosen)].data;
      const done = await git("checkout", ref, "--", ".");
      ctx.ui.notify(done.code === 0 ? `The files are as at ${ref.slice(0, 8)}` : done.stderr, done.code === 0 ? "info" : "error");
    },
  });
}
