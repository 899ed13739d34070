// Records what pi makes of tool arguments: node pi_arguments.mjs FOLDER > pi_arguments.json
// FOLDER has a node_modules with @mariozechner/pi-coding-agent 0.73.1, which brings pi-ai and typebox.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const root = createRequire(process.argv[2] + "/package.json");
const load = async (name) => import(pathToFileURL(root.resolve(name)).href);
const { validateToolArguments } = await import(pathToFileURL(process.argv[2] + "/node_modules/@mariozechner/pi-ai/dist/index.js").href);
const { Type: T } = await load("typebox");

const values = [
  null, true, false, 0, 1, 4, 1.5, -1, 1e21, 5e-7, "", " ", "4", " 4 ", "4.5", "0x10", "0b11", "1e3", "1e400", "1_000", "-0", "+5", ".5",
  "Infinity", "NaN", "true", "TRUE", "false", "1", "0", "null", "undefined", "abc", "12px", "9007199254740993", "\uff11",
  [], ["1"], ["1", "x"], [1, "2"], {}, { a: "1" }, { a: null }, { b: "5" },
];
const plain = [
  { type: "number" }, { type: "integer" }, { type: "boolean" }, { type: "string" }, { type: "null" }, {}, { type: "number", minimum: 2 },
  { type: "array", items: { type: "number" } }, { type: "object", properties: { a: { type: "number" } } },
  { type: "object", additionalProperties: { type: "number" } }, { type: "object", patternProperties: { "^.*$": { type: "number" } } },
  { type: ["number", "string"] }, { type: ["number", "null"] }, { type: ["boolean", "string"] },
  { anyOf: [{ type: "number" }, { type: "string" }] }, { anyOf: [{ type: "string" }, { type: "number" }] },
  { anyOf: [{ type: "number" }, { type: "null" }] }, { oneOf: [{ type: "integer" }, { type: "boolean" }] },
  { allOf: [{ type: "number" }, { minimum: 2 }] }, { enum: ["4", 1, true] }, { type: "string", enum: ["4", "1"] }, { const: 4 },
  { type: "array", items: [{ type: "number" }, { type: "string" }], additionalItems: false, minItems: 2 },
  { type: "array", prefixItems: [{ type: "number" }, { type: "string" }] },
];
const typebox = [
  T.Number(), T.Integer(), T.Boolean(), T.String(), T.Null(), T.Any(), T.Number({ minimum: 2 }), T.Array(T.Number()),
  T.Array(T.Object({ a: T.Number() })), T.Tuple([T.Number(), T.String()]), T.Union([T.Number(), T.String()]), T.Union([T.String(), T.Number()]),
  T.Union([T.Number(), T.Null()]), T.Union([T.Boolean(), T.Number()]), T.Union([T.String(), T.Array(T.String())]), T.Literal(4), T.Literal("4"),
  T.Literal(true), T.Literal("true"), T.Literal(1), T.Enum([1, 2]), T.Enum(["true", 1]), T.Union([T.Literal("a"), T.Literal(4)]), T.Enum(["4", "a"]), T.Record(T.String(), T.Number()), T.Object({ a: T.Number() }),
  T.Object({}, { additionalProperties: T.Number() }), T.Intersect([T.Object({ a: T.Number() }), T.Object({ b: T.Optional(T.Number()) })]),
];

const lines = [];
for (const [kind, schemas] of [["plain", plain], ["typebox", typebox]]) {
  for (const schema of schemas) {
    const parameters = kind === "typebox" ? T.Object({ x: schema }) : { type: "object", properties: { x: schema }, required: ["x"] };
    const line = { typebox: kind === "typebox", parameters, takes: [], refuses: [] };
    for (const value of values) {
      try {
        line.takes.push([value, validateToolArguments({ name: "t", parameters }, { name: "t", arguments: { x: structuredClone(value) } }).x]);
      } catch {
        line.refuses.push(value);
      }
    }
    lines.push(JSON.stringify(line));
  }
}
process.stdout.write(`[\n${lines.join(",\n")}\n]\n`);
