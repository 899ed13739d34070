"""Tools: their definition, their sources, their arguments, the gate for callers, and the guard that runs each once."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.tools.builtin import BUILT_IN, BuiltIn, prepared
    from forestay.tools.gate import (
        ApprovalAnswer,
        ApprovalRequest,
        Approvals,
        Effects,
        Gate,
        Guarded,
        ToolGate,
        approved,
        gated,
        once_or_ask,
        recover,
    )
    from forestay.tools.tool import (
        EffectClass,
        Fitting,
        Tool,
        ToolOutcome,
        Toolset,
        ToolSource,
        Update,
        checker,
        fit_for,
        fitted,
        specs_of,
    )

__getattr__, __dir__ = face(__name__, __file__)
