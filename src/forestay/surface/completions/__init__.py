"""OpenAI's interface at `/openai/v1` and Anthropic's at `/anthropic/v1`: agents are models, answers durable runs."""

from forestay.surface.completions import catalogue, chat, messages, responses
from forestay.surface.operations import Operation
from forestay.surface.services import Services

__all__ = ["operations"]


def operations(services: Services) -> list[Operation]:
    host = services.host
    return [
        *catalogue.api.of(catalogue.Offered(host)),
        *chat.api.of(host),
        *responses.api.of(host),
        *messages.api.of(host),
    ]
