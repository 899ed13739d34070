"""The project's own node types: Python files and WASM packs, which the configuration names in `workflows.nodes`.

F1  A file runs only when a person trusts its current content: a `forestay.toml` from somebody else runs nothing.
F2  A host does not open when a file that it names is missing or untrusted: runs would fail because a type is not
    loaded.
F3  The types that a file declares can be listed without executing it.
"""

from __future__ import annotations

import ast
import asyncio
import sys
import types
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from forestay.extensions import Places, Trust
from forestay.governance import UNBOUND_DEPLOYMENT
from forestay.host.agent_node import UNBOUND
from forestay.host.node_packs import NodePack, is_pack, load_pack, read_pack
from forestay.kernel import Clock, Ledger, Problem
from forestay.runs import NodeRegistry, NodeType, declaring, standard_registry

TRUST = "forestay workflow trust"
_PLACES = Places((), mark="nodes:", trusted_by=TRUST)


def trust_in_nodes(ledger: Ledger, root: Path, paths: Sequence[str]) -> Trust:
    """Return what people decided about the project's node files."""
    for name in paths:
        _source(root, name)
    return Trust(ledger, paths, _PLACES)


class LoadedNodes(msgspec.Struct, frozen=True):
    """The node types of a project, and the packs that some of them come from."""

    types: list[NodeType] = []
    packs: tuple[str, ...] = ()


async def load_nodes(
    ledger: Ledger, root: Path, paths: Sequence[str], clock: Clock, *, cap: int, data: Path | None
) -> LoadedNodes:
    """Load the types of the files and of the packs (F1, F2); a pack may use `cap` bytes of memory."""
    if not paths:
        return LoadedNodes()
    sources = [(name, _source(root, name)) for name in paths]
    standing = await trust_in_nodes(ledger, root, paths).standing(root)
    if standing.state != "trusted":
        named = ", ".join(paths)
        why = "changed since it was trusted" if standing.state == "changed" else "is not trusted yet"
        raise Problem(
            "folder_untrusted",
            f"This project has its own node types (Python files run with your rights), and {named} {why}.",
            files=list(paths),
            fix=f"Look at the code, then run `{TRUST}`, or start with `forestay up --trust`.",
        )
    types: list[NodeType] = []
    packs: list[str] = []
    for name, source in sources:
        if isinstance(source, NodePack):
            types += await asyncio.to_thread(partial(load_pack, source, clock, cap=cap, data=data))
            packs.append(source.manifest.name)
        else:
            types += _executed(name, root / name, source)
    return LoadedNodes(types, tuple(packs))


def types_to_check(root: Path, paths: Sequence[str]) -> NodeRegistry:
    """Return every type that a host of this project has, for `workflow check`; none can be executed (F3)."""
    registry = standard_registry(custom=False)
    registry.add(UNBOUND)
    registry.add(UNBOUND_DEPLOYMENT)
    for name in paths:
        source = _source(root, name)
        for type_id in source.type_ids if isinstance(source, NodePack) else _declared(name, source):
            registry.add(NodeType(type_id=type_id, execute=UNBOUND.execute))
    return registry


def _source(root: Path, name: str) -> str | NodePack:
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()) or path.is_symlink():
        raise _invalid(name, "lies outside the project.", "Copy it into the project's folder.")
    if is_pack(path):
        return read_pack(path)
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _invalid(name, f"cannot be read: {reason}.", "Correct workflows.nodes in forestay.toml.") from error


def _executed(name: str, path: Path, source: str) -> list[NodeType]:
    """Execute the text that was hashed, never a cached bytecode of it, which nobody looked at."""
    module = types.ModuleType(f"forestay_nodes.{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # typed data in the file looks up its own module
    try:
        with declaring() as found:
            exec(compile(source, str(path), "exec"), vars(module))  # noqa: S102 - a person trusts it (F1)
    except Exception as error:  # another author's module, which may raise anything
        raise _invalid(name, f"raised {type(error).__name__}: {error}", "Correct the file.") from error
    return found


def _declared(name: str, source: str) -> Iterator[str]:
    """Yield the names in `@node("…")` that are written as literals."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise _invalid(name, f"is not Python: {error.msg} (line {error.lineno}).", "Correct the file.") from error
    for item in ast.walk(tree):
        for decorator in getattr(item, "decorator_list", ()):
            if isinstance(decorator, ast.Call) and _is_node(decorator.func) and decorator.args:
                first = decorator.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value


def _is_node(called: Any) -> bool:
    return getattr(called, "id", getattr(called, "attr", None)) == "node"


def _invalid(name: str, what: str, fix: str) -> Problem:
    return Problem("config_invalid", f"The node file {name} {what}", at="workflows.nodes", fix=fix)
