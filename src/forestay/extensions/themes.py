"""Themes: the colours for extensions' text, from the files in packs, and the theme in use.

A theme is a JSON file `{name, vars?, colors}`: `colors` gives each of the 51 tokens a value, and a value is `#rrggbb`,
a number of the terminal's palette, `""` for the terminal's own colour, or the name of one of `vars`.

M1  An incomplete theme is a Problem that says what is missing, and is never in use.
M2  There is always a theme in use; if the chosen one is not available, it is `dark`, as in pi.
M3  The theme in use is the same for all extensions, whichever of them chose it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from forestay.extensions.packs import MAX_FILE, Resource
from forestay.kernel import Problem, canonical

Colour = str | int
OPERATIONS = ("getAllThemes", "getTheme", "setTheme")
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_MAX_NAME = 128

_DARK: dict[str, Colour] = {
    "accent": 6, "border": 4, "borderAccent": 6, "borderMuted": 8, "success": 2, "error": 1, "warning": 3, "muted": 8,
    "dim": 8, "text": "", "thinkingText": 8, "selectedBg": 8, "userMessageBg": 8, "userMessageText": "",
    "customMessageBg": 5, "customMessageText": "", "customMessageLabel": 5, "toolPendingBg": 8, "toolSuccessBg": 2,
    "toolErrorBg": 1, "toolTitle": "", "toolOutput": 8, "mdHeading": 3, "mdLink": 4, "mdLinkUrl": 8, "mdCode": 6,
    "mdCodeBlock": 2, "mdCodeBlockBorder": 8, "mdQuote": 8, "mdQuoteBorder": 8, "mdHr": 8, "mdListBullet": 6,
    "toolDiffAdded": 2, "toolDiffRemoved": 1, "toolDiffContext": 8, "syntaxComment": 2, "syntaxKeyword": 4,
    "syntaxFunction": 3, "syntaxVariable": 6, "syntaxString": 1, "syntaxNumber": 2, "syntaxType": 6,
    "syntaxOperator": "", "syntaxPunctuation": "", "thinkingOff": 8, "thinkingMinimal": 8, "thinkingLow": 4,
    "thinkingMedium": 6, "thinkingHigh": 5, "thinkingXhigh": 5, "bashMode": 2,
}  # fmt: skip
TOKENS = tuple(_DARK)
_BACKGROUNDS = ("selectedBg", "userMessageBg", "customMessageBg", "toolPendingBg", "toolSuccessBg", "toolErrorBg")
# On a light background the greys are darker, the backgrounds lighter, and yellow is unreadable.
_DARKER: dict[Colour, Colour] = {8: 242, 3: 130, 6: 30}
_LIGHT = {name: 254 if name in _BACKGROUNDS else _DARKER.get(value, value) for name, value in _DARK.items()}


class Theme(msgspec.Struct, frozen=True):
    """A complete theme: every token has its colour, and all variables are resolved."""

    name: str
    colors: dict[str, Colour]
    path: str | None = None


BUILT_IN = {"dark": Theme("dark", _DARK), "light": Theme("light", _LIGHT)}


def read_theme(path: Path) -> Theme:
    """Read the theme in a file (M1)."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise Problem("payload_too_large", f"The theme {path.name} is larger than {MAX_FILE} bytes.", at=path.name)
        document: Any = canonical.decode(path.read_bytes(), limit=MAX_FILE)
    except OSError as error:
        raise Problem("io_failed", f"The theme {path.name} cannot be read: {error.strerror}.", at=path.name) from error
    return theme_of(document, path.name, str(path))


def theme_of(document: Any, label: str, path: str | None = None) -> Theme:
    """Make a theme from its document; `label` names it in a Problem."""
    if not isinstance(document, dict) or not isinstance(document.get("colors"), dict):
        raise _invalid(label, "it has no `colors`", "$.colors")
    name, colours, variables = document.get("name"), document["colors"], document.get("vars", {})
    if not isinstance(name, str) or not name.strip() or len(name) > _MAX_NAME:
        raise _invalid(label, "it has no `name`", "$.name")
    if not isinstance(variables, dict):
        raise _invalid(label, "`vars` is not an object", "$.vars")
    missing = [token for token in TOKENS if token not in colours]
    if missing:
        raise _invalid(label, f"{len(missing)} of {len(TOKENS)} colours are missing", "$.colors", missing=missing)
    return Theme(name, {token: _resolved(label, token, colours[token], variables) for token in TOKENS}, path)


