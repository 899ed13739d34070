// Fuzzy matching: every letter of the query in order; runs, word starts and early places lower the score, which is better.

export function fuzzyMatch(query: string, text: string): { matches: boolean; score: number } {
  const wanted = query.toLowerCase();
  const source = text.toLowerCase();
  if (wanted === "") return { matches: true, score: 0 };
  let score = 0;
  let last = -1;
  let run = 0;
  for (const letter of wanted) {
    const at = source.indexOf(letter, last + 1);
    if (at < 0) return { matches: false, score: 0 };
    const starts = at === 0 || /[\s\-_./:]/.test(source[at - 1]);
    if (at === last + 1 && last >= 0) { run++; score -= run * 5; } else { run = 0; if (last >= 0) score += (at - last - 1) * 2; }
    if (starts) score -= 10;
    score += at * 0.1;
    last = at;
  }
  if (source === wanted) score -= 100;
  return { matches: true, score };
}

export function fuzzyFilter(items: any[], query: string, getText: (item: any) => string): any[] {
  const words = query.trim().split(/\s+/).filter(Boolean);
  if (words.length === 0) return items;
  const found: { item: any; score: number; at: number }[] = [];
  items.forEach((item, at) => {
    let score = 0;
    for (const word of words) {
      const match = fuzzyMatch(word, getText(item));
      if (!match.matches) return;
      score += match.score;
    }
    found.push({ item, score, at });
  });
  return found.sort((a, b) => a.score - b.score || a.at - b.at).map((one) => one.item);
}
