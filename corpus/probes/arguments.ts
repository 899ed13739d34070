// Arguments are checked and converted before a tool runs.
import { Type } from "typebox";

export default function (pi: any) {
  pi.registerTool({
    name: "typed", label: "Typed", description: "Typed arguments",
    parameters: Type.Object({ n: Type.Number(), flag: Type.Boolean(), list: Type.Array(Type.Number()), opt: Type.Optional(Type.Union([Type.String(), Type.Null()])) }),
    async execute(_id: string, params: any) {
      return { content: [{ type: "text", text: JSON.stringify(params) }], details: params };
    },
  });
  pi.registerTool({
    name: "paired", label: "Paired", description: "A tuple, after the tool's own preparation",
    parameters: Type.Object({ pair: Type.Tuple([Type.Number(), Type.String()]), choice: Type.Union([Type.Number(), Type.String()]), whole: Type.Integer(), list: Type.Array(Type.String()) }),
    prepareArguments: ({ old, ...rest }: any) => ({ ...rest, pair: old ?? rest.pair }),
    async execute(_id: string, params: any) {
      return { content: [{ type: "text", text: JSON.stringify(params) }], details: params };
    },
  });
  pi.registerTool({
    name: "plain", label: "Plain", description: "A schema that TypeBox did not write",
    parameters: { type: "object", properties: { n: { type: "number" }, text: { type: "string" }, either: { anyOf: [{ type: "number" }, { type: "string" }] } }, required: ["n"] },
    async execute(_id: string, params: any) {
      return { content: [{ type: "text", text: JSON.stringify(params) }], details: params };
    },
  });
}
