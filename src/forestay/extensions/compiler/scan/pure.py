"""Whether a file takes only the harmless part of a forbidden module.

The table of Pi §2A.4 names `net` for its raw sockets. `net.isIP` and its kin compute on a text and open nothing. A file
whose every mention of the module is one of those members uses no socket; anything else (another member, the module
handed on, re-exported, or read by a computed name) is the forbidden use that it was.
"""

from __future__ import annotations

import re

from tree_sitter import Node

from forestay.extensions.compiler.scan.syntax import File, text_of

# Module to members that only compute.
PURE_MEMBERS = {"net": frozenset({"isIP", "isIPv4", "isIPv6", "BlockList", "SocketAddress"})}

_NAMES = '((identifier) @name (#eq? @name "{0}")) ((shorthand_property_identifier) @name (#eq? @name "{0}"))'


def is_pure(file: File, source: Node, module: str) -> bool:
    """Whether what the import, `require` or `import()` of the name at `source` brings is used for computing only."""
    members = PURE_MEMBERS.get(module)
    if members is None:
        return False
    outer = source.parent
    if outer is not None and outer.type == "import_statement":
        return _is_pure_import(file, outer, members)
    call = outer.parent if outer is not None and outer.type == "arguments" else None
    return call is not None and call.type == "call_expression" and _is_pure_value(file, call, members)


def _is_pure_import(file: File, statement: Node, members: frozenset[str]) -> bool:
    clause = next((child for child in statement.named_children if child.type == "import_clause"), None)
    if clause is None:
        return False
    for child in clause.named_children:
        if child.type == "named_imports":
            taken = [item for item in child.named_children if not any(part.type == "type" for part in item.children)]
            names = [item.child_by_field_name("name") for item in taken]
            if not names or any(name is None or text_of(name) not in members for name in names):
                return False
        else:
            local = child.named_children[0] if child.type == "namespace_import" else child
            if local.type != "identifier" or not _is_read_purely(file, local, members):
                return False
    return True


def _is_pure_value(file: File, value: Node, members: frozenset[str]) -> bool:
    """`require("net").isIP`, `const { isIP } = require("net")`, `const net = require("net")` with pure reads."""
    outer = value.parent
    while outer is not None and outer.type in ("await_expression", "parenthesized_expression"):
        value, outer = outer, outer.parent
    if outer is None:
        return False
    if outer.type == "member_expression":
        return _is_pure_member(outer, value, members)
    if outer.type != "variable_declarator":
        return False
    name = outer.child_by_field_name("name")
    if name is not None and name.type == "identifier":
        return _is_read_purely(file, name, members)
    if name is None or name.type != "object_pattern":
        return False
    keys = [child.child_by_field_name("key") or child for child in name.named_children]
    return bool(keys) and all(text_of(key) in members for key in keys)


def _is_read_purely(file: File, local: Node, members: frozenset[str]) -> bool:
    """Whether it is read at all, and nothing of it but `members`."""
    declared, reads = file.declaration(local), 0
    if not re.fullmatch(r"[\w$]+", text_of(local)):
        return False  # a name that a query cannot hold is not looked for
    for _, node in file.find(_NAMES.format(text_of(local))):
        if node.id == local.id:
            continue
        found = file.declaration(node)
        if found is None or declared is None or found.id != declared.id:
            continue
        outer = node.parent
        if outer is None or not (outer.type == "nested_type_identifier" or _is_pure_member(outer, node, members)):
            return False
        reads += 1
    return reads > 0


def _is_pure_member(member: Node, target: Node, members: frozenset[str]) -> bool:
    owner, prop = member.child_by_field_name("object"), member.child_by_field_name("property")
    is_read = member.type == "member_expression" and owner is not None and owner.id == target.id
    return is_read and prop is not None and text_of(prop) in members
