// path.win32: Windows paths as text, on any platform. A path is a device (`C:`, `\\server\share`), an optional separator
// that makes it absolute, and parts.

import { environment } from "../environment";
import { argumentError } from "./define";

interface Place { device: string; absolute: boolean; root: string; rest: string }

function check(value: any, name = "path"): string {
  if (typeof value !== "string") throw argumentError(name, "of type string", value);
  return value;
}

const isSeparator = (one: string | undefined): boolean => one === "\\" || one === "/";
const parts = (path: string): string[] => path.split(/[\\/]+/).filter((part) => part !== "");

// Parses the beginning of a path; `root` is its original spelling.
function place(path: string): Place {
  const share = /^[\\/]{2}([^\\/]+)[\\/]+([^\\/]+)([\\/]?)/.exec(path);
  if (share) return { device: `\\\\${share[1]}\\${share[2]}`, absolute: true, root: share[0], rest: path.slice(share[0].length) };
  const drive = /^([A-Za-z]:)([\\/]?)/.exec(path);
  if (drive) return { device: drive[1], absolute: drive[2] !== "", root: drive[0], rest: path.slice(drive[0].length) };
  const absolute = isSeparator(path[0]);
  return { device: "", absolute, root: absolute ? path[0] : "", rest: absolute ? path.slice(1) : path };
}

function squeeze(path: string, absolute: boolean): string {
  const out: string[] = [];
  for (const part of parts(path)) {
    if (part === ".") continue;
    if (part !== "..") out.push(part);
    else if (out.length > 0 && out[out.length - 1] !== "..") out.pop();
    else if (!absolute) out.push("..");
  }
  return out.join("\\");
}

// `\\?\` and `\\.\` name devices, not servers: everything after them is the path.
function rooted(path: string): Place {
  const named = /^[\\/]{2}([?.])[\\/]+(?=[^\\/])/.exec(path);
  return named ? { device: `\\\\${named[1]}`, absolute: true, root: named[0], rest: path.slice(named[0].length) } : place(path);
}

export function normalize(path: string): string {
  check(path);
  if (path === "") return ".";
  const { device, absolute, rest } = rooted(path);
  let tail = squeeze(rest, absolute);
  if (tail === "" && !absolute) tail = ".";
  if (tail !== "" && isSeparator(rest[rest.length - 1])) tail += "\\";
  // A path without a device must not look like one with a device after its parts are joined.
  if (device === "" && !absolute && (/^[A-Za-z]:/.test(tail) || /:([\\/]|$)/.test(path))) tail = `.\\${tail}`;
  return device + (absolute ? "\\" : "") + tail;
}

export function join(...given: string[]): string {
  const used = given.map((part) => check(part)).filter((part) => part !== "");
  if (used.length === 0) return ".";
  // Two separators at the front name a server only if the first part was written so.
  const joined = used.join("\\");
  return normalize(/^[\\/]{2}[^\\/]/.test(used[0]) ? joined : joined.replace(/^[\\/]{2,}/, "\\"));
}

export function resolve(...given: string[]): string {
  let device = "";
  let tail = "";
  let absolute = false;
  const folder = environment.cwd;
  for (let at = given.length - 1; at >= -1 && !(device !== "" && absolute); at--) {
    const path = at >= 0 ? check(given[at], `paths[${at}]`) : folder;
    if (path === "") continue;
    const found = rooted(path);
    if (found.device !== "" && device !== "" && found.device.toLowerCase() !== device.toLowerCase()) continue;
    if (device === "") device = found.device;
    if (!absolute) {
      tail = tail === "" ? found.rest : `${found.rest}\\${tail}`;
      absolute = found.absolute;
    }
  }
  const out = squeeze(tail, absolute);
  return device + (absolute ? "\\" : "") + out || ".";
}

export const isAbsolute = (path: string): boolean => place(check(path)).absolute && (isSeparator(path[0]) || /^[A-Za-z]:[\\/]/.test(path));

export function relative(from: string, to: string): string {
  check(from, "from");
  check(to, "to");
  if (from === to) return "";
  const one = resolve(from);
  const two = resolve(to);
  if (one.toLowerCase() === two.toLowerCase()) return "";
  const a = parts(one);
  const b = parts(two);
  let same = 0;
  while (same < a.length && same < b.length && a[same].toLowerCase() === b[same].toLowerCase()) same++;
  if (same === 0) return two;
  return [...a.slice(same).map(() => ".."), ...b.slice(same)].join("\\");
}

export function toNamespacedPath(path: any): any {
  if (typeof path !== "string" || path === "") return path;
  const full = resolve(path);
  if (/^\\\\[^?.]/.test(full)) return `\\\\?\\UNC\\${full.slice(2)}`;
  return /^[A-Za-z]:\\/.test(full) ? `\\\\?\\${full}` : full.length <= 2 ? path : full;
}

export function dirname(path: string): string {
  check(path);
  if (path === "") return ".";
  const { root, rest } = place(path);
  const bare = rest.replace(/[\\/]+$/, "");
  const found = /^(.*?)[\\/]+[^\\/]+$/s.exec(bare);
  if (bare === "" || !found) return root === "" ? "." : root;
  return root + found[1];
}

export function basename(path: string, suffix?: string): string {
  check(path);
  if (suffix !== undefined) check(suffix, "suffix");
  const bare = path.replace(/^[A-Za-z]:/, "").replace(/[\\/]+$/, "");
  const name = bare.slice(Math.max(bare.lastIndexOf("\\"), bare.lastIndexOf("/")) + 1);
  return suffix && name !== suffix && name.endsWith(suffix) ? name.slice(0, -suffix.length) : name;
}

export function extname(path: string): string {
  const name = basename(check(path));
  const at = name.lastIndexOf(".");
  return at <= 0 || name === ".." ? "" : name.slice(at);
}

export function parse(path: string): any {
  check(path);
  const { root, rest } = place(path);
  const bare = rest.replace(/[\\/]+$/, "");
  const cut = Math.max(bare.lastIndexOf("\\"), bare.lastIndexOf("/"));
  const base = bare.slice(cut + 1);
  const ext = extname(base);
  return { root, dir: cut < 0 ? root : root + bare.slice(0, cut), base, ext, name: ext ? base.slice(0, -ext.length) : base };
}

export function format(pieces: any): string {
  if (pieces === null || typeof pieces !== "object") throw argumentError("pathObject", "of type object", pieces);
  const dir = pieces.dir || pieces.root;
  const ext = pieces.ext ? (pieces.ext[0] === "." ? "" : ".") + pieces.ext : "";
  const base = pieces.base || (pieces.name || "") + ext;
  return !dir ? base : dir === pieces.root ? dir + base : `${dir}\\${base}`;
}

export const sep = "\\";
export const delimiter = ";";
