// The real loader and the real runner, timed in one Node process. Input (stdin): {"loader", "runner", "cwd",
// "extensions": [paths], "passes", "own": path, "calls", "counts"}; output: one line of JSON with times in seconds.
import { pathToFileURL } from "node:url";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const given = JSON.parse(Buffer.concat(chunks).toString());

const write = process.stdout.write.bind(process.stdout);
process.stdout.write = () => true; // what extensions print is not the answer
process.stderr.write = () => true;
process.on("uncaughtException", () => {});
process.on("unhandledRejection", () => {});

const { loadExtensions } = await import(pathToFileURL(given.loader).href);
const { ExtensionRunner } = await import(pathToFileURL(given.runner).href);
const seconds = () => performance.now() / 1000;

const timed = async (work) => {
  const started = seconds();
  await work();
  return seconds() - started;
};

// Each pass loads every extension; the first has nothing in the loader's cache, the later ones have all.
const loads = [];
for (let pass = 0; pass < given.passes; pass++) {
  const times = [];
  for (const path of given.extensions) {
    let failed = false;
    const took = await timed(async () => {
      failed = (await loadExtensions([path], given.cwd)).errors.length > 0;
    });
    if (!failed) times.push(took);
  }
  loads.push(times);
}

const own = await loadExtensions([given.own], given.cwd);
if (own.errors.length > 0) throw new Error(own.errors[0].error);
const runner = new ExtensionRunner(own.extensions, own.runtime, given.cwd, {}, {});
const tools = {};
for (const [name, { definition }] of own.extensions[0].tools) {
  const times = [];
  for (let index = 0; index < given.calls; index++) {
    const signal = new AbortController().signal;
    times.push(await timed(() => definition.execute("call", { n: 4 }, signal, () => {}, runner.createContext())));
  }
  tools[name] = times.slice(times.length >> 1); // the first half warms the compiler up
}

const events = {};
for (const count of given.counts) {
  const many = new ExtensionRunner(Array(count).fill(own.extensions[0]), own.runtime, given.cwd, {}, {});
  const times = [];
  for (let index = 0; index < given.calls; index++) {
    times.push(await timed(() => many.emit({ type: "turn_start", turnIndex: 1 })));
  }
  events[count] = times.slice(times.length >> 1);
}
await new Promise((resolve) => write(JSON.stringify({ loads, tools, events }) + "\n", resolve));
process.exit(0);
