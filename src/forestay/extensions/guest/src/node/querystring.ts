// node:querystring.

import { percentDecode } from "../globals/url";
import { defineNode } from "./define";

const escapeQuery = (text: any): string => encodeURIComponent(String(text)).replace(/%20/g, "%20");
const unescapeQuery = (text: string): string => percentDecode(text);

export function parseQuery(text: string, separator = "&", equals = "=", options: any = {}): any {
  const out: any = Object.create(null);
  const most = options?.maxKeys ?? 1000;
  const read = options?.decodeURIComponent ?? unescapeQuery;
  if (typeof text !== "string" || text === "") return out;
  let parts = text.split(separator);
  if (most > 0) parts = parts.slice(0, most);
  for (const part of parts) {
    if (part === "") continue;
    const at = part.indexOf(equals);
    const name = read((at < 0 ? part : part.slice(0, at)).replace(/\+/g, " "));
    const value = at < 0 ? "" : read(part.slice(at + equals.length).replace(/\+/g, " "));
    if (!(name in out)) out[name] = value;
    else if (Array.isArray(out[name])) out[name].push(value);
    else out[name] = [out[name], value];
  }
  return out;
}

export function stringifyQuery(value: any, separator = "&", equals = "=", options: any = {}): string {
  if (value === null || typeof value !== "object") return "";
  const write = options?.encodeURIComponent ?? escapeQuery;
  const plain = (item: any): string => (typeof item === "string" ? item : typeof item === "number" && isFinite(item) ? String(item) : typeof item === "bigint" || typeof item === "boolean" ? String(item) : "");
  return Object.keys(value).map((name) => (Array.isArray(value[name]) ? value[name].map((item: any) => write(name) + equals + write(plain(item))).join(separator) : write(name) + equals + write(plain(value[name])))).filter((part) => part !== "").join(separator);
}
defineNode("querystring", { parse: parseQuery, decode: parseQuery, stringify: stringifyQuery, encode: stringifyQuery, escape: escapeQuery, unescape: unescapeQuery });
