"""`forestay policy explain`: the real command, for each kind of policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_runs import Shell

SETTINGS = '[extensions.policy]\nmode = "strict"\n[agents]\ndeny = ["bash"]\nallow = ["write"]\n'
AGENT = "core.forestay.assistant"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("policy")
    (folder / "forestay.toml").write_text(SETTINGS)
    made = Shell(folder, HOME=str(folder))
    assert made("ext", "grants", "allow", "todo", "read:src/**").code == 0
    return made


@pytest.mark.parametrize(
    ("subject", "capability", "on", "kind", "effect", "rule"),
    [
        ("todo", "read", "src/a.md", "extension", "allow", "subject-allow"),
        ("todo", "read", "/etc/passwd", "extension", "deny", "mode-strict"),
        ("todo", "write", ".forestay/ledger.db", "extension", "deny", "protected"),
        (AGENT, "tool", "bash", "tool", "deny", "subject-deny"),
        (AGENT, "tool", "write", "tool", "allow", "subject-allow"),
        (AGENT, "tool.unsafe", "ext:todo/add", "tool", "prompt", "mode-prompt"),
        ("OBSERVER", "relay.dispatch", None, "relay", "deny", "mode-strict"),
        ("OPERATOR", "relay.dispatch", None, "relay", "allow", "subject-allow"),
        ("host", "egress", "https://10.0.0.1/", "egress", "deny", "by-name-only"),
        ("host", "egress", "https://example.com/", "egress", "allow", "default"),
    ],
)
def test_each_kind_is_explained_by_its_rule(
    shell: Shell, subject: str, capability: str, on: str | None, kind: str, effect: str, rule: str
) -> None:
    ran = shell("policy", "explain", "--subject", subject, "--capability", capability, *(("--on", on) if on else ()))
    found = ran.result
    assert (found["kind"], found["effect"], found["rule"]) == (kind, effect, rule)
    assert found["evidence"]["subject"] == subject
    assert (ran.code == 0) is (effect == "allow")


def test_a_key_and_words_for_a_person(shell: Shell) -> None:
    made = shell("key", "create", "reader", "--scope", "runs:read").result["description"]["keyId"]
    allowed = shell("policy", "explain", "--subject", made, "--capability", "runs:read")
    assert (allowed.code, allowed.result["kind"], allowed.result["effect"]) == (0, "api", "allow")
    other = shell("policy", "explain", "--subject", made, "--capability", "runs:read", "--on", "acme")
    assert other.code != 0 and other.error["code"] == "E_PERMISSION_DENIED"
    told = shell("policy", "explain", "--subject", made, "--capability", "runs:create", "--human")
    assert told.code != 0 and "has no grant for runs:create" in told.out and "mode-strict (api)" in told.out
    unknown = shell("policy", "explain", "--subject", "todo", "--capability", "nothing")
    assert unknown.code == 2 and "egress" in unknown.error["details"]["known"]


def test_the_command_is_one_of_the_list(shell: Shell, tmp_path: Path) -> None:
    assert "explain" in shell("policy", "--help").out
