"""The project's extensions for a person: each one's registrations, permissions, history and trust.

L1  Reading executes nothing: an extension that is not loaded is described from the ledger and the folder.
L2  Everything shown is on disk: waiting evidence is written first.
L3  Grants are read from the current policy, so that the page and the next decision agree.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from forestay.extensions.api_table import CAPABILITIES
from forestay.extensions.evidence import stream_of
from forestay.extensions.grants import Grants, policy_of
from forestay.extensions.grants import Standing as Decided
from forestay.extensions.history import Seen, Trouble, Use, seen
from forestay.extensions.trust import Standing
from forestay.kernel import Clock, ExtensionConfig, Grant, Ledger, Policy, Problem, SubjectRules

if TYPE_CHECKING:
    from forestay.extensions.extensions import Extensions
    from forestay.extensions.guests import Member

MOST_RECORDS = 5_000
_STREAMS = "ext/"
_AGENT = "agent:"

State = Literal["loaded", "stopped", "failed", "not loaded", "gone"]


class Project(Protocol):
    """The extensions of one project folder, running or not."""

    root: Path
    ledger: Ledger
    clock: Clock
    settings: ExtensionConfig
    data: Path | None
    runs: str | None

    @property
    def opened(self) -> Extensions | None: ...

    async def standing(self) -> Standing: ...

    async def users(self) -> Standing: ...


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list."""

    name: str
    source: str
    state: State
    trust: str
    verdict: str = ""
    """The compiler's verdict on its code: compatible, warning, blocked."""
    resolution: str = ""
    """Policy's verdict on its needs at load time: accepted, needs_decision, refused."""
    tools: int = 0
    commands: int = 0
    handlers: int = 0
    calls: int = 0
    refused: int = 0
    trap: Trouble | None = None
    problem: str = ""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A current rule about one capability."""

    effect: Literal["allow", "deny", "downgrade"]
    scope: tuple[str, ...]
    methods: tuple[str, ...]
    source: str
    everybody: bool
    expires_ms: int | None
    expired: bool


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A capability: declared, inferred, granted, used."""

    capability: str
    meaning: str
    declared: bool
    declared_scope: tuple[str, ...]
    inferred: tuple[str, ...]
    """Where in the source the compiler found it: `file:line:column preview`."""
    is_inferred: bool
    rules: tuple[Rule, ...]
    use: Use

    @property
    def concerned(self) -> bool:
        return self.declared or self.is_inferred or bool(self.rules) or bool(self.use.allowed + self.use.refused)


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All extensions, and whether the suite runs."""

    loaded: bool
    trust: str
    brings: tuple[str, ...]
    mode: str
    cards: tuple[Card, ...]
    is_older: bool = False
    """Whether the host still runs an older content of the project folder."""


class Portrait(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one extension."""

    card: Card
    stream: str
    mode: str
    seen: Seen
    records: int
    cut: bool
    matrix: tuple[Line, ...]
    decisions: tuple[Decided, ...]
    registrations: dict[str, Any] | None
    artifact: dict[str, Any] | None
    now_ms: int


async def overview(project: Project) -> Overview:
    suite, standing = project.opened, await project.standing()
    if suite is not None:
        await suite.recorded()
    policy = await policy_in_force(project)
    trust = _Trust(standing.state, (await project.users()).state)
    cards = [await _card(project, suite, name, trust) for name in await _names(project, suite)]
    failures = [_failed(project, item.path, item.problem, trust) for item in (suite.failures if suite else ())]
    return Overview(
        loaded=suite is not None,
        trust=standing.state,
        brings=tuple(item.path for item in standing.brings),
        mode=policy.mode,
        cards=(*cards, *failures),
        is_older=project.runs not in (None, standing.digest),
    )


async def portrait(project: Project, name: str) -> Portrait:
    suite = project.opened
    member = _member(suite, name)
    if suite is not None:
        await suite.recorded()
    evidence, records = await _evidence(project, name)
    if member is None and not records:
        raise Problem("not_found", "There is no extension of this name, and no evidence of one.", extension=name)
    trust = _Trust((await project.standing()).state, (await project.users()).state)
    policy = await policy_in_force(project)
    rules = policy.subjects.get(name, SubjectRules())
    now = project.clock.now_ms()
    return Portrait(
        card=_drawn(project, name, member, evidence, trust),
        stream=stream_of(name),
        mode=rules.mode or policy.mode,
        seen=evidence,
        records=records,
        cut=records > MOST_RECORDS,
        matrix=tuple(_line(capability, member, evidence, policy, name, now) for capability in CAPABILITIES),
        decisions=tuple(await Grants(project.ledger, project.clock).standing(name)),
        registrations=member.extension.registrations.inspect() if member is not None else None,
        artifact=_artifact(member) if member is not None else None,
        now_ms=now,
    )


# Where things come from


async def _names(project: Project, suite: Extensions | None) -> list[str]:
    """Return the loaded extensions in their order, then those that only left evidence."""
    names = [member.extension.name for member in suite.members] if suite is not None else []
    for stream in await project.ledger.streams(_STREAMS, "", 1000):
        record = (await project.ledger.read(stream, 0, 1))[0]
        name = str(record.attrs.get("extension_id", stream.removeprefix(_STREAMS)))
        if name not in names and not name.startswith(_AGENT):
            names.append(name)
    return names


