// The multi-line editor: text, cursor, history, paste and completion, drawn between two lines.

import { LineState, Paste, SelectList } from "./components";
import { getKeybindings, matchesKey, typed } from "./keys";
import { padded, visibleWidth, wrapTextWithAnsi } from "./width";

const bound = (data: string, id: string): boolean => getKeybindings().matches(data, id);
const same = (text: string): string => text;

export class Editor {
  focused = false;
  disableSubmit = false;
  borderColor: (text: string) => string;
  onSubmit?: (text: string) => void;
  onChange?: (text: string) => void;
  tui: any;
  theme: any;
  #lines: LineState[] = [new LineState()];
  #row = 0;
  #padding: number;
  #history: string[] = [];
  #place = -1;
  #draft = "";
  #killed = { text: "" };
  #undo: [string, number, number][] = [];
  #paste = new Paste();
  #provider: any;
  #list: SelectList | undefined;
  #prefix = "";
  #most: number;
  constructor(tui: any, theme: any, options: any = {}) {
    this.tui = tui;
    this.theme = theme;
    this.borderColor = theme?.borderColor ?? same;
    this.#padding = options.paddingX ?? 0;
    this.#most = options.autocompleteMaxVisible ?? 5;
  }
  getPaddingX(): number { return this.#padding; }
  setPaddingX(padding: number): void { this.#padding = padding; }
  getAutocompleteMaxVisible(): number { return this.#most; }
  setAutocompleteMaxVisible(most: number): void { this.#most = most; }
  setAutocompleteProvider(provider: any): void { this.#provider = provider; }
  isShowingAutocomplete(): boolean { return this.#list !== undefined; }
  addToHistory(text: string): void { const plain = text.trim(); if (plain && this.#history[0] !== plain) this.#history.unshift(plain); if (this.#history.length > 100) this.#history.pop(); }
  invalidate(): void {}
  getText(): string { return this.#lines.map((line) => line.text).join("\n"); }
  getExpandedText(): string { return this.getText(); }
  getLines(): string[] { return this.#lines.map((line) => line.text); }
  getCursor(): { line: number; col: number } { return { line: this.#row, col: this.#line.at }; }
  setText(text: string): void { this.#place = -1; this.#set(text); this.onChange?.(this.getText()); }
  insertTextAtCursor(text: string): void { this.#remember(); this.#insert(text); this.onChange?.(this.getText()); }
  get #line(): LineState { return this.#lines[this.#row]; }
  #set(text: string): void {
    this.#lines = text.replace(/\r\n?/g, "\n").split("\n").map((one) => Object.assign(new LineState(), { text: one, at: one.length }));
    this.#row = this.#lines.length - 1;
  }
  #insert(text: string): void {
    const parts = text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n");
    parts.forEach((part, index) => { if (index > 0) this.#newLine(); this.#line.insert(part); });
  }
  #newLine(): void {
    const rest = this.#line.text.slice(this.#line.at);
    this.#line.text = this.#line.text.slice(0, this.#line.at);
    this.#lines.splice(this.#row + 1, 0, Object.assign(new LineState(), { text: rest, at: 0 }));
    this.#row++;
  }
  #remember(): void { this.#undo.push([this.getText(), this.#row, this.#line.at]); if (this.#undo.length > 200) this.#undo.shift(); }
  handleInput(data: string): void {
    const before = this.getText();
    this.#key(data);
    if (this.getText() !== before) { this.onChange?.(this.getText()); this.#complete(false); }
  }
  #key(data: string): void {
    const paste = this.#paste.take(data);
    if (paste) {
      if (paste.pasted !== undefined) { this.#remember(); this.#insert(paste.pasted); }
      if (paste.rest) this.#key(paste.rest);
      return;
    }
    if (this.#list && this.#choose(data)) return;
    if (bound(data, "tui.editor.undo")) { const last = this.#undo.pop(); if (last) { this.#set(last[0]); this.#row = last[1]; this.#line.at = last[2]; } return; }
    if (bound(data, "tui.input.newLine") || matchesKey(data, "alt+enter")) { this.#remember(); this.#newLine(); return; }
    if (bound(data, "tui.input.submit") || data === "\n") {
      if (this.#line.text[this.#line.at - 1] === "\\") { this.#remember(); this.#line.cut(this.#line.at - 1, this.#line.at); this.#newLine(); return; }
      if (!this.disableSubmit) this.#submit();
      return;
    }
    if (bound(data, "tui.input.tab")) { this.#complete(true); return; }
    if (bound(data, "tui.editor.cursorUp")) { this.#vertical(-1); return; }
    if (bound(data, "tui.editor.cursorDown")) { this.#vertical(1); return; }
    if (this.#line.at === 0 && this.#row > 0 && bound(data, "tui.editor.deleteCharBackward")) { this.#remember(); this.#join(this.#row - 1); return; }
    if (this.#line.at === this.#line.text.length && this.#row < this.#lines.length - 1 && bound(data, "tui.editor.deleteCharForward")) { this.#remember(); this.#join(this.#row); return; }
    if (this.#line.at === 0 && this.#row > 0 && bound(data, "tui.editor.cursorLeft")) { this.#row--; this.#line.at = this.#line.text.length; return; }
    if (this.#line.at === this.#line.text.length && this.#row < this.#lines.length - 1 && bound(data, "tui.editor.cursorRight")) { this.#row++; this.#line.at = 0; return; }
    const text = this.getText();
    const state: [string, number, number] = [text, this.#row, this.#line.at];
    if (this.#line.key(data, this.#killed)) { if (this.getText() !== text) this.#undo.push(state); return; }
    const plain = typed(data);
    if (plain !== undefined) { this.#remember(); this.#insert(plain); }
  }
  #join(row: number): void {
    const at = this.#lines[row].text.length;
    this.#lines[row].text += this.#lines[row + 1].text;
    this.#lines[row].at = at;
    this.#lines.splice(row + 1, 1);
    this.#row = row;
  }
  #vertical(step: number): void {
    const to = this.#row + step;
    if (to >= 0 && to < this.#lines.length) { const at = this.#line.at; this.#row = to; this.#line.at = Math.min(at, this.#line.text.length); return; }
    const place = this.#place - step;
    if (place < -1 || place >= this.#history.length) return;
    if (this.#place === -1) this.#draft = this.getText();
    this.#place = place;
    this.#set(place === -1 ? this.#draft : this.#history[place]);
  }
  #submit(): void {
    const text = this.getText().trim();
    this.#set("");
    this.#place = -1;
    this.#list = undefined;
    this.onChange?.("");
    this.onSubmit?.(text);
  }
  async #complete(force: boolean): Promise<void> {
    if (!this.#provider) return;
    const found = await this.#provider.getSuggestions?.(this.getLines(), this.#row, this.#line.at, { force, signal: new (globalThis as any).AbortController().signal });
    this.#list = found?.items?.length ? new SelectList(found.items, this.#most, this.theme?.selectList ?? {}) : undefined;
    this.#prefix = found?.prefix ?? "";
    this.tui?.requestRender?.();
  }
  #choose(data: string): boolean {
    const item = this.#list!.getSelectedItem();
    if (bound(data, "tui.select.cancel")) { this.#list = undefined; return true; }
    if (bound(data, "tui.select.up") || bound(data, "tui.select.down")) { this.#list!.handleInput(data); return true; }
    if (!item || !(bound(data, "tui.input.tab") || bound(data, "tui.select.confirm"))) return false;
    const done = this.#provider.applyCompletion?.(this.getLines(), this.#row, this.#line.at, item, this.#prefix);
    this.#list = undefined;
    if (done) { this.#set(done.lines.join("\n")); this.#row = done.cursorLine; this.#line.at = done.cursorCol; } else { this.#line.cut(this.#line.at - this.#prefix.length, this.#line.at); this.#line.insert(item.value); }
    return bound(data, "tui.input.tab");
  }
  render(width: number): string[] {
    const room = Math.max(1, width - this.#padding * 2);
    const side = " ".repeat(this.#padding);
    const border = this.borderColor("─".repeat(Math.max(1, width)));
    const out = [border];
    this.#lines.forEach((line, index) => {
      const shown = index === this.#row ? line.shown(this.focused) : line.text;
      const rows = visibleWidth(shown) <= room ? [shown] : wrapTextWithAnsi(shown, room);
      for (const row of rows) out.push(padded(side + row + side, width));
    });
    return [...out, border, ...(this.#list?.render(width) ?? [])];
  }
}
