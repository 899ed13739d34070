// The guest's entry points for the host: four functions, passed once.

import { collect, deliver, describe } from "./bridge";
import { begin } from "./pi";
import { PrimordialError, defineProperty } from "./primordials";

// A call site of this engine exposes the functions on the stack; an extension must not get the bridge's functions.
const errors = Error as any;
const previous = errors.prepareStackTrace;
errors.prepareStackTrace = (_: unknown, sites: any[]) => sites;
const site = (new PrimordialError() as any).stack[0];
const sitePrototype = Object.getPrototypeOf(site);
for (const key of ["getFunction", "getThis"]) delete sitePrototype[key];
errors.prepareStackTrace = previous;

// The host takes them from here and deletes the property, before any extension runs.
defineProperty(globalThis, "__forestay_entry__", {
  __proto__: null, value: { deliver, collect, describe, begin }, configurable: true, enumerable: false,
} as any);
