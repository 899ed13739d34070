// A list of things to do that lives in the session: another branch of the conversation has another list.

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";
import { Text } from "@earendil-works/pi-tui";
import { Type } from "typebox";

interface Todo { text: string; done: boolean }

export default function (pi: ExtensionAPI) {
  let todos: Todo[] = [];
  const shown = () => todos.map((todo, at) => `${at + 1}. [${todo.done ? "x" : " "}] ${todo.text}`).join("\n") || "nothing to do";
  const restore = (_event: unknown, ctx: any) => {
    todos = [];
    for (const entry of ctx.sessionManager.getBranch()) {
      if (entry.type === "message" && entry.message.role === "toolResult" && entry.message.toolName === "todo") todos = entry.message.details?.todos ?? todos;
    }
    ctx.ui.setStatus("todo", `${todos.filter((todo) => !todo.done).length} to do`);
  };
  pi.on("session_start", restore);
  pi.on("session_tree", restore);

  pi.registerTool({
    name: "todo",
    label: "Todo",
    description: "Keep a list of things to do: add one, or mark one as done by its number.",
    parameters: Type.Object({ add: Type.Optional(Type.String()), done: Type.Optional(Type.Number()) }),
    async execute(_id, params, _signal, _update, ctx) {
      todos = todos.map((todo, at) => (at + 1 === params.done ? { ...todo, done: true } : todo));
      if (params.add) todos = [...todos, { text: params.add, done: false }];
      ctx.ui.setStatus("todo", `${todos.filter((todo) => !todo.done).length} to do`);
      return { content: [{ type: "text", text: shown() }], details: { todos } };
    },
    renderResult: (result: any) => new Text(result.details.todos.map((todo: Todo) => `${todo.done ? "done" : "todo"}: ${todo.text}`).join("\n"), 0, 0),
  });
  pi.registerCommand("todos", { description: "Show what is to do", handler: async (_args, ctx) => ctx.ui.notify(`${todos.length} on the list\n${shown()}`) });
}