async def _evidence(project: Project, name: str) -> tuple[Seen, int]:
    """Return the history from the extension's latest records, and the number of all its records."""
    stream = stream_of(name)
    head = (await project.ledger.head(stream)).seq
    records = await project.ledger.read(stream, max(0, head + 1 - MOST_RECORDS), MOST_RECORDS)
    return seen(records), head + 1


async def policy_in_force(project: Project) -> Policy:
    """Return the current policy, or the policy that a suite opened now would have (L3)."""
    if project.opened is not None:
        return project.opened.dispatcher.authority.policy
    return await Grants(project.ledger, project.clock).apply(policy_of(project.settings, project.clock))


def _member(suite: Extensions | None, name: str) -> Member | None:
    return next((item for item in suite.members if item.extension.name == name), None) if suite is not None else None


# One line of the list


class _Trust(msgspec.Struct, frozen=True):
    """The trust of the project's folder and of the user's folder."""

    project: str
    user: str

    def of(self, project: Project, path: str) -> str:
        return self.user if _of_user(project, Path(path)) else self.project


def _of_user(project: Project, path: Path) -> bool:
    return path.is_relative_to(Path.home()) and not path.is_relative_to(project.root)


async def _card(project: Project, suite: Extensions | None, name: str, trust: _Trust) -> Card:
    evidence, _ = await _evidence(project, name)
    return _drawn(project, name, _member(suite, name), evidence, trust)


def _drawn(project: Project, name: str, member: Member | None, evidence: Seen, trust: _Trust) -> Card:
    uses = evidence.used.values()
    card = Card(
        name=name,
        source="",
        state="gone" if project.opened is not None else "not loaded",
        trust=trust.project,
        resolution=str((evidence.resolved or {}).get("verdict", "")),
        calls=sum(use.allowed + use.refused for use in uses),
        refused=sum(use.refused for use in uses),
        trap=evidence.troubles[0] if evidence.troubles else None,
    )
    if member is None:
        return card
    registered, stopped = member.extension.registrations, member.extension.stopped
    return msgspec.structs.replace(
        card,
        source=_shown_path(project, member.path),
        trust=trust.of(project, member.path),
        state="loaded" if stopped is None else "stopped",
        problem="" if stopped is None else stopped.message,
        verdict=member.artifact.meta.verdict,
        tools=len(registered.tools),
        commands=len(registered.commands),
        handlers=sum(registered.handlers.values()),
    )


def _failed(project: Project, path: str, problem: Problem, trust: _Trust) -> Card:
    stands = trust.of(project, path)
    return Card(name="", source=_shown_path(project, path), state="failed", trust=stands, problem=problem.message)


def _shown_path(project: Project, path: str) -> str:
    found = Path(path)
    if found.is_relative_to(project.root):
        return found.relative_to(project.root).as_posix()
    return f"~/{found.relative_to(Path.home()).as_posix()}" if _of_user(project, found) else found.name


# The matrix


def _line(capability: str, member: Member | None, evidence: Seen, policy: Policy, name: str, now: int) -> Line:
    resolved = evidence.resolved or {}
    needs = member.artifact.meta.manifest.declared() if member is not None else ()
    declared = [item for item in needs if item.capability == capability]
    places = [item for item in resolved.get("evidence", ()) if item.get("capability") == capability]
    return Line(
        capability=capability,
        meaning=CAPABILITIES[capability],
        declared=bool(declared) or capability in resolved.get("declared", ()),
        declared_scope=tuple(pattern for item in declared for pattern in _patterns(item.scope)),
        inferred=tuple(_place(item) for item in places[:20]),
        is_inferred=capability in resolved.get("inferred", ()),
        rules=_rules(capability, policy, name, now),
        use=evidence.used.get(capability, Use()),
    )


def _rules(capability: str, policy: Policy, name: str, now: int) -> tuple[Rule, ...]:
    own = policy.subjects.get(name, SubjectRules())
    found: list[Rule] = []
    for effect, everybody, grants in (
        ("deny", False, own.deny),
        ("deny", True, policy.denials),
        ("allow", False, own.allow),
        ("allow", True, policy.defaults),
    ):
        found += [
            _rule("deny" if effect == "deny" else grant.effect, everybody, grant, now)
            for grant in grants
            if grant.capability in (capability, "*")
        ]
    return tuple(dict.fromkeys(found))


def _rule(effect: Literal["allow", "deny", "downgrade"], everybody: bool, grant: Grant, now: int) -> Rule:
    return Rule(
        effect=effect,
        scope=grant.scope.patterns,
        methods=grant.methods,
        source=grant.source,
        everybody=everybody,
        expires_ms=grant.expires_ms,
        expired=not grant.covers_time(now),
    )


def _patterns(scope: Any) -> tuple[str, ...]:
    return () if scope is None else (*(scope.paths or ()), *(scope.hosts or ()), *(scope.env or ()))


def _place(item: dict[str, Any]) -> str:
    where = item.get("location")
    place = f"{where['file']}:{where['line']}:{where['column']} " if where else ""
    return f"{place}{item.get('preview', '')}".strip()


def _artifact(member: Member) -> dict[str, Any]:
    meta = member.artifact.meta
    return {
        "hash": meta.hash,
        "verdict": meta.verdict,
        "version": meta.manifest.version,
        "flagged": [(item.api, item.message, str(item.locations[0])) for item in meta.flagged_apis if item.locations],
        "warnings": list(meta.warnings),
    }
