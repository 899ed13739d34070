// The surroundings of this extension, which the host sends before it loads the extension.

import { onInbound } from "./bridge";
import { defineProperty } from "./primordials";

export const environment = {
  extension: "",
  cwd: "/",
  hasUI: false,
  columns: 80,
  colour: false,
  colorMode: "truecolor",
  theme: null as any,
  flags: {} as Record<string, boolean | string>,
  toolWords: {} as Record<string, any>,
};

function setEnvironment(values: any): void {
  environment.extension = "" + values.extension;
  environment.cwd = "" + values.cwd;
  environment.hasUI = values.hasUI === true;
  environment.colour = values.colour === true;
  environment.colorMode = values.colorMode === "256color" ? "256color" : "truecolor";
  environment.theme = values.theme ?? null;
  environment.flags = values.flags;
  environment.toolWords = values.toolWords ?? {};
  // Compiled code makes `import.meta.url` and `__dirname` from the extension's folder.
  defineProperty(globalThis, "__forestay_root__", {
    __proto__: null, value: "" + values.root, writable: false, configurable: true, enumerable: false,
  } as any);
}

onInbound("attended", (attended: any) => void (environment.hasUI = attended === true));
onInbound("environment", (values: any) => setEnvironment(values));
