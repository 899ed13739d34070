"""What clients ask for: workflows that wait, ask people, charge a shop, have children, and end in a known way."""

from __future__ import annotations

from typing import Any

from tests.runs.documents import edge, node, workflow

TENANTS = ("acme", "zeta")
WANTED = ["run.completed", "run.failed", "run.cancelled"]
_RETRY = {"retry": {"maxAttempts": 40, "initialDelayMs": 50, "maxDelayMs": 2000}}
_MARK = [{"name": "mark", "type": "string", "defaultValue": ""}]


def key_of(tenant: str) -> str:
    return f"key-of-{tenant}-0123456789"


def _charge(id: str, body: str) -> dict[str, Any]:
    config = {"url": "https://shop.example/charge", "method": "POST", "timeoutMs": 3000}
    inputs = {"body": {"type": "expression", "expression": body}}
    return node(id, "core.http", config=config, inputs=inputs, settings=_RETRY)


def _end(**outputs: str) -> dict[str, Any]:
    return node("end", "core.transform", config={"outputs": outputs})


def _receipt(id: str) -> str:
    return f"nodes.{id}.output.body.receipt"


def documents() -> list[dict[str, Any]]:
    quick = workflow("quick", [_end(mark="variables.mark")], variables=_MARK)
    charge = workflow(
        "charge",
        [_charge("pay", "variables.mark + '/pay'"), _end(mark="variables.mark", receipt=_receipt("pay"))],
        [edge("pay", "end")],
        variables=_MARK,
    )
    later = workflow(
        "later",
        [
            node("wait", "core.delay", config={"delayMs": 2500}),
            _charge("pay", "variables.mark + '/later'"),
            _end(mark="variables.mark"),
        ],
        [edge("wait", "pay"), edge("pay", "end")],
        variables=_MARK,
    )
    order = workflow(
        "order",
        [
            _charge("hold", "variables.mark + '/hold'"),
            node("wait", "core.delay", config={"delayMs": 1500}),
            node("gate", "core.approvalGate"),
            _charge("pay", "variables.mark + '/pay'"),
            _end(mark="variables.mark", held=_receipt("hold"), receipt=_receipt("pay")),
        ],
        [edge("hold", "wait"), edge("wait", "gate"), edge("gate", "pay"), edge("pay", "end")],
        variables=_MARK,
    )
    kids = {
        "items": "['a', 'b']",
        "concurrency": 2,
        "workflowId": "charge",
        "inputs": {"mark": "variables.mark + '/kid-' + item"},
    }
    family = workflow(
        "family",
        [
            node("kids", "core.map", config=kids),
            _charge("side", "variables.mark + '/side'"),
            _end(mark="variables.mark", count="nodes.kids.output.count", receipt=_receipt("side")),
        ],
        [edge("kids", "end"), edge("side", "end")],
        variables=_MARK,
    )
    return [quick, charge, later, order, family]


KINDS = ("quick", "charge", "charge", "order", "order", "family", "forestay-ask")
