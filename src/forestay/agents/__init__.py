"""Agents: manifests, and the loop that turns a task into an answer through models and tools, step by durable step."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.agents.agent import Agent, AgentResult
    from forestay.agents.asking import Direct
    from forestay.agents.catalogue import ASSISTANT, Catalogue, newest, no_agent
    from forestay.agents.events import AgentEvent, Invocation
    from forestay.agents.history import AgentWork, read_work
    from forestay.agents.manifest import AgentManifest, load, parse
    from forestay.agents.pack import PACK_SCHEMA, AgentPack, read_pack
    from forestay.agents.pi import from_pi, text_of
    from forestay.agents.ports import Heard, Hooks, Memory, Quiet
    from forestay.agents.versions import precedence

__getattr__, __dir__ = face(__name__, __file__)
