// Columns of a terminal: measures, cuts and wraps text, and keeps its colours.

import { graphemes } from "../globals/intl";

// Code points that are two columns wide, as pairs of first and last.
const WIDE = [
  0x1100, 0x115f, 0x231a, 0x231b, 0x2329, 0x232a, 0x23e9, 0x23ec, 0x23f0, 0x23f0, 0x23f3, 0x23f3, 0x25fd, 0x25fe, 0x2614, 0x2615, 0x2648, 0x2653, 0x267f, 0x267f,
  0x2693, 0x2693, 0x26a1, 0x26a1, 0x26aa, 0x26ab, 0x26bd, 0x26be, 0x26c4, 0x26c5, 0x26ce, 0x26ce, 0x26d4, 0x26d4, 0x26ea, 0x26ea, 0x26f2, 0x26f3, 0x26f5, 0x26f5,
  0x26fa, 0x26fa, 0x26fd, 0x26fd, 0x2705, 0x2705, 0x270a, 0x270b, 0x2728, 0x2728, 0x274c, 0x274c, 0x274e, 0x274e, 0x2753, 0x2755, 0x2757, 0x2757, 0x2795, 0x2797,
  0x27b0, 0x27b0, 0x27bf, 0x27bf, 0x2b1b, 0x2b1c, 0x2b50, 0x2b50, 0x2b55, 0x2b55, 0x2e80, 0x303e, 0x3041, 0x33ff, 0x3400, 0x4dbf, 0x4e00, 0xa4cf, 0xa960, 0xa97f,
  0xac00, 0xd7a3, 0xf900, 0xfaff, 0xfe10, 0xfe19, 0xfe30, 0xfe6f, 0xff01, 0xff60, 0xffe0, 0xffe6, 0x16fe0, 0x18aff, 0x1b000, 0x1b2ff, 0x1f004, 0x1f004, 0x1f0cf, 0x1f0cf,
  0x1f18e, 0x1f18e, 0x1f191, 0x1f19a, 0x1f1e6, 0x1f1ff, 0x1f200, 0x1f320, 0x1f32d, 0x1f335, 0x1f337, 0x1f37c, 0x1f37e, 0x1f393, 0x1f3a0, 0x1f3ca, 0x1f3cf, 0x1f3d3,
  0x1f3e0, 0x1f3f0, 0x1f3f4, 0x1f3f4, 0x1f3f8, 0x1f43e, 0x1f440, 0x1f440, 0x1f442, 0x1f4fc, 0x1f4ff, 0x1f53d, 0x1f54b, 0x1f54e, 0x1f550, 0x1f567, 0x1f57a, 0x1f57a,
  0x1f595, 0x1f596, 0x1f5a4, 0x1f5a4, 0x1f5fb, 0x1f64f, 0x1f680, 0x1f6c5, 0x1f6cc, 0x1f6cc, 0x1f6d0, 0x1f6d2, 0x1f6d5, 0x1f6d7, 0x1f6dc, 0x1f6df, 0x1f6eb, 0x1f6ec,
  0x1f6f4, 0x1f6fc, 0x1f7e0, 0x1f7eb, 0x1f7f0, 0x1f7f0, 0x1f90c, 0x1f93a, 0x1f93c, 0x1f945, 0x1f947, 0x1f9ff, 0x1fa70, 0x1faff, 0x20000, 0x3fffd,
];
const INVISIBLE = /^[\p{M}\p{Cc}\p{Cf}\u200b-\u200f\u2028-\u202e\u2060\ufeff]+$/u;
const ESCAPE = /\u001b\[[0-9;:?]*[A-Za-z]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b_[^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[()][A-Z0-9]/y;
const TAB = 3;

function wide(code: number): boolean {
  let low = 0;
  let high = WIDE.length / 2 - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (code < WIDE[middle * 2]) high = middle - 1;
    else if (code > WIDE[middle * 2 + 1]) low = middle + 1;
    else return true;
  }
  return false;
}

export function clusterWidth(cluster: string): number {
  if (cluster === "\t") return TAB;
  if (cluster.length === 1) {
    const code = cluster.charCodeAt(0);
    if (code >= 32 && code < 127) return 1;
  }
  if (INVISIBLE.test(cluster)) return 0;
  const first = cluster.codePointAt(0)!;
  if (cluster.includes("\ufe0f") || (cluster.length > 2 && /\p{Extended_Pictographic}/u.test(cluster)) || wide(first)) return 2;
  return 1;
}

interface Piece { text: string; width: number; escape: boolean }

// Splits text into escape sequences and visible clusters.
export function pieces(text: string): Piece[] {
  const out: Piece[] = [];
  let plain = "";
  const flush = () => { if (plain) for (const one of /^[ -~]*$/.test(plain) ? plain : graphemes(plain)) out.push({ text: one, width: clusterWidth(one), escape: false }); plain = ""; };
  for (let i = 0; i < text.length; ) {
    if (text[i] === "\u001b") {
      ESCAPE.lastIndex = i;
      const found = ESCAPE.exec(text);
      if (found) { flush(); out.push({ text: found[0], width: 0, escape: true }); i += found[0].length; continue; }
    }
    plain += text[i++];
  }
  flush();
  return out;
}

export function visibleWidth(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length;
  let total = 0;
  for (const piece of pieces(text)) total += piece.width;
  return total;
}

// Returns a slice of columns; earlier codes are kept, so that it looks the same.
export function sliceByColumn(line: string, start: number, length: number): string {
  let out = "";
  let at = 0;
  for (const piece of pieces(line)) {
    if (piece.escape) { if (at < start + length) out += piece.text; continue; }
    if (at >= start && at + piece.width <= start + length) out += piece.text;
    at += piece.width;
  }
  return out;
}

export function truncateToWidth(text: string, maxWidth: number, ellipsis = "...", pad = false): string {
  const size = visibleWidth(text);
  if (size <= maxWidth) return pad ? text + " ".repeat(maxWidth - size) : text;
  if (maxWidth <= 0) return "";
  const tail = fitted(ellipsis, maxWidth);
  const room = maxWidth - visibleWidth(tail);
  const kept = fitted(text, room);
  const used = visibleWidth(kept) + visibleWidth(tail);
  return `${kept}\u001b[0m${tail ? `${tail}\u001b[0m` : ""}${pad ? " ".repeat(Math.max(0, maxWidth - used)) : ""}`;
}

function fitted(text: string, room: number): string {
  let out = "";
  let used = 0;
  for (const piece of pieces(text)) {
    if (used + piece.width > room) break;
    out += piece.text;
    used += piece.width;
  }
  return out;
}

// The current colours and attributes, so that a new line can begin with them.
class Style {
  #codes = new Map<string, string>();
  take(escape: string): void {
    const found = /^\u001b\[([0-9;]*)m$/.exec(escape);
    if (!found) return;
    const parts = found[1] === "" ? ["0"] : found[1].split(";");
    for (let i = 0; i < parts.length; i++) {
      const code = Number(parts[i]);
      if (code === 0) this.#codes.clear();
      else if (code === 38 || code === 48) {
        const size = parts[i + 1] === "5" ? 3 : 5;
        this.#codes.set(code === 38 ? "fg" : "bg", parts.slice(i, i + size).join(";"));
        i += size - 1;
      } else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) this.#codes.set("fg", String(code));
      else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) this.#codes.set("bg", String(code));
      else if (code === 39) this.#codes.delete("fg");
      else if (code === 49) this.#codes.delete("bg");
      else if (code === 22) { this.#codes.delete("1"); this.#codes.delete("2"); }
      else if (code >= 23 && code <= 29) this.#codes.delete(String(code - 20));
      else if (code >= 1 && code <= 9) this.#codes.set(String(code), String(code));
    }
  }
  get text(): string { return this.#codes.size ? `\u001b[${[...this.#codes.values()].join(";")}m` : ""; }
}

export function wrapTextWithAnsi(text: string, width: number): string[] {
  const style = new Style();
  const out: string[] = [];
  for (const line of text.split("\n")) wrapLine(line, Math.max(1, width), style, out);
  return out;
}

function wrapLine(line: string, width: number, style: Style, out: string[]): void {
  let current = style.text;
  let used = 0;
  let word = "";
  let wordWidth = 0;
  let gap = "";
  let gapWidth = 0;
  let started = false;
  let codes: string[] = []; // of the word and the gap before it; they take effect once those are placed
  const end = () => { out.push(current); current = style.text; used = 0; };
  const place = () => {
    if (wordWidth === 0 && word === "") return;
    if (started && used + gapWidth + wordWidth > width) { end(); gap = ""; gapWidth = 0; }
    current += gap + word;
    for (const code of codes) style.take(code);
    codes = [];
    used += gapWidth + wordWidth;
    started = true;
    word = gap = "";
    wordWidth = gapWidth = 0;
  };
  for (const piece of pieces(line)) {
    if (piece.escape) { if (word === "" && gap !== "") gap += piece.text; else word += piece.text; codes.push(piece.text); continue; }
    if (piece.text === " " || piece.text === "\t") {
      place();
      gap += piece.text;
      gapWidth += piece.width;
      continue;
    }
    if (wordWidth + piece.width > width) {
      // A word that is longer than a line is cut at the end of the line.
      place();
      end();
      started = false;
    }
    word += piece.text;
    wordWidth += piece.width;
  }
  place();
  if (!started && gap !== "") current += gap.slice(0, width);
  for (const code of codes) style.take(code);
  out.push(current);
}

export function padded(line: string, width: number, background?: (text: string) => string): string {
  const full = line + " ".repeat(Math.max(0, width - visibleWidth(line)));
  return background ? background(full) : full;
}
