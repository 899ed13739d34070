"""The loss matrix, budgets and configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel import config
from forestay.kernel.budget import Amounts, Budget, Limits
from forestay.kernel.loss import LossMatrix, weigh
from forestay.kernel.problems import Problem


def test_the_example_of_the_specification_shows_its_arithmetic() -> None:
    weighed = weigh({"uses_fs": 0.8, "uses_exec": 0.1, "unsigned": 0.6, "size_mb": 0.2})
    assert weighed.effect == "grant"
    assert weighed.arithmetic[-1] == "grant: it costs less"
    assert any(line.startswith("loss(grant) = 0.0129 x 100") for line in weighed.arithmetic)


@given(st.floats(0.0001, 0.9999))
def test_it_grants_exactly_below_the_break_even_probability(prior: float) -> None:
    """With the matrix 0/2/100/1 the two losses are equal at p = 2/101."""
    weighed = weigh({}, prior=prior)
    assert weighed.probability == pytest.approx(prior)
    assert weighed.effect == ("grant" if weighed.loss_grant < weighed.loss_deny else "deny")
    if abs(prior - 2 / 101) > 1e-9:
        assert weighed.effect == ("grant" if prior < 2 / 101 else "deny")


def test_stronger_evidence_never_makes_a_grant_likelier() -> None:
    losses = [weigh({"uses_exec": strength / 10}).loss_grant for strength in range(11)]
    assert losses == sorted(losses)
    assert weigh({"uses_exec": 1.0}, matrix=LossMatrix(grant_malicious=1.0)).effect == "grant"


def test_the_losses_are_the_matrix_weighted_by_the_probability() -> None:
    matrix = LossMatrix(grant_benign=3, grant_malicious=50, deny_benign=7, deny_malicious=11)
    found = weigh({"known": 1.0, "never heard of": 1.0}, prior=0.25, matrix=matrix, ratios={"known": 3.0})
    assert (found.probability, found.loss_grant, found.loss_deny) == pytest.approx((0.5, 26.5, 9.0))
    assert found.effect == "deny"
    assert found.arithmetic[0] == "prior: P(malicious) = 0.25, odds 0.333333"
    assert found.arithmetic[1:3] == ["known = 1: odds x 3 = 1", "never heard of = 1: odds x 1 = 1"]
    assert "loss(grant) = 0.5 x 50 + 0.5 x 3 = 26.5" in found.arithmetic
    assert "loss(deny)  = 0.5 x 11 + 0.5 x 7 = 9" in found.arithmetic


def test_of_two_equal_losses_the_denial_is_taken() -> None:
    same = LossMatrix(grant_benign=1, grant_malicious=1, deny_benign=1, deny_malicious=1)
    assert weigh({}, prior=0.5, matrix=same).effect == "deny"


@pytest.mark.parametrize("sign", ["uses_fs", "uses_exec", "uses_http", "uses_env", "unsigned", "size_mb"])
def test_what_the_specification_counts_against_an_extension_does(sign: str) -> None:
    assert weigh({sign: 1.0}).probability > weigh({}).probability
    assert weigh({"trusted": 1.0}).probability < weigh({"declared": 1.0}).probability < weigh({}).probability


@pytest.mark.parametrize("strength", [1.5, -0.1, float("nan"), float("inf")])
def test_a_strength_that_is_none_is_refused(strength: float) -> None:
    with pytest.raises(Problem) as refused:
        weigh({"uses_exec": strength})
    assert refused.value.details["at"] == "uses_exec"


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 300))
def test_a_budget_is_never_overspent(spends: list[int], limit: int) -> None:
    budget = Budget(Limits(tokens=limit))
    for tokens in spends:
        before, left = budget, budget.left("tokens")
        assert left == limit - before.used.tokens >= 0
        if tokens <= left:
            budget = budget.spend(Amounts(tokens=tokens, calls=1))
            assert budget.used == Amounts(tokens=before.used.tokens + tokens, calls=before.used.calls + 1)
            continue
        with pytest.raises(Problem) as refused:
            budget.spend(Amounts(tokens=tokens, calls=1))
        told = refused.value.details
        assert (told["dimension"], told["limit"], told["wanted"]) == ("tokens", limit, tokens)
        assert told["used"] == before.used.tokens
    assert budget.left("calls") is None


def test_layers_win_in_their_order(tmp_path: Path) -> None:
    user = tmp_path / "user.toml"
    user.write_text('[http]\nport = 1\nhost = "u"\n[models]\ndefault = "user-model"\n[data]\ndir = "d"\n')
    (tmp_path / "forestay.toml").write_text('[http]\nport = 2\nhost = "p"\n[data]\ndir = "e"\n')
    loaded = config.load(
        tmp_path, flags={"http.port": 4}, environ={"FORESTAY_HTTP_PORT": "3", "FORESTAY_HTTP_HOST": "e"}, user_file=user
    )
    http = loaded.config.http
    assert (http.port, http.host, loaded.config.data.dir, loaded.config.models.default) == (4, "e", "e", "user-model")
    assert loaded.sources == {
        "http.port": "flag",
        "http.host": "environment",
        "data.dir": "project file",
        "models.default": "user file",
    }


@pytest.mark.parametrize(
    ("text", "at", "line", "fix"),
    [
        ('[extensions.policy]\nmdoe = "strict"\n', "extensions.policy.mdoe", 2, "Did you mean `mode`?"),
        ("[htpp]\nport = 1\n", "htpp", 1, "Did you mean `http`?"),
        ('[http]\nport = "many"\n', "http.port", 2, None),
        ('[extensions.policy]\nmode = "lax"\n', "extensions.policy.mode", 2, None),
        (
            '[extensions.overrides.todo]\nalow = ["read"]\n',
            "extensions.overrides[...].alow",
            2,
            "Did you mean `allow`?",
        ),
        ('[models.entries.x]\nmodle = "m"\n', "models.entries[...].modle", 2, "Did you mean `model`?"),
        ('[models.entries.x]\nmodel = "m"\ncontext_window = 0\n', "models.entries[...].context_window", 3, None),
    ],
)
def test_a_typo_is_told_with_its_place(tmp_path: Path, text: str, at: str, line: int, fix: str | None) -> None:
    (tmp_path / "forestay.toml").write_text(text)
    with pytest.raises(Problem) as caught:
        config.load(tmp_path, environ={}, user_file=tmp_path / "none")
    assert caught.value.key == "config_invalid"
    assert (caught.value.details["at"], caught.value.details["line"]) == (at, line)
    if fix:
        assert caught.value.details["fix"] == fix


@pytest.mark.parametrize(
    "data", [b"[http\n", b"\xff\xfe", b"a = " + b"[" * 5000, b"a" + b".a" * 5000 + b" = 1", b"[http]\nport = 70000"]
)
def test_broken_files_are_problems(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "forestay.toml").write_bytes(data)
    with pytest.raises(Problem) as caught:
        config.load(tmp_path, environ={}, user_file=tmp_path / "none")
    assert caught.value.key == "config_invalid"


def test_a_wrong_value_in_the_environment_is_told(tmp_path: Path) -> None:
    with pytest.raises(Problem) as caught:
        config.load(tmp_path, environ={"FORESTAY_EXTENSIONS_POLICY_MODE": "lax"}, user_file=tmp_path / "none")
    assert "environment" in caught.value.message
    listed = config.load(
        tmp_path, environ={"FORESTAY_EXTENSIONS_POLICY_DENY_CAPS": "exec, env"}, user_file=tmp_path / "n"
    )
    assert listed.config.extensions.policy.deny_caps == ["exec", "env"]
