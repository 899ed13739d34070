// Renders Markdown as lines for a terminal: headings, lists, quotes, code, tables and inline marks.

import { padded, visibleWidth, wrapTextWithAnsi } from "./width";

interface Block { kind: string; text?: string; level?: number; lines?: string[]; language?: string; items?: Item[]; ordered?: boolean; start?: number; rows?: string[][] }
interface Item { text: string; children: Block[] }

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const BULLET = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;

export function parseBlocks(lines: string[]): Block[] {
  const out: Block[] = [];
  let i = 0;
  while (i < lines.length) {
    const line = lines[i];
    if (line.trim() === "") { i++; continue; }
    const fence = FENCE.exec(line);
    if (fence) {
      const body: string[] = [];
      for (i++; i < lines.length && !lines[i].trim().startsWith(fence[1]); i++) body.push(lines[i]);
      i++;
      out.push({ kind: "code", lines: body, language: fence[2] });
      continue;
    }
    const heading = HEADING.exec(line);
    if (heading) { out.push({ kind: "heading", level: heading[1].length, text: heading[2] }); i++; continue; }
    if (RULE.test(line)) { out.push({ kind: "rule" }); i++; continue; }
    if (/^ {0,3}>/.test(line)) {
      const body: string[] = [];
      for (; i < lines.length && (/^ {0,3}>/.test(lines[i]) || (lines[i].trim() !== "" && body.length > 0)); i++) body.push(lines[i].replace(/^ {0,3}> ?/, ""));
      out.push({ kind: "quote", lines: body });
      continue;
    }
    if (BULLET.test(line)) { const [block, next] = parseList(lines, i); out.push(block); i = next; continue; }
    if (line.includes("|") && i + 1 < lines.length && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[i + 1]) && lines[i + 1].includes("-")) {
      const rows = [cells(line)];
      for (i += 2; i < lines.length && lines[i].includes("|") && lines[i].trim() !== ""; i++) rows.push(cells(lines[i]));
      out.push({ kind: "table", rows });
      continue;
    }
    const body: string[] = [];
    for (; i < lines.length && lines[i].trim() !== "" && !FENCE.test(lines[i]) && !HEADING.test(lines[i]) && !/^ {0,3}>/.test(lines[i]) && !(body.length > 0 && (BULLET.test(lines[i]) || RULE.test(lines[i]))); i++) body.push(lines[i].trim());
    out.push({ kind: "paragraph", text: body.join("\n") });
  }
  return out;
}

const cells = (line: string): string[] => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));

function parseList(lines: string[], from: number): [Block, number] {
  const first = BULLET.exec(lines[from])!;
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const items: Item[] = [];
  let i = from;
  while (i < lines.length) {
    const found = BULLET.exec(lines[i]);
    if (!found || found[1].length > indent + 1 && items.length === 0 || found[1].length < indent || (found[1].length <= indent + 1 && /\d/.test(found[2]) !== ordered)) break;
    const offset = found[1].length + found[2].length + 1;
    const body = [found[3]];
    for (i++; i < lines.length; i++) {
      const inner = BULLET.exec(lines[i]);
      if (lines[i].trim() === "") {
        if (i + 1 < lines.length && /^\s+/.test(lines[i + 1]) && lines[i + 1].length - lines[i + 1].trimStart().length > indent) { body.push(""); continue; }
        break;
      }
      if (inner && inner[1].length <= indent + 1) break;
      const own = lines[i].length - lines[i].trimStart().length;
      if (!inner && own <= indent) break;
      body.push(lines[i].slice(Math.min(own, inner ? Math.max(indent + 2, 0) : offset)));
    }
    while (i < lines.length && lines[i].trim() === "" && i + 1 < lines.length && BULLET.test(lines[i + 1])) i++;
    const blocks = parseBlocks(body.slice(1));
    items.push({ text: body[0].replace(/^\[[ xX]\]\s+/, ""), children: blocks });
  }
  return [{ kind: "list", items, ordered, start: ordered ? parseInt(first[2], 10) : 1 }, i];
}

