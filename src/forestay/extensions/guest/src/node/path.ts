// node:path for POSIX. Pure, except for the current folder in `resolve`.

import { environment } from "../environment";
import { defineModule } from "../modules";
import { argumentError, defineNode } from "./define";
import * as windows from "./win32";

function check(value: any, name = "path"): string {
  if (typeof value !== "string") throw argumentError(name, "of type string", value);
  return value;
}

function squeeze(path: string, absolute: boolean): string {
  const out: string[] = [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part === "..") {
      if (out.length && out[out.length - 1] !== "..") out.pop();
      else if (!absolute) out.push("..");
    } else out.push(part);
  }
  return out.join("/");
}

export function normalize(path: string): string {
  check(path);
  if (path === "") return ".";
  const absolute = path[0] === "/";
  let out = squeeze(path, absolute);
  if (out === "" && !absolute) out = ".";
  if (out !== "" && path.endsWith("/")) out += "/";
  return absolute ? "/" + out : out;
}

export function join(...parts: string[]): string {
  const used = parts.map((part) => check(part)).filter((part) => part !== "");
  return used.length === 0 ? "." : normalize(used.join("/"));
}

export function resolve(...parts: string[]): string {
  let path = "";
  for (let i = parts.length - 1; i >= 0 && !path.startsWith("/"); i--) {
    if (check(parts[i], `paths[${i}]`) !== "") path = parts[i] + (path === "" ? "" : "/" + path);
  }
  if (!path.startsWith("/")) path = environment.cwd + "/" + path;
  return "/" + squeeze(path, true);
}

export const isAbsolute = (path: string): boolean => check(path)[0] === "/";

export function dirname(path: string): string {
  check(path);
  if (path === "") return ".";
  const bare = path.replace(/\/+$/, "");
  if (bare === "") return "/";
  const at = bare.lastIndexOf("/");
  if (at < 0) return ".";
  if (at === 0) return "/";
  return at === 1 && bare[0] === "/" ? "//" : bare.slice(0, at);
}

export function basename(path: string, suffix?: string): string {
  check(path);
  if (suffix !== undefined) check(suffix, "suffix");
  const name = path.replace(/\/+$/, "").split("/").pop()!;
  return suffix && name !== suffix && name.endsWith(suffix) ? name.slice(0, -suffix.length) : name;
}

export function extname(path: string): string {
  const name = basename(check(path));
  const at = name.lastIndexOf(".");
  return at <= 0 || /^\.+$/.test(name.slice(0, at + 1)) && name === ".." ? "" : name.slice(at);
}

export function relative(from: string, to: string): string {
  const a = resolve(check(from, "from")).split("/").filter(Boolean);
  const b = resolve(check(to, "to")).split("/").filter(Boolean);
  let same = 0;
  while (same < a.length && same < b.length && a[same] === b[same]) same++;
  return [...a.slice(same).map(() => ".."), ...b.slice(same)].join("/");
}

export function parse(path: string): any {
  check(path);
  const root = path.startsWith("/") ? "/" : "";
  const base = basename(path);
  const ext = extname(path);
  const dir = path.replace(/\/+$/, "").includes("/") ? dirname(path) : root;
  return { root, dir: base === "" ? root : dir, base, ext, name: ext ? base.slice(0, -ext.length) : base };
}

export function format(parts: any): string {
  if (parts === null || typeof parts !== "object") throw argumentError("pathObject", "of type object", parts);
  const dir = parts.dir || parts.root;
  const ext = parts.ext ? (parts.ext[0] === "." ? "" : ".") + parts.ext : "";
  const base = parts.base || (parts.name || "") + ext;
  return !dir ? base : dir === parts.root ? dir + base : dir + "/" + base;
}

export function matchesGlob(path: string, pattern: string): boolean {
  const source = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*\*\/?/g, "\0").replace(/\*/g, "[^/]*").replace(/\?/g, "[^/]").replace(/\0/g, "(?:.*/)?");
  return new RegExp(`^${source}$`).test(path);
}

export const sep = "/";
export const delimiter = ":";
export const toNamespacedPath = (path: any): any => path;

export const path = defineNode("path", { normalize, join, resolve, isAbsolute, dirname, basename, extname, relative, parse, format, matchesGlob, sep, delimiter, toNamespacedPath });
const win32 = defineNode("path_win32", { ...windows, matchesGlob: (path: string, pattern: string) => matchesGlob(path.replace(/\\/g, "/"), pattern.replace(/\\/g, "/")) });
for (const either of [path, win32]) Object.assign(either, { posix: path, win32 });
defineModule("pi:node/path_posix", path);
