// Parses a terminal's keys (old sequences, modifyOtherKeys and the kitty protocol) into one name each.

const NAMES = ["escape", "esc", "enter", "return", "tab", "space", "backspace", "delete", "insert", "clear", "home", "end", "pageUp", "pageDown", "up", "down", "left", "right", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10", "f11", "f12"];
const SIGNS: Record<string, string> = { backtick: "`", hyphen: "-", equals: "=", leftbracket: "[", rightbracket: "]", backslash: "\\", semicolon: ";", quote: "'", comma: ",", period: ".", slash: "/", exclamation: "!", at: "@", hash: "#", dollar: "$", percent: "%", caret: "^", ampersand: "&", asterisk: "*", leftparen: "(", rightparen: ")", underscore: "_", plus: "+", pipe: "|", tilde: "~", leftbrace: "{", rightbrace: "}", colon: ":", lessthan: "<", greaterthan: ">", question: "?" };
const MODIFIERS = ["ctrl", "shift", "alt", "super"];
export const Key: any = { ...Object.fromEntries(NAMES.map((name) => [name, name])), ...SIGNS };
for (const one of MODIFIERS) {
  Key[one] = (key: string) => `${one}+${key}`;
  for (const two of MODIFIERS) {
    if (two === one) continue;
    Key[one + two[0].toUpperCase() + two.slice(1)] = (key: string) => `${one}+${two}+${key}`;
    for (const three of MODIFIERS) if (three !== one && three !== two) Key[one + two[0].toUpperCase() + two.slice(1) + three[0].toUpperCase() + three.slice(1)] = (key: string) => `${one}+${two}+${three}+${key}`;
  }
}

const LETTERS: Record<string, string> = { A: "up", B: "down", C: "right", D: "left", H: "home", F: "end", P: "f1", Q: "f2", R: "f3", S: "f4", E: "clear" };
const TILDES: Record<string, string> = { 1: "home", 2: "insert", 3: "delete", 4: "end", 5: "pageUp", 6: "pageDown", 7: "home", 8: "end", 11: "f1", 12: "f2", 13: "f3", 14: "f4", 15: "f5", 17: "f6", 18: "f7", 19: "f8", 20: "f9", 21: "f10", 23: "f11", 24: "f12" };
const CODES: Record<number, string> = { 9: "tab", 13: "enter", 27: "escape", 32: "space", 127: "backspace", 57399: "0", 57400: "1", 57401: "2", 57402: "3", 57403: "4", 57404: "5", 57405: "6", 57406: "7", 57407: "8", 57408: "9", 57409: ".", 57410: "/", 57411: "*", 57412: "-", 57413: "+", 57414: "enter", 57415: "=", 57417: "left", 57418: "right", 57419: "up", 57420: "down", 57421: "pageUp", 57422: "pageDown", 57423: "home", 57424: "end", 57425: "insert", 57426: "delete" };

interface Press { key: string; ctrl: boolean; shift: boolean; alt: boolean; super: boolean; event: "press" | "repeat" | "release"; also?: string }
const plain = (key: string, more: Partial<Press> = {}): Press => ({ key, ctrl: false, shift: false, alt: false, super: false, event: "press", ...more });

function withModifiers(key: string, text: string | undefined, event?: string): Press {
  const bits = Math.max(0, Number(text || 1) - 1);
  return plain(key, { shift: (bits & 1) !== 0, alt: (bits & 2) !== 0, ctrl: (bits & 4) !== 0, super: (bits & 8) !== 0, event: event === "3" ? "release" : event === "2" ? "repeat" : "press" });
}

function keyOfCode(code: number): string | undefined {
  if (CODES[code]) return CODES[code];
  if (code > 32 && code < 127) return String.fromCharCode(code);
  return undefined;
}

function decode(data: string): Press | undefined {
  let found = /^\u001b\[(\d+)(?::(\d*))?(?::(\d*))?(?:;(\d*)(?::(\d))?)?(?:;[\d:]*)?u$/.exec(data);
  if (found) {
    // On another keyboard layout, the terminal also sends the key of the Latin layout.
    const own = keyOfCode(Number(found[1]));
    const key = own ?? (found[3] ? keyOfCode(Number(found[3])) : undefined);
    if (key === undefined) return undefined;
    return withModifiers(key.length === 1 && /[A-Z]/.test(key) ? key.toLowerCase() : key, found[4], found[5]);
  }
  found = /^\u001b\[27;(\d+);(\d+)~$/.exec(data);
  if (found) { const key = keyOfCode(Number(found[2])); return key ? withModifiers(key, found[1]) : undefined; }
  found = /^\u001b\[(?:1;(\d+)(?::(\d))?)?([A-FHPQRS])$/.exec(data);
  if (found) return withModifiers(LETTERS[found[3]], found[1], found[2]);
  found = /^\u001b\[(\d+)(?:;(\d+)(?::(\d))?)?~$/.exec(data);
  if (found) return TILDES[found[1]] ? withModifiers(TILDES[found[1]], found[2], found[3]) : undefined;
  found = /^\u001bO([A-FHPQRSM])$/.exec(data);
  if (found) return plain(found[1] === "M" ? "enter" : LETTERS[found[1]]);
  if (data === "\u001b[Z") return plain("tab", { shift: true });
  if (data.length === 2 && data[0] === "\u001b") {
    const inner = decode(data[1]);
    if (!inner) return undefined;
    if (data[1] === "b" || data[1] === "f") return plain(data[1] === "b" ? "left" : "right", { alt: true, also: `alt+${data[1]}` });
    return { ...inner, alt: true };
  }
  if (data === "\u001b\u001b") return plain("escape", { alt: true });
  if (data.length !== 1) return undefined;
  const code = data.charCodeAt(0);
  if (data === "\u001b") return plain("escape");
  if (data === "\r" || data === "\n") return plain("enter");
  if (data === "\t") return plain("tab");
  if (code === 127) return plain("backspace");
  if (code === 8) return plain("backspace", { also: "ctrl+h" });
  if (data === " ") return plain("space");
  if (code === 0) return plain("space", { ctrl: true });
  if (code < 27) return plain(String.fromCharCode(code + 96), { ctrl: true });
  if (code < 32) return plain("\\]^-"[code - 28], { ctrl: true, also: code === 31 ? "ctrl+_" : undefined });
  if (code > 126) return undefined;
  return /[A-Z]/.test(data) ? plain(data.toLowerCase(), { shift: true }) : plain(data);
}

const name = (press: Press): string => `${press.shift ? "shift+" : ""}${press.ctrl ? "ctrl+" : ""}${press.alt ? "alt+" : ""}${press.super ? "super+" : ""}${press.key}`;

export function parseKey(data: string): string | undefined {
  const press = decode(data);
  if (press === undefined) return undefined;
  // A capital letter that was sent as a character is named by that character.
  return data.length === 1 && /[A-Z]/.test(data) ? data : name(press);
}

const ALIASES: Record<string, string> = { esc: "escape", return: "enter" };
function normal(id: string): string {
  const parts = id.endsWith("++") ? [...id.slice(0, -2).split("+"), "+"] : id === "+" ? ["+"] : id.split("+");
  const key = parts.pop()!;
  const wanted = new Set(parts.map((part) => part.toLowerCase()));
  const known = NAMES.find((one) => one.toLowerCase() === key.toLowerCase()) ?? key.toLowerCase();
  return `${wanted.has("shift") ? "shift+" : ""}${wanted.has("ctrl") ? "ctrl+" : ""}${wanted.has("alt") ? "alt+" : ""}${wanted.has("super") ? "super+" : ""}${ALIASES[known] ?? known}`;
}

export function matchesKey(data: string, id: string): boolean {
  const press = decode(data);
  if (press === undefined || press.event === "release") return false;
  const wanted = normal(id);
  return name(press) === wanted || press.also === wanted;
}

export const isKeyRelease = (data: string): boolean => decode(data)?.event === "release";
export const isKeyRepeat = (data: string): boolean => decode(data)?.event === "repeat";

// Returns the character that a key of the kitty protocol types, if any.
export function decodeKittyPrintable(data: string): string | undefined {
  const found = /^\u001b\[(\d+)(?::(\d*))?(?::\d*)?(?:;(\d*)(?::(\d))?)?(?:;[\d:]*)?u$/.exec(data);
  if (!found || found[4] === "3") return undefined;
  const bits = Math.max(0, Number(found[3] || 1) - 1);
  if ((bits & ~1) !== 0) return undefined;
  const code = Number((bits & 1) !== 0 && found[2] ? found[2] : found[1]);
  return code >= 32 && code !== 127 && code < 57344 ? String.fromCodePoint(code) : undefined;
}

let kitty = false;
export const isKittyProtocolActive = (): boolean => kitty;
export const setKittyProtocolActive = (active: boolean): void => { kitty = active; };

// Returns the text that a key types into a text field, or undefined for a command.
export function typed(data: string): string | undefined {
  const printable = decodeKittyPrintable(data);
  if (printable !== undefined) return printable;
  // eslint-disable-next-line no-control-regex
  return /^[^\u0000-\u001f\u007f]+$/.test(data) ? data : undefined;
}

// -- key bindings ------------------------------------------------------------------------------------------------------

const binding = (defaultKeys: string | string[], description: string) => ({ defaultKeys, description });
export const TUI_KEYBINDINGS: any = {
  "tui.editor.cursorUp": binding("up", "Move cursor up"), "tui.editor.cursorDown": binding("down", "Move cursor down"), "tui.editor.cursorLeft": binding(["left", "ctrl+b"], "Move cursor left"), "tui.editor.cursorRight": binding(["right", "ctrl+f"], "Move cursor right"),
  "tui.editor.cursorWordLeft": binding(["alt+left", "ctrl+left", "alt+b"], "Move cursor word left"), "tui.editor.cursorWordRight": binding(["alt+right", "ctrl+right", "alt+f"], "Move cursor word right"), "tui.editor.cursorLineStart": binding(["home", "ctrl+a"], "Move to line start"), "tui.editor.cursorLineEnd": binding(["end", "ctrl+e"], "Move to line end"),
  "tui.editor.pageUp": binding("pageUp", "Page up"), "tui.editor.pageDown": binding("pageDown", "Page down"), "tui.editor.deleteCharBackward": binding("backspace", "Delete character backward"), "tui.editor.deleteCharForward": binding(["delete", "ctrl+d"], "Delete character forward"),
  "tui.editor.deleteWordBackward": binding(["ctrl+w", "alt+backspace"], "Delete word backward"), "tui.editor.deleteWordForward": binding(["alt+d", "alt+delete"], "Delete word forward"), "tui.editor.deleteToLineStart": binding("ctrl+u", "Delete to line start"), "tui.editor.deleteToLineEnd": binding("ctrl+k", "Delete to line end"), "tui.editor.yank": binding("ctrl+y", "Yank"), "tui.editor.undo": binding("ctrl+-", "Undo"),
  "tui.input.newLine": binding("shift+enter", "Insert newline"), "tui.input.submit": binding("enter", "Submit input"), "tui.input.tab": binding("tab", "Tab / autocomplete"), "tui.input.copy": binding("ctrl+c", "Copy selection"),
  "tui.select.up": binding("up", "Move selection up"), "tui.select.down": binding("down", "Move selection down"), "tui.select.pageUp": binding("pageUp", "Selection page up"), "tui.select.pageDown": binding("pageDown", "Selection page down"), "tui.select.confirm": binding("enter", "Confirm selection"), "tui.select.cancel": binding(["escape", "ctrl+c"], "Cancel selection"),
};

export class KeybindingsManager {
  #definitions: any;
  #user: any;
  constructor(definitions: any = TUI_KEYBINDINGS, user: any = {}) { this.#definitions = definitions; this.#user = user; }
  getKeys(id: string): string[] { return [this.#user[id] ?? this.#definitions[id]?.defaultKeys ?? []].flat(); }
  matches(data: string, id: string): boolean { return this.getKeys(id).some((key) => matchesKey(data, key)); }
  getDefinition(id: string): any { return this.#definitions[id]; }
  getConflicts(): any[] { return []; }
  setUserBindings(user: any): void { this.#user = user; }
  getUserBindings(): any { return { ...this.#user }; }
  getResolvedBindings(): any { return Object.fromEntries(Object.keys(this.#definitions).map((id) => [id, this.getKeys(id)])); }
}
let keybindings = new KeybindingsManager();
export const getKeybindings = (): KeybindingsManager => keybindings;
export const setKeybindings = (manager: KeybindingsManager): void => { keybindings = manager; };
