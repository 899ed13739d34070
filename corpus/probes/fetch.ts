// fetch: status, headers, bodies, failure.
export default function (pi: any) {
  pi.registerTool({
    name: "fetch", label: "Fetch", description: "Uses the network", parameters: { type: "object", properties: {} },
    async execute() {
      const said: any = {};
      const json = await fetch("https://api.test/json?q=1");
      said.json = [json.ok, json.status, json.headers.get("Content-Type"), json.headers.get("x-a"), await json.json()];
      const missing = await fetch("https://api.test/missing");
      said.missing = [missing.ok, missing.status, await missing.text()];
      const made = await fetch("https://api.test/post", { method: "POST", body: JSON.stringify({ a: 1 }), headers: { "X-K": "v" } });
      said.made = [made.status, await made.text()];
      said.failed = await fetch("https://nowhere.test/").then(() => "answered", (error) => error instanceof Error);
      said.url = [new URL("/b?c=1#d", "https://a.test/x").href, new URLSearchParams({ a: "1 2", b: "ü" }).toString()];
      return { content: [{ type: "text", text: "done" }], details: said };
    },
  });
}
