// node:url: file URLs, and the old parser beside the URL class.

import { percentDecode, punycode, URL, URLSearchParams } from "../globals/url";
import { argumentError, defineNode } from "./define";
import { resolve } from "./path";
import { parseQuery, stringifyQuery } from "./querystring";

export function fileURLToPath(value: any): string {
  const url = typeof value === "string" ? new URL(value) : value;
  if (!url || typeof url.protocol !== "string") throw argumentError("path", "of type string or an instance of URL", value);
  if (url.protocol !== "file:") { const error: any = new TypeError("The URL must be of scheme file"); error.code = "ERR_INVALID_URL_SCHEME"; throw error; }
  if (url.hostname !== "") { const error: any = new TypeError(`File URL host must be "localhost" or empty on linux`); error.code = "ERR_INVALID_FILE_URL_HOST"; throw error; }
  if (/%2f/i.test(url.pathname)) { const error: any = new TypeError("File URL path must not include encoded / characters"); error.code = "ERR_INVALID_FILE_URL_PATH"; throw error; }
  return percentDecode(url.pathname);
}

export function pathToFileURL(path: string): URL {
  let full = resolve(path);
  if (path.endsWith("/") && !full.endsWith("/")) full += "/";
  const url = new URL("file:///");
  url.pathname = full.replace(/%/g, "%25").replace(/\\/g, "%5C").replace(/\n/g, "%0A").replace(/\r/g, "%0D").replace(/\t/g, "%09").replace(/\?/g, "%3F").replace(/#/g, "%23");
  return url;
}

function parseUrl(text: string, query = false): any {
  if (typeof text !== "string") throw argumentError("url", "of type string", text);
  const found = /^([a-zA-Z][a-zA-Z0-9+.-]*:)?(\/\/)?(?:([^@/?#]*)@)?([^/?#]*)?([^?#]*)(\?[^#]*)?(#.*)?$/s.exec(text.trim())!;
  const protocol = found[1]?.toLowerCase() ?? null;
  const slashes = found[2] ? true : null;
  const rest = slashes ? null : (found[4] ?? "") + (found[5] ?? "");
  const host = slashes ? (found[4] ?? "").toLowerCase() : null;
  const port = host ? /:(\d+)$/.exec(host)?.[1] ?? null : null;
  const out: any = { protocol, slashes, auth: slashes && found[3] ? decodeURIComponent(found[3]) : null, host, port, hostname: host ? host.replace(/:\d*$/, "").replace(/^\[|\]$/g, "") : host, hash: found[7] ?? null, search: found[6] ?? null, query: found[6] ? found[6].slice(1) : null, pathname: (slashes ? found[5] || (protocol && /^(https?|ftp|file|wss?):$/.test(protocol) ? "/" : null) : rest || null) };
  if (query) { out.query = parseQuery(out.query ?? ""); out.search ??= ""; }
  out.path = out.pathname === null && out.search === null ? null : (out.pathname ?? "") + (out.search ?? "");
  out.href = formatUrl(out);
  return out;
}

function formatUrl(value: any, options: any = {}): string {
  if (typeof value === "string") return parseUrl(value).href;
  if (value instanceof URL) {
    const copy = new URL(value.href);
    if (options.fragment === false) copy.hash = "";
    if (options.search === false) copy.search = "";
    if (options.auth === false) copy.username = copy.password = "";
    return copy.href;
  }
  let protocol = value.protocol ?? "";
  if (protocol && !protocol.endsWith(":")) protocol += ":";
  const host = value.host ?? (value.hostname ? (value.hostname.includes(":") ? `[${value.hostname}]` : value.hostname) + (value.port ? `:${value.port}` : "") : "");
  const auth = value.auth ? encodeURIComponent(value.auth).replace(/%3A/i, ":") + "@" : "";
  const slashes = value.slashes || (/^(https?|ftp|file|wss?):$/.test(protocol) && host !== null && host !== "");
  let pathname = value.pathname ?? "";
  if (slashes && pathname && pathname[0] !== "/") pathname = "/" + pathname;
  let search = value.search ?? (value.query && typeof value.query === "object" && Object.keys(value.query).length ? "?" + stringifyQuery(value.query) : "");
  if (search && search[0] !== "?") search = "?" + search;
  let hash = value.hash ?? "";
  if (hash && hash[0] !== "#") hash = "#" + hash;
  return protocol + (slashes ? "//" : "") + auth + (host ?? "") + pathname.replace(/[?#]/g, encodeURIComponent) + search.replace(/#/g, "%23") + hash;
}

const legacyResolve = (from: string, to: string): string => {
  try { return new URL(to, from).href; } catch { return new URL(to, new URL(from, "resolve://base/")).href.replace(/^resolve:\/\/base/, ""); }
};

defineNode("url", {
  URL, URLSearchParams, fileURLToPath, pathToFileURL, parse: parseUrl, format: formatUrl, resolve: legacyResolve,
  domainToASCII: (name: string) => name.toLowerCase().split(".").map(punycode).join("."), domainToUnicode: (name: string) => name,
  urlToHttpOptions: (url: URL) => ({ protocol: url.protocol, hostname: url.hostname.replace(/^\[|\]$/g, ""), hash: url.hash, search: url.search, pathname: url.pathname, path: url.pathname + url.search, href: url.href, ...(url.port ? { port: Number(url.port) } : {}), ...(url.username || url.password ? { auth: `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}` } : {}) }),
});
