"""What a project or a package brings: links that lead elsewhere, settings that other programs obey."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay.extensions import HostCall, install, is_public
from forestay.extensions.connectors.contract import Call, Output
from forestay.host import Options, open_host
from forestay.kernel import Problem
from tests.extensions.dispatcher_world import World

TOOL = (
    "export default function (pi) {{ pi.registerTool({{ name: '{name}', label: 'a', description: 'a',"
    " parameters: {{ type: 'object', properties: {{}} }}, async execute() {{ return {{ content: [] }}; }} }}); }}"
)


async def test_t4_a_link_brings_nothing_in_from_where_nobody_looked(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    brings = project / ".pi" / "extensions"
    (brings / "group" / "inner").mkdir(parents=True)
    (project / "src").mkdir()
    (outside / "whole").mkdir(parents=True)
    for place, name in (
        (outside / "a.ts", "outer"),
        (project / "src" / "b.ts", "inside"),
        (outside / "whole" / "index.ts", "whole"),
        (brings / "mine.ts", "mine"),
    ):
        place.write_text(TOOL.format(name=name))
    (brings / "a.ts").symlink_to(outside / "a.ts")
    (brings / "b.ts").symlink_to(project / "src" / "b.ts")
    (brings / "again.ts").symlink_to(brings / "mine.ts")
    (brings / "group" / "inner" / "index.ts").symlink_to(outside / "a.ts")
    (brings / "group" / "linked").symlink_to(outside / "whole")
    async with open_host(Options(root=project)) as host:
        await host.extensions.trust.give(project)
        suite = await host.extensions.suite()
        assert [tool.name for tool in suite.tools()] == ["mine"]
        refused = [failure.problem.key for failure in suite.failures]
        assert refused.count("extension_invalid") == 4, suite.failures


def test_npm_is_not_let_near_settings_that_a_package_brings(tmp_path: Path) -> None:
    program = tmp_path / "git.sh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    program.chmod(0o755)
    (tmp_path / ".npmrc").write_text(f"git={program}\n")
    (tmp_path / "package.json").write_text(
        '{"name":"x","version":"1.0.0","dependencies":{"y":"git+file:///nonexistent/y.git"}}'
    )
    with pytest.raises(Problem) as refused:
        install(tmp_path, offline=True)
    assert refused.value.key == "extension_invalid" and ".npmrc" in refused.value.message
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["fec0::1", "feff::1", "3fff::1", "4000::1", "e000::1", "fe80::1", "::1", "100::1"])
def test_addresses_that_nobody_was_given_are_not_public(text: str) -> None:
    import ipaddress

    assert not is_public(ipaddress.ip_address(text))
    assert is_public(ipaddress.ip_address("2606:4700::1111"))


def test_what_was_denied_once_is_denied_again_in_the_same_call(tmp_path: Path) -> None:
    world = World(tmp_path, grants=["tool", "read:src/**"])
    answers: list[str] = []

    class Tries:
        method = "tool"

        def run(self, call: Call, params: object) -> Output:
            for _ in range(2):
                try:
                    call.policy.permit("read", "secret.txt")
                    answers.append("allowed")
                except Problem as problem:
                    answers.append(problem.key)
            return {}

    world.dispatcher._connectors["tool"] = Tries()
    world.dispatcher.call_sync(HostCall("c", "", "tool", {"name": "other"}), "ext.test")
    assert answers == ["capability_denied"] * 2
    world.close()
