// The part of node:net that computes with addresses. There are no sockets and no full `node:net`: only a file that
// imports nothing else from it gets this module.

import { argumentError, defineNode } from "./define";

const V4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;

function groups(address: string): number[] | undefined {
  const [text, zone, ...more] = address.split("%");
  if (more.length || zone === "" || (zone !== undefined && !/^[0-9A-Za-z.:_-]+$/.test(zone))) return undefined;
  const halves = text.split("::");
  if (halves.length > 2) return undefined;
  const read = (half: string, isLast: boolean): number[] | undefined => {
    if (half === "") return [];
    const parts = half.split(":");
    const found: number[] = [];
    for (const [index, part] of parts.entries()) {
      if (isLast && index === parts.length - 1 && V4.test(part)) {
        const bytes = part.split(".").map(Number);
        found.push(bytes[0] * 256 + bytes[1], bytes[2] * 256 + bytes[3]);
      } else if (/^[0-9a-fA-F]{1,4}$/.test(part)) found.push(parseInt(part, 16));
      else return undefined;
    }
    return found;
  };
  const head = read(halves[0], halves.length === 1);
  const tail = halves.length === 2 ? read(halves[1], true) : [];
  if (!head || !tail) return undefined;
  const missing = 8 - head.length - tail.length;
  if (halves.length === 2 ? missing < 1 : missing !== 0) return undefined;
  return [...head, ...new Array(missing).fill(0), ...tail];
}

const isIPv4 = (value: any): boolean => V4.test(`${value}`);
const isIPv6 = (value: any): boolean => groups(`${value}`) !== undefined;
export const isIP = (value: any): number => (isIPv4(value) ? 4 : isIPv6(value) ? 6 : 0);

// Converts an address to one number; a mapped address (`::ffff:1.2.3.4`) becomes its IPv4 address.
function number(address: string, family: string): bigint {
  if (family === "ipv4") {
    if (!isIPv4(address)) throw Object.assign(new TypeError("Invalid address"), { code: "ERR_INVALID_ADDRESS" });
    return address.split(".").reduce((sum, part) => sum * 256n + BigInt(part), 0n);
  }
  const found = groups(address);
  if (!found) throw Object.assign(new TypeError("Invalid address"), { code: "ERR_INVALID_ADDRESS" });
  return found.reduce((sum, part) => sum * 65536n + BigInt(part), 0n);
}
const MAPPED = 0xffffn << 32n;
const familyOf = (value: any): string => {
  const family = String(value ?? "ipv4").toLowerCase();
  if (family !== "ipv4" && family !== "ipv6") throw argumentError("family", "one of: 'ipv4' or 'ipv6'", value);
  return family;
};

class SocketAddress {
  readonly address: string;
  readonly family: string;
  readonly port: number;
  readonly flowlabel: number;
  constructor(options: any = {}) {
    this.family = familyOf(options.family);
    this.address = options.address ?? (this.family === "ipv4" ? "127.0.0.1" : "::");
    number(this.address, this.family);
    this.port = options.port ?? 0;
    this.flowlabel = options.flowlabel ?? 0;
  }
}

type Range = { family: string; from: bigint; to: bigint; rule: string };
const given = (value: any, family: any): [string, string] => (value instanceof SocketAddress ? [value.address, value.family] : [String(value), familyOf(family)]);

class BlockList {
  #ranges: Range[] = [];
  static isBlockList(value: any): boolean { return value instanceof BlockList; }
  #add(family: string, from: bigint, to: bigint, rule: string): void { this.#ranges.unshift({ family, from, to, rule }); }
  addAddress(value: any, kind?: any): void {
    const [address, family] = given(value, kind);
    const at = number(address, family);
    this.#add(family, at, at, `Address: ${family === "ipv4" ? "IPv4" : "IPv6"} ${address}`);
  }
  addRange(first: any, last: any, kind?: any): void {
    const [start, family] = given(first, kind);
    const [end] = given(last, kind);
    const [from, to] = [number(start, family), number(end, family)];
    if (from > to) throw Object.assign(new TypeError(`The argument 'start' must come before end. Received '${start}'`), { code: "ERR_INVALID_ARG_VALUE" });
    this.#add(family, from, to, `Range: ${family === "ipv4" ? "IPv4" : "IPv6"} ${start}-${end}`);
  }
  addSubnet(value: any, prefix: number, kind?: any): void {
    const [address, family] = given(value, kind);
    const bits = family === "ipv4" ? 32 : 128;
    if (!Number.isInteger(prefix) || prefix < 0 || prefix > bits) throw Object.assign(new RangeError(`The value of "prefix" is out of range. It must be >= 0 && <= ${bits}. Received ${prefix}`), { code: "ERR_OUT_OF_RANGE" });
    const size = 1n << BigInt(bits - prefix);
    const from = (number(address, family) / size) * size;
    this.#add(family, from, from + size - 1n, `Subnet: ${family === "ipv4" ? "IPv4" : "IPv6"} ${address}/${prefix}`);
  }
  check(value: any, kind?: any): boolean {
    const [address, family] = given(value, kind);
    if ((family === "ipv4" ? isIPv4 : isIPv6)(address) === false) return false;
    const at = number(address, family);
    const inside = (at_: bigint, kind_: string): boolean => this.#ranges.some((range) => range.family === kind_ && range.from <= at_ && at_ <= range.to);
    if (inside(at, family)) return true;
    if (family === "ipv6" && at >> 32n === 0xffffn) return inside(at - MAPPED, "ipv4");
    return family === "ipv4" && inside(at + MAPPED, "ipv6");
  }
  get rules(): string[] { return this.#ranges.map((range) => range.rule); }
}

defineNode("net_computing", { isIP, isIPv4, isIPv6, BlockList, SocketAddress });
