// Fetches a page and gives its text to the model.

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { Type } from "typebox";

const text = (html: string) => html.replace(/<(script|style)[\s\S]*?<\/\1>/g, "").replace(/<[^>]+>/g, " ").replace(/\s+/g, " ").trim();

export default function (pi: ExtensionAPI) {
  pi.registerTool({
    name: "web_fetch",
    label: "Fetch",
    description: "Fetch a page by its address and read its text.",
    parameters: Type.Object({ url: Type.String() }),
    async execute(_id, params, signal) {
      const answer = await fetch(params.url, { signal });
      if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
      const page = text(await answer.text());
      return { content: [{ type: "text", text: page.slice(0, 20_000) }], details: { url: params.url, length: page.length } };
    },
  });
}
