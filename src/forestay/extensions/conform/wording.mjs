// The wording of the real host's own tools, as it describes them itself: label, description, parameters, prompt texts.
// Input (stdin): {"package": folder, "cwd": folder}. Output: one JSON line, tool name to words.
import { pathToFileURL } from "node:url";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const asked = JSON.parse(Buffer.concat(chunks).toString());
const host = await import(pathToFileURL(`${asked.package}/dist/index.js`).href);

// `edits.oldText` is the parameter `oldText` of the objects in the list `edits`.
const described = (schema, at, found) => {
  for (const [name, property] of Object.entries(schema?.properties ?? {})) {
    if (typeof property.description === "string") found[at + name] = property.description;
    described(property.items ?? property, `${at}${name}.`, found);
  }
  return found;
};

const words = {};
for (const kind of ["Read", "Bash", "Edit", "Write", "Grep", "Find", "Ls"]) {
  const tool = host[`create${kind}ToolDefinition`](asked.cwd);
  words[tool.name] = {
    label: tool.label,
    description: tool.description,
    parameters: described(tool.parameters, "", {}),
    promptSnippet: tool.promptSnippet ?? null,
    promptGuidelines: tool.promptGuidelines ?? null,
  };
}
await new Promise((resolve) => process.stdout.write(JSON.stringify(words) + "\n", resolve));
process.exit(0);
