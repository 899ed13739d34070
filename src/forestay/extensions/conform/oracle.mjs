// The oracle: loads extensions with the real loader and prints what each registered, one JSON line each.
// Input (stdin): {"loader": file, "cwd": folder, "extensions": [paths]}. Nothing here knows any extension.
import { pathToFileURL } from "node:url";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const { loader, cwd, extensions } = JSON.parse(Buffer.concat(chunks).toString());

const write = process.stdout.write.bind(process.stdout);
// What extensions print must not end up among the answers.
process.stdout.write = () => true;
process.stderr.write = () => true;
process.on("uncaughtException", () => {});
process.on("unhandledRejection", () => {});

// JSON as the host would send it: functions become a mark, what JSON cannot carry disappears.
const plain = (value) =>
  value === undefined
    ? undefined
    : JSON.parse(JSON.stringify(value, (_key, item) => (typeof item === "function" ? "[function]" : item)) ?? "null");

const described = (extension, runtime) => ({
  tools: [...extension.tools.values()].map(({ definition: tool }) => ({
    name: tool.name,
    label: tool.label,
    description: tool.description,
    parameters: plain(tool.parameters),
    promptSnippet: tool.promptSnippet,
    promptGuidelines: plain(tool.promptGuidelines),
    executionMode: tool.executionMode,
    prepares: typeof tool.prepareArguments === "function",
    rendersCall: typeof tool.renderCall === "function",
    rendersResult: typeof tool.renderResult === "function",
  })),
  commands: [...extension.commands.values()].map((command) => ({
    name: command.name,
    description: command.description,
    completes: typeof command.getArgumentCompletions === "function",
  })),
  handlers: Object.fromEntries([...extension.handlers].map(([event, list]) => [event, list.length])),
  shortcuts: [...extension.shortcuts.values()].map((item) => ({
    shortcut: String(item.shortcut),
    description: item.description,
  })),
  flags: [...extension.flags.values()].map((flag) => ({
    name: flag.name,
    type: flag.type,
    default: flag.default,
    description: flag.description,
  })),
  renderers: [...extension.messageRenderers.keys()],
  entryRenderers: [...(extension.entryRenderers?.keys() ?? [])],
  providers: runtime.pendingProviderRegistrations.map(({ name, config }) => ({
    provider: name,
    api: config.api,
    baseUrl: config.baseUrl,
    models: plain(config.models ?? []),
    streams: typeof config.streamSimple === "function",
    oauth: config.oauth !== undefined,
  })),
});

const { loadExtensions } = await import(pathToFileURL(loader).href);

for (const path of extensions) {
  const answer = { path };
  try {
    const timeout = new Promise((_, reject) => setTimeout(() => reject(new Error("no answer in 60 s")), 60_000).unref());
    const { extensions: loaded, errors, runtime } = await Promise.race([loadExtensions([path], cwd), timeout]);
    if (errors.length > 0) answer.error = errors[0].error;
    else answer.registrations = described(loaded[0], runtime);
  } catch (error) {
    answer.error = String(error?.message ?? error);
  }
  await new Promise((resolve) => write(JSON.stringify(answer) + "\n", resolve));
}
process.exit(0);
