// Every method of ctx.ui, once, and what the dialogs answered.
export default function (pi: any) {
  pi.registerCommand("ui", {
    description: "Show everything",
    handler: async (_args: string, ctx: any) => {
      const { ui } = ctx;
      const answers: any = { hasUI: ctx.hasUI };
      answers.select = await ui.select("Pick", ["A", "B"]);
      answers.confirm = await ui.confirm("Sure?", "Really");
      answers.input = await ui.input("Name", "who");
      answers.editor = await ui.editor("Edit", "before");
      const typed: string[] = [];
      answers.custom = await ui.custom((_tui: any, theme: any, _keys: any, done: (value: any) => void) => ({
        render: (width: number) => [theme.bold("Title"), theme.fg("accent", `width ${width}`), typed.join("")],
        handleInput: (data: string) => (data === "\r" ? done(typed.join("")) : typed.push(data)),
        invalidate() {},
      }));
      ui.notify("info");
      ui.notify("careful", "warning");
      ui.notify("wrong", "error");
      ui.setStatus("k", "busy");
      ui.setStatus("k", undefined);
      ui.setWorkingMessage("working");
      ui.setWorkingMessage();
      ui.setWorkingVisible(false);
      ui.setWorkingIndicator({ frames: ["a", "b"], intervalMs: 100 });
      ui.setHiddenThinkingLabel("thinking");
      ui.setWidget("w", ["one", "two"]);
      ui.setWidget("w", undefined);
      ui.setWidget("f", () => ({ render: () => ["drawn"], invalidate() {} }), { placement: "belowEditor" });
      ui.setHeader(() => ({ render: () => ["header"], invalidate() {} }));
      ui.setFooter(() => ({ render: () => ["footer"], invalidate() {} }));
      ui.setTitle("title");
      ui.setEditorText("draft");
      ui.pasteToEditor(" more");
      answers.text = ui.getEditorText();
      answers.expanded = ui.getToolsExpanded();
      ui.setToolsExpanded(true);
      answers.theme = typeof ui.theme.fg("accent", "x");
      const own = () => ({ render: () => [], invalidate() {} });
      ui.setEditorComponent(own);
      answers.component = ui.getEditorComponent() === own;
      ui.setEditorComponent(undefined);
      ui.addAutocompleteProvider((current: any) => current);
      answers.stop = typeof ui.onTerminalInput(() => undefined);
      answers.themes = ui.getAllThemes().map((each: any) => each.name);
      answers.named = [typeof ui.getTheme("dark"), typeof ui.getTheme("none")];
      answers.chosen = [ui.setTheme("dark"), ui.setTheme("none")];
      pi.appendEntry("answers", answers);
    },
  });
}
