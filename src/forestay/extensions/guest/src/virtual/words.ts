// The wording of the built-in tools: our own words, or those that the host was given (`toolWords`).

import { environment } from "../environment";

export interface Words {
  label: string;
  description: string;
  parameters: Record<string, string>;
  promptSnippet?: string | null;
  promptGuidelines?: string[] | null;
}

const FILE = "The file, relative or absolute";
const own = (most: string): Record<string, Words> => ({
  read: {
    label: "read", description: `Shows a file: text from a line on, or an image. At most ${most} at a time; go on with offset.`,
    parameters: { path: FILE, offset: "First line to show, counted from 1", limit: "How many lines to show at most" },
    promptSnippet: "Show a file", promptGuidelines: ["To look at a file, take read rather than a program that prints it."],
  },
  write: {
    label: "write", description: "Writes a whole file, with the folders that it needs; what was there is replaced.",
    parameters: { path: FILE, content: "What the file shall hold" },
    promptSnippet: "Write a whole file", promptGuidelines: ["Take write for new files, and where everything in a file changes."],
  },
  edit: {
    label: "edit", description: "Replaces pieces of a file. Each old text must stand there exactly once; all replacements are made, or none.",
    parameters: { path: FILE, edits: "The replacements, each against the original file", "edits.oldText": "Text as it stands in the file, once", "edits.newText": "Text to put in its place" },
    promptSnippet: "Replace pieces of a file by exact text, several at a time", promptGuidelines: ["Give all changes of one file in one call of edit.", "Keep the old text as short as it can be and still stand there only once."],
  },
  bash: {
    label: "bash", description: `Runs a shell command and shows the end of its output, at most ${most}.`,
    parameters: { command: "The command", timeout: "Seconds after which it is stopped" },
    promptSnippet: "Run a shell command", promptGuidelines: ["Say in the command itself which folder it works in when that matters."],
  },
  grep: {
    label: "grep", description: "Searches the content of files for a pattern.",
    parameters: { pattern: "What to search for: a regular expression, or plain text with literal", path: "File or folder; the current folder when left out", glob: "Only files whose name matches", ignoreCase: "Capital and small letters alike", literal: "Take the pattern as plain text", context: "Lines to show around each match", limit: "How many matches at most (100 when left out)" },
    promptSnippet: "Search the content of files",
  },
  find: {
    label: "find", description: "Finds files by a glob pattern.",
    parameters: { pattern: "A glob such as '*.ts' or 'src/**/*.json'", path: "Where to look; the current folder when left out", limit: "How many results at most (1000 when left out)" },
    promptSnippet: "Find files by a glob pattern",
  },
  ls: {
    label: "ls", description: "Lists a folder; folders in it end in a slash.",
    parameters: { path: "The folder; the current one when left out", limit: "How many entries at most (500 when left out)" },
    promptSnippet: "List a folder",
  },
});

// A field that the host was not given keeps our words; null removes the text.
export function wordsOf(kind: string, most: string): Words {
  const ours = own(most)[kind];
  const given = environment.toolWords[kind] ?? {};
  return { ...ours, ...given, parameters: { ...ours.parameters, ...given.parameters } };
}
