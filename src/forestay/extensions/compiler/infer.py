"""Which capabilities an extension appears to need (`pi.ext.infer.v1`, Pi §2B.2), with evidence.

1. The same sources give the same answer in the same order, on every machine.
2. Conservative: a use that cannot be told apart counts; nothing seen is left out.
3. A scope is only ever taken from literals; one use with a dynamic value leaves its capability without scope.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec
from tree_sitter import Node

from forestay.extensions.api_table import NODE_METHODS, NODE_MODULES, PACKAGE_HINTS, PI_FS, PI_MEMBERS
from forestay.extensions.capabilities import derive
from forestay.extensions.compiler.artifact import Evidence, Location
from forestay.extensions.compiler.bundle import Input
from forestay.extensions.compiler.scan.syntax import Dialect, File, call_arguments, text_of
from forestay.extensions.compiler.scan.values import Value, Values
from forestay.extensions.manifest import CAP_SCHEMA, CapabilityManifest, Requirement, Scope
from forestay.kernel import canonical, redact_text

SCHEMA = "pi.ext.infer.v1"
_SEEDS = re.compile(
    rb"\b(?:fs|fs/promises|os|child_process|https?|http2|dns|undici|sqlite|fetch|process|XMLHttpRequest|WebSocket|EventSource|"
    rb"pi|ui|exec|tool|sessionManager|ExtensionAPI|registerProvider|http)\b"
)
_NODES = """
(call_expression) @call
(new_expression) @call
(member_expression) @member
(import_statement) @import
"""
_NETWORK = frozenset({"fetch", "XMLHttpRequest", "WebSocket", "EventSource"})


class Use(msgspec.Struct, frozen=True):
    """One place that needs a capability; `literal` is its path, host or variable when the text tells it."""

    capability: str
    method: str
    kind: str
    value: str
    location: Location
    literal: str | None = None


class Inference(msgspec.Struct, frozen=True):
    """What was inferred: requirements in stable order, and why."""

    requirements: tuple[Requirement, ...]
    evidence: tuple[Evidence, ...]

    @property
    def capabilities(self) -> tuple[str, ...]:
        return tuple(sorted({need.capability for need in self.requirements}))

    def manifest(self) -> CapabilityManifest:
        return CapabilityManifest(CAP_SCHEMA, self.requirements)


def infer(inputs: Iterable[Input], hints: Iterable[str] = ()) -> Inference:
    """Read every script that is part of the bundle; `hints` are packages whose source is not there."""
    uses: list[Use] = []
    for item in inputs:
        if item.loader in ("js", "jsx", "ts", "tsx") and item.bytes_in_output and _SEEDS.search(item.contents):
            uses += _Reader(File(item.name, item.contents, item.loader)).all()  # type: ignore[arg-type]
    for package in sorted(hints):
        if package in PACKAGE_HINTS:
            capability = PACKAGE_HINTS[package]
            uses.append(
                Use(capability, NODE_METHODS[capability], "config_hint", package, Location("package.json", 1, 1))
            )
    return _conclude(uses)


def infer_text(name: str, text: str, dialect: Dialect = "ts") -> Inference:
    """Inference over one text; for tests and for looking at a single file."""
    return _conclude(_Reader(File(name, text.encode(), dialect)).all())


def _conclude(uses: list[Use]) -> Inference:
    unique = sorted(set(uses), key=lambda u: (u.capability, u.method, u.kind, u.location, u.value))
    groups: dict[str, list[Use]] = {}
    for use in unique:
        groups.setdefault(use.capability, []).append(use)
    requirements = tuple(
        Requirement(name, tuple(sorted({use.method for use in found})), _scope(name, found))
        for name, found in sorted(groups.items())
    )
    evidence = tuple(
        Evidence(u.capability, u.kind, u.method, canonical.digest(u.value), redact_text(u.value)[:80], u.location)
        for u in unique
    )
    return Inference(requirements, evidence)


def _scope(capability: str, uses: list[Use]) -> Scope | None:
    counted = [use for use in uses if use.kind != "import"] or uses
    if any(use.literal is None for use in counted):
        return None
    values = tuple(sorted({use.literal for use in counted if use.literal is not None}))
    if capability in ("read", "write"):
        return Scope(paths=values)
    if capability == "http":
        return Scope(hosts=values)
    return Scope(env=values) if capability == "env" else None


class _Reader:
    def __init__(self, file: File) -> None:
        self.file = file
        self.values = Values(file)
        self.uses: list[Use] = []
        self.api_names = _api_names(file)

    def all(self) -> list[Use]:
        for kind, node in self.file.find(_NODES):
            if kind == "call":
                self._call(node)
            elif kind == "member":
                self._member(node)
            else:
                self._import(node)
        return self.uses

    def _add(self, capability: str, method: str, kind: str, value: str, node: Node, literal: str | None = None) -> None:
        self.uses.append(Use(capability, method, kind, value, self.file.location(node), literal))

    def _import(self, statement: Node) -> None:
        """A named import of an API needs its capability even where its calls cannot be followed."""
        if any(child.type == "type" for child in statement.children):
            return
        clause = next((child for child in statement.named_children if child.type == "import_clause"), None)
        for child in clause.named_children if clause is not None else ():
            for specifier in child.named_children if child.type == "named_imports" else ():
                name = specifier.child_by_field_name("name")
                local = specifier.child_by_field_name("alias") or name
                if name is None or local is None or any(part.type == "type" for part in specifier.children):
                    continue
                for value in self.values._imported(statement, text_of(local)):
                    self._api(value, "import", specifier, None)

    def _call(self, node: Node) -> None:
        callee = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        if callee is None:
            return
        arguments = call_arguments(node)
        first = arguments[0] if arguments else None
        for value in self.values.of(callee):
            self._api(value, "call", node, first)
            if value[0] == "global" and len(value) == 2 and value[1] in _NETWORK:
                host = self._host(first)
                self._add("http", "http", "literal_url" if host else "global", host or value[1], node, host)
        self._tool(callee, first, node)
        for argument in arguments:
            self._handed_on(argument)

    def _handed_on(self, argument: Node) -> None:
        """A whole module given to somebody: all that it can do counts."""
        if argument.type != "identifier":
            return
        for value in self.values.of(argument):
            if value[0] == "module" and len(value) == 2:
                for capability in _members_of(value[1]).get("*", ()):
                    self._add(capability, NODE_METHODS[capability], "call", value[1], argument)

    def _api(self, value: Value, kind: str, node: Node, first: Node | None) -> None:
        if value[0] != "module":
            return
        module, members, table = value[1], value[2:], _members_of(value[1])
        if members[:1] == ("promises",):
            module, members = "fs/promises", members[1:]
        if not members or not table:
            return
        for capability in table.get(members[0], table["*"]):
            literal = None
            if kind == "call":
                literal = self._path(first) if capability in ("read", "write") else None
                literal = self._host(first) if capability == "http" else literal
            label = {"read": "literal_path", "write": "literal_path", "http": "literal_url"}.get(capability, kind)
            shown = literal if literal is not None else f"{module}.{members[0]}"
            self._add(
                capability, NODE_METHODS[capability], label if literal is not None else kind, shown, node, literal
            )

    def _tool(self, callee: Node, first: Node | None, node: Node) -> None:
        """`pi.tool("read", …)`."""
        if callee.type != "member_expression" or not self._is_pi(callee.child_by_field_name("object")):
            return
        prop = callee.child_by_field_name("property")
        if prop is None or text_of(prop) != "tool":
            return
        name = self.values.string(first)
        capability = derive("tool", {"name": name})
        self._add(capability, "tool", "pi_call", f"pi.tool({name or '…'})", node)

    def _member(self, node: Node) -> None:
        prop, target = node.child_by_field_name("property"), node.child_by_field_name("object")
        if prop is None or target is None:
            return
        name = text_of(prop)
        if name in PI_MEMBERS and self._is_pi(target):
            capability, method = PI_MEMBERS[name]
            self._add(capability, method, "pi_call", f"pi.{name}", node)
        elif name in PI_FS and target.type == "member_expression" and text_of(target).endswith(".fs"):
            if self._is_pi(target.child_by_field_name("object")):
                self._add(PI_FS[name], "fs", "pi_call", f"pi.fs.{name}", node)
        elif name in ("ui", "sessionManager"):
            capability = "ui" if name == "ui" else "session"
            self._add(capability, capability, "pi_call", f"ctx.{name}", node)
        elif name == "env" and ("global", "process", "env") in self.values.of(node):
            self._environment(node)

    def _environment(self, node: Node) -> None:
        parent = node.parent
        literal: str | None = None
        if parent is not None and parent.child_by_field_name("object") == node:
            prop = parent.child_by_field_name("property")
            literal = text_of(prop) if prop is not None else self.values.string(parent.child_by_field_name("index"))
        self._add("env", "env", "literal_env" if literal else "global", literal or "process.env", node, literal)

    def _is_pi(self, node: Node | None) -> bool:
        """The extension API: the factory's parameter, or whatever is called `pi`."""
        if node is None:
            return False
        if node.type == "identifier":
            return text_of(node) in self.api_names
        if node.type == "member_expression":
            prop = node.child_by_field_name("property")
            return prop is not None and text_of(prop) in ("pi", "#pi", "_pi")
        return False

    def _path(self, node: Node | None) -> str | None:
        """A constant relative path inside the project, in normal form."""
        text = self.values.string(node)
        if not text or text.startswith(("/", "~", "\\")) or re.match(r"[A-Za-z]:|\w+://", text) or "\\" in text:
            return None
        parts = [part for part in text.split("/") if part not in ("", ".")]
        return "/".join(parts) if parts and ".." not in parts else None

    def _host(self, node: Node | None) -> str | None:
        """The host of a URL whose text up to the path is constant."""
        text = self.values.string(node)
        if text is None and node is not None and node.type == "template_string" and node.named_children:
            head = node.named_children[0]
            text = text_of(head) if head.type == "string_fragment" else None
            if text is None or not re.match(r"[a-z]+://[^/?#]+[/?#]", text):
                return None
        if text is None or not re.match(r"(https?|wss?)://", text):
            return None
        try:
            return urlsplit(text).hostname
        except ValueError:
            return None


def _members_of(module: str) -> Mapping[str, tuple[str, ...]]:
    row = NODE_MODULES.get(module)
    return row.members if row is not None else {}


def _api_names(file: File) -> frozenset[str]:
    """Names under which this file holds the extension API."""
    names = {"pi"}
    for _, node in file.find("(formal_parameters) @parameters"):
        for parameter in node.named_children:
            annotation = parameter.child_by_field_name("type")
            pattern = parameter.child_by_field_name("pattern")
            if annotation is not None and pattern is not None and "ExtensionAPI" in text_of(annotation):
                names.add(text_of(pattern))
    for _, node in file.find("(export_statement value: (_) @value) (export_statement declaration: (_) @value)"):
        given = node.child_by_field_name("parameters") or node.child_by_field_name("parameter")
        if given is not None and given.named_children and "default" in text_of(node.parent or node)[:40]:
            pattern = given.named_children[0].child_by_field_name("pattern") or given.named_children[0]
            names.add(text_of(pattern))
    return frozenset(names)
