// A provider that streams by itself.
export default function (pi: any) {
  pi.registerProvider("probe", {
    api: "probe-api", baseUrl: "https://probe.test", apiKey: "PROBE_KEY",
    models: [{ id: "one", name: "One", reasoning: false, input: ["text"], cost: { input: 1, output: 2, cacheRead: 0, cacheWrite: 0 }, contextWindow: 1000, maxTokens: 100 }],
    streamSimple: () => ({ async *[Symbol.asyncIterator]() { yield { type: "start" }; }, result: async () => ({}) }),
  });
  pi.registerTool({
    name: "provider", label: "Provider", description: "Reads the registry", parameters: { type: "object", properties: {} },
    async execute(_id: string, _params: any, _signal: any, _update: any, ctx: any) {
      pi.unregisterProvider("probe");
      return { content: [{ type: "text", text: String(ctx.modelRegistry.find("probe", "none") === undefined) }], details: { model: ctx.model ?? null } };
    },
  });
}
