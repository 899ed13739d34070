// What the host holds on to: three functions, taken from the completion value of the prelude.

import { answer, collect, deliver, describe } from "./bridge";
import { begin } from "./pi";
import { PrimordialError, defineProperty } from "./primordials";

// A call site of this engine hands out the functions on the stack; an extension must not get hold of the bridge's.
const errors = Error as any;
const previous = errors.prepareStackTrace;
errors.prepareStackTrace = (_: unknown, sites: any[]) => sites;
const site = (new PrimordialError() as any).stack[0];
const sitePrototype = Object.getPrototypeOf(site);
for (const key of ["getFunction", "getThis"]) delete sitePrototype[key];
errors.prepareStackTrace = previous;

// Hands over the functions once, and is gone.
defineProperty(globalThis, "__holdfast_entry__", {
  __proto__: null, value: { deliver, collect, describe, begin, answer }, configurable: true, enumerable: false,
} as any);
