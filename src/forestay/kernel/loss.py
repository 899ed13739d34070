"""Grants by expected loss (Pi §5): evidence gives a probability, the loss matrix the decision; both are shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from forestay.kernel.problems import Problem


class LossMatrix(msgspec.Struct, frozen=True):
    """The cost of each outcome. A wrong grant costs far more than a wrong denial."""

    grant_benign: float = 0.0
    grant_malicious: float = 100.0
    deny_benign: float = 2.0
    deny_malicious: float = 1.0


class Weighed(msgspec.Struct, frozen=True):
    """A decision with its arithmetic, line by line; `words` states the level of the risk and the reasons."""

    effect: Literal["grant", "deny"]
    probability: float
    loss_grant: float
    loss_deny: float
    arithmetic: list[str]
    words: str = ""


# How much more often a sign is seen on malicious extensions than on benign ones, at full strength (1.0).
# Values below 1 speak for the extension. These are judgements; a user may pass other numbers.
LIKELIHOOD_RATIOS: dict[str, float] = {
    "uses_fs": 1.5,
    "uses_exec": 6.0,
    "uses_http": 2.0,
    "uses_env": 3.0,
    "unsigned": 2.0,
    "size_mb": 1.2,
    "flagged_api": 4.0,
    "undeclared": 5.0,
    "trusted": 0.05,
    "declared": 0.6,
}
PRIOR = 0.005
_WORDS = {
    "uses_fs": "it reaches files",
    "uses_exec": "it starts programs",
    "uses_http": "it reaches the network",
    "uses_env": "it reads the environment",
    "unsigned": "nobody signed it",
    "flagged_api": "the scan flags what it calls",
    "undeclared": "it did not declare this",
    "trusted": "you trust its folder",
    "declared": "it declared this",
}


def weigh(
    evidence: Mapping[str, float],
    *,
    prior: float = PRIOR,
    matrix: LossMatrix | None = None,
    ratios: Mapping[str, float] = LIKELIHOOD_RATIOS,
) -> Weighed:
    """Decide for the smaller expected loss. Each strength lies between 0 and 1."""
    matrix = matrix or LossMatrix()
    odds = prior / (1 - prior)
    lines = [f"prior: P(malicious) = {prior:g}, odds {odds:.6g}"]
    for name, strength in sorted(evidence.items()):
        if not 0 <= strength <= 1:  # refuses NaN too
            raise Problem(
                "out_of_range", f"The strength of {name} must lie between 0 and 1.", at=name, observed=strength
            )
        factor = ratios.get(name, 1.0) ** strength
        odds *= factor
        lines.append(f"{name} = {strength:g}: odds x {factor:.4g} = {odds:.6g}")
    p = odds / (1 + odds)
    loss_grant = p * matrix.grant_malicious + (1 - p) * matrix.grant_benign
    loss_deny = p * matrix.deny_malicious + (1 - p) * matrix.deny_benign
    effect: Literal["grant", "deny"] = "grant" if loss_grant < loss_deny else "deny"
    lines.append(f"P(malicious) = {p:.6g}")
    lines.append(
        f"loss(grant) = {p:.4g} x {matrix.grant_malicious:g} + {1 - p:.4g} x {matrix.grant_benign:g} = {loss_grant:.4g}"
    )
    lines.append(
        f"loss(deny)  = {p:.4g} x {matrix.deny_malicious:g} + {1 - p:.4g} x {matrix.deny_benign:g} = {loss_deny:.4g}"
    )
    lines.append(f"{effect}: it costs less")
    return Weighed(effect, p, loss_grant, loss_deny, lines, _in_words(evidence, ratios, p, effect))


def _in_words(evidence: Mapping[str, float], ratios: Mapping[str, float], p: float, effect: str) -> str:
    """Return the risk in one sentence: its level, the better answer, and the signs against and for the extension."""
    level = "Low" if p < 0.01 else "Some" if p < 0.1 else "High"
    named = [name for name in evidence if evidence[name] >= 0.5 and name in _WORDS]
    named.sort(key=lambda name: abs(math.log(ratios.get(name, 1.0))), reverse=True)
    against = ", ".join(_WORDS[name] for name in named if ratios.get(name, 1.0) > 1)
    speaks_for = ", ".join(_WORDS[name] for name in named if ratios.get(name, 1.0) < 1)
    told = {"against it": against, "for it": speaks_for}
    reasons = "; ".join(f"{side}: {signs}" for side, signs in told.items() if signs)
    answer = "allowing" if effect == "grant" else "denying"
    return f"{level} risk: {answer} is the better answer{f' ({reasons})' if reasons else ''}."
