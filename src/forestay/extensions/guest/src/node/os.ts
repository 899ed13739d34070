// node:os and node:constants: the host's facts about the machine.

import { hostCallSync } from "../bridge";
import { environment } from "../environment";
import { defineNode } from "./define";

let facts: any, temporary: string | undefined;
// Returns the host's facts about the machine; after a refusal, those of a plain Linux machine without a name.
export function system(): any {
  if (facts === undefined) {
    try {
      facts = hostCallSync("env", { op: "system" });
    } catch {
      return { platform: "linux", arch: "x64", machine: "x86_64", type: "Linux", release: "", version: "", hostname: "localhost", homedir: environment.cwd, cpus: 1, user: "user", shell: null, uid: -1, gid: -1 };
    }
  }
  return facts;
}
export const SIGNALS: any = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGILL: 4, SIGTRAP: 5, SIGABRT: 6, SIGBUS: 7, SIGFPE: 8, SIGKILL: 9, SIGUSR1: 10, SIGSEGV: 11, SIGUSR2: 12, SIGPIPE: 13, SIGALRM: 14, SIGTERM: 15, SIGCHLD: 17, SIGCONT: 18, SIGSTOP: 19, SIGTSTP: 20, SIGTTIN: 21, SIGTTOU: 22, SIGWINCH: 28 };
export const os = defineNode("os", {
  EOL: "\n", devNull: "/dev/null",
  platform: () => system().platform, type: () => system().type, release: () => system().release, version: () => system().version, arch: () => system().arch, machine: () => system().machine,
  hostname: () => system().hostname, homedir: () => system().homedir, tmpdir: () => (temporary ??= hostCallSync("env", { op: "temp" }).tmpdir), endianness: () => "LE", uptime: () => 0, loadavg: () => [0, 0, 0],
  totalmem: () => 0, freemem: () => 0, availableParallelism: () => system().cpus, cpus: () => Array.from({ length: system().cpus }, () => ({ model: "", speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } })),
  networkInterfaces: () => ({}), userInfo: () => ({ username: system().user, uid: system().uid, gid: system().gid, shell: system().shell, homedir: system().homedir }),
  getPriority: () => 0, setPriority: () => undefined, constants: { signals: SIGNALS, errno: {}, priority: {} },
});

defineNode("constants", { ...SIGNALS, F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1 });
