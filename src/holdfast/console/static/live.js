// Adds new events to a run's timeline as they happen. Without it the page still works: reload to see more.
"use strict";
const timeline = document.getElementById("timeline");
if (timeline && timeline.dataset.live) {
  const source = new EventSource(`${timeline.dataset.live}?after=${timeline.dataset.after}`);
  const suspended = new Set(["node.suspended", "run.paused", "interrupt.created", "approval.requested"]);
  source.addEventListener("line", (message) => {
    const holder = document.createElement("template");
    holder.innerHTML = message.data; // rendered and escaped by the host
    const line = holder.content.firstElementChild;
    if (!line || timeline.querySelector(`[data-seq="${line.dataset.seq}"]`)) return;
    timeline.append(line);
    line.classList.add("fresh");
    const type = line.querySelector(".type");
    if (type && suspended.has(type.textContent)) location.reload();
  });
  source.addEventListener("end", () => {
    source.close();
    location.reload();
  });
}
