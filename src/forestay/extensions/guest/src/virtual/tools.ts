// The built-in tools as objects that an extension can wrap: the host performs them, or operations that the caller gives.

import { Type } from "typebox";
import { hostCall } from "../bridge";
import { Buffer } from "../node/buffer";
import { fs, promises } from "../node/fs";
import { os, system } from "../node/os";
import { isAbsolute, join, resolve } from "../node/path";
import { spawn } from "../node/child_process";
import { wordsOf } from "./words";

export const DEFAULT_MAX_LINES = 2000;
export const DEFAULT_MAX_BYTES = 50 * 1024;
const T: any = Type;

export function formatSize(bytes: number): string {
  return bytes < 1024 ? `${bytes}B` : bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)}KB` : `${(bytes / (1024 * 1024)).toFixed(1)}MB`;
}

function cut(content: string, options: any, fromEnd: boolean): any {
  const maxLines = options?.maxLines ?? DEFAULT_MAX_LINES;
  const maxBytes = options?.maxBytes ?? DEFAULT_MAX_BYTES;
  const lines = content.split("\n");
  const totalBytes = Buffer.byteLength(content);
  const result = (text: string, reason: string | null, kept: number, more: any = {}) => ({ content: text, truncated: reason !== null, truncatedBy: reason, totalLines: lines.length, totalBytes, outputLines: kept, outputBytes: Buffer.byteLength(text), lastLinePartial: false, firstLineExceedsLimit: false, maxLines, maxBytes, ...more });
  if (lines.length <= maxLines && totalBytes <= maxBytes) return result(content, null, lines.length);
  let kept = 0;
  let used = 0;
  let reason = "lines";
  for (const line of fromEnd ? [...lines].reverse().slice(0, maxLines) : lines.slice(0, maxLines)) {
    const size = Buffer.byteLength(line) + (kept ? 1 : 0);
    if (used + size > maxBytes) { reason = "bytes"; break; }
    used += size;
    kept++;
  }
  if (fromEnd && kept === 0) return result(Buffer.from(lines[lines.length - 1]).subarray(-maxBytes).toString(), reason, 1, { lastLinePartial: true });
  const part = fromEnd ? lines.slice(lines.length - kept) : lines.slice(0, kept);
  return result(part.join("\n"), reason, kept, { firstLineExceedsLimit: !fromEnd && kept === 0 && reason === "bytes" });
}
export const truncateHead = (content: string, options?: any): any => cut(content, options, false);
export const truncateTail = (content: string, options?: any): any => cut(content, options, true);
export const truncateLine = (line: string, most = 500): any => (line.length > most ? { text: `${line.slice(0, most)}... [truncated]`, wasTruncated: true } : { text: line, wasTruncated: false });

const queues = new Map<string, Promise<any>>();
// Runs the changes of a file one at a time, in the order of the calls.
export function withFileMutationQueue<R>(path: string, work: () => Promise<R>): Promise<R> {
  const key = resolve(path);
  const result = (queues.get(key) ?? Promise.resolve()).then(work, work);
  const settled = result.then(() => undefined, () => undefined);
  queues.set(key, settled);
  settled.then(() => { if (queues.get(key) === settled) queues.delete(key); });
  return result;
}

const at = (cwd: string, path: string): string => { const plain = path.replace(/^@/, "").replace(/^~(?=\/|$)/, () => os.homedir()); return isAbsolute(plain) ? plain : join(cwd, plain); };
const text = (content: string, details?: any): any => ({ content: [{ type: "text", text: content }], details });
const byHost = (name: string, input: any, signal: any): Promise<any> => hostCall("tool", { name, input }, { signal }).then((found: any) => ({ content: found.content, details: found.details }));

type Say = (parameter: string) => { description: string };
interface Spec { name: string; parameters: (say: Say, closed?: any) => any; run: (cwd: string, options: any, params: any, signal: any, onUpdate: any) => Promise<any> }

const specs: Record<string, Spec> = {
  read: {
    name: "read",
    parameters: (say) => T.Object({ path: T.String(say("path")), offset: T.Optional(T.Number(say("offset"))), limit: T.Optional(T.Number(say("limit"))) }),
    async run(cwd, options, params, signal) {
      const ops = options.operations;
      if (!ops?.readFile) return byHost("read", { ...params, path: at(cwd, params.path) }, signal);
      await ops.access?.(at(cwd, params.path));
      const lines = (await ops.readFile(at(cwd, params.path))).toString("utf-8").split("\n");
      const start = Math.max(0, (params.offset ?? 1) - 1);
      if (start >= lines.length) throw new Error(`Offset ${params.offset} is beyond end of file (${lines.length} lines total)`);
      const end = params.limit === undefined ? lines.length : Math.min(lines.length, start + params.limit);
      const shown = truncateHead(lines.slice(start, end).join("\n"));
      const last = start + shown.outputLines;
      const note = shown.truncated ? `\n\n[Showing lines ${start + 1}-${last} of ${lines.length}. Use offset=${last + 1} to continue.]` : end < lines.length ? `\n\n[${lines.length - end} more lines in file. Use offset=${end + 1} to continue.]` : "";
      return text(shown.content + note, shown.truncated ? { truncation: shown } : undefined);
    },
  },
  write: {
    name: "write",
    parameters: (say) => T.Object({ path: T.String(say("path")), content: T.String(say("content")) }),
    async run(cwd, options, params, signal) {
      const path = at(cwd, params.path);
      const ops = options.operations;
      if (!ops?.writeFile) { const found = await byHost("write", { ...params, path }, signal); return text(`Successfully wrote ${params.content.length} bytes to ${params.path}`, found.details); }
      return withFileMutationQueue(path, async () => { await ops.mkdir?.(join(path, "..")); await ops.writeFile(path, params.content); return text(`Successfully wrote ${params.content.length} bytes to ${params.path}`); });
    },
  },
  edit: {
    name: "edit",
    parameters: (say, closed) => T.Object({ path: T.String(say("path")), edits: T.Array(T.Object({ oldText: T.String(say("edits.oldText")), newText: T.String(say("edits.newText")) }, closed), say("edits")) }, closed),
    async run(cwd, options, params, signal) {
      const path = at(cwd, params.path);
      const ops = options.operations;
      const edits = params.edits ?? [{ oldText: params.oldText, newText: params.newText }];
      if (!ops?.readFile) {
        const done = await byHost("edit", { path, edits }, signal);
        return text(`Successfully replaced ${edits.length} block(s) in ${params.path}.`, done.details);
      }
      return withFileMutationQueue(path, async () => {
        let content = (await ops.readFile(path)).toString("utf-8");
        for (const edit of edits) {
          if (content.split(edit.oldText).length !== 2) throw new Error(`The old text must match exactly once in ${params.path}.`);
          content = content.replace(edit.oldText, () => edit.newText);
        }
        await ops.writeFile(path, content);
        return text(`Successfully replaced ${edits.length} block(s) in ${params.path}.`);
      });
    },
  },
  ls: { name: "ls", parameters: (say) => T.Object({ path: T.Optional(T.String(say("path"))), limit: T.Optional(T.Number(say("limit"))) }), run: (cwd, _options, params, signal) => byHost("ls", { ...params, path: at(cwd, params.path ?? ".") }, signal) },
  find: { name: "find", parameters: (say) => T.Object({ pattern: T.String(say("pattern")), path: T.Optional(T.String(say("path"))), limit: T.Optional(T.Number(say("limit"))) }), run: (cwd, _options, params, signal) => byHost("find", { ...params, path: at(cwd, params.path ?? ".") }, signal) },
  grep: { name: "grep", parameters: (say) => T.Object({ pattern: T.String(say("pattern")), path: T.Optional(T.String(say("path"))), glob: T.Optional(T.String(say("glob"))), ignoreCase: T.Optional(T.Boolean(say("ignoreCase"))), literal: T.Optional(T.Boolean(say("literal"))), context: T.Optional(T.Number(say("context"))), limit: T.Optional(T.Number(say("limit"))) }), run: (cwd, _options, params, signal) => byHost("grep", { ...params, path: at(cwd, params.path ?? ".") }, signal) },
  bash: {
    name: "bash",
    parameters: (say) => T.Object({ command: T.String(say("command")), timeout: T.Optional(T.Number(say("timeout"))) }),
    async run(cwd, options, params, signal, onUpdate) {
      let context: any = { command: options.commandPrefix ? `${options.commandPrefix}\n${params.command}` : params.command, cwd, env: { ...(globalThis as any).process.env } };
      if (options.spawnHook) context = options.spawnHook(context);
      const parts: any[] = [];
      const shown = (): any => truncateTail(Buffer.concat(parts).toString());
      const ops = options.operations ?? createLocalBashOperations(options);
      let failure: any;
      onUpdate?.({ content: [], details: undefined }); // pi sends an empty update at once
      const done = await ops.exec(context.command, context.cwd, { onData: (data: any) => { parts.push(Buffer.from(data)); onUpdate?.({ content: [{ type: "text", text: shown().content }], details: {} }); }, signal, timeout: params.timeout, env: context.env }).catch((error: any) => { failure = error; return { exitCode: null }; });
      const found = shown();
      const details = found.truncated ? { truncation: found } : undefined;
      const output = found.content || "(no output)";
      if (failure) {
        if (failure.message === "aborted") throw new Error(`${output}\n\nCommand aborted`);
        if (String(failure.message).startsWith("timeout:")) throw new Error(`${output}\n\nCommand timed out after ${params.timeout} seconds`);
        throw failure;
      }
      if (done.exitCode !== 0 && done.exitCode !== null) throw new Error(`${output}\n\nCommand exited with code ${done.exitCode}`);
      return text(output, details);
    },
  },
};

export function createLocalBashOperations(options: any = {}): any {
  return {
    exec: (command: string, cwd: string, o: any) => new Promise((resolve_, reject) => {
      const child: any = spawn(options.shellPath ?? "bash", ["-c", command], { cwd, env: o.env, stdio: ["ignore", "pipe", "pipe"] });
      let late = false;
      const timer = o.timeout > 0 ? (globalThis as any).setTimeout(() => { late = true; child.kill("SIGKILL"); }, o.timeout * 1000) : undefined;
      const stop = () => child.kill("SIGKILL");
      o.signal?.addEventListener("abort", stop, { once: true });
      child.stdout.on("data", o.onData);
      child.stderr.on("data", o.onData);
      child.on("error", reject);
      child.on("close", (exitCode: number | null) => {
        if (timer) (globalThis as any).clearTimeout(timer);
        o.signal?.removeEventListener?.("abort", stop);
        if (o.signal?.aborted) reject(new Error("aborted"));
        else if (late) reject(new Error(`timeout:${o.timeout}`));
        else resolve_({ exitCode });
      });
    }),
  };
}

// An edit may come as one pair of texts; it becomes a list of one.
function asEdits(params: any): any {
  if (params === null || typeof params !== "object" || params.oldText === undefined || params.newText === undefined) return params;
  const { oldText, newText, ...rest } = params;
  return { ...rest, edits: [...(rest.edits ?? []), { oldText, newText }] };
}

// The forms of the same tool in two generations of pi. A plain tool (`createReadTool`) has no prompt texts, a definition
// has them. From 0.80 on, the plain bash has them too, and a schema no longer forbids additional properties.
interface Generation { closed?: any; guidesBash: boolean }
const NEWER: Generation = { guidesBash: true };
const OLDER: Generation = { closed: { additionalProperties: false }, guidesBash: false };

function prompts(kind: string, words: any, { guidesBash }: Generation, isDefinition: boolean): any {
  if (!isDefinition && !(kind === "bash" && guidesBash)) return {};
  const guides = kind === "bash" && !guidesBash ? null : words.promptGuidelines ?? null;
  return { ...(words.promptSnippet == null ? {} : { promptSnippet: words.promptSnippet }), ...(guides === null ? {} : { promptGuidelines: [...guides] }) };
}

const SIZE = `${DEFAULT_MAX_LINES} lines or ${DEFAULT_MAX_BYTES / 1024}KB`;
function make(kind: string, generation: Generation, isDefinition = false) {
  const spec = specs[kind];
  return (cwd: string, options: any = {}): any => {
    const words = wordsOf(kind, SIZE);
    return {
      name: spec.name, label: words.label, description: words.description, ...prompts(kind, words, generation, isDefinition),
      parameters: spec.parameters((name) => ({ description: words.parameters[name] }), generation.closed),
      ...(kind === "edit" ? { prepareArguments: asEdits } : {}),
      execute: (_id: string, params: any, signal?: any, onUpdate?: any) => (signal?.aborted ? Promise.reject(new Error("Operation aborted")) : spec.run(cwd, options, params, signal, onUpdate)),
    };
  };
}
function factories(generation: Generation): any {
  const made: any = {};
  for (const kind of Object.keys(specs)) {
    const name = kind[0].toUpperCase() + kind.slice(1);
    made[`create${name}Tool`] = make(kind, generation);
    made[`create${name}ToolDefinition`] = make(kind, generation, true);
  }
  const several = (...kinds: string[]) => (cwd: string, options: any = {}) => kinds.map((kind) => make(kind, generation)(cwd, options[kind]));
  return { ...made, createLocalBashOperations, createCodingTools: several("read", "bash", "edit", "write"), createReadOnlyTools: several("read", "grep", "find", "ls") };
}
export const toolFactories: any = factories(NEWER);
export const olderToolFactories: any = factories(OLDER);
void fs; void promises; void system;
