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

// The words of the host's own tools, which an extension that wraps one of them hands on: not the extension's words.
const walk = (value, at, visit) => {
  if (typeof value === "string") visit(value, at);
  else if (Array.isArray(value)) value.forEach((item, index) => walk(item, `${at}[${index}]`, visit));
  else if (value !== null && typeof value === "object") for (const key of Object.keys(value)) walk(value[key], at ? `${at}.${key}` : key, visit);
};
const hostTexts = new Set();
const host = await import(pathToFileURL(`${loader.split("/core/extensions/")[0]}/index.js`).href);
for (const kind of ["Read", "Bash", "Edit", "Write", "Grep", "Find", "Ls"]) {
  for (const make of [host[`create${kind}Tool`], host[`create${kind}ToolDefinition`]]) {
    const tool = make?.(cwd);
    const words = [tool?.description, tool?.parameters, tool?.promptSnippet, tool?.promptGuidelines];
    walk(plain(words) ?? [], "", (text) => text.includes(" ") && hostTexts.add(text));
  }
}
for (const path of extensions) {
  const answer = { path };
  try {
    const timeout = new Promise((_, reject) => setTimeout(() => reject(new Error("no answer in 60 s")), 60_000).unref());
    const { extensions: loaded, errors, runtime } = await Promise.race([loadExtensions([path], cwd), timeout]);
    if (errors.length > 0) answer.error = errors[0].error;
    else {
      answer.registrations = described(loaded[0], runtime);
      answer.host = [];
      walk(answer.registrations.tools, "tools", (text, at) => hostTexts.has(text) && answer.host.push(at));
    }
  } catch (error) {
    answer.error = String(error?.message ?? error);
  }
  await new Promise((resolve) => write(JSON.stringify(answer) + "\n", resolve));
}
process.exit(0);
