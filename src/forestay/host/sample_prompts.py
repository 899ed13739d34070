"""The prompt templates that the contract's prompt fixtures name, with our own texts. Only with the sample seams."""

from __future__ import annotations

from forestay.agents import PromptTemplate, read_template

_TEXTS = {
    "writer-system": ("system", "You write short, plain texts. Say only what you know."),
    "writer-user": ("user", "Write fifty words about a subject of your choice."),
    "schema-hint": ("schema-hint", "Answer with a JSON object that has the one key `text`."),
    "few-shot": ("few-shot", "Q: What is a stay?\nA: A rope that holds a mast."),
    "few-shot-2": ("few-shot", "Q: What is a keel?\nA: The spine of a ship."),
    "trust-marker": ("user", "Read what the visitor wrote: {{userPayload}}"),
}


def sample_prompts() -> list[PromptTemplate]:
    return [
        read_template(
            {
                "templateId": f"conformance.prompt.{name}",
                "version": "1.0.0",
                "kind": kind,
                "text": text,
                "meta": {"source": "host"},
            }
        )
        for name, (kind, text) in _TEXTS.items()
    ]