def _resolved(label: str, token: str, value: Any, variables: Mapping[str, Any]) -> Colour:
    """Return a colour's value; resolve the variables that it names."""
    at, seen = f"$.colors.{token}", [value]
    while isinstance(value, str) and value and not value.startswith("#"):
        if value not in variables:
            raise _invalid(label, f"`{token}` names {value[:40]!r}, which is not in its `vars`", at)
        value = variables[value]
        if value in seen:
            raise _invalid(label, f"the variables of `{token}` refer to each other in a circle", at)
        seen.append(value)
    if isinstance(value, str) and (value == "" or _HEX.fullmatch(value)):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255:
        return value
    raise _invalid(label, f"`{token}` is {str(value)[:40]!r}, which is not a colour", at)


def _invalid(label: str, why: str, at: str, **details: Any) -> Problem:
    fix = "A colour is #rrggbb, a number from 0 to 255, an empty text, or the name of one of `vars`."
    return Problem("schema_mismatch", f"{label} is not a theme: {why}.", at=at, theme=label, fix=fix, **details)


class Themes:
    """The themes of one suite. `changed(theme, extension)` is called when a theme comes into use (M3)."""

    def __init__(self, changed: Callable[[Theme, str], None] = lambda _theme, _extension: None) -> None:
        self._changed = changed
        self._found: dict[str, Theme] = {}
        self._problems: dict[str, Problem] = {}
        self.active = BUILT_IN["dark"]

    def adopt(self, resources: Iterable[Resource]) -> None:
        """Read the themes among `resources`; store the Problem of an invalid one under its file's name."""
        self._found, self._problems = {}, {}
        for item in resources:
            if item.kind != "theme":
                continue
            try:
                theme = read_theme(Path(item.path))
                self._found.setdefault(theme.name, theme)
            except Problem as problem:
                self._problems[item.name] = problem

    def all(self) -> list[Theme]:
        return sorted((BUILT_IN | self._found).values(), key=lambda theme: theme.name)

    def find(self, name: str) -> Theme | None:
        return self._found.get(name) or BUILT_IN.get(name)

    def choose(self, name: str, extension: str = "") -> Theme:
        """Use a theme from now on; if it is not available, use `dark` and raise a Problem (M2)."""
        theme = self.find(name)
        if theme is not None:
            return self._use(theme, extension)
        self._use(self._found.get("dark", BUILT_IN["dark"]), extension)
        if name in self._problems:
            raise self._problems[name]
        known = [item.name for item in self.all()]
        raise Problem("not_found", f"Theme not found: {name[:80]}", themes=known, fix="Use one of `themes`.")

    def request(self, extension: str, operation: str, params: Mapping[str, Any]) -> Any:
        """Answer the theme operations of `ctx.ui`."""
        if operation == "getAllThemes":
            return [{"name": theme.name, "path": theme.path} for theme in self.all()]
        name = str(params.get("name"))
        if operation == "getTheme":
            found = self.find(name)
            return None if found is None else msgspec.to_builtins(found)
        try:
            if "colors" in params:  # a theme that the extension made
                own = theme_of({"name": name, "colors": params["colors"]}, name)
                return {"success": True, "theme": msgspec.to_builtins(self._use(own, extension))}
            return {"success": True, "theme": msgspec.to_builtins(self.choose(name, extension))}
        except Problem as problem:
            return {"success": False, "error": problem.message, "theme": msgspec.to_builtins(self.active)}

    def _use(self, theme: Theme, extension: str) -> Theme:
        self.active = theme
        self._changed(theme, extension)
        return theme
