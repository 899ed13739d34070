// node:module: require, and Node's module search over the files that the extension may read.

import { NODE_BUILTINS } from "@forestay/table";
import { hasModule } from "../modules";
import { argumentError, defineNode } from "./define";
import { dirname, join, resolve } from "./path";
import { fileURLToPath, pathToFileURL } from "./url";

export const builtinName = (specifier: string): string => `pi:node/${specifier.replace(/^node:/, "").replace(/\//g, "_")}`;
export const isBuiltin = (specifier: string): boolean => NODE_BUILTINS.includes(String(specifier).replace(/^node:/, ""));

// Finds built-in modules, modules that are bundled under their name, and JSON files beside the extension.
export function createRequire(from: any): any {
  const base = typeof from === "string" && !from.startsWith("file:") ? from : fileURLToPath(from);
  const find = (globalThis as any).__forestay_modules__;
  const load = (specifier: string): any => {
    if (isBuiltin(specifier)) return find(builtinName(specifier));
    if (hasModule(specifier)) return find(specifier);
    const path = located(specifier, base, REQUIRED);
    if (path?.endsWith(".json")) return JSON.parse(find("pi:node/fs").readFileSync(path, "utf8"));
    throw notFound(specifier, base);
  };
  const require: any = { require: (specifier: string): any => load(specifier) }.require; // so that the function's name is `require`
  require.resolve = (specifier: string): string => {
    if (typeof specifier !== "string") throw argumentError("request", "of type string", specifier);
    const found = isBuiltin(specifier) ? specifier : located(specifier, base, REQUIRED) ?? (hasModule(specifier) ? specifier : undefined);
    if (found === undefined) throw notFound(specifier, base);
    return found;
  };
  require.resolve.paths = (specifier: string) => (isBuiltin(specifier) ? null : /^\.{1,2}(\/|$)/.test(specifier) ? [dirname(base)] : folders(base));
  require.cache = Object.create(null);
  require.main = undefined;
  return require;
}

// `import.meta.resolve`: returns a URL.
function resolveModule(specifier: string, base: string): string {
  if (isBuiltin(specifier)) return specifier.startsWith("node:") ? specifier : `node:${specifier}`;
  if (/^[a-z][a-z0-9+.-]*:/i.test(specifier) || /^\.{0,2}\//.test(specifier)) return new URL(specifier, pathToFileURL(base)).href;
  const found = located(specifier, base, IMPORTED);
  if (found === undefined) throw Object.assign(new Error(`Cannot find package '${specifier}' imported from ${base}`), { code: "ERR_MODULE_NOT_FOUND" });
  return pathToFileURL(found).href;
}

const notFound = (specifier: string, base: string): any => Object.assign(new Error(`Cannot find module '${specifier}'\nRequire stack:\n- ${base}`), { code: "MODULE_NOT_FOUND", requireStack: [base] });


const REQUIRED = ["node", "require", "default"];
const IMPORTED = ["node", "import", "default"];

function kindOf(path: string): "file" | "folder" | undefined {
  const found = (globalThis as any).__forestay_modules__("pi:node/fs").statSync(path, { throwIfNoEntry: false });
  return found === undefined ? undefined : found.isDirectory() ? "folder" : "file";
}
const isFile = (path: string): boolean => { try { return kindOf(path) === "file"; } catch { return false; } };
const about = (folder: string): any => { try { return JSON.parse((globalThis as any).__forestay_modules__("pi:node/fs").readFileSync(join(folder, "package.json"), "utf8")); } catch { return undefined; } };
const asFile = (path: string): string | undefined => [path, `${path}.js`, `${path}.json`, `${path}.node`].find(isFile);
const asFolder = (path: string): string | undefined => {
  const main = about(path)?.main;
  return (typeof main === "string" ? asFile(join(path, main)) ?? asFile(join(path, main, "index")) : undefined) ?? asFile(join(path, "index"));
};

function folders(base: string): string[] {
  const parts = dirname(base).split("/");
  return parts.map((_, at) => `${parts.slice(0, parts.length - at).join("/")}/node_modules`).filter((folder) => !folder.endsWith("/node_modules/node_modules"));
}

function located(specifier: string, base: string, conditions: string[]): string | undefined {
  if (/^(\.{1,2}(\/|$)|\/)/.test(specifier)) {
    const path = resolve(dirname(base), specifier);
    return (specifier.endsWith("/") ? undefined : asFile(path)) ?? asFolder(path);
  }
  const [, name, rest] = /^((?:@[^/]+\/)?[^/]+)(\/.*)?$/.exec(specifier) ?? [];
  for (const folder of name === undefined ? [] : folders(base)) {
    const home = join(folder, name);
    const said = about(home);
    if (said?.exports !== undefined && said.exports !== null) {
      const target = exported(said.exports, `.${rest ?? ""}`, conditions);
      if (target !== undefined) return join(home, target);
      throw Object.assign(new Error(rest ? `Package subpath './${rest.slice(1)}' is not defined by "exports" in ${home}/package.json` : `No "exports" main defined in ${home}/package.json`), { code: "ERR_PACKAGE_PATH_NOT_EXPORTED" });
    }
    const found = rest === undefined ? asFolder(home) : asFile(home + rest) ?? asFolder(home + rest);
    if (found !== undefined) return found;
  }
  return undefined;
}

// A package's `exports`: the subpath, or the longest pattern that matches it, with the first condition that holds.
function exported(exports: any, subpath: string, conditions: string[]): string | undefined {
  const listed = typeof exports === "object" && !Array.isArray(exports) && Object.keys(exports).some((key) => key.startsWith(".")) ? exports : { ".": exports };
  if (Object.hasOwn(listed, subpath) && !subpath.includes("*")) return chosen(listed[subpath], conditions, "");
  const fits = Object.keys(listed).filter((key) => { const [head, tail, ...more] = key.split("*"); return tail !== undefined && more.length === 0 && subpath.length >= key.length && subpath.startsWith(head) && subpath.endsWith(tail); });
  const best = fits.sort((a, b) => b.indexOf("*") - a.indexOf("*") || b.length - a.length)[0];
  return best === undefined ? undefined : chosen(listed[best], conditions, subpath.slice(best.indexOf("*"), subpath.length - (best.length - best.indexOf("*") - 1)));
}
function chosen(target: any, conditions: string[], star: string): string | undefined {
  if (typeof target === "string") return target.startsWith("./") ? target.replaceAll("*", star) : undefined;
  if (target === null || typeof target !== "object") return undefined;
  const entries = Array.isArray(target) ? target : Object.keys(target).filter((key) => conditions.includes(key)).map((key) => target[key]);
  for (const entry of entries) {
    const found = chosen(entry, conditions, star);
    if (found !== undefined) return found;
  }
  return undefined;
}

class Module {
  static builtinModules = [...NODE_BUILTINS];
  static createRequire = createRequire;
  static isBuiltin = isBuiltin;
  static Module: any;
  static register(): void {}
  static findSourceMap(): undefined { return undefined; }
  static syncBuiltinESMExports(): void {}
}
Module.Module = Module;
Object.defineProperty(Module, "resolveModule", { value: resolveModule, enumerable: false });
defineNode("module", Module as any);
