"""Prompt templates: named, versioned texts with typed slots, and the references by which nodes and agents use them.

OpenWOP RFC 0027. Everything here is pure: reading a template or a reference, and composing a text from both.

- P1  The same template, bindings and trust give the same text and the same hashes.
- P2  Values from untrusted content stand between `<UNTRUSTED>` marks, which they cannot end.
- P3  A required slot without a value is an error; an optional one stays empty.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from forestay.kernel import Problem, canonical

PromptKind = Literal["system", "user", "few-shot", "schema-hint"]
KINDS: tuple[PromptKind, ...] = ("system", "user", "few-shot", "schema-hint")
SOURCES = ("input", "variable", "context")
MAX_TEMPLATE_BYTES = 65_536
LIBRARY = "forestay"
"""The id of the host's one library."""

_VERSION = r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?"
_NAME = r"[a-z0-9][a-z0-9._-]{0,127}"
_REF = re.compile(rf"prompt:({_NAME})(?:@({_VERSION}))?")
_SLOT = re.compile(r"\{\{\s*([a-zA-Z_][a-zA-Z0-9_]{0,63})\s*\}\}")
_STEP = re.compile(r"\.?([A-Za-z_]\w*)|\[(\d{1,6})\]")
_MARK = re.compile(r"<(/?)(UNTRUSTED)>", re.IGNORECASE)
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}

