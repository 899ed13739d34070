"""The five context tools: a model calls them for facts that the envelope does not have (CRP §1.14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forestay.kernel import canonical, misfit, object_schema
from forestay.models import STOP, ToolCall, ToolSpec, words
from forestay.relay.continuation import Structure
from forestay.relay.facts import Fact, fact_id
from forestay.relay.meaning import near_to
from forestay.relay.ranking import neighbours, rank, without_speakers

if TYPE_CHECKING:
    from forestay.relay.vectors import Vectors
    from forestay.relay.warm import Warm

_MOST = 50


SPECS: tuple[ToolSpec, ...] = (
    ToolSpec(
        "crp_retrieve_context",
        "Find the facts that are known about a question, best first, with their ids and sources.",
        object_schema(
            ["query"],
            query={"type": "string"},
            limit={"type": "integer", "minimum": 1, "maximum": _MOST, "default": 10},
        ),
    ),
    ToolSpec(
        "crp_get_document_structure",
        "List the sources that are known, with their headings and how many facts each holds.",
        object_schema(source={"type": "string", "description": "Only the source with this label."}),
    ),
    ToolSpec(
        "crp_check_facts",
        "Check statements against what is known: each is supported (with fact ids) or not.",
        object_schema(
            ["statements"], statements={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": _MOST}
        ),
    ),
    ToolSpec(
        "crp_get_related_facts",
        "List the facts that stand next to a fact or are joined with it by a relation.",
        object_schema(["fact_id"], fact_id={"type": "string", "pattern": "^f[0-9]+$"}),
    ),
    ToolSpec(
        "crp_get_continuation_state",
        "Say where the text that is being written stands: its heading, list position and open blocks.",
        object_schema(),
    ),
)


def openai_tools(specs: Sequence[ToolSpec] = SPECS) -> list[dict[str, Any]]:
    """Return the tools in OpenAI's function form."""
    return [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
        }
        for spec in specs
    ]


class Toolbox:
    """The context tools over one session, and the specs of tools that only the caller can run."""

    def __init__(self, warm: Warm, extra: Sequence[ToolSpec] = (), vectors: Vectors | None = None) -> None:
        self._warm = warm
        self._vectors = vectors
        self.specs = (*SPECS, *extra)
        self.trace: list[dict[str, Any]] = []
        self._tools: Mapping[str, Callable[[dict[str, Any]], Any]] = {
            "crp_retrieve_context": self._retrieve,
            "crp_get_document_structure": self._structure,
            "crp_check_facts": self._check,
            "crp_get_related_facts": self._related,
            "crp_get_continuation_state": self._continuation,
        }

    def knows(self, name: str) -> bool:
        return name in self._tools

    def call(self, call: ToolCall) -> str:
        """Run the tool and return its answer as JSON; for an invalid call, an error that lets the model correct it."""
        result = self._invalid(call) or self._tools[call.name](call.arguments)
        self.trace.append(
            {"step": len(self.trace) + 1, "tool": call.name, "arguments": call.arguments, "error": result.get("error")}
        )
        return canonical.encode(result).decode()

    def _invalid(self, call: ToolCall) -> dict[str, Any] | None:
        if call.malformed is not None:
            return {"error": "The arguments are not a JSON object."}
        spec = next(spec for spec in self.specs if spec.name == call.name)
        found = misfit(dict(spec.parameters), call.arguments)
        return None if found is None else {"error": f"The arguments do not fit the tool: {found[1][:200]}"}

    def _retrieve(self, arguments: dict[str, Any]) -> dict[str, Any]:
        near = near_to(self._vectors, without_speakers(self._warm, arguments["query"]), self._warm.out)
        ranked = rank(self._warm, arguments["query"], near=near)
        found = [item for item in ranked if self._warm.facts[item.number].superseded_by < 0][
            : arguments.get("limit", 10)
        ]
        return {"facts": [_brief(self._warm.facts[item.number]) | {"score": round(item.score, 4)} for item in found]}

    def _structure(self, arguments: dict[str, Any]) -> dict[str, Any]:
        wanted = arguments.get("source")
        return {"sources": [item for item in structure(self._warm) if wanted in (None, item["source"])]}

    def _check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"statements": [{"statement": text, **check(self._warm, text)} for text in arguments["statements"]]}

    def _related(self, arguments: dict[str, Any]) -> dict[str, Any]:
        number = fact_id(arguments["fact_id"])
        facts = self._warm.facts
        if number is None or number >= len(facts):
            return {"error": f"There is no fact {arguments['fact_id']}."}
        near = [
            item
            for item in (number - 1, number + 1)
            if 0 <= item < len(facts) and facts[item].source == facts[number].source
        ]
        joined = neighbours(facts, number)
        return {
            "fact": _brief(facts[number]),
            "related": [_brief(facts[item]) | {"joined": item in joined} for item in dict.fromkeys([*joined, *near])],
        }

    def _continuation(self, arguments: dict[str, Any]) -> dict[str, Any]:
        output = self._warm.dispatch.output if self._warm.dispatch is not None else ""
        reader = Structure()
        reader.feed(output)
        return {
            "characters_written": len(output),
            "heading": reader.heading,
            "list_position": reader.item,
            "open_blocks": reader.open_blocks(),
            "ends_with": output[-200:],
        }


def structure(warm: Warm) -> list[dict[str, Any]]:
    """Return every source with its headings, in order, and the number of facts under each."""
    sources: dict[str, dict[str, int]] = {}
    for fact in warm.facts:
        headings = sources.setdefault(fact.source, {})
        headings[fact.context] = headings.get(fact.context, 0) + 1
    return [
        {
            "source": source,
            "facts": sum(headings.values()),
            "headings": [{"heading": heading, "facts": count} for heading, count in headings.items() if heading][:500],
        }
        for source, headings in sources.items()
    ]


def check(warm: Warm, statement: str) -> dict[str, Any]:
    """Say whether one of the best facts has most of the statement's content words and all of its figures."""
    content = {word for word in words(statement) if word not in STOP}
    figures = {word for word in content if word[0].isdigit()}
    ids = []
    for item in rank(warm, statement)[:10]:
        own = set(words(warm.facts[item.number].text))
        if (
            content
            and len(content & own) >= 0.6 * len(content)
            and figures <= own
            and warm.facts[item.number].superseded_by < 0
        ):
            ids.append(warm.facts[item.number].id)
    return {"supported": bool(ids), "fact_ids": ids}


def _brief(fact: Fact) -> dict[str, Any]:
    return {"id": fact.id, "text": fact.text, "source": fact.source, "heading": fact.context}
