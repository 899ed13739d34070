"""Feature detection: code that asks whether something is there, and goes on without it.

1. `p.binding && p.binding("x")`: a member is only used where the very same member was found to be true.
2. `try { require("x") } catch {}`: a module is asked for where its absence is caught.

Neither can succeed in the sandbox, which has no such member and no such module. A function around the use ends the
guard, because nobody knows when it is called. Who may rely on this is decided elsewhere.
"""

from __future__ import annotations

from tree_sitter import Node

from forestay.extensions.compiler.scan.syntax import text_of

_BOUNDARIES = frozenset(
    """
    function_declaration function_expression arrow_function method_definition generator_function
    generator_function_declaration class_body class_static_block program
    """.split()
)
_CONDITIONAL = ("if_statement", "ternary_expression")


def is_tested(node: Node) -> bool:
    """Whether a member (or the call of one) stands only behind, or as, a test of the very same member."""
    member = node.child_by_field_name("function") if node.type == "call_expression" else node
    if member is None or member.type not in ("member_expression", "subscript_expression"):
        return False
    if member is node and _is_condition(node):
        return True
    wanted, inner, outer = _plain(member), node, node.parent
    while outer is not None and outer.type not in _BOUNDARIES:
        then, asked = ("right", "left") if _is_and(outer) else ("consequence", "condition")
        is_behind = (_is_and(outer) or outer.type in _CONDITIONAL) and _same(outer.child_by_field_name(then), inner)
        if is_behind and wanted in _truths(outer.child_by_field_name(asked)):
            return True
        inner, outer = outer, outer.parent
    return False


def is_caught(node: Node) -> bool:
    """Whether the load of a module stands in a `try` block with a `catch`; an `import()` must be awaited there."""
    call = node
    while call.type != "call_expression" and call.parent is not None:
        call = call.parent
    callee = call.child_by_field_name("function")
    if callee is not None and callee.type == "import":
        waiting = call.parent
        if waiting is None or waiting.type != "await_expression":
            return False
    inner, outer = call, call.parent
    while outer is not None and outer.type not in _BOUNDARIES:
        if outer.type == "try_statement" and outer.child_by_field_name("handler") is not None:
            return _same(outer.child_by_field_name("body"), inner)
        inner, outer = outer, outer.parent
    return False


def _is_condition(node: Node) -> bool:
    """Whether only the truth of a value counts: the left of `&&`, a condition, behind `!` or `typeof`."""
    inner, outer = node, node.parent
    while outer is not None:
        if _is_and(outer):
            if _same(outer.child_by_field_name("left"), inner):
                return True
        elif outer.type == "unary_expression":
            operator = outer.child_by_field_name("operator")
            return operator is not None and operator.type in ("!", "typeof")
        elif outer.type in _CONDITIONAL:
            return _same(outer.child_by_field_name("condition"), inner)
        elif outer.type != "parenthesized_expression":
            return False
        inner, outer = outer, outer.parent
    return False


def _truths(node: Node | None) -> set[str]:
    """What is true when `node` is: every part of a conjunction, and what a `typeof … === "function"` asks about."""
    if node is None:
        return set()
    if node.type == "parenthesized_expression":
        return _truths(node.named_children[0] if node.named_children else None)
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if _is_and(node):
        return _truths(left) | _truths(right)
    if node.type == "binary_expression" and left is not None and right is not None:
        asked = left.child_by_field_name("argument") if left.type == "unary_expression" else None
        is_function = text_of(right).strip("'\"`") == "function" and text_of(left).startswith("typeof")
        return {_plain(asked)} if asked is not None and is_function and _operator(node) in ("==", "===") else set()
    return {_plain(node)}


def _is_and(node: Node) -> bool:
    return node.type == "binary_expression" and _operator(node) == "&&"


def _operator(node: Node) -> str:
    operator = node.child_by_field_name("operator")
    return operator.type if operator is not None else ""


def _same(one: Node | None, other: Node) -> bool:
    return one is not None and one.id == other.id


def _plain(node: Node) -> str:
    return "".join(text_of(node).split())
