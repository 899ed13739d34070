// node:dns: looks up the addresses of a name through the http connector, with the same grant as a request to that host.

import { HostError, hostCall } from "../bridge";
import { defineNode } from "./define";
import { isIP } from "./net";

const FLAGS = { ADDRCONFIG: 32, V4MAPPED: 8, ALL: 16 };
const CODES = { NODATA: "ENODATA", NOTFOUND: "ENOTFOUND", SERVFAIL: "ESERVFAIL", REFUSED: "EREFUSED", TIMEOUT: "ETIMEOUT" };

function failure(error: any, syscall: string, hostname: string): any {
  if (!(error instanceof HostError)) return error;
  const code = (error as any).code === "denied" ? "EREFUSED" : (error as any).details?.errno ?? "ENOTFOUND";
  const why = code === "EREFUSED" ? `: ${error.message}` : "";
  return Object.assign(new Error(`${syscall} ${code} ${hostname}${why}`), { code, errno: code === "ENOTFOUND" ? -3008 : undefined, syscall, hostname });
}

async function addresses(hostname: string, family: number, syscall: string): Promise<{ address: string; family: number }[]> {
  const kind = isIP(hostname);
  let found: string[];
  try {
    found = kind ? [hostname] : (await hostCall("http", { op: "lookup", host: hostname })).addresses;
  } catch (error) {
    throw failure(error, syscall, hostname);
  }
  const listed = found.map((address) => ({ address, family: isIP(address) })).filter((one) => !family || one.family === family);
  if (listed.length === 0) throw Object.assign(new Error(`${syscall} ENOTFOUND ${hostname}`), { code: "ENOTFOUND", errno: -3008, syscall, hostname });
  return listed;
}

async function lookup(hostname: any, options: any = {}): Promise<any> {
  const wanted = typeof options === "number" ? { family: options } : options ?? {};
  const family = wanted.family === "IPv4" ? 4 : wanted.family === "IPv6" ? 6 : Number(wanted.family ?? 0);
  const listed = await addresses(String(hostname), family, "getaddrinfo");
  const ordered = wanted.verbatim === false || wanted.order === "ipv4first" ? [...listed].sort((one, other) => one.family - other.family) : listed;
  return wanted.all ? ordered : ordered[0];
}
const resolver = (family: number, syscall: string) => async (hostname: any): Promise<string[]> => (await addresses(String(hostname), family, syscall)).map((one) => one.address);
const resolve4 = resolver(4, "queryA");
const resolve6 = resolver(6, "queryAaaa");
const resolve = async (hostname: any, kind = "A"): Promise<string[]> => {
  if (kind === "A") return resolve4(hostname);
  if (kind === "AAAA") return resolve6(hostname);
  throw Object.assign(new Error(`dns.resolve() of ${kind} records is not available: the host looks up addresses only`), { code: "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM" });
};

const called = (work: (...given: any[]) => Promise<any>, spread = false) => (...given: any[]): void => {
  const done = given.pop();
  work(...given).then((value) => (spread && !Array.isArray(value) ? done(null, value.address, value.family) : done(null, value)), (error) => done(error));
};
const promises = { lookup, resolve, resolve4, resolve6, ...CODES };
defineNode("dns_promises", promises);
defineNode("dns", { lookup: called(lookup, true), resolve: called(resolve), resolve4: called(resolve4), resolve6: called(resolve6), promises, ...FLAGS, ...CODES, setDefaultResultOrder: () => undefined, getDefaultResultOrder: () => "verbatim" });
