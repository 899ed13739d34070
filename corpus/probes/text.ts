// Text of the terminal: widths, truncation, wrapping, keys, components.
import { StringEnum } from "@mariozechner/pi-ai";
import { Container, Key, matchesKey, Spacer, Text, truncateToWidth, visibleWidth, wrapTextWithAnsi } from "@mariozechner/pi-tui";

export default function (pi: any) {
  pi.registerTool({
    name: "text", label: "Text", description: "Measures text", parameters: { type: "object", properties: {} },
    async execute() {
      const box = new Container();
      box.addChild(new Text("hello world, this is a longer line", 1, 0));
      box.addChild(new Spacer(1));
      box.addChild(new Text("second", 0, 0));
      const said = {
        widths: ["abc", "äöü", "日本", "👍🏽", "\u001b[31mred\u001b[0m", "a\tb"].map((text) => visibleWidth(text)),
        truncated: [truncateToWidth("hello world", 8), truncateToWidth("日本語テキスト", 7), truncateToWidth("short", 10)],
        wrapped: wrapTextWithAnsi("the quick brown fox jumps over the lazy dog", 12),
        keys: [matchesKey("\r", Key.enter), matchesKey("\u001b", Key.escape), matchesKey("\u001b[A", Key.up), matchesKey("\u0003", Key.ctrl("c")), matchesKey("a", "b")],
        drawn: box.render(20),
        schema: StringEnum(["a", "b"], { description: "d" }),
      };
      return { content: [{ type: "text", text: "done" }], details: JSON.parse(JSON.stringify(said)) };
    },
  });
}
