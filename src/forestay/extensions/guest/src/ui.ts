// ctx.ui: dialogs wait for the host's answer, notices do not. Components render here, and appear as lines of text.

import { HostError, hostCall, hostCallSync, onInbound, report } from "./bridge";
import { environment } from "./environment";
import { PrimordialTypeError, type Table, isArray, resolved, table, then } from "./primordials";
import { Theme, coloursOf, theme, themeOf, useTheme } from "./theme";

// No front end shows longer lines or more lines. The rest is not sent: writing ten megabytes as JSON would use up the
// extension's slice of time.
const MOST_LINE = 4_096;
const MOST_LINES = 500;
const MOST_TEXT = 65_536;
const cut = (text: any, most = MOST_TEXT): string => {
  const whole = "" + text;
  return whole.length > most ? whole.slice(0, most) : whole;
};
const perhaps = (text: any): string | null => (text === undefined || text === null ? null : cut(text));
const cutLines = (shown: string[]): string[] =>
  (shown.length > MOST_LINES ? shown.slice(0, MOST_LINES) : shown).map((line) => cut(line, MOST_LINE));

const notice = (params: any): void => void then(hostCall("ui", params), () => undefined, () => undefined);

// Without a person, pi answers a dialog with "nothing chosen"; a refusal by policy is still an error.
async function dialog(params: any, options: any, otherwise: any): Promise<any> {
  try {
    const answer = (await hostCall("ui", params, { signal: options?.signal, timeoutMs: options?.timeout })).value;
    return answer === null || answer === undefined ? otherwise : answer;
  } catch (error) {
    if (error instanceof HostError && (error.code === "timeout" || (error.code === "denied" && !environment.hasUI))) return otherwise;
    if (options?.signal?.aborted) return otherwise;
    throw error;
  }
}

const tui = (redraw: () => void, overlays: Overlays = unseen): any => ({
  requestRender: redraw,
  terminal: { get columns() { return environment.columns; }, rows: 24, write: () => undefined, setTitle: (title: string) => ui.setTitle(title) },
  setFocus: () => undefined, addChild: () => undefined, removeChild: () => undefined, invalidate: redraw,
  showOverlay: (component: any) => overlays.show(component),
  hideOverlay: () => overlays.hide(), hasOverlay: () => overlays.top() !== undefined, start: () => undefined, stop: () => undefined,
});

// Components over another one: the last visible overlay is drawn below the lines of the base, and gets the keys.
interface Overlays { show(component: any): any; hide(): void; top(): any; }
const unseen: Overlays = { show: () => ({ hide: () => undefined, setHidden: () => undefined, isHidden: () => true }), hide: () => undefined, top: () => undefined };
function stacked(redraw: () => void): Overlays {
  let shown: any[] = [];
  const gone = (item: any): void => {
    shown = shown.filter((other) => other !== item);
    redraw();
  };
  return {
    show(component: any): any {
      const item = { component, hidden: false };
      shown = [...shown, item];
      redraw();
      return { hide: () => gone(item), setHidden: (hidden: boolean) => { item.hidden = hidden === true; redraw(); }, isHidden: () => item.hidden };
    },
    hide: () => gone(shown.at(-1)),
    top: () => shown.filter((item) => !item.hidden).at(-1)?.component,
  };
}

const keybindings: any = {
  matches: (data: string, action: string) => (KEYS[action] ?? []).includes(data),
  getKeys: (action: string) => KEYS[action] ?? [],
  getConfig: () => ({}), getEffectiveConfig: () => ({}),
};
const KEYS: Record<string, string[]> = {
  selectUp: ["\u001b[A"], selectDown: ["\u001b[B"], selectConfirm: ["\r", "\n"], selectCancel: ["\u001b", "\u0003"],
  "tui.select.up": ["\u001b[A"], "tui.select.down": ["\u001b[B"], "tui.select.confirm": ["\r", "\n"],
  "tui.select.cancel": ["\u001b", "\u0003"], submit: ["\r", "\n"], "tui.input.submit": ["\r", "\n"],
};

