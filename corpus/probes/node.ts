// What extensions use of Node besides files and programs.
import { Buffer } from "node:buffer";
import { createHash, randomUUID } from "node:crypto";
import { EventEmitter } from "node:events";
import * as os from "node:os";
import { fileURLToPath, pathToFileURL } from "node:url";
import { format, inspect, promisify } from "node:util";

export default function (pi: any) {
  pi.registerTool({
    name: "node", label: "Node", description: "Uses Node", parameters: { type: "object", properties: {} },
    async execute() {
      const said: any = {};
      said.hash = [createHash("sha256").update("abc").digest("hex"), createHash("md5").update("a").update("b").digest("base64")];
      said.uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab]/.test(randomUUID());
      said.buffer = [
        Buffer.from("héllo").toString("base64"), Buffer.from("aGk=", "base64").toString(), Buffer.concat([Buffer.from("a"), Buffer.from("b")]).toString("hex"),
        Buffer.byteLength("héllo"), Buffer.from([1, 2, 3]).subarray(1).length, Buffer.alloc(2, 7)[1],
      ];
      const emitter = new EventEmitter();
      const heard: any[] = [];
      emitter.on("a", (value) => heard.push(value));
      emitter.once("a", (value) => heard.push(value * 2));
      emitter.emit("a", 1);
      emitter.emit("a", 2);
      said.events = [heard, emitter.listenerCount("a")];
      said.os = [os.EOL, typeof os.platform(), os.homedir() === process.env.HOME];
      said.url = [fileURLToPath("file:///a%20b/c"), pathToFileURL("/a b/c").href];
      said.format = [format("%s is %d %j", "a", 4, { b: 1 }), inspect({ a: [1, { b: "c" }], d: undefined })];
      said.promisify = await promisify((value: number, done: (error: any, result: number) => void) => done(null, value + 1))(3);
      said.globals = [typeof process.cwd(), typeof setImmediate, typeof structuredClone, typeof TextEncoder, new TextDecoder().decode(new TextEncoder().encode("ü"))];
      said.intl = [new Intl.NumberFormat("en-US").format(1234567.891), (1234.5).toLocaleString("en-US"), "b".localeCompare("a")];
      said.date = new Date(0).toISOString();
      said.clone = structuredClone({ a: new Date(0), b: [1, { c: 2 }] });
      return { content: [{ type: "text", text: "done" }], details: said };
    },
  });
}
