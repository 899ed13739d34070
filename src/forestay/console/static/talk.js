// Follows a conversation: the words of an answer come in as they are said, and the rest of the page is taken anew from
// the host when something changed. Without it the page still works: every form is answered by the host.
"use strict";

(() => {
  const talk = document.getElementById("talk");
  const stream = document.getElementById("stream");
  const message = document.getElementById("message");
  const draft = document.getElementById("draft");

  // What an extension puts into the editor comes in, unless somebody types there.
  let offered = draft.textContent;
  function takeDraft() {
    const fresh = draft.textContent;
    if (!message || fresh === offered) return;
    if (message.value === "" || message.value === offered) message.value = fresh;
    offered = fresh;
  }

  // One look at a time, and a pause as long as it took: an extension that draws without end leaves the page and the line
  // to the host free for a person's answer. What was said is fetched only when something was.
  const PAUSE = 60;
  const AGAIN = 2000;
  let pause = PAUSE;
  let planned = null;
  let wanted = null; // what the next look has to bring: "interface", "whole", or "said" (whole, and the stream is over)
  const BRINGS = ["interface", "whole", "said"];
  function look(kind) {
    if (BRINGS.indexOf(kind) > BRINGS.indexOf(wanted)) wanted = kind;
    planned ??= setTimeout(async () => {
      const began = performance.now();
      const brings = wanted;
      wanted = null;
      if (brings === "said") {
        stream.hidden = true;
        stream.textContent = "";
      }
      const came = await refresh(false, brings === "interface" ? "?only=interface" : undefined).catch(() => false);
      takeDraft();
      pause = came ? Math.max(PAUSE, performance.now() - began) : AGAIN;
      planned = null;
      if (!came) look(brings); // what changed is still to be shown: the host may be back soon
      if (wanted) look(wanted);
      void sendKeys();
      void sayWhenOver();
    }, pause);
  }

  // A question that comes up under somebody's finger is not answered by it: for a moment its buttons are off.
  const FRESH = 800;
  new MutationObserver((changes) => {
    const buttons = changes.flatMap((change) => [...change.addedNodes]).flatMap((item) => [...(item.querySelectorAll?.("button") ?? [])]);
    for (const button of buttons) button.disabled = true;
    setTimeout(() => buttons.forEach((button) => { button.disabled = false; }), FRESH);
  }).observe(document.getElementById("questions"), { childList: true });

  // How many characters fit beside each other: extensions draw for that.
  function columns() {
    const probe = document.createElement("pre");
    const text = document.createElement("span");
    text.textContent = "0".repeat(100);
    probe.append(text);
    probe.style.visibility = "hidden";
    talk.firstElementChild.append(probe);
    const wide = text.getBoundingClientRect().width / 100;
    probe.remove();
    return Math.max(20, Math.floor((talk.firstElementChild.clientWidth - 64) / (wide || 8)));
  }

  let source = null;
  let followed = 0;
  function follow() {
    const fits = columns();
    if (fits === followed) return;
    followed = fits;
    source?.close();
    source = new EventSource(`${talk.dataset.live}?columns=${fits}`);
    source.addEventListener("said", () => look("said"));
    source.addEventListener("told", () => look("whole"));
    source.addEventListener("look", () => look("interface"));
    source.addEventListener("chunk", (event) => {
      stream.hidden = false;
      stream.textContent += JSON.parse(event.data);
    });
  }
  if (talk.dataset.live) {
    follow();
    let resized = null;
    addEventListener("resize", () => {
      clearTimeout(resized);
      resized = setTimeout(follow, 300);
    });
  }

  // Keys that are pressed on a component go to it, in order; those that are pressed before it asks for more wait. The tab
  // key stays the browser's: a component never keeps somebody who moves by it.
  const KEYS = { Enter: "enter", Escape: "esc", ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right", " ": "space", Backspace: "backspace" };
  let pressed = [];
  let sentTo = null;
  document.addEventListener("keydown", (event) => {
    const place = event.target.closest?.("[data-takes-keys]");
    const key = KEYS[event.key] ?? (event.key.length === 1 ? event.key : null);
    if (!place || !talk.dataset.live || key === null || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    event.preventDefault();
    event.stopPropagation();
    pressed.push(key);
    void sendKeys();
  }, true);
  async function sendKeys() {
    const form = document.querySelector("#dialogs [data-component] form");
    if (!form) pressed = [];
    if (!form || !pressed.length || form.action === sentTo) return;
    sentTo = form.action;
    const fields = new URLSearchParams(new FormData(form));
    fields.set("value", pressed.join(" "));
    fields.set("do", "answer");
    pressed = [];
    await send(form, fields);
  }

  // A form is sent without leaving the page: what it changes comes in as everything else does.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!talk.dataset.live || !(form.id === "say" || form.closest("#dialogs, #stop"))) return;
    event.preventDefault();
    if (form.id === "say") say();
    else if (await send(form, new URLSearchParams(new FormData(form, event.submitter))) && !form.closest("[data-component]")) (form.closest(".dialog") ?? form).remove();
  });

  // A message waits for the end of the turn that is under way: whoever reads fast answers before it has ended. It leaves the
  // field when it is sent, so that the next one can be typed before the host has answered; refused, it comes back.
  let isDue = false;
  let isSending = false;
  function say() {
    if (!message.value.trim()) return;
    isDue = true;
    look("whole");
  }
  async function sayWhenOver() {
    if (!isDue || isSending) return;
    if (document.querySelector("#stop button")) {
      tell(message.form, "It is sent when this turn ends.");
      return;
    }
    isDue = false;
    isSending = true;
    const said = message.value;
    const fields = new URLSearchParams(new FormData(message.form));
    message.value = "";
    const isTaken = await send(message.form, fields);
    isSending = false;
    if (isTaken) return;
    isDue = false;
    message.value = [said, message.value].filter(Boolean).join("\n");
  }

  async function send(form, fields) {
    const refused = await refusal(form, fields).catch(() => "The host does not answer. Is it running?");
    if (refused !== null) {
      tell(form, refused);
      return false;
    }
    form.querySelector(".alert")?.remove();
    look("whole");
    return true;
  }

  // Why the host did not take a form; null when it did.
  async function refusal(form, fields) {
    const answer = await fetch(form.action, { method: "POST", body: fields, credentials: "same-origin" });
    if (answer.ok) return null;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    return page.querySelector(".alert, h1")?.textContent ?? "It could not be sent.";
  }

  function tell(form, text) {
    const told = form.querySelector(".alert") ?? document.createElement("p");
    told.className = "alert";
    told.setAttribute("role", "alert");
    told.textContent = text.trim();
    form.prepend(told);
  }

  message?.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (message.value.trim()) message.form.requestSubmit();
  });

  // Keys that extensions registered: the message that stands there stays, and the shortcut is said.
  const named = (event) => [event.ctrlKey && "ctrl", event.altKey && "alt", event.shiftKey && "shift", event.key.toLowerCase()].filter(Boolean).join("+");
  document.addEventListener("keydown", (event) => {
    if (!message || !talk.dataset.live || event.isComposing || event.metaKey || !(event.ctrlKey || event.altKey || /^F\d+$/.test(event.key))) return;
    const found = [...document.querySelectorAll("[data-key]")].find((item) => inOrder(item.dataset.key) === named(event));
    if (!found) return;
    event.preventDefault();
    const fields = new URLSearchParams(new FormData(message.form));
    fields.set("message", found.dataset.command.trim());
    void send(message.form, fields);
  });
  const inOrder = (key) => {
    const parts = key.split("+");
    const last = parts.pop() || "+";
    return [...["ctrl", "alt", "shift"].filter((name) => parts.includes(name)), last].join("+");
  };

  document.addEventListener("click", (event) => {
    const command = event.target.closest("[data-command]");
    if (!command || !message) return;
    message.value = command.dataset.command;
    message.focus();
  });
})();
