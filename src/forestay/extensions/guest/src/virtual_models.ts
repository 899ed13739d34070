// Virtual models: catalogue entries whose extension chooses the answering model for each request.

import { hasOwn, table } from "./primordials";
import { RegistrationError, checkName } from "./register";
import { AssistantMessageEventStream, providers as apis, stream } from "./virtual/ai";

const API = "pi-virtual";
const definitions = table<string, any>();
const keyOf = (provider: any, id: any): string => `${provider}/${id}`;

export function virtualModel(definition: any): any {
  const where = "registerVirtualModel";
  checkName(where, definition?.provider, "provider");
  checkName(where, definition.id, "id");
  if (typeof definition.route !== "function") throw new RegistrationError(where, "`route` is not a function", "Give a function that picks a model.");
  definitions.set(keyOf(definition.provider, definition.id), definition);
  return described(definition);
}

export const dropVirtualModel = (provider: string, id: string): boolean => definitions.delete(keyOf(provider, id));

export const virtualModels = (): any[] => definitions.keys().map((key) => described(definitions.get(key)));

function described(definition: any): any {
  const levels = definition.thinkingLevels ?? ["off"];
  return {
    id: definition.id, name: "" + (definition.name ?? definition.id), provider: definition.provider, api: API, baseUrl: "",
    reasoning: levels.some((level: string) => level !== "off"), input: definition.input ?? ["text", "image"],
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }, contextWindow: definition.contextWindow ?? 0, maxTokens: definition.maxTokens ?? 0,
  };
}

// Answers an agent of the host: which model answers, and the state that the router keeps for the next request.
export async function routed(payload: any, signal: any, context: any): Promise<any> {
  const definition = definitions.get(keyOf(payload.provider, payload.id));
  if (definition === undefined) throw new Error(`There is no virtual model ${payload.provider}/${payload.id}`);
  const route = await definition.route({ ...payload.request, model: described(definition), signal }, context);
  if (route?.model === undefined || route.model.api === API) throw new Error("The route of a virtual model must name a model that answers itself");
  return { provider: route.model.provider, id: route.model.id, thinkingLevel: route.thinkingLevel ?? null, state: route.state ?? null };
}

// Handles a request for a virtual model: its extension chooses the model, and that model answers.
export function routeWith(context: () => any): void {
  const streamSimple = (model: any, given: any, options: any = {}): any => {
    const events = new AssistantMessageEventStream();
    const failed = (error: any): void => {
      events.push({ type: "error", reason: "error", error: { role: "assistant", api: API, provider: model.provider, model: model.id, content: [], stopReason: "error", errorMessage: "" + (error?.message ?? error) } });
      events.end();
    };
    const run = async (): Promise<void> => {
      const definition = definitions.get(keyOf(model.provider, model.id));
      if (definition === undefined) throw new Error(`There is no virtual model ${model.provider}/${model.id}`);
      const asked = { model: described(definition), thinkingLevel: options.reasoning ?? "off", reason: "direct", messages: given?.messages ?? [], signal: options.signal };
      const route = await definition.route(asked, context());
      if (route?.model === undefined || route.model.api === API) throw new Error("The route of a virtual model must name a model that answers itself");
      for await (const event of stream(route.model, given, { ...options, ...(hasOwn(route, "thinkingLevel") ? { reasoning: route.thinkingLevel } : {}) })) events.push(event);
      events.end();
    };
    run().catch(failed);
    return events;
  };
  apis.set(API, { api: API, stream: streamSimple, streamSimple });
}
