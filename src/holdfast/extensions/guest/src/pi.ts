export const begin = (): void => undefined;
