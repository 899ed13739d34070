// There is no WebAssembly inside the sandbox (Pi §1A.4.1). A bundle that mentions it gets this object, whose errors give
// the reason instead of a ReferenceError. Nothing here compiles, and `validate` returns false for everything.

const WHY = "WebAssembly is not available inside an extension's sandbox: use a JavaScript build of the library";

class CompileError extends Error { override name = "CompileError"; }
class LinkError extends Error { override name = "LinkError"; }
class RuntimeError extends Error { override name = "RuntimeError"; }

function refusal(): Error {
  const error: any = new CompileError(WHY);
  error.code = "ERR_WASM_UNAVAILABLE";
  return error;
}
const refuse = async (): Promise<never> => { throw refusal(); };
const absent = (): any => function Unavailable() { throw refusal(); };

export function installWebAssembly(): void {
  if ((globalThis as any).WebAssembly !== undefined) return;
  const names = { CompileError, LinkError, RuntimeError, validate: () => false, compile: refuse, instantiate: refuse, compileStreaming: refuse, instantiateStreaming: refuse, Module: absent(), Instance: absent(), Memory: absent(), Table: absent(), Global: absent(), Tag: absent(), Exception: absent() };
  const namespace = Object.create(null);
  for (const [name, value] of Object.entries(names)) Object.defineProperty(namespace, name, { value, writable: true, configurable: true, enumerable: false });
  Object.defineProperty(namespace, Symbol.toStringTag, { value: "WebAssembly", configurable: true });
  Object.defineProperty(globalThis, "WebAssembly", { value: namespace, writable: true, configurable: true, enumerable: false });
}
