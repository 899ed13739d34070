"""Node packs of a project: folders with a `pack.json` and a WASM module (OpenWOP RFC 0008), named in `workflows.nodes`.

B1  A pack is loaded when a person trusts its current content, like a file of node types. Its module and its manifest
    name the same pack and types.
B2  The answer to a question starts the invocation again. What the module writes counts when the invocation completes.
B3  The time stands still during an invocation. Randomness comes from the run, the node and the attempt (§G).
B4  A pack that needs more of the platform than its sandbox has is not loaded; the problem names what it needs
    (RFC 0076).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from forestay import extensions
from forestay.kernel import Clock, Problem, canonical
from forestay.runs import Execution, NodeError, NodeType

MANIFEST = "pack.json"
MAX_SECONDS, PAGE, MAX_QUESTIONS = 30.0, 65_536, 100
_LEVELS = ("debug", "debug", "info", "warn", "error")


class _Wasm(msgspec.Struct, frozen=True, rename="camel"):
    memory_pages_max: int | None = None


class _Runtime(msgspec.Struct, frozen=True):
    language: str
    entry: str = ""
    wasm: _Wasm = _Wasm()


class _Node(msgspec.Struct, frozen=True, rename="camel"):
    type_id: str
    label: str = ""
    description: str = ""
    required_model_capabilities: tuple[str, ...] = ()


class PackManifest(msgspec.Struct, frozen=True):
    """The part of a pack's manifest that the host reads."""

    name: str
    version: str
    runtime: _Runtime
    nodes: tuple[_Node, ...] = ()


class NodePack(msgspec.Struct, frozen=True):
    """A pack in the project's folder, read but not loaded."""

    folder: Path
    manifest: PackManifest
    module: bytes

    @property
    def type_ids(self) -> list[str]:
        return [item.type_id for item in self.manifest.nodes]


