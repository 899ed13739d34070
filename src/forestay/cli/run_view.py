"""The view of a run, folded from its events: nodes in the workflow's order, questions, words, the outcome."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from forestay.kernel import parse_iso

if TYPE_CHECKING:
    from forestay.runs import RunEvent

_OF_EVENT = {
    "node.started": "running",
    "node.completed": "completed",
    "node.failed": "failed",
    "node.skipped": "skipped",
    "node.cancelled": "cancelled",
    "node.suspended": "asks",
    "node.resumed": "running",
    "node.retried": "retrying",
    "forestay.timer.set": "sleeping",
    "forestay.timer.fired": "running",
}
ENDED = {"run.completed": "completed", "run.failed": "failed", "run.cancelled": "cancelled"}
OVER = frozenset({"completed", "failed", "skipped", "cancelled"})
_WORDS = 400


class Node:
    """One node of the view."""

    def __init__(self, id: str, name: str = "", type_id: str = "") -> None:
        self.id = id
        self.name = name if name.casefold() != id.casefold() else ""
        self.type_id = type_id
        self.state = "pending"
        self.began = self.ended = 0
        self.attempt = 1
        self.iteration = 0
        self.items = 0  # a map's finished items
        self.due = 0  # when it continues by itself
        self.note = ""

    def take(self, type: str, payload: dict[str, Any], now: int) -> None:
        self.state = _OF_EVENT[type]
        self.due = 0
        if type == "node.started":
            self.attempt = payload.get("attempt", 1)
            self.iteration = payload.get("iteration", 0)
            self.note = ""
            if self.attempt == 1:
                self.began = now
        elif type == "node.retried":
            self.due = now + payload.get("delayMs", 0)
            self.note = _error(payload.get("lastError"))
        elif type == "forestay.timer.set":
            self.due = payload.get("dueAt", 0)
        elif type == "node.failed":
            self.note = _error(payload.get("error"))
        elif type == "node.skipped":
            self.note = str(payload.get("reason", ""))
        self.began = self.began or now
        self.ended = now if self.state in OVER else 0


class View:
    """A run as far as its events tell."""

    def __init__(self, run_id: str, standing: dict[str, Any], workflow: dict[str, Any] | None = None) -> None:
        self.run_id = run_id
        self.workflow = standing["workflowId"]
        self.status = standing["status"]
        self.parent = standing.get("parentRunId")
        self.nodes: dict[str, Node] = {}
        for item in (workflow or {}).get("nodes", ()):
            self.nodes[item["id"]] = Node(item["id"], item.get("name", ""), item.get("typeId", ""))
        self.recent: deque[str] = deque(maxlen=5)
        self.asked: dict[str, dict[str, Any]] = {}
        self.children: dict[str, tuple[str, str]] = {}
        self.words: tuple[str, str] | None = None
        self.away = False  # the host does not answer at the moment
        self.began = self.now = 0
        self.error = ""
        self.outputs: Any = None

    @property
    def over(self) -> bool:
        return self.status in ENDED.values()

    def lose(self, away: bool) -> None:
        """Note that the host went away, or is back."""
        self.away = away

    def take(self, event: RunEvent) -> None:
        """Apply one event to the view."""
        type, payload = event.type, event.payload if isinstance(event.payload, dict) else {}
        self.now = parse_iso(event.timestamp)
        self.began = self.began or self.now
        name = event.node_id or payload.get("nodeId")
        if name and type in _OF_EVENT:
            self.nodes.setdefault(name, Node(name)).take(type, payload, self.now)
            if type == "node.suspended":
                self.asked[name] = {"kind": payload.get("kind", "")}
            elif type != "node.started":
                self.asked.pop(name, None)
        self._more(type, payload, name)
        self._stand(type, payload)
        self.recent.append(f"{event.sequence:>5}  {type}" + (f"  {name}" if name else ""))

    def _more(self, type: str, payload: dict[str, Any], name: str | None) -> None:
        if type == "interrupt.requested" and name in self.asked and isinstance(payload.get("data"), dict):
            self.asked[name].update(payload["data"])
        elif type == "forestay.effect.recorded" and name and str(payload.get("key", "")).startswith("item:"):
            self.nodes.setdefault(name, Node(name)).items += 1
        elif type == "node.dispatched" and name:
            child = str(payload.get("childRunId", ""))
            self.children[child] = (name, str(payload.get("childStatus", "running")))
        elif type in ("output.chunk", "agent.reasoning.delta") and name:
            said = str(payload.get("chunk") or payload.get("delta") or "")
            before = self.words[1] if self.words is not None and self.words[0] == name else ""
            self.words = (name, (before + said)[-_WORDS:])

    def _stand(self, type: str, payload: dict[str, Any]) -> None:
        if type in ENDED:
            self.status = ENDED[type]
            self.error = _error(payload.get("error"))
            self.outputs = payload.get("outputs")
            self.asked.clear()
        elif type == "run.paused":
            self.status = "paused"
        elif type == "run.resumed" or self.status != "paused":
            self.status = "waiting" if self.asked and not self._moving() else "running"

    def _moving(self) -> bool:
        return any(node.state in ("running", "retrying", "sleeping") for node in self.nodes.values())

    def progress(self) -> tuple[int, int]:
        return sum(node.state in OVER for node in self.nodes.values()), len(self.nodes)

    def lines(self, room: int) -> tuple[list[Node], int, int]:
        """Return the active nodes and those around them that fit, and how many are hidden before and after."""
        nodes = list(self.nodes.values())
        if len(nodes) <= room:
            return nodes, 0, 0
        busy = [index for index, node in enumerate(nodes) if node.state not in OVER and node.state != "pending"]
        done = [index for index, node in enumerate(nodes) if node.state in OVER]
        first = max(0, min((busy[0] if busy else (done[-1] if done else 0)) - 2, len(nodes) - room))
        return nodes[first : first + room], first, len(nodes) - first - room


def _error(error: Any) -> str:
    return f"{error.get('code')}: {error.get('message')}" if isinstance(error, dict) else ""


def span(ms: int) -> str:
    """Return a duration as people write it."""
    seconds = max(0, ms) / 1000
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
