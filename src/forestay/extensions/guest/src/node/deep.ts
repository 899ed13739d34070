// Deep equality, strict as util.isDeepStrictEqual and loose as assert.deepEqual.

export const isDeepStrictEqual = (a: any, b: any): boolean => same(a, b, true, []);
export const isDeepEqual = (a: any, b: any): boolean => same(a, b, false, []);

function same(a: any, b: any, strict: boolean, seen: [any, any][]): boolean {
  if (strict ? Object.is(a, b) : a == b || (a !== a && b !== b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (strict && Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  if (Object.prototype.toString.call(a) !== Object.prototype.toString.call(b)) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  if (seen.some(([x, y]) => x === a && y === b)) return true;
  seen.push([a, b]);
  try {
    if (a instanceof Date) { if (a.getTime() !== b.getTime()) return false; }
    else if (a instanceof RegExp) { if (String(a) !== String(b) || a.lastIndex !== b.lastIndex) return false; }
    else if (a instanceof Error) { if (a.message !== b.message || a.name !== b.name) return false; }
    else if (a instanceof Number || a instanceof String || a instanceof Boolean) { if (!Object.is(a.valueOf(), b.valueOf())) return false; }
    else if (ArrayBuffer.isView(a)) {
      const x = new Uint8Array(a.buffer, a.byteOffset, a.byteLength);
      const y = new Uint8Array(b.buffer, b.byteOffset, b.byteLength);
      return x.length === y.length && x.every((byte, index) => byte === y[index]);
    } else if (a instanceof Set) {
      if (a.size !== b.size) return false;
      for (const item of a) if (!b.has(item) && ![...b].some((other: any) => same(item, other, strict, seen))) return false;
    } else if (a instanceof Map) {
      if (a.size !== b.size) return false;
      for (const [key, value] of a) {
        const found = b.has(key) ? [key] : [...b.keys()].filter((other: any) => same(key, other, strict, seen));
        if (!found.some((other: any) => same(value, b.get(other), strict, seen))) return false;
      }
    }
    const keys = keysOf(a, strict);
    if (keys.length !== keysOf(b, strict).length) return false;
    return keys.every((key) => Object.prototype.hasOwnProperty.call(b, key) && same(a[key as any], b[key as any], strict, seen));
  } finally {
    seen.pop();
  }
}

const keysOf = (value: any, strict: boolean): PropertyKey[] => [...Object.keys(value), ...(strict ? Object.getOwnPropertySymbols(value).filter((one) => Object.prototype.propertyIsEnumerable.call(value, one)) : [])];