def is_pack(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def read_pack(folder: Path) -> NodePack:
    """Read the pack in a folder; raise a Problem when this host cannot load it."""
    try:
        document = canonical.decode((folder / MANIFEST).read_bytes())
        manifest = msgspec.convert(document, PackManifest)
        entry = folder / manifest.runtime.entry
        if not entry.resolve().is_relative_to(folder.resolve()):
            raise _invalid(folder, "has a module that lies outside of it.")
        module = entry.read_bytes()
    except (OSError, msgspec.ValidationError) as error:
        raise _invalid(folder, f"cannot be read: {error}.") from error
    if manifest.runtime.language != "wasm" or not manifest.nodes:
        raise _invalid(folder, "is not a pack of WASM nodes, the only kind that runs here.")
    extensions.check_requirements(document)
    return NodePack(folder, manifest, module)


def load_pack(pack: NodePack, clock: Clock, *, cap: int, data: Path | None) -> list[NodeType]:
    """Return the types of a trusted pack (B1). It compiles the module: call it on a thread."""
    manifest = pack.manifest
    pages = manifest.runtime.wasm.memory_pages_max
    memory = min(cap, pages * PAGE) if pages else cap
    try:
        module = extensions.PackModule(pack.module, memory=memory, seconds=MAX_SECONDS, kept=extensions.kept_code(data))
        offered = module.offered()
    except (extensions.Broken, extensions.Breach) as error:
        raise _invalid(pack.folder, f"cannot be used: {error}") from error
    if offered.pack != manifest.name or not set(pack.type_ids) <= set(offered.nodes):
        raise _invalid(pack.folder, "has a module that does not match its manifest.")
    return [
        NodeType(
            type_id=item.type_id,
            execute=_executing(module, offered.nodes.index(item.type_id), clock),
            summary=item.description or item.label,
            model_capabilities=item.required_model_capabilities,
        )
        for item in manifest.nodes
    ]


def _executing(
    module: extensions.PackModule, index: int, clock: Clock
) -> Callable[[Execution], Awaitable[dict[str, Any]]]:
    async def execute(ctx: Execution) -> dict[str, Any]:
        now: int = await ctx.effect("now", clock.now_ms)
        answers: list[Any] = []
        while True:
            host = _NodeHost(ctx, now, answers)
            try:
                response = _read(await asyncio.to_thread(module.invoke, index, _request(ctx, answers), host))
            except extensions.Unanswered as asked:
                response = {"outcome": "suspended", "interrupt": asked.payload}
            except extensions.Breach as breach:
                ctx.emit("cap.breached", {"kind": breach.kind, "limit": breach.limit, "observed": breach.observed})
                told = f"The node exceeded its limit ({breach.kind}): {breach.limit}."
                raise NodeError("capability_limit_exceeded", told, retryable=False) from breach
            except extensions.Broken as error:
                raise NodeError("wasm_trapped", str(error), retryable=False) from error
            if response.get("outcome") != "suspended":
                return _ended(response, host)
            answers.append(await _interrupted(ctx, response.get("interrupt"), len(answers)))  # B2

    return execute


async def _interrupted(ctx: Execution, payload: Any, number: int) -> Any:
    asked = payload if isinstance(payload, dict) else {}
    if number >= MAX_QUESTIONS:
        raise NodeError("wasm_questions", f"The node asked more than {MAX_QUESTIONS} questions.", retryable=False)
    kind, data = str(asked.get("kind", "custom")), asked.get("data", asked)
    return await ctx.interrupt(kind, data, key=f"wasm:{number}", resume_schema=asked.get("resumeSchema"))


def _ended(response: dict[str, Any], host: _NodeHost) -> dict[str, Any]:
    if response.get("outcome") == "completed":
        host.settle()
        output = response.get("output")
        return output if isinstance(output, dict) else {"output": output}
    error = response.get("error")
    known = error if isinstance(error, dict) else {}
    details = known.get("details") if isinstance(known.get("details"), dict) else None
    code, message = str(known.get("code", "wasm_failed"))[:80], str(known.get("message", "The node failed."))[:2000]
    raise NodeError(code, message, details=details)


def _request(ctx: Execution, answers: list[Any]) -> bytes:
    """Build the request (§D). The workflow's variables are inputs too, unless the node has an input of that name."""
    about = {
        "runId": ctx.run_id,
        "nodeId": ctx.node_id,
        "tenantId": ctx.tenant,
        "attempt": ctx.attempt,
        "configurable": ctx.configurable,
        "agent": ctx.agent,
        **({"resumeValue": answers[-1]} if answers else {}),
    }
    inputs = {**ctx.variables, **ctx.config, **ctx.inputs}
    return canonical.encode({"abiVersion": 1, "nodeContext": about, "inputs": inputs})


def _read(response: bytes) -> dict[str, Any]:
    try:
        found = canonical.decode(response)
    except Problem as problem:
        raise NodeError(
            "wasm_response", f"The node's response is not JSON: {problem.message}", retryable=False
        ) from None
    if not isinstance(found, dict) or found.get("outcome") not in ("completed", "suspended", "failed"):
        raise NodeError("wasm_response", "The node's response has no `outcome` that the ABI knows.", retryable=False)
    return found


class _NodeHost:
    """The host's side of one invocation. It holds writes back until the invocation completes (B2)."""

    def __init__(self, ctx: Execution, now: int, answers: list[Any]) -> None:
        self._ctx = ctx
        self._now = now
        self._answers = list(answers)
        self._written: dict[tuple[bool, str], Any] = {}
        self._logged: list[tuple[str, str]] = []
        self._seed = f"{ctx.run_id}\0{ctx.node_id}\0{ctx.attempt}".encode()
        self._drawn = 0

    def read(self, channel: bool, name: str) -> bytes | None:
        try:
            known = self._ctx.read_channel(name) if channel else self._ctx.variables.get(name)
        except Problem:
            return None
        value = self._written.get((channel, name), known)
        return None if value is None else canonical.encode(value)

    def write(self, channel: bool, name: str, value: bytes) -> int:
        try:
            self._written[channel, name] = canonical.decode(value)
        except Problem:
            return 10
        return 0

    def interrupt(self, payload: bytes) -> bytes:
        if not self._answers:
            raise extensions.Unanswered(_payload(payload))
        return canonical.encode(self._answers.pop(0))

    def log(self, level: int, text: str) -> None:
        if len(self._logged) < MAX_QUESTIONS:
            self._logged.append((_LEVELS[level] if 0 <= level < len(_LEVELS) else "info", text[:2000]))

    def now_ms(self) -> int:
        return self._now

    def random(self, count: int) -> bytes:
        """Return random bytes: the hashes of the seed and a counter (B3)."""
        made = bytearray()
        while len(made) < count:
            made += hashlib.sha256(self._seed + self._drawn.to_bytes(8, "big")).digest()
            self._drawn += 1
        return bytes(made[:count])

    def settle(self) -> None:
        """Hand the writes and log lines to the run."""
        for (channel, name), value in self._written.items():
            (self._ctx.write_channel if channel else self._ctx.set_variable)(name, value)
        for level, text in self._logged:
            self._ctx.log(level, text)


def _payload(payload: bytes) -> Any:
    try:
        return canonical.decode(payload)
    except Problem:
        return {}


def _invalid(folder: Path, what: str) -> Problem:
    fix = "Correct workflows.nodes in forestay.toml, or build the pack again."
    return Problem("config_invalid", f"The node pack {folder.name} {what}", at="workflows.nodes", fix=fix)
