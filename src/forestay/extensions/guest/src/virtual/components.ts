// The components of pi-tui: each renders lines of text for a given width and handles keys.

import { decodeKittyPrintable, getKeybindings, matchesKey, typed } from "./keys";
import { fuzzyFilter } from "./fuzzy";
import { graphemes } from "../globals/intl";
import { padded, sliceByColumn, truncateToWidth, visibleWidth, wrapTextWithAnsi } from "./width";

export const CURSOR_MARKER = "\u001b_pi:c\u0007";
const bound = (data: string, id: string): boolean => getKeybindings().matches(data, id);

export class Container {
  children: any[] = [];
  addChild(child: any): void { this.children.push(child); }
  removeChild(child: any): void { const at = this.children.indexOf(child); if (at >= 0) this.children.splice(at, 1); }
  clear(): void { this.children = []; }
  invalidate(): void { for (const child of this.children) child.invalidate?.(); }
  render(width: number): string[] { return this.children.flatMap((child) => child.render(width)); }
}

export class Text {
  #text: string;
  #x: number;
  #y: number;
  #background?: (text: string) => string;
  constructor(text = "", paddingX = 1, paddingY = 1, background?: (text: string) => string) { this.#text = text; this.#x = paddingX; this.#y = paddingY; this.#background = background; }
  setText(text: string): void { this.#text = text; }
  setCustomBgFn(background?: (text: string) => string): void { this.#background = background; }
  invalidate(): void {}
  render(width: number): string[] {
    const text = String(this.#text ?? "");
    if (text.trim() === "") return [];
    const side = " ".repeat(this.#x);
    const lines = wrapTextWithAnsi(text.replace(/\t/g, "   "), Math.max(1, width - this.#x * 2)).map((line) => padded(side + line + side, width, this.#background));
    const empty = Array.from({ length: this.#y }, () => padded("", width, this.#background));
    return [...empty, ...lines, ...empty];
  }
}

export class Box extends Container {
  #x: number;
  #y: number;
  #background?: (text: string) => string;
  constructor(paddingX = 1, paddingY = 1, background?: (text: string) => string) { super(); this.#x = paddingX; this.#y = paddingY; this.#background = background; }
  setBgFn(background?: (text: string) => string): void { this.#background = background; }
  render(width: number): string[] {
    const inner = super.render(Math.max(1, width - this.#x * 2));
    if (inner.length === 0) return [];
    const empty = Array.from({ length: this.#y }, () => padded("", width, this.#background));
    return [...empty, ...inner.map((line) => padded(" ".repeat(this.#x) + line, width, this.#background)), ...empty];
  }
}

export class Spacer {
  #lines: number;
  constructor(lines = 1) { this.#lines = lines; }
  setLines(lines: number): void { this.#lines = lines; }
  invalidate(): void {}
  render(_width: number): string[] { return Array.from({ length: this.#lines }, () => ""); }
}

export class TruncatedText {
  #text: string;
  #x: number;
  #y: number;
  constructor(text: string, paddingX = 0, paddingY = 0) { this.#text = text; this.#x = paddingX; this.#y = paddingY; }
  invalidate(): void {}
  render(width: number): string[] {
    const side = " ".repeat(this.#x);
    const first = this.#text.split("\n")[0];
    const empty = Array.from({ length: this.#y }, () => " ".repeat(width));
    return [...empty, padded(side + truncateToWidth(first, Math.max(1, width - this.#x * 2)) + side, width), ...empty];
  }
}

const same = (text: string): string => text;
const themed = (theme: any): any => new Proxy(theme ?? {}, { get: (target, name) => target[name] ?? same });

export class SelectList {
  onSelect?: (item: any) => void;
  onCancel?: () => void;
  onSelectionChange?: (item: any) => void;
  #items: any[];
  #shown: any[];
  #at = 0;
  #most: number;
  #theme: any;
  #layout: any;
  constructor(items: any[], maxVisible: number, theme: any, layout: any = {}) { this.#items = items; this.#shown = items; this.#most = maxVisible; this.#theme = themed(theme); this.#layout = layout; }
  setFilter(filter: string): void { const wanted = filter.toLowerCase(); this.#shown = this.#items.filter((item) => item.value.toLowerCase().startsWith(wanted)); this.#at = 0; }
  setSelectedIndex(index: number): void { this.#at = Math.max(0, Math.min(index, this.#shown.length - 1)); }
  getSelectedItem(): any { return this.#shown[this.#at] ?? null; }
  invalidate(): void {}
  render(width: number): string[] {
    if (this.#shown.length === 0) return [this.#theme.noMatch("  No matching commands")];
    const start = Math.max(0, Math.min(this.#at - Math.floor(this.#most / 2), this.#shown.length - this.#most));
    const end = Math.min(start + this.#most, this.#shown.length);
    const lines: string[] = [];
    for (let i = start; i < end; i++) lines.push(this.#line(this.#shown[i], i === this.#at, width));
    if (start > 0 || end < this.#shown.length) lines.push(this.#theme.scrollInfo(truncateToWidth(`  (${this.#at + 1}/${this.#shown.length})`, width - 2, "")));
    return lines;
  }
  #line(item: any, selected: boolean, width: number): string {
    const prefix = selected ? "→ " : "  ";
    const label = item.label || item.value;
    const column = Math.max(this.#layout.minPrimaryColumnWidth ?? 32, Math.min(this.#layout.maxPrimaryColumnWidth ?? 32, 32));
    const about = item.description ? String(item.description).replace(/[\r\n]+/g, " ") : "";
    if (about && width > 40) {
      const name = truncateToWidth(label, Math.min(column - 2, width - 4), "");
      const gap = " ".repeat(Math.max(1, column - visibleWidth(name)));
      const room = width - 2 - visibleWidth(name) - gap.length - 2;
      if (room > 10) {
        const text = truncateToWidth(about, room, "");
        return selected ? this.#theme.selectedText(prefix + name + gap + text) : prefix + name + this.#theme.description(gap + text);
      }
    }
    const text = prefix + truncateToWidth(label, width - 4, "");
    return selected ? this.#theme.selectedText(text) : text;
  }
  handleInput(data: string): void {
    const count = this.#shown.length;
    if (bound(data, "tui.select.up") && count) this.#move((this.#at + count - 1) % count);
    else if (bound(data, "tui.select.down") && count) this.#move((this.#at + 1) % count);
    else if (bound(data, "tui.select.pageUp") && count) this.#move(Math.max(0, this.#at - this.#most));
    else if (bound(data, "tui.select.pageDown") && count) this.#move(Math.min(count - 1, this.#at + this.#most));
    else if (bound(data, "tui.select.confirm")) { if (this.#shown[this.#at]) this.onSelect?.(this.#shown[this.#at]); }
    else if (bound(data, "tui.select.cancel")) this.onCancel?.();
  }
  #move(to: number): void { this.#at = to; if (this.#shown[to]) this.onSelectionChange?.(this.#shown[to]); }
}

// A line of text with a cursor, shared by Input and Editor.
export class LineState {
  text = "";
  at = 0;
  insert(text: string): void { this.text = this.text.slice(0, this.at) + text + this.text.slice(this.at); this.at += text.length; }
  left(): number { const list = graphemes(this.text.slice(0, this.at)); return list.length ? list[list.length - 1].length : 0; }
  right(): number { return graphemes(this.text.slice(this.at))[0]?.length ?? 0; }
  wordLeft(): number { const found = /(?:[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]+)\s*$/u.exec(this.text.slice(0, this.at)); return found ? found.index : 0; }
  wordRight(): number { const found = /^\s*(?:[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]+)/u.exec(this.text.slice(this.at)); return this.at + (found ? found[0].length : this.text.length - this.at); }
  cut(from: number, to: number): string { const gone = this.text.slice(from, to); this.text = this.text.slice(0, from) + this.text.slice(to); this.at = from; return gone; }
  // Handles a key; returns whether it edits a line.
  key(data: string, killed: { text: string }): boolean {
    if (bound(data, "tui.editor.deleteCharBackward")) { if (this.at > 0) this.cut(this.at - this.left(), this.at); }
    else if (bound(data, "tui.editor.deleteCharForward")) this.cut(this.at, this.at + this.right());
    else if (bound(data, "tui.editor.deleteWordBackward")) killed.text = this.cut(this.wordLeft(), this.at);
    else if (bound(data, "tui.editor.deleteWordForward")) killed.text = this.cut(this.at, this.wordRight());
    else if (bound(data, "tui.editor.deleteToLineStart")) killed.text = this.cut(0, this.at);
    else if (bound(data, "tui.editor.deleteToLineEnd")) killed.text = this.cut(this.at, this.text.length);
    else if (bound(data, "tui.editor.yank")) this.insert(killed.text);
    else if (bound(data, "tui.editor.cursorLeft")) this.at -= this.left();
    else if (bound(data, "tui.editor.cursorRight")) this.at += this.right();
    else if (bound(data, "tui.editor.cursorWordLeft")) this.at = this.wordLeft();
    else if (bound(data, "tui.editor.cursorWordRight")) this.at = this.wordRight();
    else if (bound(data, "tui.editor.cursorLineStart")) this.at = 0;
    else if (bound(data, "tui.editor.cursorLineEnd")) this.at = this.text.length;
    else return false;
    return true;
  }
  shown(focused: boolean): string {
    const under = graphemes(this.text.slice(this.at))[0] ?? " ";
    return this.text.slice(0, this.at) + (focused ? CURSOR_MARKER : "") + `\u001b[7m${under}\u001b[27m` + this.text.slice(this.at + (this.at < this.text.length ? under.length : 0));
  }
}

// A bracketed paste arrives between two marks, possibly in several parts.
export class Paste {
  #open = false;
  #text = "";
  take(data: string): { pasted?: string; rest?: string } | undefined {
    if (!this.#open) {
      const at = data.indexOf("\u001b[200~");
      if (at < 0) return undefined;
      this.#open = true;
      this.#text = "";
      data = data.slice(at + 6);
    }
    this.#text += data;
    const end = this.#text.indexOf("\u001b[201~");
    if (end < 0) return {};
    this.#open = false;
    return { pasted: this.#text.slice(0, end), rest: this.#text.slice(end + 6) };
  }
}

export class Input {
  onSubmit?: (value: string) => void;
  onEscape?: () => void;
  focused = false;
  #line = new LineState();
  #killed = { text: "" };
  #undo: [string, number][] = [];
  #paste = new Paste();
  getValue(): string { return this.#line.text; }
  setValue(value: string): void { this.#line.text = value; this.#line.at = Math.min(this.#line.at, value.length); }
  invalidate(): void {}
  handleInput(data: string): void {
    const paste = this.#paste.take(data);
    if (paste) {
      if (paste.pasted !== undefined) { this.#remember(); this.#line.insert(paste.pasted.replace(/[\r\n]+/g, "").replace(/\t/g, "    ")); }
      if (paste.rest) this.handleInput(paste.rest);
      return;
    }
    if (bound(data, "tui.select.cancel")) return void this.onEscape?.();
    if (bound(data, "tui.editor.undo")) { const last = this.#undo.pop(); if (last) [this.#line.text, this.#line.at] = last; return; }
    if (bound(data, "tui.input.submit") || data === "\n") return void this.onSubmit?.(this.#line.text);
    const before: [string, number] = [this.#line.text, this.#line.at];
    if (this.#line.key(data, this.#killed)) { if (before[0] !== this.#line.text) this.#undo.push(before); return; }
    const text = typed(data);
    if (text !== undefined) { this.#remember(); this.#line.insert(text); }
  }
  #remember(): void { this.#undo.push([this.#line.text, this.#line.at]); if (this.#undo.length > 200) this.#undo.shift(); }
  render(width: number): string[] {
    const room = Math.max(1, width - 2);
    const before = visibleWidth(this.#line.text.slice(0, this.#line.at));
    const line = this.#line.shown(this.focused);
    const shown = visibleWidth(this.#line.text) + 1 <= room ? line : sliceByColumn(line, Math.max(0, before - Math.floor(room / 2)), room);
    return [padded(`> ${shown}`, width)];
  }
}

export class Loader extends Text {
  #tui: any;
  #spinner: (text: string) => string;
  #colour: (text: string) => string;
  #message: string;
  #frames: string[];
  #every: number;
  #frame = 0;
  #timer: any;
  constructor(tui: any, spinner: (text: string) => string = same, colour: (text: string) => string = same, message = "Loading...", indicator: any = {}) {
    super("", 1, 0);
    this.#tui = tui;
    this.#spinner = spinner;
    this.#colour = colour;
    this.#message = message;
    this.#frames = indicator?.frames ?? ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
    this.#every = indicator?.intervalMs ?? 80;
    this.start();
  }
  render(width: number): string[] { return ["", ...super.render(width)]; }
  start(): void {
    this.#draw();
    if (this.#timer === undefined && this.#frames.length > 1) this.#timer = (globalThis as any).setInterval(() => { this.#frame = (this.#frame + 1) % this.#frames.length; this.#draw(); }, this.#every);
  }
  stop(): void { if (this.#timer !== undefined) (globalThis as any).clearInterval(this.#timer); this.#timer = undefined; }
  setMessage(message: string): void { this.#message = message; this.#draw(); }
  setIndicator(indicator: any = {}): void { this.#frames = indicator.frames ?? this.#frames; this.#every = indicator.intervalMs ?? this.#every; this.stop(); this.#frame = 0; this.start(); }
  #draw(): void {
    const frame = this.#frames[this.#frame];
    this.setText(`${frame ? `${this.#spinner(frame)} ` : ""}${this.#colour(this.#message)}`);
    this.#tui?.requestRender?.();
  }
}

export class CancellableLoader extends Loader {
  onAbort?: () => void;
  #control = new (globalThis as any).AbortController();
  get signal(): any { return this.#control.signal; }
  get aborted(): boolean { return this.#control.signal.aborted; }
  handleInput(data: string): void { if (bound(data, "tui.select.cancel")) { this.#control.abort(); this.onAbort?.(); } }
  dispose(): void { this.stop(); }
}

export class SettingsList {
  #items: any[];
  #shown: any[];
  #most: number;
  #theme: any;
  #change: (id: string, value: string) => void;
  #cancel: () => void;
  #at = 0;
  #menu: any = null;
  #search: Input | undefined;
  constructor(items: any[], maxVisible: number, theme: any, onChange: any, onCancel: any, options: any = {}) { this.#items = items; this.#shown = items; this.#most = maxVisible; this.#theme = theme; this.#change = onChange; this.#cancel = onCancel; if (options.enableSearch) this.#search = new Input(); }
  updateValue(id: string, value: string): void { const item = this.#items.find((one) => one.id === id); if (item) item.currentValue = value; }
  invalidate(): void { this.#menu?.invalidate?.(); }
  render(width: number): string[] {
    if (this.#menu) return this.#menu.render(width);
    const lines: string[] = this.#search ? [...this.#search.render(width), ""] : [];
    if (this.#shown.length === 0) return [...lines, this.#theme.hint("  No matching settings")];
    const start = Math.max(0, Math.min(this.#at - Math.floor(this.#most / 2), this.#shown.length - this.#most));
    const end = Math.min(start + this.#most, this.#shown.length);
    const label = Math.min(30, Math.max(...this.#items.map((item) => visibleWidth(item.label))));
    for (let i = start; i < end; i++) {
      const item = this.#shown[i];
      const selected = i === this.#at;
      const name = item.label + " ".repeat(Math.max(0, label - visibleWidth(item.label)));
      lines.push(truncateToWidth(`${selected ? this.#theme.cursor : "  "}${this.#theme.label(name, selected)}  ${this.#theme.value(truncateToWidth(String(item.currentValue), Math.max(1, width - label - 6), ""), selected)}`, width));
    }
    if (start > 0 || end < this.#shown.length) lines.push(this.#theme.hint(`  (${this.#at + 1}/${this.#shown.length})`));
    const about = this.#shown[this.#at]?.description;
    if (about) lines.push("", ...wrapTextWithAnsi(about, Math.max(1, width - 4)).map((line) => this.#theme.description(`  ${line}`)));
    return [...lines, "", this.#theme.hint("  Enter/Space to change · Esc to cancel")];
  }
  handleInput(data: string): void {
    if (this.#menu) return void this.#menu.handleInput?.(data);
    const count = this.#shown.length;
    if (bound(data, "tui.select.up")) { if (count) this.#at = (this.#at + count - 1) % count; }
    else if (bound(data, "tui.select.down")) { if (count) this.#at = (this.#at + 1) % count; }
    else if (bound(data, "tui.select.confirm") || (matchesKey(data, "space") && !this.#search)) this.#activate();
    else if (bound(data, "tui.select.cancel")) this.#cancel();
    else if (this.#search) { this.#search.handleInput(data); const query = this.#search.getValue(); this.#shown = query ? fuzzyFilter(this.#items, query, (item: any) => item.label) : this.#items; this.#at = 0; }
  }
  #activate(): void {
    const item = this.#shown[this.#at];
    if (!item) return;
    if (item.submenu) {
      this.#menu = item.submenu(item.currentValue, (value?: string) => { this.#menu = null; if (value !== undefined) { item.currentValue = value; this.#change(item.id, value); } });
    } else if (item.values?.length) {
      item.currentValue = item.values[(item.values.indexOf(item.currentValue) + 1) % item.values.length];
      this.#change(item.id, item.currentValue);
    }
  }
}

// There is no terminal that draws pictures, so an image is its description.
export class Image {
  #text: string;
  constructor(_data: string, mimeType: string, theme: any, options: any = {}, dimensions?: any) {
    const size = dimensions ? ` ${dimensions.widthPx}x${dimensions.heightPx}` : "";
    this.#text = (theme?.fallbackColor ?? same)(`[Image: ${options.filename ? `${options.filename} ` : ""}[${mimeType}]${size}]`);
  }
  getImageId(): undefined { return undefined; }
  invalidate(): void {}
  render(width: number): string[] { return [truncateToWidth(this.#text, width)]; }
}

export { decodeKittyPrintable };
