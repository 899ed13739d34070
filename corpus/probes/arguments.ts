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
}
