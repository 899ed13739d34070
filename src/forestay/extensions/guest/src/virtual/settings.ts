// Reads the settings of pi, the person's and the project's, with normal file host calls. Nothing is written.

import { fs } from "../node/fs";
import { join } from "../node/path";

const isObject = (value: any): boolean => typeof value === "object" && value !== null && !Array.isArray(value);
const copy = (value: any): any => JSON.parse(JSON.stringify(value));

// Lays the project's settings over the person's; objects are merged member by member, one level deep.
function merged(base: any, over: any): any {
  const all = { ...base };
  for (const [key, value] of Object.entries(over)) if (value !== undefined) all[key] = isObject(value) && isObject(all[key]) ? { ...all[key], ...(value as any) } : value;
  return all;
}

export function settingsManager(agentDir: () => string): any {
  return class SettingsManager {
    #global: any; #project: any; #read: () => void; #errors: any[] = [];
    constructor(read: (scope: string) => any) {
      const load = (scope: string): any => { try { return read(scope); } catch (error) { this.#errors.push({ scope, error }); return {}; } };
      this.#read = () => { this.#global = load("global"); this.#project = load("project"); };
      this.#read();
    }
    static create(cwd: string, folder: string = agentDir()): any {
      const path = (scope: string): string => (scope === "global" ? join(folder, "settings.json") : join(cwd, ".pi", "settings.json"));
      return new SettingsManager((scope) => { const file = path(scope); return fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, "utf8").replace(/^\uFEFF/, "") || "{}") : {}; });
    }
    static inMemory(settings: any = {}): any { return new SettingsManager((scope) => (scope === "global" ? copy(settings) : {})); }
    get settings(): any { return merged(this.#global, this.#project); }
    getGlobalSettings(): any { return copy(this.#global); }
    getProjectSettings(): any { return copy(this.#project); }
    isProjectTrusted(): boolean { return true; }
    async reload(): Promise<void> { this.#read(); }
    async flush(): Promise<void> {}
    drainErrors(): any[] { return this.#errors.splice(0); }
    getDefaultProvider(): any { return this.settings.defaultProvider; }
    getDefaultModel(): any { return this.settings.defaultModel; }
    getDefaultThinkingLevel(): any { return this.settings.defaultThinkingLevel; }
    getTheme(): any { const theme = this.settings.theme; return theme?.includes("/") ? undefined : theme; }
    getPackages(): any[] { return [...(this.settings.packages ?? [])]; }
    getExtensionPaths(): any[] { return [...(this.settings.extensions ?? [])]; }
    getSkillPaths(): any[] { return [...(this.settings.skills ?? [])]; }
  };
}
