// node:assert.

import { isDeepEqual, isDeepStrictEqual } from "./deep";
import { defineNode } from "./define";
import { inspect } from "./inspect";

export class AssertionError extends Error {
  actual: any;
  expected: any;
  operator: string;
  code = "ERR_ASSERTION";
  generatedMessage: boolean;
  constructor(options: any) {
    super(options.message ?? `${inspect(options.actual)} ${options.operator} ${inspect(options.expected)}`);
    Object.defineProperty(this, "name", { value: "AssertionError", configurable: true, writable: true });
    this.generatedMessage = options.message === undefined;
    this.actual = options.actual;
    this.expected = options.expected;
    this.operator = options.operator;
  }
}

function fail(actual: any, expected: any, operator: string, message: any, fallback: string): never {
  if (message instanceof Error) throw message;
  const error = new AssertionError({ actual, expected, operator, message: message ?? fallback });
  error.generatedMessage = message === undefined;
  throw error;
}

export const assert: any = (value: any, message?: any): void => { if (!value) fail(value, true, "==", message, "The expression evaluated to a falsy value"); };
const pair = (test: (a: any, b: any) => boolean, operator: string, words: string) => (actual: any, expected: any, message?: any) => {
  if (!test(actual, expected)) fail(actual, expected, operator, message, `${words}\n\n${inspect(actual)} !== ${inspect(expected)}\n`);
};

function matchesError(error: any, expected: any, message?: any): void {
  if (expected === undefined) return;
  if (typeof expected === "function") {
    if (expected.prototype !== undefined && error instanceof expected) return;
    if (Error.isPrototypeOf(expected)) throw error;
    if (expected.call({}, error) === true) return;
    fail(error, expected, "throws", message, "The validation function is expected to return \"true\"");
  }
  if (expected instanceof RegExp) {
    if (expected.test(String(error))) return;
    fail(error, expected, "throws", message, `The input did not match the regular expression ${expected}. Input:\n\n${inspect(String(error))}\n`);
  }
  for (const key of Object.keys(expected).concat(expected instanceof Error ? ["name", "message"] : [])) {
    const ok = expected[key] instanceof RegExp && typeof error[key] === "string" ? expected[key].test(error[key]) : isDeepStrictEqual(error[key], expected[key]);
    if (!ok) fail(error, expected, "throws", message, `Expected values to be strictly deep-equal: ${key}`);
  }
}

Object.assign(assert, {
  AssertionError,
  ok: assert,
  equal: pair((a, b) => a == b || (a !== a && b !== b), "==", "Expected values to be loosely equal:"),
  notEqual: pair((a, b) => a != b, "!=", "Expected \"actual\" to be loosely unequal to:"),
  strictEqual: pair(Object.is, "strictEqual", "Expected values to be strictly equal:"),
  notStrictEqual: pair((a, b) => !Object.is(a, b), "notStrictEqual", "Expected \"actual\" to be strictly unequal to:"),
  deepEqual: pair(isDeepEqual, "deepEqual", "Expected values to be loosely deep-equal:"),
  deepStrictEqual: pair(isDeepStrictEqual, "deepStrictEqual", "Expected values to be strictly deep-equal:"),
  notDeepEqual: pair((a, b) => !isDeepEqual(a, b), "notDeepEqual", "Expected \"actual\" not to be loosely deep-equal to:"),
  notDeepStrictEqual: pair((a, b) => !isDeepStrictEqual(a, b), "notDeepStrictEqual", "Expected \"actual\" not to be strictly deep-equal to:"),
  match: (text: string, pattern: RegExp, message?: any) => { if (!pattern.test(text)) fail(text, pattern, "match", message, `The input did not match the regular expression ${pattern}. Input:\n\n${inspect(text)}\n`); },
  doesNotMatch: (text: string, pattern: RegExp, message?: any) => { if (pattern.test(text)) fail(text, pattern, "doesNotMatch", message, `The input was expected to not match the regular expression ${pattern}.`); },
  fail: (message: any = "Failed") => { throw message instanceof Error ? message : new AssertionError({ message, operator: "fail" }); },
  ifError: (value: any) => { if (value !== null && value !== undefined) fail(value, null, "ifError", undefined, `ifError got unwanted exception: ${value?.message ?? value}`); },
  throws: (call: any, expected?: any, message?: any) => {
    let error: any;
    let threw = false;
    try { call(); } catch (found) { threw = true; error = found; }
    if (!threw) fail(undefined, expected, "throws", typeof expected === "string" ? expected : message, "Missing expected exception.");
    if (typeof expected !== "string") matchesError(error, expected, message);
  },
  doesNotThrow: (call: any, message?: any) => { try { call(); } catch (error: any) { fail(error, undefined, "doesNotThrow", typeof message === "string" ? message : undefined, `Got unwanted exception.\nActual message: "${error?.message}"`); } },
  rejects: async (work: any, expected?: any, message?: any) => {
    let error: any;
    let threw = false;
    try { await (typeof work === "function" ? work() : work); } catch (found) { threw = true; error = found; }
    if (!threw) fail(undefined, expected, "rejects", message, "Missing expected rejection.");
    if (typeof expected !== "string") matchesError(error, expected, message);
  },
  doesNotReject: async (work: any, message?: any) => { try { await (typeof work === "function" ? work() : work); } catch (error: any) { fail(error, undefined, "doesNotReject", message, `Got unwanted rejection.\nActual message: "${error?.message}"`); } },
});
const strict: any = (value: any, message?: any): void => assert(value, message);
Object.assign(strict, assert, { equal: assert.strictEqual, notEqual: assert.notStrictEqual, deepEqual: assert.deepStrictEqual, notDeepEqual: assert.notDeepStrictEqual });
strict.strict = strict;
assert.strict = strict;
defineNode("assert", assert);
defineNode("assert_strict", strict);
