"""Tools: what a tool is, where tools come from, how arguments are prepared, who may call one, and how it runs once."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.tools.approval import ApprovalAnswer, ApprovalRequest, Approvals, approved
    from forestay.tools.arguments import Fitting, checker, fitted
    from forestay.tools.builtin import BUILT_IN, BuiltIn, prepared
    from forestay.tools.gate import Gate, ToolGate, gated
    from forestay.tools.once import Effects, Guarded, once_or_ask, recover
    from forestay.tools.tool import EffectClass, Tool, ToolOutcome, Toolset, ToolSource, Update, fit_for, specs_of

__getattr__, __dir__ = face(__name__, __file__)
