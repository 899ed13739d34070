// pi's own reader and writer of sessions, for the recorded files: `node pi_sessions.mjs PACKAGE read FILE` prints what its
// reader finds, `… write FOLDER` writes a session with every kind of entry and prints the file's name.
import { pathToFileURL } from "node:url";

const [folder, what, place] = process.argv.slice(2);
const { SessionManager } = await import(pathToFileURL(`${folder}/dist/core/session-manager.js`));
const user = (text) => ({ role: "user", content: [{ type: "text", text }], timestamp: 1 });
const assistant = (...content) => ({
  role: "assistant", content, api: "a", provider: "p", model: "m", stopReason: "stop", timestamp: 2,
  usage: { input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } },
});
const text = (words) => ({ type: "text", text: words });

function write() {
  const session = SessionManager.create("/harbour", place);
  session.appendModelChange("p", "m");
  session.appendThinkingLevelChange("high");
  const first = session.appendMessage(user("Where does the Aurora lie? ☕"));
  session.appendMessage(assistant(text("I look."), { type: "toolCall", id: "c1", name: "read", arguments: { path: "notes.md" } }));
  session.appendMessage({ role: "toolResult", toolCallId: "c1", toolName: "read", content: [text("berth 7")], details: { lines: 1 }, isError: false, timestamp: 3 });
  const kept = session.appendMessage(assistant(text("At berth 7.")));
  session.appendCustomEntry("mark", { a: 1 });
  session.appendCustomMessageEntry("note", "The tide is low", true, { n: 1 });
  session.appendLabelChange(first, "start");
  session.appendCompaction("It was about the Aurora.", kept, 40);
  session.appendMessage(user("And the Borealis?"));
  session.appendMessage(assistant(text("At berth 9.")));
  session.branchWithSummary(kept, "The Borealis was asked about.");
  session.appendMessage(user("And the tide?"));
  session.appendMessage(assistant(text("Low.")));
  session.appendSessionInfo("Harbour");
  return { file: session.getSessionFile() };
}

function read() {
  const session = SessionManager.open(place);
  const context = session.buildSessionContext();
  return {
    id: session.getSessionId(), name: session.getSessionName() ?? null, leaf: session.getLeafId(), entries: session.getEntries(),
    branch: session.getBranch().map((entry) => entry.id), labels: Object.fromEntries(session.getEntries().map((entry) => [entry.id, session.getLabel(entry.id)]).filter(([, label]) => label)),
    messages: context.messages.map((message) => [message.role, message.summary ?? message.content]), thinkingLevel: context.thinkingLevel,
  };
}
console.log(JSON.stringify(what === "write" ? write() : read()));
