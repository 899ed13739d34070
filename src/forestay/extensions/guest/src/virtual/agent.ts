// @mariozechner/pi-coding-agent: the helpers that extensions import at run time. The parts that only the pi program has
// (its sessions, its terminal, its package manager) are missing: their classes exist by name, their functions do not.

import { absent } from "./absent";
import { environment } from "../environment";
import { defineModule } from "../modules";
import { Theme, theme } from "../theme";
import { EventEmitter } from "../node/events";
import { join } from "../node/path";
import { os } from "../node/os";
import { CancellableLoader, Container, Loader, Spacer, Text } from "./components";
import { Editor } from "./editor";
import { getKeybindings } from "./keys";
import { DEFAULT_MAX_BYTES, DEFAULT_MAX_LINES, formatSize, toolFactories, truncateHead, truncateLine, truncateTail, withFileMutationQueue, olderToolFactories } from "./tools";
import { settingsManager } from "./settings";
import { wrapTextWithAnsi } from "./width";
import { parseYaml } from "./yaml";


// -- messages ------------------------------------------------------------------------------------------------------------

function bashText(message: any): string {
  let out = `Ran \`${message.command}\`\n${message.output ? `\`\`\`\n${message.output}\n\`\`\`` : "(no output)"}`;
  if (message.cancelled) out += "\n\n(command cancelled)";
  else if (message.exitCode) out += `\n\nCommand exited with code ${message.exitCode}`;
  if (message.truncated && message.fullOutputPath) out += `\n\n[Output truncated. Full output: ${message.fullOutputPath}]`;
  return out;
}

const blocks = (content: any): any[] => (typeof content === "string" ? [{ type: "text", text: content }] : content);
const user = (content: any, timestamp: any): any => ({ role: "user", content, timestamp });

// Converts a session's messages for a model: user, assistant and tool results; the host's own kinds become user text.
export function convertToLlm(messages: any[]): any[] {
  return messages.flatMap((message) => {
    switch (message.role) {
      case "user": case "assistant": case "toolResult": return [message];
      case "bashExecution": return message.excludeFromContext ? [] : [user([{ type: "text", text: bashText(message) }], message.timestamp)];
      case "custom": return [user(blocks(message.content), message.timestamp)];
      case "branchSummary": return [user([{ type: "text", text: `Summary of a branch that was left:\n\n<summary>\n${message.summary}</summary>` }], message.timestamp)];
      case "compactionSummary": return [user([{ type: "text", text: `Summary of the conversation up to here:\n\n<summary>\n${message.summary}\n</summary>` }], message.timestamp)];
      default: return [];
    }
  });
}

const textOf = (content: any): string => blocks(content).filter((block: any) => block.type === "text").map((block: any) => block.text).join("");
const MOST = 2000;

export function serializeConversation(messages: any[]): string {
  const parts: string[] = [];
  for (const message of messages) {
    if (message.role === "user") { const content = textOf(message.content); if (content) parts.push(`[User]: ${content}`); }
    else if (message.role === "assistant") {
      const of = (kind: string, read: (block: any) => string): string[] => message.content.filter((block: any) => block.type === kind).map(read);
      const thinking = of("thinking", (block) => block.thinking);
      const said = of("text", (block) => block.text);
      const calls = of("toolCall", (block) => `${block.name}(${Object.entries(block.arguments).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(", ")})`);
      if (thinking.length) parts.push(`[Assistant thinking]: ${thinking.join("\n")}`);
      if (said.length) parts.push(`[Assistant]: ${said.join("\n")}`);
      if (calls.length) parts.push(`[Assistant tool calls]: ${calls.join("; ")}`);
    } else if (message.role === "toolResult") {
      const content = textOf(message.content);
      if (content) parts.push(`[Tool result]: ${content.length > MOST ? `${content.slice(0, MOST)}\n\n[... ${content.length - MOST} more characters truncated]` : content}`);
    }
  }
  return parts.join("\n\n");
}

// About four characters for one token.
function estimateTokens(message: any): number {
  let size = 0;
  for (const block of message.content === undefined ? [] : blocks(message.content)) size += block.type === "image" ? 4800 : block.text?.length ?? block.thinking?.length ?? (block.name?.length ?? 0) + JSON.stringify(block.arguments ?? {}).length;
  size += (message.summary?.length ?? 0) + (message.command?.length ?? 0) + (message.output?.length ?? 0);
  return Math.ceil(size / 4);
}
const calculateContextTokens = (usage: any): number => usage.totalTokens || usage.input + usage.output + usage.cacheRead + usage.cacheWrite;

// -- sessions as data --------------------------------------------------------------------------------------------------------

const parseSessionEntries = (content: string): any[] => content.trim().split("\n").flatMap((line) => { try { return line.trim() ? [JSON.parse(line)] : []; } catch { return []; } });
const getLatestCompactionEntry = (entries: any[]): any => entries.findLast((entry) => entry.type === "compaction") ?? null;

// Returns the messages of the branch that ends at `leaf`, with the last compaction in place of the messages it replaced.
function buildSessionContext(entries: any[], leaf?: string | null, known?: Map<string, any>): any {
  const byId = known ?? new Map(entries.filter((entry) => entry.id).map((entry) => [entry.id, entry]));
  const path: any[] = [];
  for (let entry = leaf ? byId.get(leaf) : leaf === null ? undefined : entries[entries.length - 1]; entry; entry = entry.parentId ? byId.get(entry.parentId) : undefined) path.unshift(entry);
  let thinkingLevel = "off";
  let model: any = null;
  for (const entry of path) {
    if (entry.type === "thinking_level_change") thinkingLevel = entry.thinkingLevel;
    else if (entry.type === "model_change") model = { provider: entry.provider, modelId: entry.modelId };
    else if (entry.type === "message" && entry.message.role === "assistant") model = { provider: entry.message.provider, modelId: entry.message.model };
  }
  const compaction = getLatestCompactionEntry(path);
  const stamp = (entry: any): number => new Date(entry.timestamp).getTime();
  const message = (entry: any): any[] => entry.type === "message" ? [entry.message] : entry.type === "custom_message" ? [{ role: "custom", customType: entry.customType, content: entry.content, display: entry.display, details: entry.details, timestamp: stamp(entry) }] : entry.type === "branch_summary" && entry.summary ? [{ role: "branchSummary", summary: entry.summary, fromId: entry.fromId, timestamp: stamp(entry) }] : [];
  if (!compaction) return { messages: path.flatMap(message), thinkingLevel, model };
  const place = path.indexOf(compaction);
  const first = path.findIndex((entry) => entry.id === compaction.firstKeptEntryId);
  const kept = first >= 0 && first < place ? path.slice(first, place) : [];
  return { messages: [{ role: "compactionSummary", summary: compaction.summary, tokensBefore: compaction.tokensBefore, timestamp: stamp(compaction) }, ...[...kept, ...path.slice(place + 1)].flatMap(message)], thinkingLevel, model };
}

// -- components -----------------------------------------------------------------------------------------------------------------

class DynamicBorder {
  color: (text: string) => string;
  constructor(color: (text: string) => string = (text) => theme.fg("border", text)) { this.color = color; }
  invalidate(): void {}
  render(width: number): string[] { return [this.color("─".repeat(Math.max(1, width)))]; }
}

const keyText = (id: string): string => getKeybindings().getKeys(id).join("/");
const rawKeyHint = (key: string, about: string): string => theme.fg("dim", key) + theme.fg("muted", ` ${about}`);
const keyHint = (id: string, about: string): string => rawKeyHint(keyText(id), about);

class BorderedLoader extends Container {
  #loader: any;
  #control: any;
  constructor(tui: any, colours: any, message: string, options: any = {}) {
    super();
    const border = (text: string) => colours.fg("border", text);
    const spinner = (text: string) => colours.fg("accent", text);
    const words = (text: string) => colours.fg("muted", text);
    const cancellable = options?.cancellable !== false;
    this.#loader = cancellable ? new CancellableLoader(tui, spinner, words, message) : new Loader(tui, spinner, words, message);
    if (!cancellable) this.#control = new (globalThis as any).AbortController();
    this.addChild(new DynamicBorder(border));
    this.addChild(this.#loader);
    if (cancellable) { this.addChild(new Spacer(1)); this.addChild(new Text(keyHint("tui.select.cancel", "cancel"), 1, 0)); }
    this.addChild(new Spacer(1));
    this.addChild(new DynamicBorder(border));
  }
  get signal(): any { return this.#control?.signal ?? this.#loader.signal; }
  set onAbort(call: any) { this.#loader.onAbort = call; }
  handleInput(data: string): void { this.#loader.handleInput?.(data); }
  dispose(): void { this.#loader.stop(); }
}

class CustomEditor extends Editor {
  actionHandlers = new Map<string, () => void>();
  onEscape?: () => void;
  onCtrlD?: () => void;
  onPasteImage?: () => void;
  onExtensionShortcut?: (data: string) => boolean;
  #bindings: any;
  constructor(tui: any, colours: any, keybindings?: any, options?: any) { super(tui, colours, options); this.#bindings = keybindings; }
  onAction(action: string, handler: () => void): void { this.actionHandlers.set(action, handler); }
  handleInput(data: string): void {
    if (this.onExtensionShortcut?.(data)) return;
    for (const [action, handler] of this.actionHandlers) if (this.#bindings?.matches?.(data, action)) return handler();
    super.handleInput(data);
  }
}

const plain = (name: string) => (text: string): string => theme.fg(name, text);
const attribute = (name: string) => (text: string): string => theme[name](text);
const getMarkdownTheme = (): any => ({ heading: plain("mdHeading"), link: plain("mdLink"), linkUrl: plain("mdLinkUrl"), code: plain("mdCode"), codeBlock: plain("mdCodeBlock"), codeBlockBorder: plain("mdCodeBlockBorder"), quote: plain("mdQuote"), quoteBorder: plain("mdQuoteBorder"), hr: plain("mdHr"), listBullet: plain("mdListBullet"), bold: attribute("bold"), italic: attribute("italic"), underline: attribute("underline"), strikethrough: attribute("strikethrough"), highlightCode: (code: string) => code.split("\n").map(plain("mdCodeBlock")) });
const getSelectListTheme = (): any => ({ selectedPrefix: plain("accent"), selectedText: plain("accent"), description: plain("muted"), scrollInfo: plain("muted"), noMatch: plain("muted") });
const getSettingsListTheme = (): any => ({ label: (text: string, selected: boolean) => (selected ? theme.fg("accent", text) : text), value: (text: string, selected: boolean) => theme.fg(selected ? "accent" : "muted", text), description: plain("dim"), cursor: theme.fg("accent", "→ "), hint: plain("dim") });
const renderDiff = (diff: string): string => diff.split("\n").map((line) => theme.fg(line.startsWith("+") ? "toolDiffAdded" : line.startsWith("-") ? "toolDiffRemoved" : "toolDiffContext", line)).join("\n");

const LANGUAGES: Record<string, string> = { ts: "typescript", tsx: "typescript", mts: "typescript", js: "javascript", jsx: "javascript", mjs: "javascript", cjs: "javascript", py: "python", rb: "ruby", rs: "rust", go: "go", java: "java", kt: "kotlin", swift: "swift", c: "c", h: "c", cpp: "cpp", hpp: "cpp", cs: "csharp", php: "php", sh: "bash", bash: "bash", zsh: "bash", sql: "sql", html: "html", css: "css", scss: "scss", json: "json", yaml: "yaml", yml: "yaml", toml: "toml", xml: "xml", md: "markdown", lua: "lua", dockerfile: "dockerfile" };

// -- files and skills ---------------------------------------------------------------------------------------------------------------

function parseFrontmatter(content: string): any {
  const normal = content.replace(/\r\n?/g, "\n");
  const end = normal.startsWith("---") ? normal.indexOf("\n---", 3) : -1;
  if (end < 0) return { frontmatter: {}, body: normal };
  return { frontmatter: parseYaml(normal.slice(4, end)) ?? {}, body: normal.slice(end + 4).trim() };
}

const getAgentDir = (): string => { const named = (globalThis as any).process.env.PI_CODING_AGENT_DIR; return named ? named.replace(/^~(?=\/|$)/, os.homedir()) : join(os.homedir(), ".pi", "agent"); };
const escape = (value: string): string => String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
const formatSkillsForPrompt = (skills: any[]): string => {
  const shown = skills.filter((skill) => !skill.disableModelInvocation);
  return shown.length === 0 ? "" : `\n\nSkills that can be read when a task calls for one:\n\n<available_skills>\n${shown.map((skill) => `  <skill>\n    <name>${escape(skill.name)}</name>\n    <description>${escape(skill.description)}</description>\n    <location>${escape(skill.filePath)}</location>\n  </skill>`).join("\n")}\n</available_skills>`;
};

function createEventBus(): any {
  const emitter = new EventEmitter();
  return {
    emit: (channel: string, data: any) => void emitter.emit(channel, data),
    on: (channel: string, handler: any) => { const safe = async (data: any) => { try { await handler(data); } catch (error) { (globalThis as any).console.error(`A handler of ${channel} failed:`, error); } }; emitter.on(channel, safe); return () => emitter.off(channel, safe); },
    clear: () => void emitter.removeAllListeners(),
  };
}

const PROGRAM = absent(`
  AgentSession AgentSessionRuntime ArminComponent AssistantMessageComponent AuthStorage BashExecutionComponent
  BranchSummaryMessageComponent CompactionSummaryMessageComponent CredentialSynchronizationError
  CustomMessageComponent DefaultPackageManager DefaultResourceLoader ExtensionEditorComponent
  ExtensionInputComponent ExtensionRunner ExtensionSelectorComponent FileAuthStorageBackend FooterComponent
  InMemoryAuthStorageBackend InteractiveMode LoginDialogComponent ModelRegistry ModelRuntime
  ModelSelectorComponent OAuthSelectorComponent ProjectTrustStore RpcClient SessionManager
  SessionSelectorComponent SettingsSelectorComponent ShowImagesSelectorComponent
  SkillInvocationMessageComponent ThemeSelectorComponent ThinkingSelectorComponent ToolExecutionComponent
  TreeSelectorComponent UserMessageComponent UserMessageSelectorComponent
