// Parses the YAML of front matter: mappings, lists, scalars, block text. Not the whole language.

export function parseYaml(source: string): any {
  const lines = source.split("\n").filter((line) => !/^\s*(#|$)/.test(line) || /^\s*$/.test(line));
  const state = { lines, at: 0 };
  skip(state);
  return state.at < lines.length ? node(state, indentOf(lines[state.at])) : null;
}

interface State { lines: string[]; at: number }
const indentOf = (line: string): number => line.length - line.trimStart().length;
function skip(state: State): void { while (state.at < state.lines.length && state.lines[state.at].trim() === "") state.at++; }

function node(state: State, indent: number): any {
  const first = state.lines[state.at].trim();
  if (first === "-" || first.startsWith("- ")) return list(state, indent);
  if (/^("[^"]*"|'[^']*'|[^\s#:"'[{][^:#]*?):(\s|$)/.test(first)) return mapping(state, indent);
  state.at++;
  return scalar(first);
}

function mapping(state: State, indent: number): any {
  const out: any = {};
  for (skip(state); state.at < state.lines.length && indentOf(state.lines[state.at]) === indent; skip(state)) {
    const found = /^("[^"]*"|'[^']*'|[^:#]+?):(?:\s+(.*))?$/.exec(state.lines[state.at].trim());
    if (!found) throw new Error(`This line of the front matter is not understood: ${state.lines[state.at].trim()}`);
    state.at++;
    Object.defineProperty(out, scalarKey(found[1]), { value: value(state, found[2] ?? "", indent), writable: true, enumerable: true, configurable: true });
  }
  return out;
}

function list(state: State, indent: number): any[] {
  const out: any[] = [];
  for (skip(state); state.at < state.lines.length && indentOf(state.lines[state.at]) === indent && /^-(\s|$)/.test(state.lines[state.at].trim()); skip(state)) {
    const rest = state.lines[state.at].trim().slice(1).trim();
    if (/^[^\s"'[{][^:]*:(\s|$)/.test(rest)) {
      state.lines[state.at] = " ".repeat(indent + 2) + rest;
      out.push(mapping(state, indent + 2));
    } else { state.at++; out.push(value(state, rest, indent)); }
  }
  return out;
}

function value(state: State, text: string, indent: number): any {
  const block = /^([|>])([+-]?)\s*$/.exec(text);
  if (block) return blockText(state, indent, block[1] === ">", block[2]);
  if (text !== "" && !text.startsWith("#")) return scalar(text);
  const start = state.at;
  skip(state);
  if (state.at < state.lines.length) {
    const inner = indentOf(state.lines[state.at]);
    if (inner > indent || (inner === indent && /^-(\s|$)/.test(state.lines[state.at].trim()))) return node(state, inner);
  }
  state.at = start;
  return null;
}

function blockText(state: State, indent: number, folded: boolean, chomp: string): string {
  const lines: string[] = [];
  let inner = 0;
  for (; state.at < state.lines.length; state.at++) {
    const line = state.lines[state.at];
    if (line.trim() !== "" && indentOf(line) <= indent) break;
    if (inner === 0 && line.trim() !== "") inner = indentOf(line);
    lines.push(line.slice(inner));
  }
  while (lines.length && lines[lines.length - 1].trim() === "") lines.pop();
  const text = folded ? lines.join("\n").replace(/([^\n])\n(?=[^\n\s])/g, "$1 ").replace(/\n\n/g, "\n") : lines.join("\n");
  return chomp === "-" ? text : `${text}\n`;
}

const scalarKey = (text: string): string => text.trim().replace(/^(["'])(.*)\1$/, "$2");

function scalar(source: string): any {
  let text = source.trim();
  if (text.startsWith('"')) { const end = /^"(?:[^"\\]|\\.)*"/.exec(text); if (end) { try { return JSON.parse(end[0]); } catch { return end[0].slice(1, -1); } } }
  if (text.startsWith("'")) { const end = /^'(?:[^']|'')*'/.exec(text); if (end) return end[0].slice(1, -1).replace(/''/g, "'"); }
  if (text.startsWith("[") && text.endsWith("]")) return flow(text.slice(1, -1)).map(scalar);
  if (text.startsWith("{") && text.endsWith("}")) return Object.fromEntries(flow(text.slice(1, -1)).map((part) => { const at = part.indexOf(":"); return [scalarKey(part.slice(0, at)), scalar(part.slice(at + 1))]; }));
  text = text.replace(/\s+#.*$/, "");
  if (text === "" || text === "~" || text === "null") return null;
  if (text === "true" || text === "false") return text === "true";
  if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text)) return Number(text);
  return text;
}

function flow(text: string): string[] {
  const out: string[] = [];
  let depth = 0;
  let quote = "";
  let part = "";
  for (const one of text) {
    if (quote) { if (one === quote) quote = ""; } else if (one === '"' || one === "'") quote = one;
    else if (one === "[" || one === "{") depth++;
    else if (one === "]" || one === "}") depth--;
    else if (one === "," && depth === 0) { out.push(part); part = ""; continue; }
    part += one;
  }
  return part.trim() === "" ? out : [...out, part];
}
