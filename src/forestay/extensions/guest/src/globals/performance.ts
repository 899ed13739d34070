// performance: the host's clock since the extension began, with marks and measures.

import { now } from "../bridge";
import { install } from "./install";

// The engine's clock is the host's; it was zero when the image was built, and counts from the extension's start.
// An extension that continues in another process keeps its time.
const engine = (globalThis as any).performance;
const read: () => number = engine.now.bind(engine);
let last = 0;
let before = 0;
export function since(): number {
  const found = read();
  if (found < last) before += last - found;
  last = found;
  return before + found;
}
const entries: any[] = [];

export const performance: any = {
  now: since,
  get timeOrigin() { return now() - since(); },
  mark(name: string, options: any = {}) {
    const entry = { name, entryType: "mark", startTime: options.startTime ?? since(), duration: 0, detail: options.detail ?? null };
    entries.push(entry);
    return entry;
  },
  measure(name: string, start?: any, end?: any) {
    const at = (mark: any, otherwise: number): number => (typeof mark === "string" ? entries.findLast((entry) => entry.name === mark)?.startTime ?? otherwise : otherwise);
    const from = at(typeof start === "object" ? start?.start : start, 0);
    const entry = { name, entryType: "measure", startTime: from, duration: at(typeof start === "object" ? start?.end : end, since()) - from, detail: null };
    entries.push(entry);
    return entry;
  },
  getEntries: () => [...entries],
  getEntriesByName: (name: string) => entries.filter((entry) => entry.name === name),
  getEntriesByType: (type: string) => entries.filter((entry) => entry.entryType === type),
  clearMarks: (name?: string) => drop("mark", name),
  clearMeasures: (name?: string) => drop("measure", name),
  toJSON: () => ({ timeOrigin: now() - since() }),
  get [Symbol.toStringTag]() { return "Performance"; },
  eventLoopUtilization: () => ({ idle: 0, active: 0, utilization: 0 }),
};

function drop(type: string, name?: string): void {
  for (let i = entries.length - 1; i >= 0; i--) if (entries[i].entryType === type && (name === undefined || entries[i].name === name)) entries.splice(i, 1);
}

install({ performance });
