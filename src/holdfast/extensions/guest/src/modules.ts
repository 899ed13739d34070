// The modules that exist without being bundled: the compiler turns `import { join } from "node:path"` into a property
// read on `__holdfast_modules__("pi:node/path")`, so a name that a module lacks is undefined and no link error.

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
  const namespace = modules.get("" + specifier);
  if (namespace === undefined) {
    const error: any = new PrimordialError(`Cannot find module '${specifier}'`);
    error.code = "MODULE_NOT_FOUND";
    throw error;
  }
  return namespace;
});

defineProperty(globalThis, "__holdfast_modules__", {
  __proto__: null, value: find, writable: false, configurable: false, enumerable: false,
} as any);