TemplateId = Annotated[str, msgspec.Meta(pattern=f"^{_NAME}$")]
Version = Annotated[str, msgspec.Meta(pattern=f"^{_VERSION}$", max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEMPLATE_BYTES)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A part of a template's document."""


class PromptVariable(_Part, frozen=True):
    """A slot. `extract_path` leads from its source to the value; without it, the slot's name does. A slot in the text
    that is not declared takes any type."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-zA-Z_][a-zA-Z0-9_]{0,63}$")]
    type: Literal["string", "number", "boolean", "array", "object"] | None
    required: bool
    source: Literal["input", "variable", "secret", "context"] = "input"
    extract_path: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] | None = None
    default_value: Any = None
    description: Annotated[str, msgspec.Meta(max_length=500)] | None = None


class ModelHints(_Part, frozen=True):
    model_class: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    envelope_type: str | None = None


class PromptMeta(_Part, frozen=True):
    """The origin of a template; the host writes it."""

    author: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    source: Literal["host", "user"] | None = None


class PromptTemplate(_Part, frozen=True):
    """A prompt's text, with slots `{{name}}`."""

    template_id: TemplateId
    version: Version
    kind: PromptKind
    text: Text
    name: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    description: Annotated[str, msgspec.Meta(max_length=2000)] | None = None
    variables: list[PromptVariable] = []
    model_hints: ModelHints | None = None
    tags: Annotated[list[Annotated[str, msgspec.Meta(min_length=1, max_length=64)]], msgspec.Meta(max_length=32)] = []
    meta: PromptMeta | None = None

    @property
    def ref(self) -> str:
        return f"prompt:{self.template_id}@{self.version}"


class PromptRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A reference to a template; without a version, to the newest. `variable_overrides` replace all other bindings."""

    template_id: str
    version: str | None = None
    library_id: str | None = None
    variable_overrides: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"prompt:{self.template_id}" + (f"@{self.version}" if self.version else "")


class ComposedPrompt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A template with its slots filled: the model's text, and the hashes that events may show."""

    ref: str
    kind: PromptKind
    text: str
    hash: str
    variable_hashes: dict[str, str]
    content_trust: Literal["trusted", "untrusted"]


def read_template(document: Any) -> PromptTemplate:
    """Read the template that a document describes; `prompt_template_invalid` says where it is wrong."""
    try:
        found = msgspec.convert(document, PromptTemplate)
    except msgspec.ValidationError as error:
        message, at = canonical.located(error)
        raise _invalid(message, at) from error
    if len(found.text.encode()) > MAX_TEMPLATE_BYTES:
        raise _invalid(f"The text is longer than {MAX_TEMPLATE_BYTES} bytes.", "$.text")
    names = [slot.name for slot in found.variables]
    for number, slot in enumerate(found.variables):
        at = f"$.variables[{number}]"
        if slot.type is None:
            raise _invalid("A variable must have a type.", f"{at}.type")
        if slot.name in names[:number]:
            raise _invalid(f"There are two variables {slot.name}.", f"{at}.name")
        if slot.source == "secret":
            raise _invalid("This host puts no secrets into prompts.", f"{at}.source")
        if slot.extract_path is not None and _steps(slot.extract_path) is None:
            raise _invalid("A path must have the form $.name.name or $.name[0].", f"{at}.extractPath")
    return found


def read_ref(value: Any, at: str = "$.ref") -> PromptRef:
    """Read a reference in one of its two forms; raise `prompt_ref_invalid` for another value."""
    if isinstance(value, str) and (match := _REF.fullmatch(value)):
        return PromptRef(template_id=match[1], version=match[2])
    if isinstance(value, dict) and value.keys() <= {"libraryId", "templateId", "version", "variableOverrides"}:
        try:
            found = msgspec.convert(value, PromptRef)
        except msgspec.ValidationError:
            found = None
        if found is not None and _REF.fullmatch(str(found)):
            return found
    message = "A prompt is named `prompt:ID`, `prompt:ID@VERSION` or by an object with its templateId."
    raise Problem("prompt_ref_invalid", message, at=at)


def compose(
    template: PromptTemplate, sources: Mapping[str, Mapping[str, Any]], overrides: Mapping[str, Any], *, untrusted: bool
) -> ComposedPrompt:
    """Fill the text's slots from `sources`, which have the names `input`, `variable` and `context`.

    With `untrusted`, values from inputs and variables are marked (P2); the author's own text never is.
    """
    slots = {slot.name: slot for slot in template.variables}
    for name in _SLOT.findall(template.text):
        slots.setdefault(name, PromptVariable(name=name, type=None, required=False))
    bound = {name: _bound(slot, sources, overrides) for name, slot in slots.items()}

    def filled(match: re.Match[str]) -> str:
        binding = bound[match[1]]
        text = _text(binding.value)
        return _marked(text) if untrusted and binding.foreign else text

    text = _SLOT.sub(filled, template.text)
    is_marked = untrusted and any(binding.foreign for binding in bound.values())
    return ComposedPrompt(
        ref=template.ref,
        kind=template.kind,
        text=text,
        hash=_digest(text.encode()),
        variable_hashes={name: canonical.digest(bound[name].value) for name in sorted(bound)},
        content_trust="untrusted" if is_marked else "trusted",
    )


class _Binding(msgspec.Struct, frozen=True):
    """A slot's value; `foreign` says that it does not come from the prompt's author."""

    value: Any
    foreign: bool = False


def _bound(slot: PromptVariable, sources: Mapping[str, Mapping[str, Any]], overrides: Mapping[str, Any]) -> _Binding:
    """Return a slot's value (P3); refuse one of another type than declared."""
    found = _Binding(overrides.get(slot.name))
    if found.value is None:
        found = _Binding(_found(sources.get(slot.source, {}), slot.extract_path or slot.name), slot.source != "context")
    if found.value is None:
        if slot.required:
            message = f"The prompt needs a value for {slot.name}, and there is none."
            raise Problem("prompt_variable_unresolved", message, variable=slot.name)
        return _Binding(slot.default_value)
    if slot.type is not None and not _is_a(found.value, slot.type):
        message = f"The prompt's {slot.name} must be of type {slot.type}."
        raise Problem("prompt_variable_type_mismatch", message, variable=slot.name)
    return found


def _is_a(value: Any, type: str) -> bool:
    return isinstance(value, _TYPES[type]) and (type == "boolean" or not isinstance(value, bool))


def _marked(text: str) -> str:
    inside = _MARK.sub(r"&lt;\1\2&gt;", text)
    return f"<UNTRUSTED>{inside}</UNTRUSTED>"


def _found(source: Mapping[str, Any], path: str) -> Any:
    value: Any = source
    for step in _steps(path) or ():
        if isinstance(step, int):
            value = value[step] if isinstance(value, list | tuple) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _steps(path: str) -> list[str | int] | None:
    """Return a path's steps; None when it is not a path."""
    rest, found = path.removeprefix("$"), list[str | int]()
    while rest:
        match = _STEP.match(rest)
        if match is None or (not found and path.startswith("$") and not rest.startswith((".", "["))):
            return None
        found.append(match[1] if match[1] is not None else int(match[2]))
        rest = rest[match.end() :]
    return found or None


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical.encode(value).decode()


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _invalid(message: str, at: str) -> Problem:
    return Problem("prompt_template_invalid", f"{message} (at {at})", at=at)
