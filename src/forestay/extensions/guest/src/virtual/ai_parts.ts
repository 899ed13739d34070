// The rest of pi-ai: its providers under their own paths, diagnostics, stand-in messages, and sign-ins. The host has the
// keys and makes the requests to every provider, so nothing here opens a connection or knows a secret.

import { defineModule } from "../modules";

export const SCOPES = ["@mariozechner", "@earendil-works"];
const PROVIDERS: Record<string, string> = {
  anthropic: "Anthropic", google: "Google", "google-vertex": "GoogleVertex", mistral: "Mistral", "azure-openai-responses": "AzureOpenAIResponses",
  "openai-codex-responses": "OpenAICodexResponses", "openai-completions": "OpenAICompletions", "openai-responses": "OpenAIResponses",
};

// `streamX` and `streamSimpleX` of every provider, and the subpath that has both.
export function providerStreams(stream: any): Record<string, any> {
  const all: Record<string, any> = {};
  for (const [path, name] of Object.entries(PROVIDERS)) {
    const own: Record<string, any> = { [`stream${name}`]: stream, [`streamSimple${name}`]: stream };
    Object.assign(all, own);
    // The host opens no web sockets for an extension, so there are none to count or close.
    if (name === "OpenAICodexResponses") Object.assign(own, { getOpenAICodexWebSocketDebugStats: () => undefined, resetOpenAICodexWebSocketDebugStats: () => undefined, closeOpenAICodexWebSocketSessions: () => undefined });
    for (const scope of SCOPES) defineModule(`${scope}/pi-ai/${path}`, own);
  }
  for (const scope of SCOPES) defineModule(`${scope}/pi-ai/bedrock-provider`, { bedrockProviderModule: { streamBedrock: stream, streamSimpleBedrock: stream } });
  return all;
}

// -- diagnostics --

const formatThrownValue = (value: any): string => (value instanceof Error ? value.message : String(value));
function extractDiagnosticError(value: any): any {
  if (!(value instanceof Error)) return { name: "ThrownValue", message: formatThrownValue(value) };
  const { code } = value as any;
  return { name: value.name, message: value.message, stack: value.stack, ...(code === undefined ? {} : { code }) };
}
const createAssistantMessageDiagnostic = (type: string, error: any, details?: any): any => ({ type, timestamp: Date.now(), error: extractDiagnosticError(error), ...(details === undefined ? {} : { details }) });
const appendAssistantMessageDiagnostic = (message: any, diagnostic: any): void => { message.diagnostics = [...(message.diagnostics ?? []), diagnostic]; };

// -- clean-up at the end of a session --

const cleanups = new Set<(session?: string) => void>();
const registerSessionResourceCleanup = (run: (session?: string) => void): (() => void) => { cleanups.add(run); return () => void cleanups.delete(run); };
const cleanupSessionResources = (session?: string): void => { for (const run of cleanups) run(session); };

// -- messages in the form of a model's --

const fauxText = (text: string): any => ({ type: "text", text });
const fauxThinking = (thinking: string): any => ({ type: "thinking", thinking });
const fauxToolCall = (name: string, args: any, options: any = {}): any => ({ type: "toolCall", id: options.id ?? `tool:${(globalThis as any).crypto.randomUUID()}`, name, arguments: args });
const fauxAssistantMessage = (content: any, options: any = {}): any => ({
  role: "assistant", content: typeof content === "string" ? [fauxText(content)] : Array.isArray(content) ? content : [content], api: "faux", provider: "faux", model: "faux-1",
  usage: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, totalTokens: 0, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } },
  stopReason: options.stopReason ?? "stop", ...(options.errorMessage === undefined ? {} : { errorMessage: options.errorMessage }), ...(options.responseId === undefined ? {} : { responseId: options.responseId }), timestamp: options.timestamp ?? Date.now(),
});

export const parts: Record<string, any> = {
  formatThrownValue, extractDiagnosticError, createAssistantMessageDiagnostic, appendAssistantMessageDiagnostic,
  registerSessionResourceCleanup, cleanupSessionResources, fauxText, fauxThinking, fauxToolCall, fauxAssistantMessage,
  findEnvKeys: () => undefined, registerBuiltInApiProviders: () => undefined, setBedrockProviderModule: () => undefined,
};

// -- sign-ins: an extension may register its own; the host makes those of pi --

const hosts = (what: string) => async (): Promise<never> => { throw new Error(`${what} is made by the host, not by an extension: give the host the provider's key.`); };
const known = [["anthropic", "Anthropic (Claude Pro/Max)", true], ["github-copilot", "GitHub Copilot", false], ["openai-codex", "ChatGPT Plus/Pro (Codex Subscription)", true]] as const;
const builtIn = known.map(([id, name, usesCallbackServer]) => ({ id, name, ...(usesCallbackServer ? { usesCallbackServer } : {}), login: hosts(`The sign-in to ${name}`), refreshToken: hosts(`The sign-in to ${name}`), getApiKey: (credentials: any) => credentials.access }));
const signIns = new Map<string, any>(builtIn.map((one) => [one.id, one]));
const oauth: any = {
  getOAuthProvider: (id: string) => signIns.get(id), getOAuthProviders: () => [...signIns.values()],
  getOAuthProviderInfoList: () => [...signIns.values()].map(({ id, name }) => ({ id, name, available: true })),
  registerOAuthProvider: (provider: any) => void signIns.set(provider.id, provider), unregisterOAuthProvider: (id: string) => { const own = builtIn.find((one) => one.id === id); if (own) signIns.set(id, own); else signIns.delete(id); },
  resetOAuthProviders: () => { signIns.clear(); for (const one of builtIn) signIns.set(one.id, one); },
  refreshOAuthToken: async (id: string, credentials: any) => { const provider = signIns.get(id); if (!provider) throw new Error(`Unknown OAuth provider: ${id}`); return provider.refreshToken(credentials); },
  getOAuthApiKey: async (id: string, credentials: any) => {
    const provider = signIns.get(id);
    if (!provider) throw new Error(`Unknown OAuth provider: ${id}`);
    let own = credentials?.[id];
    if (!own) return null;
    if (Date.now() >= own.expires) own = await provider.refreshToken(own);
    return { newCredentials: own, apiKey: provider.getApiKey(own) };
  },
  normalizeDomain: (text: string) => { const plain = text.trim(); if (plain === "") return null; try { return new URL(plain.includes("://") ? plain : `https://${plain}`).hostname; } catch { return null; } },
  anthropicOAuthProvider: builtIn[0], githubCopilotOAuthProvider: builtIn[1], openaiCodexOAuthProvider: builtIn[2],
};
for (const name of ["loginAnthropic", "loginGitHubCopilot", "loginOpenAICodex", "refreshAnthropicToken", "refreshGitHubCopilotToken", "refreshOpenAICodexToken"]) oauth[name] = hosts("A sign-in");
for (const scope of SCOPES) defineModule(`${scope}/pi-ai/oauth`, oauth);
