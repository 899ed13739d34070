"""Whole workflow documents at random: every node type that needs nothing outside, every feature beside every other."""

from __future__ import annotations

import random
from typing import Any

from tests.runs.documents import edge, node, when, workflow

RULES = ("all_success", "any_success", "all_complete", "none_failed", "any_failed")
REDUCERS = ("replace", "append", "merge", "counter", "votes", "feedback", "message")
EXPRESSIONS = (
    "x", "y + 1", "variables", "[x, y, channels.c]", "{a: x, b: nodes.n0.output}", "size(s) > 3", "channels.m",
    "x == y || y in [1, 2]", "-y * 3 % 7", "upper(s) + lower(s)", "status", "nodes.n1.error", "output", "inputs.x",
)  # fmt: skip
CHILD = workflow(
    "child",
    [
        node("wait", "core.delay", config={"delayMs": 700}),
        node("fails", "core.fail"),
        node("ends", "core.transform", config={"assign": {"x": "1"}, "expression": "variables"}),
    ],
    [edge("wait", "fails", condition=when("item == 3 || bad")), edge("wait", "ends")],
)


class Author:
    """Writes one document from one seed. Times are primes of a kind, so that no two things happen at once by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.times = iter(self.chance.sample(range(101, 9999, 2), 400))

    def document(self, id: str = "whole") -> dict[str, Any]:
        count = self.chance.randint(2, 7)
        nodes = [self.node(f"n{index}") for index in range(count)]
        return workflow(
            id,
            nodes,
            self.edges(count),
            variables=[{"name": "y", "type": "number", "defaultValue": 2}],
            channels=self.channels(),
            settings=self.some({"maxRetries": 1, "timeout": 60_000, "maxLoopbackIterations": 3}),
        )

    def some(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in fields.items() if self.chance.random() < 0.3}

    def expression(self) -> str:
        return self.chance.choice(EXPRESSIONS)

    def edges(self, count: int) -> list[dict[str, Any]]:
        chance, edges = self.chance, []
        for target in range(1, count):
            rule = {"triggerRule": chance.choice(RULES)} if chance.random() < 0.6 else {}
            for source in chance.sample(range(target), chance.randint(0, min(target, 3))):
                test = {"condition": when(self.expression())} if chance.random() < 0.3 else {}
                edges.append(edge(f"n{source}", f"n{target}", **rule, **test))
        for _ in range(chance.randint(0, 2) if edges else 0):
            closing = chance.choice([item for item in edges if "label" not in item])
            ends = closing["targetNodeId"], closing["sourceNodeId"]
            test = when(chance.choice(["true", "y < 5", "size(channels.c) < 3"]))
            edges.append(edge(*ends, id=f"loop{len(edges)}", label="loopback", condition=test))
        return edges

    def channels(self) -> dict[str, Any]:
        declared = {
            "c": {"reducer": "append", "ttlMs": 5000, "maxSize": 3, "default": [0]},
            "m": {"reducer": "merge", "default": {"begun": True}},
            "v": {"reducer": "votes", "sensitive": True},
        }
        return self.some(declared)

    def node(self, id: str) -> dict[str, Any]:
        chance = self.chance
        kind = chance.choice([name for name in dir(self) if name.startswith("a_")])
        type_id, config = getattr(self, kind)()
        ports: dict[str, Any] = {
            "e": {"type": "expression", "expression": self.expression()},
            "v": {"type": "variable", "variableName": "y"},
            "n": {"type": "connection", "nodeId": "n0", "outputKey": "output", "optional": True},
        }
        retry = {"maxAttempts": 2, "initialDelayMs": next(self.times), "backoff": "fixed"}
        settings = self.some({"retry": retry, "timeoutMs": next(self.times)})
        more = {"disabled": True} if chance.random() < 0.05 else {}
        return node(id, type_id, config=config, inputs=self.some(ports), settings=settings, **more)

    def a_noop(self) -> tuple[str, Any]:
        return self.chance.choice(["core.noop", "core.identity"]), {}

    def a_delay(self) -> tuple[str, Any]:
        return "core.delay", {"delayMs": next(self.times)}

    def a_failure(self) -> tuple[str, Any]:
        return "core.fail", {"code": "planned"}

    def a_write(self) -> tuple[str, Any]:
        values = [1, "text", {"userId": "ann", "messageId": "m", "a": [1]}, [2], None, 2.5]
        written = {"expression": self.expression()} if self.chance.random() < 0.5 else {}
        name = self.chance.choice("cmvz")
        return "core.channelWrite", {
            "channelName": name,
            "value": self.chance.choice(values),
            "reducer": self.chance.choice(REDUCERS),
            **written,
            **self.some({"ttlMs": 3000}),
        }

    def a_transform(self) -> tuple[str, Any]:
        parts = {
            "assign": {self.chance.choice("xy"): self.expression()},
            "outputs": {"a": self.expression()},
            "expression": self.expression(),
            "artifacts": {"note": self.expression()},
        }
        return "core.transform", self.some(parts)

    def a_branch(self) -> tuple[str, Any]:
        return "core.branch", {"cases": [{"name": "a", "when": self.expression()}]}

    def a_map(self) -> tuple[str, Any]:
        items = self.chance.choice(["[1, 2, 3, 4]", "[x, y]", [], [1, [2]], "x"])
        inner = self.chance.choice(["a_noop", "a_transform", "a_write", "a_failure", "a_branch", "a_question"])
        if self.chance.random() < 0.5:
            return "core.map", {"items": items, "concurrency": 2, "workflowId": "child", "inputs": {"k": "index"}}
        type_id, config = getattr(self, inner)()
        return "core.map", {"items": items, "concurrency": 2, "node": {"typeId": type_id, "config": config}}

    def a_child(self) -> tuple[str, Any]:
        options = {
            "inputMapping": {"bad": "x"},
            "outputMapping": {"x": "output", "y": "nothing"},
            "onChildFailure": "continue",
            "waitForCompletion": False,
        }
        return "core.subWorkflow", {"workflowId": "child", **self.some(options)}

    def a_question(self) -> tuple[str, Any]:
        limit = {"timeoutMs": next(self.times)}
        return self.chance.choice(
            [
                ("core.approvalGate", {**limit, **self.some({"onTimeout": "accept", "requiredApprovals": 2})}),
                ("core.interrupt", {**limit, **self.some({"defaultValue": [1], "key": "same"})}),
                (
                    "core.waitForEvent",
                    {**limit, "event": "e", **self.some({"correlation": {"a": 1}, "defaultValue": 1})},
                ),
                ("core.clarificationGate", {**limit, "questions": [{"id": "q", "question": "?"}]}),
                ("core.conversationGate", {**limit, "turnCount": 2, **self.some({"mockAutoResume": True})}),
            ]
        )

    def a_supervisor(self) -> tuple[str, Any]:
        worker = {"kind": "next-worker", "nextWorkerIds": ["child"]}
        plan = [worker, {"kind": "ask-user", "prompt": "?"}, {"kind": "terminate"}]
        if self.chance.random() < 0.5:
            return "core.dispatch", self.some({"onChildFailure": "fail-parent", "iterationCap": 2})
        return "core.orchestrator.supervisor", {"plan": plan[self.chance.randint(0, 2) :]}


# What a document may hold in any place, as far as JSON goes.
HOSTILE: tuple[Any, ...] = (
    None, True, 0, -1, 2**53, 10**400, 1.5, 1e300, -0.0, "", "text", "\ud7ff", "²", "(" * 40, "x" * 5000, [], [[]], {},
    [None], {"": None}, {"a": {"b": [1]}}, "variables", "1 / 0", "-s", "nodes.n0.output", "core.noop", "n0", "child",
)  # fmt: skip


def spoil(document: dict[str, Any], chance: random.Random) -> None:
    """Put something hostile into a random place of a document, or take something out."""
    place: Any = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        below = place[key]
        if isinstance(below, dict | list) and below and chance.random() < 0.9:
            place = below
        elif isinstance(place, dict) and chance.random() < 0.2:
            del place[key]
            return
        else:
            place[key] = chance.choice(HOSTILE)
            return
