// The modules that exist without being bundled: the compiler turns `import { join } from "node:path"` into a property
// read on `__forestay_modules__("pi:node/path")`, so a missing name is undefined instead of a link error.

import { installWebAssembly } from "./globals/webassembly";
import { PrimordialError, defineProperty, freeze, table } from "./primordials";

const modules = table<string, any>();

export function defineModule(specifier: string, namespace: object): void {
  modules.set(specifier, namespace);
}

export function hasModule(specifier: string): boolean {
  return modules.has(specifier);
}

export const moduleNames = (): string[] => modules.keys();

const find = freeze((specifier: string): any => {
  if (specifier === "pi:polyfills/webassembly") installWebAssembly();
  const namespace = modules.get("" + specifier);
  if (namespace === undefined) {
    const error: any = new PrimordialError(`Cannot find module '${specifier}'`);
    error.code = "MODULE_NOT_FOUND";
    throw error;
  }
  return namespace;
});

defineProperty(globalThis, "__forestay_modules__", {
  __proto__: null, value: find, writable: false, configurable: false, enumerable: false,
} as any);

// The compiler injects these imports for the globals of Node and the web (Pi §2A.3). The globals are part of the image,
// so these modules do nothing. Only WebAssembly is installed when a bundle mentions it, so that its errors explain why.
for (const name of ["node_globals", "fetch", "webassembly"]) defineModule("pi:polyfills/" + name, freeze({ __proto__: null }) as object);
