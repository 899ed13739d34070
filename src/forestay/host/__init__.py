"""The composition root: `async with Host.open(config) as host` builds everything once and closes it."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.host.agent_node import ASK
    from forestay.host.agent_root import Rooted
    from forestay.host.checkpoints import audit_of, signing
    from forestay.host.completion import COMPLETION, Conversation
    from forestay.host.drawing import Drawn
    from forestay.host.extension_model import ExtensionModel
    from forestay.host.extensions import grant_of, texts
    from forestay.host.form_inquiry import TYPES as FORM_TYPES
    from forestay.host.health_check import health
    from forestay.host.models import HostModels
    from forestay.host.node_files import trust_in_nodes, types_to_check
    from forestay.host.oauth_providers import SAMPLE_PROVIDER
    from forestay.host.opening import SAMPLE_GATED, Host, Options, host_tables, open_host
    from forestay.host.policies import Explained, explain
    from forestay.host.prompt_form import everything
    from forestay.host.retention import Retention, retaining
    from forestay.host.sample_network import SampleNetwork, SampleTokens
    from forestay.host.session_front import Command, SessionState
    from forestay.host.skill_texts import skills
    from forestay.host.telemetry import CONTENT_TYPE, Tracing

__getattr__, __dir__ = face(__name__, __file__)
