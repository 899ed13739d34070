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

// A part in which somebody types or chooses is left alone.
function isChanged(field) {
  if (field.type === "radio" || field.type === "checkbox") return field.checked !== field.defaultChecked;
  if (field.options) return [...field.options].some((option, at) => option.selected !== (option.defaultSelected || (at === 0 && !field.querySelector("[selected]"))));
  return field.value !== field.defaultValue;
}

const isTyped = (part) => [...part.querySelectorAll("textarea, input, select")].some(isChanged);
const isBusy = (part) => part.contains(document.activeElement) || isTyped(part);

// What the host sent for each part: somebody who opens a detail changes the part, but not what there is to show.
const sent = new Map([...document.querySelectorAll("[data-live-part]")].map((part) => [part.id, part.innerHTML]));

function takeOver(part, fresh) {
  const open = new Map([...part.querySelectorAll("details[data-keep]")].map((item) => [item.dataset.keep, item.open]));
  sent.set(part.id, fresh.innerHTML);
  part.replaceChildren(...fresh.childNodes);
  for (const item of part.querySelectorAll("details[data-keep]")) {
    if (open.has(item.dataset.keep)) item.open = open.get(item.dataset.keep);
  }
}

// A component of an extension stays where it is: its lines change, and where its keys go.
function redraw(item, fresh) {
  const [now, next] = [item.querySelector("pre"), fresh.querySelector("pre")];
  if (now.textContent !== next.textContent) now.textContent = next.textContent;
  item.querySelector("form").action = fresh.querySelector("form").action;
}

// A list keeps what is still there as it is; only what is new is added, and what is gone is taken away.
function merge(list, fresh, whole) {
  sent.set(list.id, fresh.innerHTML);
  for (const item of [...list.children]) {
    if (fresh.children[item.id] && "component" in item.dataset) redraw(item, fresh.children[item.id]);
    if (!fresh.children[item.id] && (whole || !isTyped(item))) item.remove();
  }
  for (const item of [...fresh.children]) {
    if (!document.getElementById(item.id)) list.append(item);
  }
}

// An answer that was overtaken by a later one is not shown.
let asked = 0;
let shown = 0;

// `query` asks for a page that has only some of the parts.
async function refresh(whole, query = location.search) {
  const turn = ++asked;
  const answer = await fetch(location.pathname + query, { credentials: "same-origin" });
  if (!answer.ok || answer.redirected) return false;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (turn < shown) return true;
  shown = turn;
  for (const part of document.querySelectorAll("[data-live-part]")) {
    const fresh = page.getElementById(part.id);
    if (!fresh || sent.get(part.id) === fresh.innerHTML) continue;
    if ("liveList" in part.dataset) merge(part, fresh, whole);
    else if (whole || !isBusy(part)) takeOver(part, fresh);
  }
  return true;
}

// Pages that show what happens elsewhere look again every few seconds, while somebody sees them.
const EVERY = 4000;

async function lookAgain() {
  let going = true;
  if (document.visibilityState === "visible") going = await refresh(false).catch(() => true); // the host may be back soon
  if (going) setTimeout(lookAgain, EVERY);
}

if (document.querySelector("[data-poll]")) setTimeout(lookAgain, EVERY);

// A workflow that is chosen brings the names of its inputs.
const choice = document.querySelector("select[data-fills]");
if (choice) {
  const field = document.getElementById(choice.dataset.fills);
  const fill = (before) => {
    const blank = choice.selectedOptions[0]?.dataset.blank ?? "{}";
    if (field.value === "" || field.value === before) field.value = blank === "{}" ? "" : blank;
    last = field.value;
  };
  let last = "";
  choice.addEventListener("change", () => fill(last));
  fill("");
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
