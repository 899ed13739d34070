"""Agents: manifests, and the loop that answers a task with models and tools, one durable step at a time."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.agents.agent import Agent, AgentResult
    from forestay.agents.decide import CALLER
    from forestay.agents.events import SYSTEM, AgentEvent, Invocation, arguments_hash, prompt_events
    from forestay.agents.history import AgentWork, read_work
    from forestay.agents.manifest import ASSISTANT, AgentManifest, Catalogue, load, newest, no_agent, parse, precedence
    from forestay.agents.pack import PACK_SCHEMA, AgentPack, exported, read_pack
    from forestay.agents.pi import aborted_entry, conversation, from_pi, text_of, to_pi
    from forestay.agents.ports import Heard, Hooks, Kept, Memory, Quiet, Transcript
    from forestay.agents.prompt_chain import (
        PROMPT_FIELDS,
        Observability,
        PromptLayers,
        Resolution,
        ResolvedPrompt,
        composed_view,
        node_prompts,
        prompt_text,
        prompts_by_kind,
    )
    from forestay.agents.prompt_template import (
        KINDS,
        LIBRARY,
        MAX_TEMPLATE_BYTES,
        SOURCES,
        PromptKind,
        PromptMeta,
        PromptRef,
        PromptTemplate,
        compose,
        read_ref,
        read_template,
    )
    from forestay.agents.stage import Direct
    from forestay.agents.steps import Interjection

__getattr__, __dir__ = face(__name__, __file__)
