// Classes that exist only in the pi program: its sessions, its terminal, its package manager. An extension may use one
// while it loads (extend it, patch its prototype); making an instance throws an error with the reason.

export function absent(names: string): Record<string, any> {
  const made: Record<string, any> = {};
  for (const name of names.trim().split(/\s+/)) {
    made[name] = class { constructor() { throw new Error(`${name} is a part of the pi program itself, which does not run here.`); } };
    Object.defineProperty(made[name], "name", { value: name, configurable: true });
  }
  return made;
}
