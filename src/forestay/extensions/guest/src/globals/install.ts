// Puts names on the global object as a runtime does: writable, configurable, not enumerable.

export function install(names: Record<string, any>): void {
  for (const name of Object.keys(names)) {
    Object.defineProperty(globalThis, name, { value: names[name], writable: true, configurable: true, enumerable: false });
  }
}

// Hides the members of a class that a runtime would not show in `for…in` or `Object.keys`.
export function hidden(target: any, key: PropertyKey, value: any): void {
  Object.defineProperty(target, key, { value, writable: true, configurable: true, enumerable: false });
}