export function lines(component: any, width = environment.columns): string[] {
  if (component === null || component === undefined) return [];
  if (typeof component === "string") return component.split("\n");
  if (isArray(component)) return component.map((line: any) => "" + line);
  const found = component.render(width);
  return isArray(found) ? found.map((line: any) => inPlace("" + line)) : [];
}

// A component may write colour codes itself. Without colours they are removed: else they would be visible as text.
const STYLES = /\u001b\[[0-9;]*m/g;
const inPlace = (line: string): string => (environment.colour || !line.includes("\u001b[") ? line : line.replace(STYLES, ""));

const draw = (component: any): string[] => {
  try {
    return cutLines(lines(component));
  } catch (error) {
    report(error, "render");
    return [];
  }
};

// A component with the keyboard: it is shown as lines; the host answers with keys for it or with the result itself.
async function custom(factory: any, options: any): Promise<any> {
  if (!environment.hasUI) {
    notice({ op: "custom", lines: [] });
    return undefined;
  }
  let finished = false;
  let result: any;
  let wake: () => void = () => undefined;
  const closed = new Promise<void>((resolve) => (wake = resolve));
  const done = (value: any) => {
    if (finished) return;
    finished = true;
    result = value;
    wake();
  };
  const id = ++components;
  let component: any;
  let drawn = "";
  let due = false;
  // Several requests to redraw in one turn are drawn once.
  const redraw = (): void => {
    if (due || drawn === "") return;
    due = true;
    then(resolved(undefined), () => {
      due = false;
      if (finished || drawn === "") return;
      const shown = drawAll();
      if (JSON.stringify(shown) === drawn) return;
      drawn = JSON.stringify(shown);
      notice({ op: "redraw", component: id, lines: shown });
    }, () => undefined);
  };
  const overlays = stacked(redraw);
  const drawAll = (): string[] => {
    const top = overlays.top();
    return top === undefined ? draw(component) : cutLines([...draw(component), ...draw(top)]);
  };
  component = await factory(tui(redraw, overlays), theme, keybindings, done);
  options?.onHandle?.({ hide: () => done(undefined), setHidden: () => undefined, isHidden: () => false, focus: () => undefined });
  const stop = onColumns(() => { component?.invalidate?.(); redraw(); });
  while (!finished) {
    const request: any = makeSignal();
    const first = drawAll();
    drawn = JSON.stringify(first);
    const shown = hostCall("ui", { op: "custom", component: id, lines: first, overlay: options?.overlay === true }, { signal: request.signal });
    const answer: any = await Promise.race([shown.then((body) => body.value, (error) => (finished ? null : Promise.reject(error))), closed]);
    drawn = "";
    if (finished) {
      request.abort();
      break;
    }
    if (answer === null || answer === undefined) {
      done(undefined);
    } else if (typeof answer === "object" && isArray(answer.keys)) {
      for (const key of answer.keys) {
        const data = typed("" + key);
        if (data !== undefined && !finished) (overlays.top() ?? component)?.handleInput?.(data);
      }
    } else {
      done(answer);
    }
  }
  stop();
  component?.dispose?.();
  return result;
}

let components = 0;

// The width of the person's front end; everything shown is drawn again when it changes.
const widths: (() => void)[] = [];
function onColumns(hear: () => void): () => void {
  widths.push(hear);
  return () => { const at = widths.indexOf(hear); if (at >= 0) widths.splice(at, 1); };
}
onInbound("columns", (columns: any) => {
  environment.columns = columns;
  for (const hear of [...widths]) hear();
});

function makeSignal(): any {
  const hooks: (() => void)[] = [];
  const signal = { aborted: false, reason: undefined, addEventListener: (_: string, hook: () => void) => void hooks.push(hook), removeEventListener: () => undefined };
  return { signal, abort: () => { signal.aborted = true; for (const hook of hooks) hook(); } };
}

let editorText = "";
let unsaid = 0;

function edit(params: any, text: string): void {
  if (!environment.hasUI) return;
  editorText = text;
  unsaid += 1;
  const said = () => void (unsaid -= 1);
  then(hostCall("ui", params), said, said);
}
let editorFactory: any;

export const ui: any = {
  select: (title: string, options: any[], opts?: any) => dialog({ op: "select", title: cut(title), options: options.map((o) => (typeof o === "string" ? o : o?.label ?? "" + o)) }, opts, undefined),
  confirm: (title: string, message?: string, opts?: any) => dialog({ op: "confirm", title: cut(title), message: cut(message ?? "") }, opts, false),
  input: (title: string, placeholder?: string, opts?: any) => dialog({ op: "input", title: cut(title), placeholder: cut(placeholder ?? "") }, opts, undefined),
  editor: (title: string, prefill?: string, opts?: any) => dialog({ op: "editor", title: cut(title), text: prefill ?? "" }, opts, undefined),
  notify: (message: string, type = "info") => notice({ op: "notify", message: cut(message), type }),
  setStatus: (key: string, text?: string) => {
    const footer = () => kept.get("footer")?.redraw(); // the footer may show the statuses of extensions
    then(hostCall("ui", { op: "setStatus", key, text: perhaps(text) }), footer, () => undefined);
  },
  setWorkingMessage: (message?: string) => notice({ op: "setWorkingMessage", message: perhaps(message) }),
  setWorkingVisible: (visible: boolean) => notice({ op: "setWorkingVisible", visible }),
  setWorkingIndicator: (options?: any) => notice({ op: "setWorkingIndicator", options: options ?? null }),
  setHiddenThinkingLabel: (label?: string) => notice({ op: "setHiddenThinkingLabel", label: label ?? null }),
  setWidget: (key: string, content: any, options?: any) => keep(`widget:${key}`, content, (shown) => notice({ op: "setWidget", key, lines: shown, options: options ?? null })),
  setFooter: (factory: any) => keep("footer", factory, (shown) => notice({ op: "setFooter", lines: shown }), footerData),
  setHeader: (factory: any) => keep("header", factory, (shown) => notice({ op: "setHeader", lines: shown })),
  setTitle: (title: string) => notice({ op: "setTitle", title: cut(title) }),
  pasteToEditor: (text: string) => edit({ op: "pasteToEditor", text }, editorText + text),
  setEditorText: (text: string) => edit({ op: "setEditorText", text }, text),
  getEditorText: () => {
    if (!environment.hasUI) return "";
    if (unsaid > 0) return editorText; // the host does not have the last change yet
    const value = hostCallSync("ui", { op: "getEditorText" }).value;
    return typeof value === "string" ? value : editorText;
  },
  addAutocompleteProvider: (factory: any) => {
    if (typeof factory !== "function") throw new PrimordialTypeError("addAutocompleteProvider needs a function that makes a provider");
    completers.push(factory);
    notice({ op: "addAutocompleteProvider" });
  },
  setEditorComponent: (factory: any) => { if (environment.hasUI) editorFactory = factory; notice({ op: "setEditorComponent", set: factory !== undefined }); },
  getEditorComponent: () => editorFactory,
  onTerminalInput: (handler: any) => {
    if (typeof handler !== "function") throw new PrimordialTypeError("onTerminalInput needs a function");
    inputs.push(handler);
    return () => { const at = inputs.indexOf(handler); if (at >= 0) inputs.splice(at, 1); };
  },
  custom,
  theme,
  getAllThemes: () => (environment.hasUI ? hostCallSync("ui", { op: "getAllThemes" }).value.map((found: any) => ({ name: found.name, path: found.path ?? undefined })) : []),
  getTheme: (name: string) => {
    const found = environment.hasUI ? hostCallSync("ui", { op: "getTheme", name: "" + name }).value : null;
    return found === null ? undefined : themeOf(found);
  },
  setTheme: (chosen: any) => {
    if (!environment.hasUI) return { success: false, error: "UI not available" };
    const own = chosen instanceof Theme;
    const answer = hostCallSync("ui", own ? { op: "setTheme", name: chosen.name ?? "<in-memory>", colors: coloursOf(chosen) } : { op: "setTheme", name: "" + chosen }).value;
    useTheme(own && answer.success ? chosen : themeOf(answer.theme));
    return answer.success ? { success: true } : { success: false, error: answer.error };
  },
  getToolsExpanded: () => expanded,
  setToolsExpanded: (value: boolean) => { expanded = value === true; notice({ op: "setToolsExpanded", expanded }); },
};
let expanded = false;

// A person's keys reach the extension where the host passes them on: to a component that has the keyboard, or by name.
// A listener may change the data or consume it.
const inputs: any[] = [];
export function typed(data: string): string | undefined {
  for (const handler of [...inputs]) {
    let said: any;
    try { said = handler(data); } catch (error) { report(error, "onTerminalInput"); continue; }
    if (said?.consume) return undefined;
    if (typeof said?.data === "string") data = said.data;
  }
  return data;
}

// Each provider wraps the one before it; the first wraps one that suggests nothing.
const completers: any[] = [];
export function suggestions(text: any[], line: number, column: number, signal: any): any {
  let provider: any = {
    getSuggestions: async () => null,
    applyCompletion: (rows: string[], row: number, at: number, item: any, prefix: string) => {
      const start = at - prefix.length;
      const changed = [...rows];
      changed[row] = rows[row].slice(0, start) + item.value + rows[row].slice(at);
      return { lines: changed, cursorLine: row, cursorCol: start + item.value.length };
    },
  };
  for (const factory of completers) provider = factory(provider);
  return provider.getSuggestions(text, line, column, { signal });
}
export const completes = (): boolean => completers.length > 0;

// The host's data for a footer. The branch is requested once, and again when it has changed.
const branchListeners: Table<number, () => void> = table<number, () => void>();
let branch: string | null | undefined;
let branchListener = 0;
let branchWatch: AbortController | undefined;
function watchBranch(): void {
  branchWatch = new (globalThis as any).AbortController();
  const changed = (chunk: any): void => {
    branch = chunk.branch;
    for (const key of branchListeners.keys()) branchListeners.get(+key)?.();
  };
  const over = (): void => { branchWatch = undefined; };
  then(hostCall("ui", { op: "watchGitBranch", stream: true }, { signal: branchWatch?.signal, onChunk: changed }), over, over);
}
const footerData = {
  getGitBranch: () => {
    if (branch === undefined || branchWatch === undefined) branch = hostCallSync("ui", { op: "getGitBranch" }).value ?? null;
    return branch;
  },
  onBranchChange: (listener: () => void) => {
    const key = branchListener += 1;
    branchListeners.set(key, listener);
    if (branchWatch === undefined) watchBranch();
    return () => {
      branchListeners.delete(key);
      if (branchListeners.keys().length === 0) branchWatch?.abort();
    };
  },
  getExtensionStatuses: () => new Map(environment.hasUI ? Object.entries(hostCallSync("ui", { op: "getStatuses" }).value ?? {}) : []),
  getAvailableProviderCount: () => hostCallSync("session", { op: "getProviderCount", args: [] }).value ?? 0,
};

// Content that stays on the screen until something replaces it. A component requests a redraw (`requestRender`) after a
// change; several requests in one turn are drawn once.
const kept = table<string, any>();
function keep(place: string, content: any, show: (shown: string[] | null) => void, data?: any): void {
  const before = kept.get(place);
  kept.delete(place);
  before?.stop();
  try {
    before?.component?.dispose?.();
  } catch (error) {
    report(error, "dispose");
  }
  if (content === undefined || content === null) return show(null);
  if (typeof content !== "function") return show(draw(content));
  const own: any = { component: undefined, due: false, stop: () => undefined, redraw: () => undefined };
  const redraw = (): void => {
    if (own.due || own.component === undefined) return;
    own.due = true;
    then(resolved(undefined), () => {
      own.due = false;
      if (kept.get(place) === own) show(draw(own.component));
    }, () => undefined);
  };
  own.redraw = redraw;
  own.stop = onColumns(() => { own.component?.invalidate?.(); redraw(); });
  kept.set(place, own);
  try {
    own.component = content(tui(redraw), theme, data);
    show(draw(own.component));
  } catch (error) {
    report(error, "render");
    show([]);
  }
}
