// Classes that only the program pi itself has: its sessions, its terminal, its package manager. An extension may name one
// while it loads (extend it, patch a method of its prototype); to make one fails and says why.

export function absent(names: string): Record<string, any> {
  const made: Record<string, any> = {};
  for (const name of names.trim().split(/\s+/)) {
    made[name] = class { constructor() { throw new Error(`${name} is a part of the pi program itself, which does not run here.`); } };
    Object.defineProperty(made[name], "name", { value: name, configurable: true });
  }
  return made;
}
