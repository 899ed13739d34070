// @mariozechner/pi-tui: the components, and a TUI whose terminal is the host's UI bridge.

import { defineModule } from "../modules";
import * as components from "./components";
import { Editor } from "./editor";
import { fuzzyFilter, fuzzyMatch } from "./fuzzy";
import * as keys from "./keys";
import { Markdown } from "./markdown";
import { truncateToWidth, visibleWidth, wrapTextWithAnsi } from "./width";

const { Container, CURSOR_MARKER } = components;

class TUI extends Container {
  terminal: any;
  onDebug?: () => void;
  #focused: any = null;
  #overlays: any[] = [];
  #listeners: ((data: string) => any)[] = [];
  constructor(terminal: any = {}) { super(); this.terminal = terminal; }
  setFocus(component: any): void { if (this.#focused) this.#focused.focused = false; this.#focused = component; if (component && "focused" in component) component.focused = true; }
  showOverlay(component: any, options: any = {}): any {
    const entry = { component, options, hidden: false };
    this.#overlays.push(entry);
    this.setFocus(component);
    return { hide: () => { this.#overlays = this.#overlays.filter((one) => one !== entry); }, setHidden: (hidden: boolean) => { entry.hidden = hidden; }, isHidden: () => entry.hidden, focus: () => this.setFocus(component), unfocus: () => this.setFocus(null), isFocused: () => this.#focused === component };
  }
  hideOverlay(): void { this.#overlays.pop(); }
  hasOverlay(): boolean { return this.#overlays.some((one) => !one.hidden); }
  addInputListener(listener: any): () => void { this.#listeners.push(listener); return () => { this.#listeners = this.#listeners.filter((one) => one !== listener); }; }
  handleInput(data: string): void {
    for (const listener of this.#listeners) { const result = listener(data); if (result?.consume) return; if (result?.data !== undefined) data = result.data; }
    this.#focused?.handleInput?.(data);
  }
  requestRender(): void {}
  start(): void {}
  stop(): void {}
  render(width: number): string[] { return [...super.render(width), ...this.#overlays.filter((one) => !one.hidden).flatMap((one) => one.component.render(width))]; }
}

class CombinedAutocompleteProvider {
  #commands: any[];
  constructor(commands: any[] = []) { this.#commands = commands; }
  async getSuggestions(lines: string[], row: number, column: number): Promise<any> {
    const before = lines[row].slice(0, column);
    const found = /^\/(\S*)$/.exec(before);
    if (!found) return null;
    const items = fuzzyFilter(this.#commands.map((command) => ({ value: command.name ?? command.value, label: command.label ?? command.name ?? command.value, description: command.description })), found[1], (item) => item.value);
    return items.length ? { items, prefix: before } : null;
  }
  applyCompletion(lines: string[], row: number, column: number, item: any, prefix: string): any {
    const line = lines[row];
    const start = column - prefix.length;
    const text = prefix.startsWith("/") ? `/${item.value} ` : item.value;
    return { lines: lines.map((one, index) => (index === row ? line.slice(0, start) + text + line.slice(column) : one)), cursorLine: row, cursorCol: start + text.length };
  }
}

const capabilities = { images: null, trueColor: false, hyperlinks: false };
const none = (): null => null;

// Reads width and height from the first bytes of a picture.
function pngDimensions(base64: string): any {
  const bytes = (globalThis as any).Buffer.from(base64.slice(0, 64), "base64");
  return bytes.length >= 24 && bytes.toString("latin1", 1, 4) === "PNG" ? { widthPx: bytes.readUInt32BE(16), heightPx: bytes.readUInt32BE(20) } : null;
}
function gifDimensions(base64: string): any {
  const bytes = (globalThis as any).Buffer.from(base64.slice(0, 32), "base64");
  return bytes.length >= 10 && bytes.toString("latin1", 0, 3) === "GIF" ? { widthPx: bytes.readUInt16LE(6), heightPx: bytes.readUInt16LE(8) } : null;
}

export const tui: any = {
  ...components, Editor, Markdown, fuzzyFilter, fuzzyMatch, truncateToWidth, visibleWidth, wrapTextWithAnsi, TUI, CombinedAutocompleteProvider,
  Key: keys.Key, matchesKey: keys.matchesKey, parseKey: keys.parseKey, isKeyRelease: keys.isKeyRelease, isKeyRepeat: keys.isKeyRepeat, decodeKittyPrintable: keys.decodeKittyPrintable, isKittyProtocolActive: keys.isKittyProtocolActive, setKittyProtocolActive: keys.setKittyProtocolActive,
  KeybindingsManager: keys.KeybindingsManager, getKeybindings: keys.getKeybindings, setKeybindings: keys.setKeybindings, TUI_KEYBINDINGS: keys.TUI_KEYBINDINGS,
  isFocusable: (component: any) => component !== null && component !== undefined && "focused" in component, CURSOR_MARKER,
  getCapabilities: () => capabilities, detectCapabilities: () => capabilities, setCapabilities: (values: any) => void Object.assign(capabilities, values), resetCapabilitiesCache: () => undefined, getCellDimensions: () => ({ widthPx: 9, heightPx: 18 }), setCellDimensions: () => undefined,
  getPngDimensions: pngDimensions, getGifDimensions: gifDimensions, getJpegDimensions: none, getWebpDimensions: none, getImageDimensions: (data: string, mime: string) => (mime === "image/png" ? pngDimensions(data) : mime === "image/gif" ? gifDimensions(data) : null), renderImage: none,
  imageFallback: (mime: string, dimensions?: any, filename?: string) => `[Image: ${filename ? `${filename} ` : ""}[${mime}]${dimensions ? ` ${dimensions.widthPx}x${dimensions.heightPx}` : ""}]`, hyperlink: (text: string, url: string) => `\u001b]8;;${url}\u001b\\${text}\u001b]8;;\u001b\\`, allocateImageId: () => 1, calculateImageRows: (size: any, columns: number) => Math.max(1, Math.ceil((size.heightPx * columns * 9) / size.widthPx / 18)), encodeKitty: () => "", encodeITerm2: () => "", deleteKittyImage: () => "", deleteAllKittyImages: () => "",
};
delete tui.LineState;
delete tui.Paste;
Object.defineProperty(tui, "default", { value: tui, enumerable: false });
for (const scope of ["@mariozechner", "@earendil-works"]) defineModule(`${scope}/pi-tui`, tui);
