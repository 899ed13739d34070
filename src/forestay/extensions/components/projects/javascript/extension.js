// A WASM component in JavaScript: the host reads files, this counts words. Build it with build.sh.

import { call } from "pi:extension/host";

const registration = {
  name: "NAME",
  version: "0.1.0",
  api_version: "1.0",
  tools: [{
    name: "count_words",
    description: "Count the words of a file in the project",
    parameters: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
  }],
  slash_commands: [{ name: "hello", description: "Say hello" }],
  event_hooks: ["session_start"],
};

export const extension = {
  init: (_manifest) => JSON.stringify(registration),

  handleTool(name, input) {
    if (name !== "count_words") throw JSON.stringify(`There is no tool ${name}.`);
    const { path } = JSON.parse(input);
    let answer;
    try {
      answer = call("fs", JSON.stringify({ op: "read", path, encoding: "utf8" }));
    } catch (error) {
      throw error.payload ?? String(error); // a refusal of the host keeps its code
    }
    const words = JSON.parse(answer).text.split(/\s+/).filter(Boolean).length;
    return JSON.stringify({ content: [{ type: "text", text: `${words} words` }], details: { words } });
  },

  handleSlash: (_command, args, _input) =>
    JSON.stringify({ output: { text: `Hello ${args.join(" ") || "there"}` }, is_error: false }),

  handleEvent: (_event) => "",

  shutdown() {},
};
