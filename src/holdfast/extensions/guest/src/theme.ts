// Colours for text that an extension shows. Without a terminal that shows colours, text stays plain.

const ATTRIBUTES: Record<string, [number, number]> = {
  bold: [1, 22], dim: [2, 22], italic: [3, 23], underline: [4, 24], inverse: [7, 27], strikethrough: [9, 29],
};
// pi's colour names, as the sixteen colours that every terminal has.
const FOREGROUND: Record<string, number> = {
  accent: 36, border: 34, borderAccent: 36, borderMuted: 90, success: 32, error: 31, warning: 33, muted: 90, dim: 90,
  text: 39, thinkingText: 90, userMessageText: 39, customMessageText: 39, customMessageLabel: 35, toolTitle: 39,
  toolOutput: 90, mdHeading: 33, mdLink: 34, mdLinkUrl: 90, mdCode: 36, mdCodeBlock: 32, mdCodeBlockBorder: 90,
  mdQuote: 90, mdQuoteBorder: 90, mdHr: 90, mdListBullet: 36, toolDiffAdded: 32, toolDiffRemoved: 31,
  toolDiffContext: 90, syntaxComment: 32, syntaxKeyword: 34, syntaxFunction: 33, syntaxVariable: 36, syntaxString: 31,
  syntaxNumber: 32, syntaxType: 36, syntaxOperator: 39, syntaxPunctuation: 39, thinkingOff: 90, thinkingMinimal: 90,
  thinkingLow: 34, thinkingMedium: 36, thinkingHigh: 35, thinkingXhigh: 35, bashMode: 32,
};
const BACKGROUND: Record<string, number> = {
  selectedBg: 100, userMessageBg: 100, customMessageBg: 45, toolPendingBg: 100, toolSuccessBg: 42, toolErrorBg: 41,
};

export function makeTheme(colour: () => boolean): any {
  const wrap = (text: string, on: number, off: number) => (colour() ? `\u001b[${on}m${text}\u001b[${off}m` : "" + text);
  const theme: any = {
    name: "dark",
    fg: (name: string, text: string) => wrap(text, FOREGROUND[name] ?? 39, 39),
    bg: (name: string, text: string) => wrap(text, BACKGROUND[name] ?? 49, 49),
    getFgAnsi: (name: string) => (colour() ? `\u001b[${FOREGROUND[name] ?? 39}m` : ""),
    getBgAnsi: (name: string) => (colour() ? `\u001b[${BACKGROUND[name] ?? 49}m` : ""),
    getColorMode: () => "256color",
    getThinkingBorderColor: () => (text: string) => wrap(text, 90, 39),
    getBashModeBorderColor: () => (text: string) => wrap(text, 32, 39),
  };
  for (const name of Object.keys(ATTRIBUTES)) theme[name] = (text: string) => wrap(text, ...ATTRIBUTES[name]);
  return theme;
}
