// Colours for an extension's text. On a terminal without colours, the text stays plain.

import { onInbound } from "./bridge";
import { environment } from "./environment";

export type Colour = string | number; // "#rrggbb", a number of the palette of 256, or "" for the terminal's own
type Colours = Record<string, Colour>;

const ATTRIBUTES: Record<string, [number, number]> = {
  bold: [1, 22], dim: [2, 22], italic: [3, 23], underline: [4, 24], inverse: [7, 27], strikethrough: [9, 29],
};
const BACKGROUNDS = ["selectedBg", "userMessageBg", "customMessageBg", "toolPendingBg", "toolSuccessBg", "toolErrorBg"];

// The default theme, until the host chooses another: the colours that every terminal has.
const DARK: Colours = {
  accent: 6, border: 4, borderAccent: 6, borderMuted: 8, success: 2, error: 1, warning: 3, muted: 8, dim: 8, text: "",
  thinkingText: 8, selectedBg: 8, userMessageBg: 8, userMessageText: "", customMessageBg: 5, customMessageText: "",
  customMessageLabel: 5, toolPendingBg: 8, toolSuccessBg: 2, toolErrorBg: 1, toolTitle: "", toolOutput: 8,
  mdHeading: 3, mdLink: 4, mdLinkUrl: 8, mdCode: 6, mdCodeBlock: 2, mdCodeBlockBorder: 8, mdQuote: 8,
  mdQuoteBorder: 8, mdHr: 8, mdListBullet: 6, toolDiffAdded: 2, toolDiffRemoved: 1, toolDiffContext: 8,
  syntaxComment: 2, syntaxKeyword: 4, syntaxFunction: 3, syntaxVariable: 6, syntaxString: 1, syntaxNumber: 2,
  syntaxType: 6, syntaxOperator: "", syntaxPunctuation: "", thinkingOff: 8, thinkingMinimal: 8, thinkingLow: 4,
  thinkingMedium: 6, thinkingHigh: 5, thinkingXhigh: 5, bashMode: 2,
};

// -- one colour as an escape sequence ----------------------------------------------------------------------------------

const STEPS = [0, 95, 135, 175, 215, 255]; // the levels of a channel in the palette's cube
const weighed = (r: number, g: number, b: number): number => r * r * 0.299 + g * g * 0.587 + b * b * 0.114;
const nearest = (value: number): number => STEPS.reduce((best, step, at) => (Math.abs(step - value) < Math.abs(STEPS[best] - value) ? at : best), 0);

// Returns the palette's nearest colour: from its cube, or from its greys if the colour is almost grey and one is nearer.
function paletteIndex(r: number, g: number, b: number): number {
  const [x, y, z] = [nearest(r), nearest(g), nearest(b)];
  const level = Math.round(0.299 * r + 0.587 * g + 0.114 * b);
  const grey = Math.min(23, Math.max(0, Math.round((level - 8) / 10)));
  const shade = 8 + 10 * grey;
  const neutral = Math.max(r, g, b) - Math.min(r, g, b) < 10;
  if (neutral && weighed(r - shade, g - shade, b - shade) < weighed(r - STEPS[x], g - STEPS[y], b - STEPS[z])) return 232 + grey;
  return 16 + 36 * x + 6 * y + z;
}

function sequence(value: Colour, mode: string, first: number): string {
  if (value === "") return `${first + 1}`;
  if (typeof value === "number") return `${first};5;${value}`;
  if (!value.startsWith("#")) throw new Error(`Invalid color value: ${value}`);
  if (!/^#[0-9a-fA-F]{6}$/.test(value)) throw new Error(`Invalid hex color: ${value}`);
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(value.slice(at, at + 2), 16));
  return mode === "truecolor" ? `${first};2;${r};${g};${b}` : `${first};5;${paletteIndex(r, g, b)}`;
}

const sequences = (colours: Colours, mode: string, first: number): Map<string, string> =>
  new Map(Object.entries(colours).map(([name, value]) => [name, sequence(value, mode, first)]));

// -- a theme -----------------------------------------------------------------------------------------------------------

const wrapped = (text: string, on: string, off: number): string => (environment.colour ? `\u001b[${on}m${text}\u001b[${off}m` : "" + text);
const raw = new WeakMap<object, Colours>();
export const coloursOf = (theme: Theme): Colours => raw.get(theme) ?? {};

export class Theme {
  name: string | undefined;
  sourcePath: string | undefined;
  sourceInfo: any;
  #fg: Map<string, string>;
  #bg: Map<string, string>;
  #mode: string;
  constructor(fgColors: Colours, bgColors: Colours, mode: string, options: any = {}) {
    this.name = options.name;
    this.sourcePath = options.sourcePath;
    this.sourceInfo = options.sourceInfo;
    this.#mode = mode;
    this.#fg = sequences(fgColors, mode, 38);
    this.#bg = sequences(bgColors, mode, 48);
    raw.set(this, { ...fgColors, ...bgColors });
  }
  fg(color: string, text: string): string { return wrapped(text, this.#of(color), 39); }
  bg(color: string, text: string): string { return wrapped(text, this.#behind(color), 49); }
  bold(text: string): string { return styled("bold", text); }
  dim(text: string): string { return styled("dim", text); }
  italic(text: string): string { return styled("italic", text); }
  underline(text: string): string { return styled("underline", text); }
  inverse(text: string): string { return styled("inverse", text); }
  strikethrough(text: string): string { return styled("strikethrough", text); }
  getFgAnsi(color: string): string { const code = this.#of(color); return environment.colour ? `\u001b[${code}m` : ""; }
  getBgAnsi(color: string): string { const code = this.#behind(color); return environment.colour ? `\u001b[${code}m` : ""; }
  getColorMode(): string { return this.#mode; }
  getThinkingBorderColor(level: string): (text: string) => string {
    const name = `thinking${("" + level).slice(0, 1).toUpperCase()}${("" + level).slice(1)}`;
    return (text) => this.fg(this.#fg.has(name) ? name : "thinkingOff", text);
  }
  getBashModeBorderColor(): (text: string) => string { return (text) => this.fg("bashMode", text); }
  #of(color: string): string {
    const code = this.#fg.get(color);
    if (code === undefined) throw new Error(`Unknown theme color: ${color}`);
    return code;
  }
  #behind(color: string): string {
    const code = this.#bg.get(color);
    if (code === undefined) throw new Error(`Unknown theme background color: ${color}`);
    return code;
  }
}

function styled(name: string, text: string): string {
  const [on, off] = ATTRIBUTES[name];
  return wrapped(text, `${on}`, off);
}

// A theme as the host describes it: { name, path, colors }.
export function themeOf(told: any): Theme {
  const front: Colours = {};
  const back: Colours = {};
  for (const name of Object.keys(told.colors)) (BACKGROUNDS.includes(name) ? back : front)[name] = told.colors[name];
  return new Theme(front, back, environment.colorMode, { name: told.name, sourcePath: told.path ?? undefined });
}

// -- the theme in use: every holder of it sees a newly chosen one at once -----------------------------------------

let current: Theme | undefined;
const inUse = (): any => current ?? (current = themeOf(environment.theme ?? { name: "dark", colors: DARK }));
export function useTheme(chosen: Theme): void {
  current = chosen;
}
export const theme: any = new Proxy({}, {
  get(_target, key) {
    const value = inUse()[key];
    return typeof value === "function" ? value.bind(inUse()) : value;
  },
});

onInbound("theme", (told: any) => useTheme(themeOf(told)));
