// What the host says about this extension's surroundings when it loads it.

export const environment = {
  extension: "",
  cwd: "/",
  hasUI: false,
  colour: false,
  flags: {} as Record<string, boolean | string>,
};

export function setEnvironment(values: any): void {
  environment.extension = "" + values.extension;
  environment.cwd = "" + values.cwd;
  environment.hasUI = values.hasUI === true;
  environment.colour = values.colour === true;
  environment.flags = values.flags;
}
