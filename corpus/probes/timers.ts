// Timers, microtasks and updates, in order.
export default function (pi: any) {
  pi.registerTool({
    name: "timers", label: "Timers", description: "Waits", parameters: { type: "object", properties: {} },
    async execute(_id: string, _params: any, _signal: any, onUpdate: any) {
      const order: string[] = [];
      const timer = setTimeout(() => order.push("never"), 1);
      clearTimeout(timer);
      setTimeout(() => order.push("b"), 10);
      setTimeout(() => order.push("a"), 1);
      queueMicrotask(() => order.push("micro"));
      Promise.resolve().then(() => order.push("promise"));
      order.push("now");
      let ticks = 0;
      await new Promise<void>((done) => {
        const interval = setInterval(() => {
          ticks += 1;
          onUpdate({ content: [{ type: "text", text: `tick ${ticks}` }] });
          if (ticks === 3) {
            clearInterval(interval);
            setTimeout(done, 20);
          }
        }, 4);
      });
      return { content: [{ type: "text", text: order.join(" ") }], details: { order, ticks } };
    },
  });
}
