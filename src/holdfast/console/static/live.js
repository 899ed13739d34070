// Keeps a run's page up to date while the run works: new events are added to the timeline as they happen, and the other
// parts of the page are taken anew from the host. Without it the page still works: reload to see more.
"use strict";

const timeline = document.getElementById("timeline");

function addLine(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html; // rendered and escaped by the host
  const line = holder.content.firstElementChild;
  if (!line || timeline.querySelector(`[data-seq="${line.dataset.seq}"]`)) return;
  line.classList.add("fresh");
  timeline.append(line);
}

// A part in which somebody types is left alone.
function isBusy(part) {
  return part.contains(document.activeElement) || [...part.querySelectorAll("textarea, input[type=text]")].some((field) => field.value);
}

function takeOver(part, fresh) {
  const open = new Map([...part.querySelectorAll("details[data-keep]")].map((item) => [item.dataset.keep, item.open]));
  part.replaceChildren(...fresh.childNodes);
  for (const item of part.querySelectorAll("details[data-keep]")) {
    if (open.has(item.dataset.keep)) item.open = open.get(item.dataset.keep);
  }
}

async function refresh(whole) {
  const answer = await fetch(location.pathname, { credentials: "same-origin" });
  if (!answer.ok || answer.redirected) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live-part]")) {
    const fresh = page.getElementById(part.id);
    if (fresh && (whole || !isBusy(part)) && part.innerHTML !== fresh.innerHTML) takeOver(part, fresh);
  }
}

if (timeline && timeline.dataset.live) {
  const source = new EventSource(`${timeline.dataset.live}?after=${timeline.dataset.after}`);
  let planned = null;
  const plan = () => {
    planned ??= setTimeout(() => {
      planned = null;
      refresh(false);
    }, 150);
  };
  source.addEventListener("line", (message) => {
    addLine(message.data);
    plan();
  });
  source.addEventListener("end", () => {
    source.close();
    clearTimeout(planned);
    document.getElementById("live")?.remove();
    refresh(true);
  });
}
