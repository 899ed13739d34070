// Makes pages easier to look at: local and relative times, JSON that folds and copies, a graph that zooms, shortcuts.
// Every page says the same without it.
"use strict";

// Times: the host writes UTC; a reader's own clock is nearer.
const UNITS = [["day", 86400000], ["hour", 3600000], ["minute", 60000], ["second", 1000]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

function ago(at) {
  const past = at - Date.now();
  const [unit, size] = UNITS.find(([, size]) => Math.abs(past) >= size) ?? UNITS[3];
  return relative.format(Math.round(past / size), unit);
}

const two = (number) => String(number).padStart(2, "0");

function localTime(at) {
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

function showTime(item) {
  const stamp = item.getAttribute("datetime");
  const at = new Date(/^\d+$/.test(stamp) ? Number(stamp) : stamp);
  if (Number.isNaN(at.getTime())) return;
  item.title = `${localTime(at)}, ${at.toISOString()} in UTC`;
  if (item.dataset.as === "clock") item.textContent = `${localTime(at).slice(11)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  else if (Math.abs(at - Date.now()) < 86400000) item.textContent = ago(at);
  else item.textContent = localTime(at);
}

// JSON: long values fold, every value copies. What is shown is made of text, never of markup.
const FOLDS_FROM = 14; // lines

function copyButton(text) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text).catch(() => {});
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}

function branch(name, value, last, open) {
  const line = document.createElement("div");
  const before = name === null ? "" : `${JSON.stringify(name)}: `;
  const after = last ? "" : ",";
  if (value === null || typeof value !== "object" || Object.keys(value).length === 0) {
    line.textContent = before + JSON.stringify(value) + after;
    return line;
  }
  const [start, end] = Array.isArray(value) ? "[]" : "{}";
  const fold = document.createElement("details");
  fold.open = open > 0;
  const head = document.createElement("summary");
  const keys = Object.keys(value);
  head.textContent = `${before}${start} ${keys.length} ${end}${after}`;
  const inside = document.createElement("div");
  inside.className = "inside-json";
  keys.forEach((key, at) => inside.append(branch(Array.isArray(value) ? null : key, value[key], at === keys.length - 1, open - 1)));
  fold.append(head, inside);
  line.append(fold);
  return line;
}

function foldJson(block) {
  const text = block.textContent;
  if (!/^\s*[[{]/.test(text)) return;
  let value;
  try { value = JSON.parse(text); } catch { return; }
  block.classList.add("json");
  if (text.split("\n").length >= FOLDS_FROM) block.replaceChildren(branch(null, value, true, 2));
  const holder = document.createElement("div");
  holder.className = "json-holder";
  block.replaceWith(holder);
  holder.append(block, copyButton(text));
}

// The graph: larger, smaller, or as wide as its place.
function addZoom(place) {
  const picture = place.closest("section").querySelector("svg.graph");
  if (!picture) return;
  const own = Number(picture.getAttribute("width"));
  let scale = 1;
  const zoom = (by) => {
    scale = by === 0 ? 1 : Math.min(4, Math.max(0.25, scale * by));
    picture.classList.toggle("zoomed", scale !== 1);
    picture.setAttribute("width", Math.round(own * scale));
    picture.removeAttribute("height");
  };
  for (const [sign, name, by] of [["−", "Smaller", 0.8], ["+", "Larger", 1.25], ["↺", "As it was", 0]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = sign;
    button.setAttribute("aria-label", `${name}: the graph`);
    button.addEventListener("click", () => zoom(by));
    place.append(button);
  }
}

function enhance(root) {
  for (const item of root.querySelectorAll("time[datetime]:not([title])")) showTime(item);
  for (const item of root.querySelectorAll(".utc")) item.remove();
  for (const item of root.querySelectorAll("pre[tabindex]:not(.json)")) foldJson(item);
  for (const item of root.querySelectorAll("[data-zoom]:empty")) addZoom(item);
}

enhance(document);
new MutationObserver((changes) => {
  if (changes.some((change) => [...change.addedNodes].some((node) => node.nodeType === 1))) enhance(document);
}).observe(document.getElementById("main"), { childList: true, subtree: true });
setInterval(() => {
  for (const item of document.querySelectorAll("time[datetime][title]")) showTime(item);
}, 30000);

// A visitor who is signed in, and came here by a link on another site, had no cookie with that one request.
const door = document.querySelector('form[action="/login"] input[name="next"]');
if (door) {
  fetch(door.value, { credentials: "same-origin", redirect: "manual", headers: { Accept: "text/html" } })
    .then((answer) => { if (answer.ok) location.replace(door.value); })
    .catch(() => {});
}

// Shortcuts; the dialog that lists them is a part of every page.
const help = document.getElementById("shortcuts");
let begun = false;

function step(by) {
  const links = [...document.querySelectorAll("main td.strong a:first-child, main .question h3 a")];
  const at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
}

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;
  if (!help || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (begun) {
    begun = false;
    const place = [...help.querySelectorAll("[data-after-g]")].find((item) => item.dataset.afterG === event.key);
    if (place) location.assign(place.dataset.place);
    return;
  }
  if (event.key === "g") {
    begun = true;
    setTimeout(() => { begun = false; }, 1500);
  } else if (event.key === "?") help.showModal();
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "/") {
    const field = document.querySelector("[data-key='/']");
    if (!field) return;
    event.preventDefault();
    field.focus();
  }
});
document.querySelector("[data-opens='shortcuts']")?.addEventListener("click", () => help.showModal());