`);

const isResult = (name: string) => (event: any): boolean => event?.toolName === name;
export const agent: any = {
  ...PROGRAM, SettingsManager: settingsManager(getAgentDir), VERSION: "0.73.1", CONFIG_DIR_NAME: ".pi", CURRENT_SESSION_VERSION: 3, getAgentDir, ...toolFactories, DEFAULT_MAX_BYTES, DEFAULT_MAX_LINES, formatSize, truncateHead, truncateTail, truncateLine, withFileMutationQueue,
  convertToLlm, serializeConversation, estimateTokens, calculateContextTokens, DEFAULT_COMPACTION_SETTINGS: { enabled: true, reserveTokens: 16384, keepRecentTokens: 20000 }, shouldCompact: (tokens: number, window: number, settings: any) => settings.enabled && tokens > window - settings.reserveTokens, getLastAssistantUsage: (entries: any[]) => entries.findLast((entry) => entry.type === "message" && entry.message.role === "assistant" && entry.message.stopReason !== "aborted" && entry.message.stopReason !== "error")?.message.usage,
  parseSessionEntries, getLatestCompactionEntry, buildSessionContext, migrateSessionEntries: () => undefined, createEventBus, defineTool: (tool: any) => tool, isToolCallEventType: (name: string, event: any) => event?.toolName === name,
  isBashToolResult: isResult("bash"), isReadToolResult: isResult("read"), isEditToolResult: isResult("edit"), isWriteToolResult: isResult("write"), isGrepToolResult: isResult("grep"), isFindToolResult: isResult("find"), isLsToolResult: isResult("ls"),
  DynamicBorder, BorderedLoader, CustomEditor, keyHint, keyText, rawKeyHint, renderDiff, truncateToVisualLines: (text: string, most: number, width: number, paddingX = 0) => { const lines = wrapTextWithAnsi(text, Math.max(1, width - paddingX * 2)); return { visualLines: lines.slice(-most), skippedCount: Math.max(0, lines.length - most) }; },
  getMarkdownTheme, getSelectListTheme, getSettingsListTheme, highlightCode: (code: string) => code.split("\n").map(plain("mdCodeBlock")), getLanguageFromPath: (path: string) => LANGUAGES[path.split(/[./]/).pop()!.toLowerCase()], initTheme: () => undefined, Theme,
  parseFrontmatter, stripFrontmatter: (content: string) => parseFrontmatter(content).body, formatSkillsForPrompt, getShellConfig: () => ({ shell: "/bin/bash", args: ["-c"] }), createSyntheticSourceInfo: (path: string, options: any = {}) => ({ path, scope: "temporary", origin: "top-level", ...options }),
};
Object.defineProperty(agent, "default", { value: agent, enumerable: false });
defineModule("@earendil-works/pi-coding-agent", agent);
defineModule("@mariozechner/pi-coding-agent", { ...agent, ...olderToolFactories });

const core = { ...absent("Agent"), convertToLlm, serializeConversation, estimateTokens, calculateContextTokens, DEFAULT_COMPACTION_SETTINGS: agent.DEFAULT_COMPACTION_SETTINGS, shouldCompact: agent.shouldCompact, getLastAssistantUsage: agent.getLastAssistantUsage, DEFAULT_MAX_BYTES, DEFAULT_MAX_LINES, formatSize, truncateHead, truncateTail, truncateLine };
defineModule("@earendil-works/pi-agent-core", core);
defineModule("@mariozechner/pi-agent-core", absent("Agent"));