export class Markdown {
  #text: string;
  #x: number;
  #y: number;
  #theme: any;
  #style: any;
  constructor(text: string, paddingX: number, paddingY: number, theme: any, style?: any) { this.#text = text; this.#x = paddingX; this.#y = paddingY; this.#theme = theme; this.#style = style; }
  setText(text: string): void { this.#text = text; }
  invalidate(): void {}
  render(width: number): string[] {
    if (!this.#text || this.#text.trim() === "") return [];
    const room = Math.max(1, width - this.#x * 2);
    const lines = this.#blocks(parseBlocks(this.#text.replace(/\t/g, "   ").replace(/\r\n?/g, "\n").split("\n")), room);
    const side = " ".repeat(this.#x);
    const wrapped = lines.flatMap((line) => wrapTextWithAnsi(line, room)).map((line) => padded(side + line + side, width, this.#style?.bgColor));
    const empty = Array.from({ length: this.#y }, () => padded("", width, this.#style?.bgColor));
    return [...empty, ...wrapped, ...empty];
  }
  #blocks(blocks: Block[], width: number): string[] {
    const out: string[] = [];
    blocks.forEach((block, index) => {
      if (index > 0) out.push("");
      out.push(...this.#block(block, width));
    });
    return out;
  }
  #block(block: Block, width: number): string[] {
    const t = this.#theme;
    switch (block.kind) {
      case "heading": {
        const text = this.#inline(block.text!, (plain) => (block.level === 1 ? t.heading(t.bold(t.underline(plain))) : t.heading(t.bold(plain))));
        return [block.level! >= 3 ? t.heading(t.bold(`${"#".repeat(block.level!)} `)) + text : text];
      }
      case "code": {
        const indent = t.codeBlockIndent ?? "  ";
        const shown = t.highlightCode ? t.highlightCode(block.lines!.join("\n"), block.language) : block.lines!.map((line) => t.codeBlock(line));
        return [t.codeBlockBorder("```" + block.language), ...shown.map((line: string) => indent + line), t.codeBlockBorder("```")];
      }
      case "rule": return [t.hr("─".repeat(Math.min(width, 80)))];
      case "quote": {
        const inner = this.#blocks(parseBlocks(block.lines!), Math.max(1, width - 2)).flatMap((line) => wrapTextWithAnsi(line === "" ? "" : t.quote(t.italic(line)), Math.max(1, width - 2)));
        return inner.map((line) => t.quoteBorder("│ ") + line);
      }
      case "list": return this.#list(block, 0, width);
      case "table": return this.#table(block.rows!, width);
      default: return [this.#inline(block.text!)];
    }
  }
  #list(block: Block, depth: number, width: number): string[] {
    const out: string[] = [];
    block.items!.forEach((item, index) => {
      const mark = block.ordered ? `${block.start! + index}. ` : "- ";
      const pad = "    ".repeat(depth);
      const lines = wrapTextWithAnsi(this.#inline(item.text), Math.max(1, width - pad.length - mark.length));
      lines.forEach((line, at) => out.push(pad + (at === 0 ? this.#theme.listBullet(mark) : " ".repeat(mark.length)) + line));
      for (const child of item.children) {
        if (child.kind === "list") out.push(...this.#list(child, depth + 1, width));
        else out.push(...this.#block(child, Math.max(1, width - pad.length - mark.length)).map((line) => pad + " ".repeat(mark.length) + line));
      }
    });
    return out;
  }
  #table(rows: string[][], width: number): string[] {
    const count = Math.max(...rows.map((row) => row.length));
    const texts = rows.map((row, index) => Array.from({ length: count }, (_, at) => this.#inline(row[at] ?? "", index === 0 ? (text) => text : undefined)));
    const widths = Array.from({ length: count }, (_, at) => Math.max(1, ...texts.map((row) => visibleWidth(row[at]))));
    let total = widths.reduce((sum, one) => sum + one + 3, 1);
    while (total > width && Math.max(...widths) > 3) { widths[widths.indexOf(Math.max(...widths))]--; total--; }
    const rule = (left: string, middle: string, right: string) => left + widths.map((one) => "─".repeat(one + 2)).join(middle) + right;
    const draw = (row: string[], bold: boolean): string[] => {
      const wrapped = row.map((cell, at) => wrapTextWithAnsi(cell, widths[at]));
      const height = Math.max(...wrapped.map((cell) => cell.length));
      return Array.from({ length: height }, (_, line) => "│ " + wrapped.map((cell, at) => { const text = padded(cell[line] ?? "", widths[at]); return bold ? this.#theme.bold(text) : text; }).join(" │ ") + " │");
    };
    const out = [rule("┌", "┬", "┐"), ...draw(texts[0], true), rule("├", "┼", "┤")];
    texts.slice(1).forEach((row, index) => { if (index > 0) out.push(rule("├", "┼", "┤")); out.push(...draw(row, false)); });
    return [...out, rule("└", "┴", "┘")];
  }
  #plain(text: string): string {
    const s = this.#style;
    if (!s || text === "") return text;
    let out = s.color ? s.color(text) : text;
    for (const name of ["bold", "italic", "strikethrough", "underline"]) if (s[name]) out = this.#theme[name](out);
    return out;
  }
  #inline(text: string, style: (text: string) => string = (plain) => this.#plain(plain)): string {
    const t = this.#theme;
    let out = "";
    let rest = text;
    let plain = "";
    const flush = () => { if (plain) out += style(plain.replace(/\\([\\`*_{}[\]()#+\-.!~|>])/g, "$1")); plain = ""; };
    const rules: [RegExp, (found: RegExpExecArray) => string][] = [
      [/^(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)/, (found) => t.code(found[2].trim())],
      [/^!\[([^\]]*)\]\(([^)\s]+)[^)]*\)/, (found) => style(found[1] || found[2])],
      [/^\[([^\]]*)\]\(([^)\s]*)[^)]*\)/, (found) => t.link(t.underline(this.#inline(found[1], (one) => one))) + (found[1] === found[2] ? "" : t.linkUrl(` (${found[2]})`))],
      [/^<(https?:\/\/[^>\s]+)>/, (found) => t.link(t.underline(found[1]))],
      [/^https?:\/\/[^\s<>()]+[^\s<>().,;:!?'"]/, (found) => t.link(t.underline(found[0]))],
      [/^(\*\*|__)(?=\S)([\s\S]*?\S)\1/, (found) => t.bold(this.#inline(found[2], style))],
      [/^~~(?=\S)([\s\S]*?\S)~~/, (found) => t.strikethrough(this.#inline(found[1], style))],
      [/^\*(?=[^\s*])([\s\S]*?[^\s*])\*(?!\*)/, (found) => t.italic(this.#inline(found[1], style))],
      [/^_(?=[^\s_])([\s\S]*?[^\s_])_(?![\w])/, (found) => (/\w$/.test(plain) ? found[0] : t.italic(this.#inline(found[1], style)))],
    ];
    next: while (rest !== "") {
      if (rest[0] === "\\" && rest.length > 1) { plain += rest.slice(0, 2); rest = rest.slice(2); continue; }
      if (/[`![<h*_~]/.test(rest[0])) {
        for (const [pattern, render] of rules) {
          const found = pattern.exec(rest);
          if (!found) continue;
          const shown = render(found);
          if (shown === found[0]) continue;
          flush();
          out += shown;
          rest = rest.slice(found[0].length);
          continue next;
        }
      }
      plain += rest[0];
      rest = rest.slice(1);
    }
    flush();
    return out;
  }
}
