// A component with the keyboard that changes by itself, knows its width, and shows another one above it.
export default function (pi: any) {
  pi.registerCommand("pick", { description: "Pick a ship", handler: async (args: string, ctx: any) => {
    const picked = await ctx.ui.custom((tui: any, _theme: any, _keys: any, done: any) => {
      let at = 0;
      let tide = "low";
      let over: any;
      const turn = setTimeout(() => { tide = "high"; tui.requestRender(); }, 1);
      const asked = { render: () => ["Sure?"], handleInput: (key: string) => (key === "y" ? done(`ship ${at}`) : over.hide()) };
      return {
        render: (width: number) => [`${width}/${tui.terminal.columns} tide ${tide}`, `\u001b[7mship ${at}\u001b[0m`, "-".repeat(width)],
        handleInput: (key: string) => {
          if (key === "\u001b[B") at += 1;
          else if (key === "\r") over = tui.showOverlay(asked);
          else if (key === "\u001b") done(undefined);
        },
        dispose: () => clearTimeout(turn),
      };
    }, { overlay: true });
    ctx.ui.notify(`picked ${picked}`);
    return picked ?? null;
  } });
  pi.registerCommand("footer", { handler: async (_args: string, ctx: any) => {
    ctx.ui.setFooter((_tui: any, _theme: any, data: any) => ({ render: (width: number) => [`${width} ${JSON.stringify([...data.getExtensionStatuses()])}`] }));
    ctx.ui.setStatus("tide", "high");
  } });
}
