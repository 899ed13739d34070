"""Documents of nine kinds, made from a seed, and the ways a model cuts them into windows."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable

WORDS = (
    "anchor basin cable delta engine ferry gauge harbour inlet jetty keel lagoon mooring north oar pilot quay rudder "
    "sail tide upland vessel wharf xebec yawl zenith current depth signal crew cargo storm repair chart buoy lantern"
).split()
HAN = "船海风浪潮岸灯塔锚绳帆舵港湾水深天星夜晨雾雨云山石沙鱼鸟人手心火木金土日月年春夏秋冬东西南北上下左右大小多少"
EMOJI = ["🚢", "⚓", "🌊", "👩‍🚀", "🇫🇮", "👍🏽", "🐚", "🧭", "🌬️", "⛵", "1️⃣", "❤️‍🔥"]


def _sentence(rng: random.Random) -> str:
    words = [rng.choice(WORDS) for _ in range(rng.randint(5, 16))]
    words[rng.randrange(len(words))] = str(rng.randint(2, 9999))
    return " ".join(words).capitalize() + rng.choice(".!?.")


def prose(rng: random.Random) -> str:
    return "\n\n".join(" ".join(_sentence(rng) for _ in range(rng.randint(2, 6))) for _ in range(rng.randint(4, 20)))


def markdown(rng: random.Random) -> str:
    parts = []
    for section in range(rng.randint(2, 5)):
        parts.append(f"## {rng.choice(WORDS).title()} {section}\n\n{_sentence(rng)}")
        rows = [f"| {rng.choice(WORDS)}-{row} | {rng.randint(1, 10**6)} | {_sentence(rng)[:30]} |" for row in range(8)]
        parts.append("| name | count | note |\n|---|---:|---|\n" + "\n".join(rows))
        parts.append("\n".join(f"{n}. {_sentence(rng)}" for n in range(1, rng.randint(3, 8))))
    return "\n\n".join(parts) + "\n"


def as_json(rng: random.Random) -> str:
    items = [
        {"id": rng.randint(1, 10**9), "name": rng.choice(WORDS), "tags": rng.sample(WORDS, 3), "note": _sentence(rng)}
        for _ in range(rng.randint(8, 40))
    ]
    return json.dumps({"items": items}, indent=2)


def python(rng: random.Random) -> str:
    parts = ["from __future__ import annotations\n\nimport math\n"]
    for number in range(rng.randint(5, 20)):
        name = f"{rng.choice(WORDS)}_{number}"
        parts.append(
            f'\n\ndef {name}(value: int) -> float:\n    """{_sentence(rng)}"""\n    if value > {rng.randint(1, 999)}:\n'
            f"        return math.sqrt(value * {rng.randint(2, 99)})\n    return value / {rng.randint(2, 99)}\n"
        )
    return "".join(parts)


def typescript(rng: random.Random) -> str:
    parts = []
    for number in range(rng.randint(5, 20)):
        name = f"{rng.choice(WORDS)}{number}"
        parts.append(
            f"export const {name} = async (limit: number): Promise<string[]> => {{\n  // {_sentence(rng)}\n"
            f"  const found = await load(`{rng.choice(WORDS)}/${{limit}}/{rng.randint(1, 9999)}`);\n"
            f"  return found.filter((item) => item.size > {rng.randint(1, 9999)});\n}};\n"
        )
    return "\n".join(parts)


def csv(rng: random.Random) -> str:
    rows = [
        f"{number},{rng.choice(WORDS)},{rng.randint(1, 10**6)},{rng.random():.6f},{rng.choice(WORDS)}"
        for number in range(rng.randint(40, 200))
    ]
    return "id,name,count,share,place\n" + "\n".join(rows) + "\n"


def log(rng: random.Random) -> str:
    lines = []
    stamp = rng.randint(0, 10**7)
    for _ in range(rng.randint(30, 120)):
        stamp += rng.randint(1, 5000)
        clock = f"{stamp // 3_600_000 % 24:02d}:{stamp // 60_000 % 60:02d}:{stamp // 1000 % 60:02d}.{stamp % 1000:03d}"
        level = rng.choice(["INFO", "WARN", "ERROR"])
        lines.append(
            f"2026-03-0{rng.randint(1, 9)}T{clock}Z {level} [{rng.choice(WORDS)}] {_sentence(rng)} "
            f"id={rng.getrandbits(48):x}"
        )
    return "\n".join(lines)


def chinese(rng: random.Random) -> str:
    sentences = [
        "".join(rng.choice(HAN) for _ in range(rng.randint(6, 24))) + rng.choice("。！？")
        for _ in range(rng.randint(30, 90))
    ]
    return "\n\n".join("".join(sentences[n : n + 5]) for n in range(0, len(sentences), 5))


def emoji(rng: random.Random) -> str:
    return "\n".join(
        f"{rng.choice(EMOJI)} {_sentence(rng)} {rng.choice(EMOJI)}{rng.choice(EMOJI)}"
        for _ in range(rng.randint(15, 60))
    )


KINDS: dict[str, Callable[[random.Random], str]] = {
    "prose": prose,
    "markdown": markdown,
    "json": as_json,
    "python": python,
    "typescript": typescript,
    "csv": csv,
    "log": log,
    "chinese": chinese,
    "emoji": emoji,
}


def windows(text: str, rng: random.Random, count: int, echo: bool) -> tuple[list[str], list[int]]:
    """`text` as `count` windows cut at random; with `echo`, each but the first repeats 20 to 400 characters."""
    cuts = sorted(rng.sample(range(1, len(text)), min(count, len(text) - 1) - 1))
    pieces: list[str] = []
    echoes: list[int] = []
    before = 0
    for cut in [*cuts, len(text)]:
        length = min(rng.randint(20, 400), before) if echo and before >= 20 else 0
        pieces.append(text[before - length : cut])
        echoes.append(length)
        before = cut
    return pieces, echoes


def crlf(rng: random.Random) -> str:
    """Lines that end as on Windows, with tabs, and trailing spaces that belong to the text."""
    lines = [
        f"{rng.choice(WORDS)}\t{rng.randint(1, 10**6)}\t{_sentence(rng)}{' ' * rng.randint(0, 3)}" for _ in range(40)
    ]
    return "\r\n".join(lines) + "\r\n"


def graphemes(rng: random.Random) -> str:
    """Families, flags, keycaps, stacked combining marks: a cut falls inside a character that a reader sees as one."""
    families = [
        "👩‍👩‍👧‍👦",
        "🏳️‍🌈",
        "👨🏿‍⚕️",
        "🇦🇽🇫🇮",
        "e\u0301\u0323",
        "z\u0335\u0321\u0489",
        "ក្រុង",
        "क्षि",
        "각",
        "\u200d\u200c",
    ]
    return "\n".join(
        " ".join(rng.choice([*families, rng.choice(WORDS), str(rng.randint(1, 10**6))]) for _ in range(14))
        for _ in range(40)
    )


def right_to_left(rng: random.Random) -> str:
    words = "מפרש עוגן נמל גל רוח سفينة ميناء موج ريح مرساة".split()
    return "\n".join(
        "\u202b" + " ".join(rng.choice(words) for _ in range(9)) + f" \u2066{rng.randint(1, 10**6)}\u2069\u202c"
        for _ in range(40)
    )


def fences(rng: random.Random) -> str:
    """Fences inside fences, of both kinds and of several lengths, some inside list items."""
    parts = []
    for number in range(rng.randint(6, 12)):
        inner = f"~~~py\nprint({rng.randint(1, 10**6)})\n~~~\n```\n{_sentence(rng)}\n```"
        parts.append(f"{number}. {_sentence(rng)}\n\n   ````md\n   {inner}\n   ````\n")
    return "\n".join(parts)


def escapes(rng: random.Random) -> str:
    """JSON whose strings are full of quotes, backslashes and escapes: any cut may stand inside one."""
    note = ['say "hi"', "back\\slash", "line\nbreak", "tab\t", "\u2028", "nul\\u0000", "é", "🚢", '\\"']
    items = [{"id": rng.randint(1, 10**9), "text": "".join(rng.choices(note, k=9))} for _ in range(30)]
    return json.dumps(items, ensure_ascii=bool(rng.randint(0, 1)))


def ndjson(rng: random.Random) -> str:
    return "".join(
        json.dumps({"at": rng.randint(1, 10**9), "level": rng.choice(["info", "warn"]), "text": _sentence(rng)}) + "\n"
        for _ in range(40)
    )


def html(rng: random.Random) -> str:
    rows = "".join(
        f'\n<tr class="row"><td>{rng.choice(WORDS)}</td><td>{rng.randint(1, 10**6)}&nbsp;m</td></tr>' for _ in range(30)
    )
    return f"<!doctype html>\n<html><body>\n<h1>{_sentence(rng)}</h1>\n<table>{rows}\n</table>\n</body></html>\n"


def yaml(rng: random.Random) -> str:
    return "".join(
        f"{rng.choice(WORDS)}_{n}:\n  depth: {rng.randint(1, 10**6)}\n"
        f"  note: |\n    {_sentence(rng)}\n\n    {_sentence(rng)}\n"
        for n in range(25)
    )


def diff(rng: random.Random) -> str:
    hunks = []
    for _ in range(15):
        at = rng.randint(1, 10**5)
        hunks.append(
            f"@@ -{at},3 +{at},3 @@ {rng.choice(WORDS)}\n {_sentence(rng)}\n-{_sentence(rng)}\n+{_sentence(rng)}\n"
        )
    return "--- a/log.txt\n+++ b/log.txt\n" + "".join(hunks) + "\\ No newline at end of file"


def blob(rng: random.Random) -> str:
    encoded = base64.b64encode(rng.randbytes(3000)).decode()
    return "-----BEGIN DATA-----\n" + "\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76)) + "\n"


def oddities(rng: random.Random) -> str:
    """Characters that some part might take for something else: NUL, form feed, BOM, separators, lone surrogates."""
    odd = ["\x00", "\x0b", "\x0c", "\x1b[0m", "\x85", "\u2028", "\ufeff", "\ud83d", "\udea2", "\U0010ffff", "\r", "\n"]
    return "".join(rng.choice([*odd, f"{rng.choice(WORDS)} {rng.randint(1, 10**6)} "]) for _ in range(300))


# Shapes in which a cut hurts most: text that a careless join would trim, bridge, normalise or split.
SHAPES: dict[str, Callable[[random.Random], str]] = {
    make.__name__: make
    for make in (
        crlf, graphemes, right_to_left, fences, escapes, ndjson, html, yaml, diff, blob, oddities,
    )
}  # fmt: skip
