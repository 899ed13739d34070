// Runs the cases under Node itself: node guest_node.mjs FOLDER SERVER [NAME…] -> {name: result} as JSON.
import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { cases } from "./guest_cases.mjs";

const [folder, server, ...names] = process.argv.slice(2);
const require = createRequire(import.meta.url);
setInterval(() => undefined, 1000);  // a waiting case keeps the process alive
const results = {};
for (const name of names.length ? names : Object.keys(cases)) {
  const dir = `${folder}/${name}`;
  mkdirSync(dir, { recursive: true });
  try { results[name] = JSON.parse(JSON.stringify(await cases[name](require, dir, server)) ?? "null"); } catch (error) { results[name] = { thrown: String(error?.stack ?? error) }; }
}
process.stdout.write(JSON.stringify(results), () => process.exit(0));
