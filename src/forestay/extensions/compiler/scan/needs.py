"""Where a file needs a capability (Pi §2B.2): calls of modules, of the network, and of the extension API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec
from tree_sitter import Node

from forestay.extensions.api_table import NODE_METHODS, NODE_MODULES, PI_FS, PI_MEMBERS
from forestay.extensions.capabilities import derive
from forestay.extensions.compiler.artifact import Location
from forestay.extensions.compiler.scan.constants import Value
from forestay.extensions.compiler.scan.reach import Reach
from forestay.extensions.compiler.scan.syntax import File, call_arguments, text_of
from forestay.extensions.compiler.scan.values import Values

NETWORK = frozenset({"fetch", "XMLHttpRequest", "WebSocket", "EventSource"})
_WORDS = sorted({*PI_MEMBERS, *PI_FS, "ui", "sessionManager", "env", "tool"})
_MEMBERS = re.compile(rb"\b(?:" + "|".join(_WORDS).encode() + rb")\b")


class Use(msgspec.Struct, frozen=True):
    """One place that needs a capability; `literal` is its path, host or variable when the text tells it."""

    capability: str
    method: str
    kind: str
    value: str
    location: Location
    literal: str | None = None


def needs(file: File, values: Values, reach: Reach) -> list[Use]:
    """Every place of a file that needs a capability."""
    return _Reader(file, values, reach).all()


class _Reader:
    def __init__(self, file: File, values: Values, reach: Reach) -> None:
        self.file = file
        self.values = values
        self.reach = reach
        self.uses: list[Use] = []
        self.api_names = _api_names(file)

    def all(self) -> list[Use]:
        for node in self.file.nodes("imported"):
            self._import(node)
        for node in self.reach.calls.values():
            self._call(node)
        for node in self.reach.members(_MEMBERS):
            self._member(node)
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
                for value in self.values.imported(statement, text_of(local)):
                    self._api(value, "import", specifier, None)

    def _call(self, node: Node) -> None:
        callee = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        if callee is None:
            return
        arguments = call_arguments(node)
        first = arguments[0] if arguments else None
        for value in self.values.of(callee):
            self._api(value, "call", node, first)
            if value[0] == "global" and len(value) == 2 and value[1] in NETWORK:
                host = self._host(first)
                self._add("http", "http", "literal_url" if host else "global", host or value[1], node, host)
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

    def _tool(self, callee: Node) -> None:
        """`pi.tool("read", …)`."""
        call = callee.parent
        if call is None or call.child_by_field_name("function") != callee:
            return
        if self._is_pi(callee.child_by_field_name("object")):
            given = call_arguments(call)
            name = self.values.string(given[0] if given else None)
            self._add(derive("tool", {"name": name}), "tool", "pi_call", f"pi.tool({name or '…'})", call)

    def _member(self, node: Node) -> None:
        prop, target = node.child_by_field_name("property"), node.child_by_field_name("object")
        if prop is None or target is None:
            return
        name = text_of(prop)
        if name == "tool":
            self._tool(node)
        elif name in PI_MEMBERS and self._is_pi(target):
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
    for node in file.nodes("parameters") if b"ExtensionAPI" in file.text else ():
        for parameter in node.named_children:
            annotation = parameter.child_by_field_name("type")
            pattern = parameter.child_by_field_name("pattern")
            if annotation is not None and pattern is not None and "ExtensionAPI" in text_of(annotation):
                names.add(text_of(pattern))
    for statement in file.nodes("export"):
        exported = statement.child_by_field_name("value") or statement.child_by_field_name("declaration") or statement
        given = exported.child_by_field_name("parameters") or exported.child_by_field_name("parameter")
        if given is not None and given.named_children and b"default" in (statement.text or b"")[:40]:
            pattern = given.named_children[0].child_by_field_name("pattern") or given.named_children[0]
            names.add(text_of(pattern))
    return frozenset(names)
