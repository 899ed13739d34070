// Checks registrations at the moment of the call, so that the error's stack shows the extension's own line.

import { isArray } from "./primordials";

export class RegistrationError extends TypeError {
  code = "REGISTRATION_INVALID";
  constructor(where: string, what: string, fix: string) {
    super(`${where}: ${what}. ${fix}`);
    this.name = "RegistrationError";
  }
}

const isObject = (value: any): boolean => value !== null && typeof value === "object" && !isArray(value);
const kindOf = (value: any): string => (value === null ? "null" : isArray(value) ? "an array" : typeof value === "object" ? "an object" : `a value of type ${typeof value}`);

function fail(where: string, what: string, fix: string): never {
  throw new RegistrationError(where, what, fix);
}

export function checkName(where: string, value: any, label = "name"): string {
  if (typeof value !== "string" || value.trim() === "") fail(where, `\`${label}\` is ${value === "" ? "empty" : kindOf(value)}`, `Give a non-empty string.`);
  if (value.length > 128) fail(where, `\`${label}\` has ${value.length} characters`, "Use at most 128.");
  if (/[\s\u0000-\u001f\u007f]/.test(value)) fail(where, `\`${label}\` ${JSON.stringify(value)} has white space`, "Use letters, digits, `-`, `_`, `.` or `:`.");
  return value;
}

function checkFunction(where: string, object: any, key: string): void {
  if (typeof object[key] !== "function") fail(where, `\`${key}\` is ${kindOf(object[key])}`, "Give a function.");
}

function checkText(where: string, object: any, key: string, required: boolean): void {
  const value = object[key];
  if (value === undefined && !required) return;
  if (typeof value !== "string") fail(where, `\`${key}\` is ${kindOf(value)}`, "Give a string.");
}

export function checkTool(tool: any): void {
  if (!isObject(tool)) fail("registerTool", `the tool is ${kindOf(tool)}`, "Give an object with name, description, parameters and execute.");
  const where = `registerTool(${typeof tool.name === "string" ? JSON.stringify(tool.name) : "?"})`;
  checkName(where, tool.name);
  checkText(where, tool, "label", false);
  checkText(where, tool, "description", true);
  checkText(where, tool, "promptSnippet", false);
  if (!isObject(tool.parameters)) fail(where, `\`parameters\` is ${kindOf(tool.parameters)}`, "Give a JSON Schema, for example Type.Object({…}).");
  const type = tool.parameters.type;
  if (type !== undefined && type !== "object") fail(where, `\`parameters.type\` is ${JSON.stringify(type)}`, "Arguments are an object: use Type.Object({…}).");
  try {
    JSON.stringify(tool.parameters);
  } catch {
    fail(where, "`parameters` cannot be written as JSON", "Use a plain JSON Schema without cycles.");
  }
  checkFunction(where, tool, "execute");
  for (const key of ["prepareArguments", "renderCall", "renderResult"]) {
    if (tool[key] !== undefined) checkFunction(where, tool, key);
  }
}

export function checkCommand(where: string, name: any, options: any): void {
  checkName(where, name);
  if (name.startsWith("/")) fail(where, `\`name\` starts with a slash`, `Use ${JSON.stringify(name.slice(1))}.`);
  if (!isObject(options)) fail(where, `the options are ${kindOf(options)}`, "Give an object with a handler.");
  checkText(where, options, "description", false);
  checkFunction(where, options, "handler");
  if (options.getArgumentCompletions !== undefined) checkFunction(where, options, "getArgumentCompletions");
}

export function checkShortcut(shortcut: any, options: any): void {
  checkName("registerShortcut", shortcut, "shortcut");
  if (!isObject(options)) fail("registerShortcut", `the options are ${kindOf(options)}`, "Give an object with a handler.");
  checkText("registerShortcut", options, "description", false);
  checkFunction("registerShortcut", options, "handler");
}

export function checkFlag(name: any, options: any): void {
  const where = "registerFlag";
  checkName(where, name);
  if (!isObject(options)) fail(where, `the options are ${kindOf(options)}`, "Give an object with a type.");
  if (options.type !== "boolean" && options.type !== "string") fail(where, `\`type\` is ${JSON.stringify(options.type)}`, 'Use "boolean" or "string".');
  checkText(where, options, "description", false);
  if (options.default !== undefined && typeof options.default !== options.type) {
    fail(where, `\`default\` is ${kindOf(options.default)}`, `The flag is of type ${options.type}.`);
  }
}

export function checkFunctionOf(where: string, name: string, value: any): void {
  if (typeof value !== "function") fail(where, `the ${name} is ${kindOf(value)}`, "Give a function.");
}

export function checkRenderer(type: any, renderer: any): void {
  checkName("registerMessageRenderer", type, "customType");
  if (typeof renderer !== "function") fail("registerMessageRenderer", `the renderer is ${kindOf(renderer)}`, "Give a function.");
}

export function checkProvider(name: any, config: any): void {
  const where = "registerProvider";
  checkName(where, name);
  if (!isObject(config)) fail(where, `the config is ${kindOf(config)}`, "Give an object.");
  for (const key of ["baseUrl", "apiKey", "api", "name"]) checkText(where, config, key, false);
  if (config.models !== undefined) {
    if (!isArray(config.models)) fail(where, `\`models\` is ${kindOf(config.models)}`, "Give an array of models.");
    for (const model of config.models) {
      if (!isObject(model) || typeof model.id !== "string" || model.id === "") fail(where, "a model has no id", "Each model is an object with an `id`.");
    }
  }
  if (config.streamSimple !== undefined) checkFunction(where, config, "streamSimple");
}

export function checkMcpServer(name: any, entry: any): void {
  const where = "registerMcpServer";
  checkName(where, name);
  if (!isObject(entry)) fail(where, `the entry is ${kindOf(entry)}`, "Give an object with a command or a url, as in .mcp.json.");
  for (const key of ["command", "cwd", "url"]) checkText(where, entry, key, false);
  if ((entry.command === undefined) === (entry.url === undefined)) fail(where, "the entry needs exactly one of `command` and `url`", "Give one of the two.");
  if (entry.args !== undefined && !isArray(entry.args)) fail(where, `\`args\` is ${kindOf(entry.args)}`, "Give an array of strings.");
  for (const key of ["env", "headers"]) {
    if (entry[key] !== undefined && !isObject(entry[key])) fail(where, `\`${key}\` is ${kindOf(entry[key])}`, "Give an object of strings.");
  }
}

export function checkHandler(event: any, handler: any): void {
  if (typeof event !== "string" || event === "") fail("pi.on", `the event is ${kindOf(event)}`, "Give the event's name.");
  if (typeof handler !== "function") fail(`pi.on(${JSON.stringify(event)})`, `the handler is ${kindOf(handler)}`, "Give a function.");
}
