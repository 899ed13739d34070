"""Untrusted extensions: sandboxed, capability-gated, with evidence."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.extensions.api_table import CAPABILITIES, EVENTS, OLDER_EVENTS
    from forestay.extensions.brought_files import brought
    from forestay.extensions.capture import proposed
    from forestay.extensions.catalog import SourceTier, build_catalog, read_catalog
    from forestay.extensions.compiler.artifact import Artifact, ArtifactMeta, refusal
    from forestay.extensions.compiler.build import build, compile_source
    from forestay.extensions.compiler.cache import cache_folder, default_cache
    from forestay.extensions.compiler.drift import drift
    from forestay.extensions.compiler.install import install
    from forestay.extensions.compiler.source import discover, folder_entries, sources
    from forestay.extensions.components.project import component_project
    from forestay.extensions.components.traced import replay as replay_component
    from forestay.extensions.components.wrap import wrapped
    from forestay.extensions.conform.corpus import Corpus
    from forestay.extensions.conform.performance import corpus_entries, measure, read_budgets, read_report, regressions
    from forestay.extensions.conform.recorded import record
    from forestay.extensions.conform.report import document, write
    from forestay.extensions.conform.run import SetResult, oracle_answers, oracle_wording, packages_of
    from forestay.extensions.conform.run import conform as conform_corpus
    from forestay.extensions.conform.scenarios import ScenarioResult, compare_scenario, read_scenarios
    from forestay.extensions.connectors.addresses import is_public
    from forestay.extensions.connectors.model import Model
    from forestay.extensions.connectors.ui import (
        DIALOGS,
        FORMS,
        HOST_ASKS,
        KEYS,
        WORKING,
        NoUi,
        ScriptedUi,
        TerminalUi,
        Ui,
        Working,
        checked_answer,
    )
    from forestay.extensions.consent import EXPIRIES, REMEMBER, Answer, Consent, Question, Remember
    from forestay.extensions.engine.bytecode import compile_module
    from forestay.extensions.evidence import stream_of
    from forestay.extensions.explain import explained
    from forestay.extensions.extensions import Extensions
    from forestay.extensions.grants import STREAM, Grants, checked
    from forestay.extensions.guests import Failure
    from forestay.extensions.host_call import Kind as CallKind
    from forestay.extensions.host_call import Perform, Subject
    from forestay.extensions.inventory import CommandLine, command_line
    from forestay.extensions.isolate import Program
    from forestay.extensions.javascript_guest import JavaScriptGuest
    from forestay.extensions.layout import Confinement
    from forestay.extensions.manifest import parse_manifest
    from forestay.extensions.mcp.definitions import Definition, compare, offer_digest, pinnable
    from forestay.extensions.mcp.guest import McpGuest
    from forestay.extensions.mcp.pins import STREAM as MCP_STREAM
    from forestay.extensions.mcp.pins import Pins, ServerStanding, unapproved
    from forestay.extensions.mcp.server_cards import ServerCard, server_cards
    from forestay.extensions.mcp.server_config import PROJECT_FILE as MCP_FILE
    from forestay.extensions.mcp.server_config import ServerConfig, Servers, read_servers, write_entry
    from forestay.extensions.mcp.servers import use_servers, with_registered
    from forestay.extensions.mcp.tool_names import tool_name
    from forestay.extensions.node_packs.module import Breach, Broken, PackModule, Unanswered, kept_code
    from forestay.extensions.node_packs.requirements import SANDBOX, check_requirements, required
    from forestay.extensions.outcomes import COLUMNS, Surroundings, ToolOutcome
    from forestay.extensions.package_install import AddedPackage, add_package, is_package
    from forestay.extensions.packages import named
    from forestay.extensions.packs import Resource, skills_prompt
    from forestay.extensions.packs import discover as discover_resources
    from forestay.extensions.profiles import Line, overview, portrait
    from forestay.extensions.protection import LASTING, Protected, of_git, protected
    from forestay.extensions.protocol import HostCall, HostResult
    from forestay.extensions.sandbox import Launch, Sandbox
    from forestay.extensions.settings import SIGNED_IN, Settings
    from forestay.extensions.tool_sources import CHANGING, BuiltInTools, ExtensionTools, McpTools, at_once
    from forestay.extensions.trace import header, replay
    from forestay.extensions.trust import USER, Places, Standing, Trust
    from forestay.extensions.trust import files as trust_files
    from forestay.extensions.user_shell import PERSON, PersonShell, shell_line

__getattr__, __dir__ = face(__name__, __file__)
